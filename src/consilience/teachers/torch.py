"""Torch modules as teachers. Only functions import torch: whoever passes a module has loaded it already."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience.exceptions import InvalidInputError
from consilience.options import anything, option, takes
from consilience.teachers.base import Adapter, ModelOptions, Teacher, own_or_given, teacher_name
from consilience.teachers.fingerprints import fingerprint_of
from consilience.teachers.outputs import check_known, ensure, in_the_name_of, pool, tensor_values


class TorchOptions(ModelOptions):
    """What a torch module takes."""

    device: Any = option(
        anything("str"), "Where it runs: the module is moved there. By default where it is.", default=None
    )


class Torch(Adapter):
    """A `torch.nn.Module` that returns logits (n, k), or an output that holds them by the name ``logits``.

    Its embedding is the input of its head: the linear layer with k outputs that runs last. `embed` may name
    another layer (its output; its input with ``":input"`` at the end), or be a function of a batch.

    Examples
    --------
    >>> import torch
    >>> Torch(torch.nn.Linear(4, 2), ["cat", "dog"], name="pets", device="cpu")
    Torch('pets', classes: cat, dog)
    """

    _takes_arrays = _embeds_batches = True
    _head: Any = None  # the head in the last pass, if its input is the embedding

    @takes(TorchOptions)
    def __init__(
        self, module: Any, classes: ArrayLike | None = None, name: str | None = None, options: Any = None
    ) -> None:
        shown = teacher_name(name, type(module).__name__)
        found = own_or_given(None, classes, shown, what="a torch module")
        check_layer(module, options.embed, shown)
        with in_the_name_of(shown, "cannot run: "):
            check_device(options.device)
        super().__init__(shown, found, options, output="logits")
        self._module, self._batch_size, self._device = module, options.batch_size, options.device

    def _run(self, X: Any, rows: int, features: bool) -> tuple[Any, Any]:
        """Run the module over all rows once, and collect features along the way."""
        torch = _torch()
        if self._device is not None:
            self._module.to(self._device)
        tensors = [*self._module.parameters(), *self._module.buffers()]
        floating = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
        dtype = None if floating is None else floating.dtype
        # a module without parameters has no device of its own
        device = self._device or "cpu" if floating is None else floating.device
        scores, seen, order = np.empty((rows, len(self.classes))), list[Any](), list[NDArray[np.intp]]()
        with torch.no_grad(), Watch(self._module, self._embed, len(self.classes)) as watch:
            for places, given, named in self._batches(X, rows):
                batch = [_to_tensor(torch, value, dtype, device) for value in given]
                named = {key: _to_tensor(torch, value, dtype, device) for key, value in named.items()}
                watch.begin()
                # first, on a copy: the module may write into its input
                found = self._embed(batch[0].clone()) if features and callable(self._embed) else None
                logits = logits_of(self._module(*batch, **named))
                scores[places] = self._checked(torch, logits, len(places))
                order.append(places)
                if features:
                    seen.append(self._embedding(torch, watch, found, logits))
        if not seen or any(part is None for part in seen):
            return scores, None
        return scores, np.concatenate(seen)[np.argsort(np.concatenate(order))]

    def _batches(self, X: Any, rows: int) -> Iterator[tuple[NDArray[np.intp], Any, Any]]:
        """Yield which rows a batch has, and the module's arguments, by place and by name."""
        values = X if hasattr(X, "detach") else np.asarray(X)
        for start in range(0, rows, self._batch_size):
            part = values[start : start + self._batch_size]
            yield np.arange(start, start + len(part)), [part], {}

    def _embedding(self, torch: Any, watch: Watch, found: Any, logits: Any) -> NDArray[Any] | None:
        """Return the embedding (rows, d) of one batch, and store the head that it belongs to."""
        own, linear = watch.head_input(logits)
        if found is None:
            found = own if self._embed is None else watch.layer
        if found is None:
            return None
        what = f"that are a {type(found).__name__}"
        if isinstance(found, torch.Tensor):
            found = pool(found, channels_last=watch.channels_last if isinstance(self._embed, str) else None)
            what = f"of shape {tuple(found.shape)}"
        ensure(
            isinstance(found, torch.Tensor) and found.ndim == 2 and len(found) == len(logits),
            self.name,
            f"has embeddings {what} for {len(logits)} rows; expected a tensor ({len(logits)}, d). "
            "Give {remedy} another layer, or a function, with a row per row.",
            remedy="embed",
        )
        same = own is not None and found.shape == own.shape and bool(torch.equal(found, own.to(found)))
        self._head = watch.head if same and linear else None
        return tensor_values(found)

    def _checked(self, torch: Any, result: Any, rows: int) -> Any:
        ensure(
            isinstance(result, torch.Tensor),
            self.name,
            f"returned a {type(result).__name__}, not a tensor of logits. Wrap the module in one whose "
            "forward returns only the logits, or an output that has them as .logits or ['logits'].",
        )
        self._reader.check_shape(tuple(result.shape), rows)
        return result.to("cpu", torch.float64).numpy()

    def _embeddable(self) -> bool:
        return self._embed is not None or bool(_heads(self._module, len(self.classes)))

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The head's weights (k, d). If several layers could be the head, None before the first pass."""
        heads = [self._head] if self._head is not None else []
        if not heads and self._embed is None:
            heads = _heads(self._module, len(self.classes))
        return heads[0].weight.detach().cpu().float().numpy() if len(heads) == 1 else None

    def _model_fingerprint(self) -> str | None:
        return fingerprint_of(self._module)

    def randomised(self, seed: int) -> Teacher | None:
        """Return a teacher of the same structure with random weights, or None if embed= is a function."""
        if callable(self._embed):
            return None
        torch, twin = _torch(), copy.copy(self)
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


class Watch(ExitStack):
    """While a module runs, record the input of its head and the output of a named layer, in eval mode.

    Attributes
    ----------
    head : module or None
        The linear layer with k outputs that ran last, in order of execution, not of definition.
    layer : tensor or None
        The output (or, with ``name:input``, the input) of the named layer.
    channels_last : bool or None
        Whether the named layer has its features in the last axis, or (False) in the second. None if its type
        does not tell.
    """

    channels_last: bool | None = None

    def __init__(self, module: Any, embed: Any, n_classes: int) -> None:
        super().__init__()
        self.begin()
        if isinstance(embed, str):
            name, _, side = embed.partition(":")
            part = dict(module.named_modules())[name]
            self.channels_last = _channels_last(part)
            hook = part.register_forward_pre_hook if side else part.register_forward_hook
            self.enter_context(hook(self._see_layer))
        for part in _heads(module, n_classes):
            self.enter_context(part.register_forward_hook(self._see_head))
        owner = getattr(embed, "__self__", embed)  # a function may be a module's
        for whole in (module, owner) if isinstance(owner, _torch().nn.Module) else (module,):
            for part in whole.modules():  # each gets its own mode back
                self.callback(setattr, part, "training", part.training)
            whole.eval()

    def begin(self) -> None:
        """Forget the previous batch."""
        self.head: Any = None
        self.layer: Any = None

    def head_input(self, logits: Any) -> tuple[Any, bool]:
        """Return the features (n, d) of the head, and whether it turns them into the logits themselves.

        Of a decoder, which scores every token, they are those of the token whose scores are the logits.
        """
        if self.head is None:
            return None, False
        torch, given, output = _torch(), self._input, self._output
        if given.ndim == output.ndim == 3 and len(given) == len(logits):
            same = (output == logits[:, None]).all(dim=2)
            if bool(same.any(dim=1).all()):
                last = same.shape[1] - 1 - same.flip(1).int().argmax(dim=1)
                return given[torch.arange(len(given), device=given.device), last], True
        linear = output.shape == logits.shape and bool(torch.equal(output, logits))
        return pool(given, channels_last=True), linear

    def _see_head(self, part: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs:
            # copies, because a later step may write into them
            self.head, self._input, self._output = part, inputs[0].clone(), output.clone()

    def _see_layer(self, part: Any, inputs: tuple[Any, ...], output: Any = None) -> None:
        seen = inputs[0] if output is None and inputs else output
        self.layer = seen.clone() if hasattr(seen, "clone") else seen


def _torch() -> Any:
    return require("torch", extra="torch", purpose="A torch teacher")


def logits_of(output: Any) -> Any:
    """Return the logits in what a module returned, or `output` itself if it does not name any.

    An output names its logits by an entry ``"logits"`` (a dictionary) or an attribute ``logits`` (a
    dataclass, a named tuple, or an output of the transformers library).
    """
    if isinstance(output, Mapping):
        return output.get("logits", output)
    return getattr(output, "logits", output)


def check_device(device: Any) -> None:
    """Raise unless `device` is None, or torch knows it and the machine has it."""
    torch = require("torch", extra="torch", purpose="A torch device")
    try:
        torch.empty(0, device=device)
    except Exception as error:  # each kind of device has its own
        own = torch.accelerator
        there = f"cpu and {own.current_accelerator()}" if own.is_available() else "cpu"
        raise InvalidInputError(
            f"{{argument}} is no device of torch on this machine, which has {there}. Give one of these, or "
            "install a build of torch and a driver for that device.",
            argument="device",
            value=str(device),
        ) from error


def check_layer(module: Any, embed: Any, name: str) -> None:
    """Raise unless `embed` is None, a function or the name of a layer."""
    if embed is None or callable(embed):
        return
    ensure(
        isinstance(embed, str),
        name,
        "has {argument}; give the name of a layer (its output), 'name:input', or a function of a batch.",
        argument="embed",
        value=embed,
    )
    layers = [key for key, _ in module.named_modules() if key]
    known = [*(f"{layer}:input" for layer in layers), *layers]
    check_known(name, embed, known, "layer", "'name' means a layer's output, 'name:input' its input.")


def _heads(module: Any, n_classes: int) -> list[Any]:
    """Return the linear layers that could be the head."""
    linear = _torch().nn.Linear
    return [part for part in module.modules() if isinstance(part, linear) and part.out_features == n_classes]


def _channels_last(part: Any) -> bool | None:
    nn = _torch().nn
    if isinstance(part, nn.Linear | nn.LayerNorm | nn.Embedding):
        return True
    kinds = ("conv", "pooling", "batchnorm", "instancenorm")
    return False if type(part).__module__ in {f"torch.nn.modules.{kind}" for kind in kinds} else None


def _to_tensor(torch: Any, values: Any, dtype: Any, device: Any) -> Any:
    """Return a copy of some rows on the module's device, in its dtype unless they are integers.

    It is a copy, because a module that begins with an in-place operation would write into the user's X.
    """
    tensor = isinstance(values, torch.Tensor)
    batch = values.detach().to(device, copy=True) if tensor else torch.tensor(values, device=device)
    plain = dtype is None or not (batch.is_floating_point() or batch.dtype == torch.bool)
    return batch if plain else batch.to(dtype)
