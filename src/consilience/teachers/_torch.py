"""Torch modules as teachers. Imports torch only inside functions: a module proves that it is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from consilience._optional import require
from consilience.exceptions import TeacherError
from consilience.teachers._base import Adapter, Options, Teacher, given_classes


class TorchTeacher(Adapter):
    """A module that returns logits (n, k)."""

    _module: Any
    _batch_size: int
    _device: str | None

    def _scores(self, X: Any, rows: int) -> Any:
        torch = require("torch", extra="torch", purpose="A torch teacher")
        if self._device is not None:
            self._module.to(self._device)
        parameter = _first_floating(self._module)
        dtype = None if parameter is None else parameter.dtype
        # a module without parameters has no place of its own
        device = parameter.device if parameter is not None else self._device or "cpu"
        values = X if isinstance(X, torch.Tensor) else np.asarray(X)
        scores = np.empty((rows, len(self.classes)))
        with torch.no_grad(), _eval_mode(self._module):
            for start in range(0, rows, self._batch_size):
                part = slice(start, start + self._batch_size)
                result = self._module(_to_tensor(torch, values[part], dtype, device))
                scores[part] = self._checked(torch, result, min(rows - start, self._batch_size))
        return scores

    def _checked(self, torch: Any, result: Any, rows: int) -> Any:
        if not isinstance(result, torch.Tensor):
            raise TeacherError(
                self.name,
                f"returned a {type(result).__name__}, not a tensor of logits. "
                "Wrap the module in one whose forward returns the logits alone.",
            )
        expected = (rows, len(self.classes))
        if tuple(result.shape) != expected:
            # the reader words the complaint; a wrong shape would not fit the rows kept for it
            self._reader.read(result, rows)
        return result.to("cpu", torch.float64).numpy()


def torch_teacher(module: Any, classes: ArrayLike | None, name: str | None, options: Options) -> Teacher:
    """Make a teacher of a torch module."""
    shown = name or type(module).__name__
    found = given_classes(classes, shown, "a torch module")
    output = "logits" if options.output == "auto" else options.output
    teacher = TorchTeacher(shown, found, output, options.floor)
    teacher._module, teacher._batch_size, teacher._device = module, options.batch_size, options.device
    return teacher


def _to_tensor(torch: Any, values: Any, dtype: Any, device: Any) -> Any:
    """Return a copy of some rows on the module's device, in its dtype unless they are integers.

    A copy, because a module that begins with an in-place operation would write into the user's X.
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
    """Put a module into eval mode and give each submodule its own mode back, whatever happens."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
