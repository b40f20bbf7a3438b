"""What rows are like, and whether they fit what a model takes, without running it."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience._words import counted, shorten
from consilience.repository.entry import ModelEntry
from consilience.rows.tables import as_values, differ_in_size, holds_images, is_numeric, is_table
from consilience.teachers.inputs import Input
from consilience.teachers.outputs import tensor_values


def plain_rows(X: Any) -> Any:
    """Return rows as `as_values` gives them, and a tensor as an array."""
    rows = as_values(X)
    return tensor_values(rows) if hasattr(rows, "detach") else rows


def look_at(X: Any) -> tuple[str, tuple[int, ...], str]:
    """Return what plain rows are ("table", "images" of several sizes, "texts", "array" or "other"), their
    shape, and the kind of their numbers.
    """
    if is_table(X):
        return "table", tuple(X.shape), "f" if is_numeric(X) else "O"
    if isinstance(X, list | tuple) and X and all(isinstance(row, str) for row in X):
        return "texts", (len(X),), "U"
    if differ_in_size(X):
        return "images", (), ""
    try:
        values = X if hasattr(X, "shape") else np.asarray(X)
    except (ValueError, TypeError, RuntimeError, OverflowError):  # ragged rows; a tensor's gradient
        return "other", (), ""
    shape, kind = tuple(map(int, values.shape)), getattr(getattr(values, "dtype", None), "kind", "")
    texts = kind in ("U", "T") or (kind == "O" and all(isinstance(row, str) for row in values.ravel()))
    return "texts" if texts and len(shape) == 1 and shape[0] else "array", shape, kind


def misfit(entry: ModelEntry, X: Any) -> str:
    """Say why rows do not fit a model; an empty text where they do, or where the model does not say.

    Parameters
    ----------
    entry : ModelEntry
    X : array, sparse matrix, data frame or list
        n rows in memory.
    """
    X = plain_rows(X)
    takes = shown_inputs(entry)
    if takes == "images":
        pixels = getattr(X, "dtype", None) == np.uint8 and len(X.shape) in (3, 4)
        return "" if pixels or holds_images(X) else "takes images, and X holds other rows"
    if entry.inputs is None:
        return ""
    what, shape, kind = look_at(X)
    if what == "table":
        return _table_misfit(entry, entry.inputs, X)
    if what == "images":
        return f"takes {takes}, and X has images of several sizes"
    if what == "texts":
        return "" if takes == "texts" else f"takes {takes}, and X holds texts"
    if what == "other":
        return f"takes {takes}, and X cannot be read as an array"
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
    inputs = entry.inputs or ()
    if "size" in entry.preprocess or [one.dtype for one in inputs] == ["image"]:
        return "images"
    if len(inputs) != 1:
        return counted(len(entry.column_kinds or inputs), "column") if inputs else "unknown"
    if inputs[0].dtype == "text":
        return "texts"
    sizes = ["n", *("?" if size is None else str(size) for size in inputs[0].shape[1:])]
    return f"{inputs[0].dtype} ({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _array_misfit(one: Input, shape: tuple[int, ...], kind: str) -> str:
    wanted = one.shape
    fits = len(wanted) == len(shape) and all(
        size is None or size == got for size, got in zip(wanted[1:], shape[1:], strict=True)
    )
    if not fits or one.dtype == "text":
        return f"takes {one.dtype} rows of shape {wanted[1:]}, and X has rows of shape {shape[1:]}"
    whole = kind == "f" and "int" in one.dtype
    return f"takes {one.dtype}, and X holds other values" if kind not in "biuf" or whole else ""


def _table_misfit(entry: ModelEntry, inputs: tuple[Input, ...], X: Any) -> str:
    names = [str(name) for name in X.columns]
    wanted = entry.feature_names or ([one.name for one in inputs] if len(inputs) > 1 else None)
    if wanted is not None:
        missing = [name for name in wanted if name not in names]
        extra = [name for name in names if name not in wanted] if entry.feature_names else []
        differ = shorten([*missing, *extra], 5)
        return f"takes other columns than X has: {differ}" if missing or extra else ""
    if inputs[0].dtype == "text":
        return "takes texts, and X is a table"
    if not is_numeric(X):
        return "takes numbers, and X has columns that hold none"
    return _array_misfit(inputs[0], tuple(X.shape), "f")
