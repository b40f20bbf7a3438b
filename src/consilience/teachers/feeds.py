"""What the inputs of a model are fed: columns in order, values in the right type, batches of a fixed size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._tables import PURPOSE, Kind, as_values, column_names, column_values, in_order, is_table
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.teachers.base import summary

KINDS = {*get_args(Kind), "unused"}


@dataclass(frozen=True)
class Columns:
    """Columns in the order of the model's matrix, or of its inputs.

    Attributes
    ----------
    names : list of str or None
    kinds : list of str or None
        What each column holds, where the model has an input for each; ``"unused"`` has none.
    others : bool
        Whether a table may have other columns, too.
    """

    names: list[str] | None = None
    kinds: list[str] | None = None
    others: bool = False

    def in_order(self, X: Any, teacher: str) -> Any:
        """Return X with its columns in the order of the model; rows without names are taken by position."""
        X = as_values(X)
        with _named(teacher):
            found = None if self.names is None else column_names(X)
            if found is None or self.names is None:
                return X
            if self.others:
                X = X[[name for name in found if name in self.names]]
            return in_order(X, self.names, "it")

    def values(self, X: Any, teacher: str) -> list[NDArray[Any]] | None:
        """Return what each input is fed, (n, 1); None where the model has not an input for each column."""
        if self.kinds is None:
            return None
        width = len(self.kinds)
        if not is_table(X):
            values = np.asarray(X)
            if values.ndim != 2:
                raise TeacherError(
                    teacher,
                    f"takes a table of {width} columns, and X has shape {values.shape}. "
                    "Give X as a data frame.",
                )
            X = require("pandas", extra="tables", purpose=PURPOSE).DataFrame(values).infer_objects()
        if X.shape[1] != width:
            raise TeacherError(teacher, f"takes a table of {width} columns, and X has {X.shape[1]}.")
        with _named(teacher):
            return column_values(X, self.kinds)


@contextmanager
def _named(teacher: str) -> Iterator[None]:
    """Say which teacher cannot read X."""
    try:
        yield
    except InvalidInputError as error:
        raise TeacherError(teacher, f"cannot read X: {error.message}").changed(**error.data) from error


def fixed_batch(inputs: Sequence[Any]) -> int | None:
    """Return the number of rows that a model takes at a time, if its inputs say so."""
    sizes = {item.shape[0] for item in inputs if item.shape and isinstance(item.shape[0], int)}
    return sizes.pop() if len(sizes) == 1 and min(sizes) > 0 else None


def pad(values: NDArray[Any], rows: int) -> NDArray[Any]:
    """Repeat the last row until there are this many."""
    missing = np.repeat(values[-1:], rows - len(values), axis=0)
    return np.concatenate([values, missing]) if len(missing) else values


def plain_values(X: Any, shape: Sequence[Any]) -> NDArray[Any]:
    """Return rows as an array; one number per row is a column where an input takes columns."""
    values = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    if values.ndim == 2 and len(shape) == 1 and values.shape[1] == 1:
        values = values[:, 0]
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
