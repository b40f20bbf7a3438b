"""Digests of rows, by which a store recognises a row."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._dataset_rows import DatasetRows, parts_of
from consilience._images import differ_in_size
from consilience.teachers.outputs import tensor_values

SIZE = 16
# cells whose repr is their content
_CELLS = (str, bytes, int, float, complex, bool, type(None), datetime.date, datetime.time, datetime.timedelta)


def row_digests(X: Any) -> NDArray[np.uint64] | None:
    """Return a digest (n, 2) of 128 bits of each row's content, or None where rows have no plain content.

    Two rows with the same digest are the same to every model: the same values in the same type and shape
    (arrays, tensors), the same text, the same stored entries (sparse matrices), or the same cells under the
    same columns (data frames; their index does not count). The same values in another type are another row.

    Parameters
    ----------
    X : array, tensor, sparse matrix, data frame, list, images or rows of a dataset
        n rows. A dataset is read in parts.

    Examples
    --------
    >>> digests = row_digests(np.array([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]))
    >>> digests.shape, bool((digests[0] == digests[2]).all()), bool((digests[0] == digests[1]).any())
    ((3, 2), True, False)
    """
    if isinstance(X, DatasetRows):
        found = [row_digests(part) for part in parts_of(X)]
        known = [part for part in found if part is not None]
        return np.concatenate(known) if known and len(known) == len(found) else None
    if hasattr(X, "detach"):
        try:
            X = tensor_values(X)
        except (RuntimeError, TypeError):  # of a layout or on a device that has no plain content
            return None
    if hasattr(X, "tocsr"):
        return _of_sparse(X)
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        return _of_frame(X) if hasattr(X, "iloc") else _of_columns(X)
    if differ_in_size(X):  # an image has one digest, whether or not others have its size
        return np.concatenate([_of_array(np.asarray(image)[None]) for image in X])
    if not isinstance(X, np.ndarray):
        X = _as_array(X)
    if X is None or X.ndim == 0:
        return None
    if X.dtype.kind in "OUT":
        return _of_cells(X.tolist(), f"cells {X.ndim}")
    return _of_array(X)


def _of_array(X: NDArray[Any]) -> NDArray[np.uint64]:
    rows = np.ascontiguousarray(X)
    width = rows.nbytes // len(rows) if len(rows) else 0
    head = f"array {rows.dtype.str} {rows.shape[1:]}"
    if width == 0:
        return _joined(b"" for _ in range(len(rows)))
    content = rows.reshape(-1).view(np.uint8).data
    key = blake2b(head.encode(), digest_size=32).digest()
    return _array(
        [
            blake2b(content[i : i + width], digest_size=SIZE, key=key).digest()
            for i in range(0, len(content), width)
        ]
    )


def _of_sparse(X: Any) -> NDArray[np.uint64]:
    rows = X.tocsr(copy=True)
    rows.sum_duplicates()  # and sorts the columns of each row
    head = f"sparse {rows.dtype.str} {rows.shape[1]}".encode()
    places, values = rows.indices.astype(np.int64), np.ascontiguousarray(rows.data)
    borders = rows.indptr.tolist()
    return _joined(head + places[a:b].tobytes() + values[a:b].tobytes() for a, b in pairwise(borders))


def _of_frame(X: Any) -> NDArray[np.uint64] | None:
    types = [str(kind) for kind in X.dtypes]
    head = f"frame {list(map(str, X.columns))} {types}"
    if len(set(types)) == 1 and X.dtypes.iloc[0].__class__.__module__.startswith("numpy"):
        values = X.to_numpy()
        if values.dtype.kind in "biuf":
            found = _of_array(values)
            return _joined(head.encode() + row.tobytes() for row in found)
    columns = [X.iloc[:, i].tolist() for i in range(X.shape[1])]
    return _of_cells(list(zip(*columns, strict=True)), head)


def _of_columns(X: Any) -> NDArray[np.uint64] | None:
    """Digest a polars-like frame column by column, since one array would give all columns one type."""
    head = f"columns {list(map(str, X.columns))} {list(map(str, X.dtypes))}"
    columns = [X[name].to_list() for name in X.columns]
    return _of_cells(list(zip(*columns, strict=True)), head)


def _of_cells(rows: list[Any], head: str) -> NDArray[np.uint64] | None:
    texts = []
    for row in rows:
        cells = [row] if not isinstance(row, list | tuple) else row
        if not all(isinstance(cell, _CELLS) or _is_missing(cell) for cell in _flat(cells)):
            return None
        texts.append(f"{head}\0{row!r}".encode("utf-8", "surrogatepass"))
    return _joined(texts)


def _flat(cells: Iterable[Any]) -> Iterable[Any]:
    for cell in cells:
        if isinstance(cell, list | tuple):
            yield from _flat(cell)
        else:
            yield cell


def _is_missing(cell: Any) -> bool:
    return type(cell).__name__ in ("NAType", "NaTType")


def _as_array(X: Any) -> NDArray[Any] | None:
    """Return a list of texts, or of equally long lists, as an array that keeps the type of each cell."""
    if not isinstance(X, list | tuple):
        X = X.to_numpy() if hasattr(X, "to_numpy") else X
        return X if isinstance(X, np.ndarray) else None
    if all(isinstance(row, str) for row in X):
        texts = np.empty(len(X), dtype=object)
        texts[:] = X
        return texts
    # one array for cells of several types would turn numbers into text, and booleans into numbers
    kinds = {getattr(cell, "dtype", type(cell)) for cell in _flat(X)}
    try:
        return np.asarray(X) if len(kinds) <= 1 or np.asarray(X).dtype.kind == "O" else np.array(X, object)
    except (ValueError, TypeError, RuntimeError):  # rows that differ in length, or are no arrays to numpy
        return None


def _joined(contents: Iterable[bytes]) -> NDArray[np.uint64]:
    return _array([blake2b(content, digest_size=SIZE).digest() for content in contents])


def _array(digests: list[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2).astype(np.uint64, copy=False)
