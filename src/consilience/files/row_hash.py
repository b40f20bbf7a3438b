"""A checksum of rows by their content, so that a card can say which rows its model or scores belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._dataset_rows import DatasetRows, is_dataset
from consilience._tables import (
    as_values,
    column_names,
    columns_of,
    is_numeric,
    is_table,
    kind_of,
    read_numbers,
    read_texts,
    read_times,
)
from consilience.exceptions import ConsilienceError

_BLOCK = 2**17  # numbers that are converted at a time


def rows_sha256(X: Any) -> str | None:
    """Return the sha256 of rows, or None where rows have no plain content.

    It depends on values, not on how they are stored: whole numbers and floats of equal value have one
    checksum, and so have a .csv and a .parquet file of the same table. Named columns may come in any order.
    Rows with names differ from rows without. A torch dataset has no checksum: it may not fit in memory, and
    to read it once more may take hours.

    Parameters
    ----------
    X : array, tensor, sparse matrix, data frame or list
        n rows.

    Examples
    --------
    >>> rows_sha256(np.array([[1, 2]])) == rows_sha256(np.array([[1.0, 2.0]], dtype=np.float32))
    True
    >>> rows_sha256(np.array([[1, 2]])) == rows_sha256(np.array([[2, 1]]))
    False
    """
    if is_dataset(X) or isinstance(X, DatasetRows):
        return None
    try:
        return _digest(as_values(X))
    except (ConsilienceError, TypeError, ValueError, RuntimeError, OverflowError):
        return None  # a checksum is a service: rows without one can be learnt from all the same


def _digest(X: Any) -> str | None:
    content = hashlib.sha256()
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    if hasattr(X, "tocsr"):
        _add_sparse(content, X)
    elif is_table(X):
        names = column_names(X)
        if names is None and is_numeric(X):
            _add_numbers(content, X.to_numpy())
        elif not _add_columns(content, X, names):
            return None
    else:
        values = _as_array(X)
        if values is None:
            return None
        if values.dtype.kind in "biuf":
            _add_numbers(content, values)
        else:
            content.update(f"texts {values.shape}".encode())
            _add_texts(content, values.ravel().tolist())
    return content.hexdigest()


def _as_array(X: Any) -> NDArray[Any] | None:
    """Return rows as an array of numbers or of texts, or None."""
    if isinstance(X, list | tuple) and X and all(isinstance(row, str) for row in X):
        values = np.empty(len(X), dtype=object)
        values[:] = X
        return values
    values = np.asarray(X)
    return values if values.ndim and values.dtype.kind in "biufOU" else None


def _add_numbers(content: Any, values: NDArray[Any]) -> None:
    """Add numbers (n, ...) block by block: no copy of all of them."""
    content.update(f"numbers {values.shape}".encode())
    rows = max(1, _BLOCK // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, len(values), rows):
        block = values[start : start + rows].astype(np.float64) + 0.0  # -0.0 becomes 0.0
        block[np.isnan(block)] = np.nan  # one NaN of many
        content.update(np.ascontiguousarray(block).data if block.size else b"")


def _add_sparse(content: Any, X: Any) -> None:
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    content.update(f"sparse {rows.shape}".encode())
    for part in (rows.indptr, rows.indices, rows.data):
        _add_numbers(content, part)


def _add_columns(content: Any, frame: Any, names: NDArray[Any] | None) -> bool:
    """Add the columns of a frame, by name if they have names; False where one has no plain content."""
    order = range(frame.shape[1]) if names is None else np.argsort(names.astype(str), kind="stable").tolist()
    content.update(f"table {frame.shape}".encode())
    columns = columns_of(frame)
    for i in order:
        column = columns[i]
        name = "" if names is None else names[i]
        content.update(f"column {len(name)} {name}".encode("utf-8", "surrogatepass"))
        kind = kind_of(column)
        if kind == "other":
            return False
        if kind == "text":  # of a file that does not tell texts from numbers, they may be numbers
            from consilience.rows.csv import read_column

            column = read_column(read_texts(column, name).tolist())
            kind = kind_of(column)
        if kind == "text":
            _add_texts(content, read_texts(column, name))
        elif kind == "time":
            _add_numbers(content, read_times(column, name))
        else:
            _add_numbers(content, read_numbers(column, name))
    return True


def _add_texts(content: Any, texts: Iterable[Any]) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise TypeError("no text")
        data = text.encode("utf-8", "surrogatepass")
        content.update(len(data).to_bytes(8, "little"))
        content.update(data)
