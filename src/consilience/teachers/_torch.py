"""Gone when the folders have moved."""

from typing import Any

from consilience.teachers.torch import Torch as TorchTeacher

__all__ = ["TorchTeacher", "torch_teacher"]


def torch_teacher(module: Any, classes: Any, name: Any, options: Any, kind: Any = TorchTeacher) -> Any:
    """Make a teacher of a torch module; `kind` is its class."""
    names = (
        "output",
        "embed",
        "columns",
        "fingerprint",
        "floor",
        "smoothing",
        "batch_size",
        "preprocess",
        "device",
    )
    return kind(module, classes, name, **options.of(names))
