"""Digests of rows, by which a store recognises a row."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.rows.tables import columns_of, differ_in_size, is_numeric, is_table
from consilience.teachers.outputs import tensor_values

SIZE = 16
# cells whose repr is their content
_CELLS = (str, bytes, int, float, complex, bool, type(None), datetime.date, datetime.time, datetime.timedelta)
_MISSING = ("NAType", "NaTType")


def row_digests(X: Any) -> NDArray[np.uint64] | None:
    """Return a digest (n, 2) of 128 bits of each row's content, or None where rows have no plain content.

    Two rows with the same digest are the same to every model: the same values in the same type and shape
    (arrays, tensors), the same text, the same stored entries (sparse matrices), or the same cells under the
    same columns (data frames; their index does not count). The same values in another type are another row.

    Parameters
    ----------
    X : array, tensor, sparse matrix, data frame, list or images
        n rows.

    Examples
    --------
    >>> digests = row_digests(np.array([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]))
    >>> digests.shape, bool((digests[0] == digests[2]).all()), bool((digests[0] == digests[1]).any())
    ((3, 2), True, False)
    """
    if hasattr(X, "detach"):
        try:
            X = tensor_values(X)
        except (RuntimeError, TypeError):  # of a layout or on a device that has no plain content
            return None
    if hasattr(X, "tocsr"):
        return _of_sparse(X)
    if is_table(X):
        return _of_table(X)
    if differ_in_size(X):  # an image has one digest, whether or not others have its size
        return np.concatenate([_of_array(np.asarray(image)[None]) for image in X])
    X = _as_array(X)
    if X is None or X.ndim == 0:
        return None
    return _of_cells(X.tolist(), f"cells {X.ndim}") if X.dtype.kind in "OUT" else _of_array(X)


def _of_array(X: NDArray[Any], about: str = "array") -> NDArray[np.uint64]:
    rows = np.ascontiguousarray(X)
    width = rows.nbytes // max(1, len(rows))
    if width == 0:
        return _digests([b""] * len(rows))
    content = rows.reshape(-1).view(np.uint8).data
    parts = (content[i : i + width] for i in range(0, len(content), width))
    return _digests(parts, f"{about} {rows.dtype.str} {rows.shape[1:]}")


def _of_sparse(X: Any) -> NDArray[np.uint64]:
    rows = X.tocsr(copy=True)
    rows.sum_duplicates()  # and sorts the columns of each row
    places, values = rows.indices.astype(np.int64), np.ascontiguousarray(rows.data)
    parts = (places[a:b].tobytes() + values[a:b].tobytes() for a, b in pairwise(rows.indptr.tolist()))
    return _digests(parts, f"sparse {rows.dtype.str} {rows.shape[1]}")


def _of_table(X: Any) -> NDArray[np.uint64] | None:
    """Digest a table; one array would give all columns one type, unless they have one."""
    about = f"table {list(map(str, X.columns))} {list(map(str, X.dtypes))}"
    if len(set(map(str, X.dtypes))) == 1 and is_numeric(X):
        values = X.to_numpy()
        if values.dtype.kind in "biuf":
            return _of_array(values, about)
    return _of_cells(list(zip(*(column.to_list() for column in columns_of(X)), strict=True)), about)


def _of_cells(rows: list[Any], about: str) -> NDArray[np.uint64] | None:
    """Digest cells by their repr, if that is their content."""
    if not all(isinstance(cell, _CELLS) or type(cell).__name__ in _MISSING for cell in _flat(rows)):
        return None
    return _digests([repr(row).encode("utf-8", "surrogatepass") for row in rows], about)


def _flat(cells: Iterable[Any]) -> Iterable[Any]:
    for cell in cells:
        if isinstance(cell, list | tuple):
            yield from _flat(cell)
        else:
            yield cell


def _as_array(X: Any) -> NDArray[Any] | None:
    """Return rows as an array that keeps the type of each cell; None where that cannot be."""
    if not isinstance(X, list | tuple):
        X = X.to_numpy() if hasattr(X, "to_numpy") else X
        return X if isinstance(X, np.ndarray) else None
    if all(isinstance(row, str) for row in X):
        return np.array([*X, None], dtype=object)[:-1]
    # one array for cells of several types would turn numbers into text, and booleans into numbers
    kinds = {getattr(cell, "dtype", type(cell)) for cell in _flat(X)}
    try:
        return np.asarray(X) if len(kinds) <= 1 or np.asarray(X).dtype.kind == "O" else np.array(X, object)
    except (ValueError, TypeError, RuntimeError):  # rows that differ in length, or are no arrays to numpy
        return None


def _digests(contents: Iterable[Any], about: str = "") -> NDArray[np.uint64]:
    """Return the digest of each content, keyed by what it is."""
    key = blake2b(about.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    found = b"".join([blake2b(content, digest_size=SIZE, key=key).digest() for content in contents])
    return np.frombuffer(found, dtype="<u8").reshape(-1, 2).astype(np.uint64, copy=False)
