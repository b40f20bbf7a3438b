"""Torch modules as teachers. Only functions import torch: whoever passes a module has loaded it already."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import n_rows
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.options import anything, option, takes
from consilience.teachers._networks import check_device, logits_of
from consilience.teachers.base import Adapter, ModelOptions, Teacher, own_or_given, teacher_name
from consilience.teachers.outputs import pool


class TorchOptions(ModelOptions):
    """What a torch module takes."""

    device: Any = option(
        anything("str"), "Where it runs: the module is moved there. By default where it is.", default=None
    )


class Torch(Adapter):
    """A `torch.nn.Module` that returns logits (n, k), or an output that holds them by the name ``logits``.

    Its embedding is the input of its head: the linear layer with k outputs that runs last. `embed` may name
    another layer (its output; its input with ``":input"`` at the end), or be a function of a batch.
    """

    _takes_arrays = True
    _head: Any = None  # the head in the last pass, if its input is the embedding

    @takes(TorchOptions)
    def __init__(
        self, module: Any, classes: ArrayLike | None = None, name: str | None = None, options: Any = None
    ) -> None:
        shown = teacher_name(name, type(module).__name__)
        found = own_or_given(None, classes, shown, what="a torch module")
        check_layer(module, options.embed, shown)
        if options.device is not None:
            check_runs_on(options.device, shown)
        super().__init__(shown, found, options, output="logits" if options.output == "auto" else None)
        self._module, self._batch_size, self._device = module, options.batch_size, options.device

    def _run(self, X: Any, rows: int, *, scores: bool, features: bool) -> tuple[Any, Any]:
        """Run the module over all rows once, and collect features along the way."""
        torch = require("torch", extra="torch", purpose="A torch teacher")
        if self._device is not None:
            self._module.to(self._device)
        parameter = _first_floating(self._module)
        dtype = None if parameter is None else parameter.dtype
        # a module without parameters has no device of its own
        device = parameter.device if parameter is not None else self._device or "cpu"
        result = np.empty((rows, len(self.classes)))
        seen: list[tuple[Any, Any]] = []
        with torch.no_grad(), ExitStack() as stack:
            for module in _modules(torch, self._module, self._embed):
                stack.enter_context(_eval_mode(module))
            watch = stack.enter_context(Watch(torch, self._module, self._embed, len(self.classes)))
            for places, given, named in self._batches(torch, X, rows):
                batch = [_to_tensor(torch, value, dtype, device) for value in given]
                named = {key: _to_tensor(torch, value, dtype, device) for key, value in named.items()}
                watch.begin()
                # first, on a copy: the module may write into its input
                found = self._embed(batch[0].clone()) if features and callable(self._embed) else None
                logits = logits_of(self._module(*batch, **named))
                result[places] = self._checked(torch, logits, len(places))
                if features:
                    watch.end(logits)
                    seen.append((places, self._embedding(torch, watch, found, len(places))))
        if not seen or any(part is None for _, part in seen):
            return result, None
        embeddings = np.empty((rows, seen[0][1].shape[1]), seen[0][1].numpy().dtype)
        for places, part in seen:
            embeddings[places] = part
        return result, embeddings

    def _batches(self, torch: Any, X: Any, rows: int) -> Iterator[tuple[NDArray[np.intp], Any, Any]]:
        """Yield which rows a batch has, and the module's arguments, by place and by name."""
        values = X if isinstance(X, torch.Tensor) else np.asarray(X)
        for start in range(0, rows, self._batch_size):
            stop = min(start + self._batch_size, rows)
            yield np.arange(start, stop), [values[start:stop]], {}

    def _embedding(self, torch: Any, watch: Watch, found: Any, rows: int) -> Any:
        """Return the embedding (rows, d) of one batch on the CPU, and store the head that it belongs to."""
        if found is None:
            found = watch.layer if self._embed is not None else watch.features
        if found is None:
            return None
        if not isinstance(found, torch.Tensor):
            raise TeacherError(
                self.name,
                f"has embeddings that are a {type(found).__name__}, not a tensor. "
                "Give {remedy} another layer, or a function.",
                remedy="embed",
            )
        found = pool(found, channels_last=watch.channels_last if isinstance(self._embed, str) else None)
        if found.ndim != 2 or len(found) != rows:
            raise TeacherError(
                self.name,
                f"has embeddings of shape {tuple(found.shape)} for {rows} rows; expected ({rows}, d). "
                "Give {remedy} a layer, or a function of the batch, that returns a row of features per row.",
                remedy="embed",
            )
        own = watch.features
        same = own is not None and found.shape == own.shape and bool(torch.equal(found, own.to(found)))
        self._head = watch.head if same and watch.linear else None
        # numpy has no bfloat16; float32 holds every half-precision number
        return found.detach().to("cpu", torch.float32 if found.itemsize < 8 else torch.float64)

    def _checked(self, torch: Any, result: Any, rows: int) -> Any:
        if not isinstance(result, torch.Tensor):
            raise TeacherError(
                self.name,
                f"returned a {type(result).__name__}, not a tensor of logits. "
                "Wrap the module in one whose forward returns only the logits, or an output that has "
                "them as .logits or ['logits'].",
            )
        expected = (rows, len(self.classes))
        if tuple(result.shape) != expected:
            # the reader raises the error
            self._reader.read(result, rows)
        return result.to("cpu", torch.float64).numpy()

    def _embeddable(self) -> bool:
        return self._embed is not None or bool(self._heads())

    def _heads(self) -> list[Any]:
        """Return the linear layers that could be the head."""
        torch = require("torch", extra="torch", purpose="A torch teacher")
        return [part for part in self._module.modules() if _is_head(torch, part, len(self.classes))]

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The head's weights (k, d). If several layers could be the head, None before the first pass."""
        head = self._head
        if head is None and self._embed is None:
            candidates = self._heads()
            head = candidates[0] if len(candidates) == 1 else None
        return None if head is None else head.weight.detach().cpu().float().numpy()

    def find_head(self, X: Any) -> None:
        """Run one row if only a pass shows the head, as when outputs came from a store."""
        if self.class_weights is None and self._embeddable() and n_rows(X):
            self.observe(X[:1])

    def _model_fingerprint(self) -> str | None:
        """Hash the module: its tensors and attributes, and the code of its classes."""
        from consilience.teachers.fingerprints import fingerprint_of

        return fingerprint_of(self._module)

    def randomised(self, seed: int) -> Teacher | None:
        """Return a teacher of the same structure with random weights, or None if embed= is a function."""
        torch = require("torch", extra="torch", purpose="A torch teacher")
        if callable(self._embed):
            return None
        twin = copy.copy(self)
        twin._module, twin._head = copy.deepcopy(self._module), None
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            for part in twin._module.modules():
                if hasattr(part, "reset_parameters"):
                    part.reset_parameters()
                else:
                    for parameter in part.parameters(recurse=False):
                        parameter.normal_(std=0.02)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        # the copy finds its head again
        return {key: value for key, value in self.__dict__.items() if key != "_head"}


class Watch:
    """Hooks that record, while a module runs, the input of its head and the output of a named layer.

    Attributes
    ----------
    head : module or None
        The linear layer with k outputs that ran last, in order of execution, not of definition.
    features : (n, d) tensor or None
        The input of the head.
    layer : tensor or None
        The output (or, with ``name:input``, the input) of the named layer.
    linear : bool
        Whether the head turns the features into the logits, and not into a part of them.
    channels_last : bool or None
        Whether the named layer has its features in the last axis, or (False) in the second. None if its type
        does not tell.
    """

    def __init__(self, torch: Any, module: Any, embed: Any, n_classes: int) -> None:
        self._torch, self._module, self._k = torch, module, n_classes
        self._name = embed if isinstance(embed, str) else None
        self._handles: list[Any] = []
        self.channels_last: bool | None = None
        self.begin()

    def begin(self) -> None:
        """Forget the previous batch."""
        self.head: Any = None
        self._scores: Any = None
        self.features: Any = None
        self.layer: Any = None
        self.linear = False

    def end(self, logits: Any) -> None:
        """Find the features of the head. Of a decoder, which scores every token, they are those of one."""
        given, output = self.features, self._scores
        if self.head is None:
            return
        self.linear = output.shape == logits.shape and bool(self._torch.equal(output, logits))
        if given.ndim == output.ndim == 3 and len(given) == len(logits):
            same = (output == logits[:, None]).all(dim=2)
            if bool(same.any(dim=1).all()):
                last = same.shape[1] - 1 - same.flip(1).int().argmax(dim=1)
                self.features = given[self._torch.arange(len(given), device=given.device), last]
                self.linear = True
        self.features = pool(self.features, channels_last=True)

    def __enter__(self) -> Watch:
        for part in self._module.modules():
            if _is_head(self._torch, part, self._k):
                self._handles.append(part.register_forward_hook(self._see_head))
        if self._name is not None:
            name, _, side = self._name.partition(":")
            part = dict(self._module.named_modules())[name]
            self.channels_last = _channels_last(self._torch, part)
            hook = part.register_forward_pre_hook if side else part.register_forward_hook
            self._handles.append(hook(self._see_layer))
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _see_head(self, part: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs:
            # copies, because a later step may write into them
            self.head, self.features, self._scores = part, inputs[0].clone(), output.clone()

    def _see_layer(self, part: Any, inputs: tuple[Any, ...], output: Any = None) -> None:
        seen = inputs[0] if output is None and inputs else output
        self.layer = seen.clone() if isinstance(seen, self._torch.Tensor) else seen


def check_runs_on(device: Any, name: str) -> None:
    """Raise in the teacher's name unless torch knows this device and the machine has it."""
    try:
        check_device(device)
    except InvalidInputError as error:
        raise TeacherError(name, f"cannot run: {error.message}").changed(**error.data) from error


def check_layer(module: Any, embed: Any, name: str) -> None:
    """Raise unless `embed` is None, a function or the name of a layer."""
    if embed is None or callable(embed):
        return
    layers = [key for key, _ in module.named_modules() if key]
    if not isinstance(embed, str):
        raise TeacherError(
            name,
            "has {argument}; give the name of a layer (its output), 'name:input', or a function of a batch.",
            argument="embed",
            value=embed,
        )
    layer, colon, side = embed.partition(":")
    if layer not in layers or (colon and side != "input"):
        near = difflib.get_close_matches(layer, layers, n=3, cutoff=0.3) or layers[-3:]
        raise TeacherError(
            name,
            f"has no layer {embed!r}; it has, for example, {', '.join(map(repr, near)) or 'none'}. "
            "'name' means a layer's output, 'name:input' its input.",
        )


def _is_head(torch: Any, part: Any, n_classes: int) -> bool:
    return isinstance(part, torch.nn.Linear) and part.out_features == n_classes


def _channels_last(torch: Any, part: Any) -> bool | None:
    if isinstance(part, torch.nn.Linear | torch.nn.LayerNorm | torch.nn.Embedding):
        return True
    kinds = ("conv", "pooling", "batchnorm", "instancenorm")
    return False if type(part).__module__ in {f"torch.nn.modules.{kind}" for kind in kinds} else None


def _modules(torch: Any, module: Any, embed: Any) -> list[Any]:
    """Return the modules that must be in eval mode: the teacher, and its embedding if that is a module."""
    owner = getattr(embed, "__self__", embed)
    return [module, owner] if isinstance(owner, torch.nn.Module) else [module]


def _to_tensor(torch: Any, values: Any, dtype: Any, device: Any) -> Any:
    """Return a copy of some rows on the module's device, in its dtype unless they are integers.

    It is a copy, because a module that begins with an in-place operation would write into the user's X.
    """
    if isinstance(values, torch.Tensor):
        batch = values.detach().to(device, copy=True)
    else:
        batch = torch.tensor(values, device=device)
    if dtype is not None and (batch.is_floating_point() or batch.dtype == torch.bool):
        batch = batch.to(dtype)
    return batch


def _first_floating(module: Any) -> Any:
    for tensors in (module.parameters(), module.buffers()):
        for tensor in tensors:
            if tensor.is_floating_point():
                return tensor
    return None


@contextmanager
def _eval_mode(module: Any) -> Iterator[None]:
    """Put a module into eval mode; at the end, restore the mode of each submodule, also after an error."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
