"""What the inputs of a model are fed: columns in order, values in the right type, batches of a fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._words import size_text
from consilience.exceptions import TeacherError, shown
from consilience.rows.tables import PURPOSE, Kind, as_values, column_names, column_values, in_order, is_table
from consilience.teachers.outputs import ensure, in_the_name_of, summary

_MOST_ROWS, _MOST_BYTES = 2**16, 2**30  # of a batch that is filled up
KINDS = {*get_args(Kind), "unused"}


@dataclass(frozen=True)
class Input:
    """What a model takes.

    Attributes
    ----------
    name : str
    dtype : str
        Such as ``"float32"``; ``"text"`` for texts, ``"image"`` for images of any size.
    shape : tuple of int or None
        None where any length will do, such as that of a batch.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]


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
        with in_the_name_of(teacher, "cannot read X: "):
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
        shape: Any = X.shape if is_table(X) else np.shape(X)
        expected = f"takes a table of {len(self.kinds)} columns, and X has"
        ensure(len(shape) == 2, teacher, f"{expected} shape {shape}. Give X as a data frame.")
        ensure(shape[-1] == len(self.kinds), teacher, f"{expected} {shape[-1]}.")
        if not is_table(X):
            frames = require("pandas", extra="tables", purpose=PURPOSE)
            X = frames.DataFrame(np.asarray(X)).infer_objects()
        with in_the_name_of(teacher, "cannot read X: "):
            return column_values(X, self.kinds)


def feed(inputs: Sequence[Input], columns: Columns, X: Any, name: str) -> dict[str, NDArray[Any]]:
    """Return what the inputs of a model are fed, by name, for rows whose columns are in its order."""
    fed = {}
    for item, values in zip(inputs, columns.values(X, name) or [X], strict=True):
        plain, known = plain_values(values, item.shape), item.dtype != "unknown"
        ensure(known, name, f"takes a type for {item.name!r} that is not supported.")
        dtype = None if item.dtype == "text" else np.dtype(item.dtype)
        fed[item.name] = cast(plain, dtype, item.dtype, item.name, name)
    return fed


def fixed_batch(inputs: Sequence[Input], name: str) -> int | None:
    """Return the number of rows that a model takes at a time, if its inputs say so."""
    sizes = {item.shape[0] or 0 for item in inputs if item.shape}
    fixed = max(sizes) if len(sizes) == 1 else 0
    # a stranger says so, and we fill the batch up
    ensure(fixed <= _MOST_ROWS, name, f"takes {fixed} rows at a time; expected at most {_MOST_ROWS}.")
    return fixed or None


def pad(values: NDArray[Any], rows: int, name: str) -> NDArray[Any]:
    """Repeat the last row until there are this many."""
    fits = (rows - len(values)) * values[-1:].nbytes <= _MOST_BYTES
    ensure(fits, name, f"takes more rows at a time than fit in {size_text(_MOST_BYTES)}: {rows} of X.")
    return np.concatenate([values, np.repeat(values[-1:], rows - len(values), axis=0)])


def plain_values(X: Any, shape: Sequence[Any]) -> NDArray[Any]:
    """Return rows as an array; one number per row is a column where an input takes columns."""
    values = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    if values.ndim == 2 and len(shape) == 1 and values.shape[1] == 1:
        return np.asarray(values[:, 0])
    column = values.ndim == 1 and len(shape) == 2 and shape[1] in (1, None)
    return np.asarray(values[:, None] if column else values)


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
        ensure(
            values.dtype.kind in "OUT",
            name,
            f"takes text for {item!r}; X has {values.dtype}. Pass X.astype(str).",
        )
        return values.astype(object)
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            found = values.astype(dtype, copy=False)
            kept = np.ones(1, bool) if dtype.kind == "f" or values.dtype == dtype else found == values
    except (ValueError, TypeError) as error:
        hint = ". Give what its card calls the input, such as token ids." if values.dtype.kind in "UO" else ""
        raise TeacherError(
            name, f"takes {word} for {item!r}, and X has {values.dtype}: {summary(error)}{hint}"
        ) from error
    missing = np.flatnonzero(np.isnan(values)) if dtype.kind == "b" and values.dtype.kind == "f" else ()
    if len(missing):
        raise TeacherError(
            name,
            f"takes true or false for {shown(item)}, and row {{row}} has neither. The model learnt from rows "
            "without gaps there: fill them.",
            row=next(iter(missing)),
        )
    ensure(
        np.all(kept),
        name,
        f"takes whole numbers ({word}) for {item!r}, and X has others. Round or encode them.",
    )
    return np.ascontiguousarray(found)
