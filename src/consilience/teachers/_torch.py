"""Gone when the folders have moved."""

from typing import Any, TypeVar

from consilience.teachers.torch import Torch as TorchTeacher

__all__ = ["TorchTeacher", "torch_teacher"]
AnyTorch = TypeVar("AnyTorch", bound=TorchTeacher)
_NAMES = (
    *("output", "embed", "columns", "fingerprint", "floor", "smoothing", "batch_size", "preprocess"),
    "device",
)


def torch_teacher(module: Any, classes: Any, name: Any, options: Any, kind: type[AnyTorch]) -> AnyTorch:
    """Make a teacher of a torch module; `kind` is its class."""
    return kind(module, classes, name, **options.of(_NAMES))
