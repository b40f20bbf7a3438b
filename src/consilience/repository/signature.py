"""Whether rows fit what a model takes, without running it."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience._images import differ_in_size, holds_images
from consilience._tables import is_numeric, is_table
from consilience._words import counted, shorten
from consilience.repository.entry import ModelEntry
from consilience.repository.numbers import plain_rows
from consilience.teachers.inputs import Input


def misfit(entry: ModelEntry, X: Any) -> str:
    """Say why rows do not fit a model; an empty text where they do, or where the model does not say.

    Parameters
    ----------
    entry : ModelEntry
    X : array, sparse matrix, data frame or list
        n rows in memory.
    """
    X = plain_rows(X)
    if "size" in entry.preprocess or _takes(entry, "image"):
        return "" if _images(X) else "takes images, and X holds other rows"
    if entry.inputs is None:
        return ""
    if differ_in_size(X):
        return f"takes {shown_inputs(entry)}, and X has images of several sizes"
    if is_table(X):
        return _table_misfit(entry, X)
    if _texts(X):
        return "" if _takes(entry, "text") else f"takes {shown_inputs(entry)}, and X holds texts"
    shape, kind = getattr(X, "shape", None), getattr(getattr(X, "dtype", None), "kind", "")
    if shape is None:
        try:
            values = np.asarray(X)
        except (ValueError, TypeError, RuntimeError, OverflowError):  # ragged rows; a tensor's gradient
            return f"takes {shown_inputs(entry)}, and X cannot be read as an array"
        shape, kind = values.shape, values.dtype.kind
    shape = tuple(int(size) for size in shape)
    if entry.column_kinds:  # an input per column: arrays are taken by position
        width = len(entry.column_kinds)
        return "" if len(shape) == 2 and shape[1] == width else f"takes a table of {width} columns"
    if len(entry.inputs) > 1:
        return f"takes {len(entry.inputs)} named inputs, and X has no names"
    return _array_misfit(entry.inputs[0], shape, kind)


def shown_inputs(entry: ModelEntry) -> str:
    """Return what a model takes, in words.

    Examples
    --------
    >>> shown_inputs(ModelEntry("a", ("x",), "a.onnx", {}, (Input("X", "float32", (None, 64)),)))
    'float32 (n, 64)'
    """
    if "size" in entry.preprocess or _takes(entry, "image"):
        return "images"
    if entry.inputs is None:
        return "unknown"
    if len(entry.inputs) > 1:
        return counted(len(entry.column_kinds or entry.inputs), "column")
    one = entry.inputs[0]
    if one.dtype == "text":
        return "texts"
    sizes = ["n", *("?" if size is None else str(size) for size in one.shape[1:])]
    return f"{one.dtype} ({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _array_misfit(one: Input, shape: tuple[int, ...], kind: str) -> str:
    wanted = one.shape
    sizes = len(wanted) == len(shape) and all(
        size is None or size == got for size, got in zip(wanted[1:], shape[1:], strict=True)
    )
    if not sizes or one.dtype == "text":
        return f"takes {one.dtype} rows of shape {wanted[1:]}, and X has rows of shape {shape[1:]}"
    if kind not in "biuf" or (kind == "f" and "int" in one.dtype):
        return f"takes {one.dtype}, and X holds other values"
    return ""


def _table_misfit(entry: ModelEntry, X: Any) -> str:
    names = [str(name) for name in X.columns]
    if entry.feature_names is not None:
        missing = [name for name in entry.feature_names if name not in names]
        extra = [name for name in names if name not in entry.feature_names]
        found = f"takes other columns than X has: {shorten([*missing, *extra], 5)}"
        return found if missing or extra else ""
    inputs = entry.inputs or ()
    if len(inputs) > 1:
        missing = [one.name for one in inputs if one.name not in names]
        return f"takes the columns {shorten(missing, 5)}, which X lacks" if missing else ""
    if inputs[0].dtype == "text":
        return "takes texts, and X is a table"
    if not is_numeric(X):
        return "takes numbers, and X has columns that hold none"
    return _array_misfit(inputs[0], tuple(X.shape), "f")


def _images(X: Any) -> bool:
    return holds_images(X) or (getattr(X, "dtype", None) == np.uint8 and len(X.shape) in (3, 4))


def _texts(X: Any) -> bool:
    if isinstance(X, list | tuple):
        return bool(X) and all(isinstance(row, str) for row in X)
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    return kind in ("U", "T") or (
        kind == "O" and getattr(X, "ndim", 0) == 1 and all(isinstance(row, str) for row in X)
    )


def _takes(entry: ModelEntry, dtype: str) -> bool:
    return entry.inputs is not None and len(entry.inputs) == 1 and entry.inputs[0].dtype == dtype
