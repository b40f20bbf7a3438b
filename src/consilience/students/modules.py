"""Modules of networks: the default one, one made by a factory, the paper's VGG4; and any as ONNX."""

from __future__ import annotations

import copy
import inspect
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from consilience._optional import require
from consilience._validation import check_count
from consilience.exceptions import InvalidInputError
from consilience.files.graph import OPSET, PURPOSE
from consilience.teachers.torch import logits_of


class Standardize(nn.Module):
    """Subtract a mean and divide by a scale. Both were computed once and are saved with the weights.

    Parameters
    ----------
    mean, scale : tensors
        Broadcast against the input.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    @classmethod
    def of(cls, X: Tensor) -> Standardize:
        """Compute mean and scale per column of (n, d), or per channel (axis 1) of (n, c, ...)."""
        axes = [axis for axis in range(X.ndim) if axis != 1]
        variance, mean = torch.var_mean(X.float(), dim=axes, correction=0, keepdim=True)
        scale = variance.sqrt()
        # A column that is constant up to rounding is only centred.
        return cls(mean[0], torch.where(scale > 1e-6 * mean.abs(), scale, 1.0)[0])

    def forward(self, X: Tensor) -> Tensor:
        """Return the standardized input, as floats."""
        return (X.to(self.mean.dtype) - self.mean) / self.scale


def default_module(
    X: Any,
    n_classes: int,
    *,
    hidden: Sequence[int] = (256, 256),
    dropout: float = 0.1,
    standardize: bool = True,
) -> nn.Sequential:
    """Make a multilayer perceptron for tables and embeddings. Images are flattened.

    Parameters
    ----------
    X : (n, ...) array or tensor
        The rows to train on; they give the shape, and the mean and scale of each feature.
    n_classes : int
        Number of logits, L.
    hidden : sequence of int
        Widths of the hidden layers.
    dropout : float
        Probability of dropping a hidden unit during training.
    standardize : bool
        Whether to begin with `Standardize`.

    Examples
    --------
    >>> import numpy as np
    >>> default_module(np.ones((5, 2, 3)), 4, hidden=(8,))(torch.ones(7, 2, 3)).shape
    torch.Size([7, 4])
    """
    check_count("n_classes", n_classes)
    rows = torch.as_tensor(X)
    layers: list[nn.Module] = [Standardize.of(rows)] if standardize else []
    layers.append(nn.Flatten())
    width = math.prod(rows.shape[1:])
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(dropout)]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, n_classes))


def call_factory(factory: Callable[..., Any], n_features: int, n_classes: int) -> nn.Module:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # a builtin has no signature
        parameters = {}.values()
    given = {"n_features": n_features, "n_classes": n_classes}
    named = {p.name: given[p.name] for p in parameters if p.name in given and p.kind != p.POSITIONAL_ONLY}
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    try:
        module = factory(*given.values()) if not named and len(required) == 2 else factory(**named)
    except TypeError as error:
        raise InvalidInputError(
            f"The module factory failed ({error}). It takes n_features and n_classes, or nothing."
        ) from error
    if not isinstance(module, nn.Module):
        raise InvalidInputError(f"The module factory returned a {type(module).__name__}, not a torch module.")
    return module


def check_output(module: nn.Module, rows: Tensor, n_classes: int) -> None:
    """Run two rows through the module. This also sets up lazy layers before the optimiser sees them."""
    example = rows[:2]
    module.eval()  # so that batch statistics stay as they are
    try:
        with torch.no_grad():
            output = logits_of(module(example))
    except Exception as error:
        hint = (
            " Integer X stays int64, for embeddings; give floats otherwise."
            if rows.dtype == torch.int64
            else ""
        )
        raise InvalidInputError(
            f"The module {type(module).__name__} failed on rows of shape {tuple(example.shape)} and type "
            f"{example.dtype}: {error}.{hint}"
        ) from error
    if not isinstance(output, Tensor) or tuple(output.shape) != (len(example), n_classes):
        got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
        raise InvalidInputError(
            f"The module {type(module).__name__} gave {got} for {len(example)} rows; "
            f"expected logits of shape ({len(example)}, {n_classes}), or an output that has them as .logits "
            "or ['logits']."
        )


class _Column(NamedTuple):
    """One column of Table 8."""

    image: tuple[int, int, int]  # channels, height, width
    widths: tuple[int, ...]  # of the convolutions
    stride: int
    side: int  # of the image that the linear layer sees


_COLUMNS = (
    _Column((1, 28, 28), (64, 128, 256, 512), 1, 3),
    _Column((3, 32, 32), (32, 64, 128, 256), 1, 4),
    _Column((3, 96, 96), (128, 256, 512, 1024), 2, 1),
)


class VGG4(nn.Module):
    """Four convolutions and a linear layer, as in Table 8 of the collision paper.

    Each convolution (5 x 5, padding 2) is followed by batch normalisation and ReLU, and all but the last by
    max-pooling. The class itself is a factory: ``CollisionClustering(10, model=VGG4)`` makes the network for
    the images it is given.

    Parameters
    ----------
    n_features : int
        Values per image. They determine its kind: 784 (grey, 28 x 28), 3,072 (colour, 32 x 32) or 27,648
        (colour, 96 x 96).
    n_classes : int
        Number of logits, K.

    Examples
    --------
    >>> import torch
    >>> VGG4(784, 10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        check_count("n_classes", n_classes)
        column = {math.prod(one.image): one for one in _COLUMNS}.get(n_features)
        if column is None:
            raise InvalidInputError(
                f"VGG4 has no layers for {n_features} values per image; give grey images of 28 x 28 (784), "
                "or colour ones of 32 x 32 (3072) or 96 x 96 (27648)."
            )
        self.image = column.image
        layers: list[nn.Module] = []
        width = column.image[0]
        for i, size in enumerate(column.widths):
            layers += [nn.MaxPool2d(2)] if i else []
            layers += [
                # no bias: the normalisation after it has one
                nn.Conv2d(width, size, 5, stride=column.stride, padding=2, bias=False),
                nn.BatchNorm2d(size),
                nn.ReLU(),
            ]
            width = size
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.classify = nn.Linear(width * column.side**2, n_classes)

    def forward(self, X: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, c, h, w), or of the same values in any other shape (n, ...)."""
        if X.ndim == 4 and tuple(X.shape[1:]) != tuple(self.image):
            # channels last, for example, would be scrambled silently
            raise InvalidInputError(
                f"VGG4 got images of shape {tuple(X.shape[1:])}; expected {tuple(self.image)}: "
                "(channels, height, width)."
            )
        # not len(X), which would fix the number of rows in an exported model
        images = X.reshape(X.shape[0], *self.image).to(self.classify.weight.dtype)
        logits: Tensor = self.classify(self.features(images))
        return logits


class LogitsOnly(nn.Module):
    """A module that returns only the logits of another one, for what takes no other outputs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, X: Tensor) -> Any:
        """Return the logits (n, L)."""
        return logits_of(self.module(X))


def module_to_onnx(module: nn.Module, X_example: Tensor) -> Any:
    """Export `module` with one input ``X`` of any number of rows and one output ``logits``.

    Parameters
    ----------
    module : torch.nn.Module
        Copied to the CPU and set to eval mode first.
    X_example : (n, ...) tensor
        At least one row.
    """
    require("onnx", extra="onnx", purpose=PURPOSE)
    require("onnxscript", extra="onnx", purpose=PURPOSE)
    if len(X_example) == 0:
        raise InvalidInputError("X_example has no rows; an export needs one.")
    copied = copy.deepcopy(module).cpu().eval()
    # The exporter would take a batch of one row as a constant.
    example = X_example[:1].repeat(2, *[1] * (X_example.ndim - 1))
    try:
        with torch.no_grad():
            named = not isinstance(copied(example), Tensor)
        with _quiet():
            program = torch.onnx.export(
                LogitsOnly(copied).eval() if named else copied,
                (example,),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                external_data=False,
                input_names=["X"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("n")},),
            )
    except Exception as error:  # the exporter's errors have no common base
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
        raise InvalidInputError(
            f"The module {type(module).__name__} cannot be exported to ONNX ({reason}). "
            "torch.export must be able to trace it for any number of rows."
        ) from error
    return program.model_proto if program is not None else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's notes about itself: a missing torchvision, its own deprecated calls."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*LeafSpec.*deprecated", category=FutureWarning)
            warnings.filterwarnings("ignore", module=r"(torch|onnxscript|onnx_ir)\.")
            yield
    finally:
        logger.setLevel(level)
