"""What the inputs of a model are fed: values in the right type, and batches of a fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.exceptions import TeacherError
from consilience.teachers.base import summary


def fixed_batch(inputs: Sequence[Any]) -> int | None:
    """Return the number of rows that a model takes at a time, if its inputs say so."""
    sizes = {item.shape[0] for item in inputs if item.shape and isinstance(item.shape[0], int)}
    return sizes.pop() if len(sizes) == 1 and min(sizes) > 0 else None


def pad(values: NDArray[Any], rows: int) -> NDArray[Any]:
    """Repeat the last row until there are this many."""
    return np.concatenate([values, np.repeat(values[-1:], rows - len(values), axis=0)])


def plain_values(X: Any, shape: Sequence[Any]) -> NDArray[Any]:
    """Return rows as an array; one number per row is a column where an input takes columns."""
    values = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    if values.ndim == 1 and len(shape) == 2 and shape[1] in (1, None):
        values = values[:, None]
    return values


def cast(values: NDArray[Any], dtype: np.dtype[Any] | None, word: str, item: str, name: str) -> NDArray[Any]:
    """Return values in the type that an input takes, unless that would change them.

    Parameters
    ----------
    values : array
    dtype : dtype or None
        None for texts.
    word : str
        What the model calls the type, for messages.
    item, name : str
        The input and the teacher.
    """
    if dtype is None:
        if values.dtype.kind not in "OUT":
            raise TeacherError(name, f"takes text for {item!r}; X has {values.dtype}. Pass X.astype(str).")
        return values.astype(object)
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            found = values.astype(dtype, copy=False)
            exact = dtype.kind == "f" or values.dtype == dtype or bool(np.all(found == values))
    except (ValueError, TypeError) as error:
        hint = ". Give what its card calls the input, such as token ids." if values.dtype.kind in "UO" else ""
        raise TeacherError(
            name, f"takes {word} for {item!r}, and X has {values.dtype}: {summary(error)}{hint}"
        ) from error
    if not exact and dtype.kind == "b" and values.dtype.kind == "f" and np.isnan(values).any():
        raise TeacherError(
            name,
            f"takes true or false for {item!r}, and row {{row}} has neither. The model learnt from rows "
            "without gaps there: fill them.",
            row=int(np.flatnonzero(np.isnan(values).ravel())[0]),
        )
    if not exact:
        raise TeacherError(
            name,
            f"takes whole numbers ({word}) for {item!r}, and X has others. Round or encode them.",
        )
    return np.ascontiguousarray(found)
