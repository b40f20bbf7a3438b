"""The rows of a torch student as tensors: all at once, or read from a dataset batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from consilience._dataset_rows import DatasetRows
from consilience._validation import n_rows
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.rows.tables import as_values as plain_rows

Preprocess = Callable[[Any], Any]
CHECKED = 1024
"""Rows of a dataset that are read at once for the mean and scale of columns."""


class LazyRows(Dataset[Tensor]):
    """Rows of a dataset as tensors, which are read, preprocessed and checked when they are asked for.

    Parameters
    ----------
    rows : DatasetRows
    preprocess : callable, optional
        Applied to the values of some rows.
    dtype : torch.dtype, optional
        Of the result; by default as `as_tensor` chooses.
    """

    def __init__(
        self, rows: DatasetRows, preprocess: Preprocess | None, dtype: torch.dtype | None = None
    ) -> None:
        self._rows, self._preprocess = rows, preprocess
        first = self._tensor(slice(0, 1))
        self.shape = (len(rows), *first.shape[1:])
        self.dtype = dtype or first.dtype
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> Tensor:
        """Return a row by its number, or some by a slice or by their numbers."""
        if isinstance(rows, int):
            return self[rows : rows + 1][0]
        return self._tensor(rows if isinstance(rows, slice) else np.asarray(rows)).to(self.dtype)

    def __getitems__(self, rows: list[int]) -> Tensor:
        return self[np.asarray(rows)]

    def _tensor(self, rows: Any) -> Tensor:
        try:
            return prepared(self._rows[rows].read(), self._preprocess)
        except InvalidInputError as error:
            if error.row is None:
                raise
            raise error.changed(row=int(np.arange(len(self))[rows][error.row])) from None


def student_rows(
    X: Any, preprocess: Preprocess | None = None, dtype: torch.dtype | None = None
) -> Tensor | LazyRows:
    """Return X as the tensor (n, ...) that a module takes, or as `LazyRows` if it is a dataset."""
    X = plain_rows(X)
    if isinstance(X, DatasetRows) and len(X):
        return LazyRows(X, preprocess, dtype)
    rows = prepared(X, preprocess)
    return rows if dtype is None else rows.to(dtype)


def prepared(X: Any, preprocess: Preprocess | None) -> Tensor:
    """Return rows in memory as a tensor (n, ...), after `preprocess`."""
    if preprocess is None:
        return as_tensor(X)
    found = preprocess(X)
    if isinstance(found, Mapping):
        raise InvalidInputError(
            f"preprocess returned a {type(found).__name__} with the keys {', '.join(map(repr, found))}; "
            "expected one array or tensor, such as found['input_ids']. The module can make a mask from it."
        )
    if isinstance(found, Sequence) and len({np.shape(row) for row in found}) > 1:
        raise InvalidInputError(
            "preprocess returned rows of different lengths; pad or cut them to one length."
        )
    rows = as_tensor(found, "preprocess(X)")
    if len(rows) != n_rows(X):
        raise InvalidInputError(
            f"preprocess returned {counted(len(rows), 'row')} for {counted(n_rows(X), 'row')} of X; expected "
            "one for each."
        )
    return rows


def batches(rows: Tensor | LazyRows, size: int, num_workers: int = 0) -> Iterator[Tensor]:
    """Yield rows in order, `size` at a time."""
    if isinstance(rows, Tensor):
        yield from torch.split(rows, size)
    else:
        # a generator of its own, because a loader draws a seed, and training is not to depend on that
        yield from DataLoader(
            rows,
            batch_size=size,
            collate_fn=as_is,
            num_workers=num_workers,
            generator=torch.Generator(),
        )


def as_is(batch: Any) -> Any:
    """Return a batch as a dataset made it."""
    return batch


def as_tensor(X: Any, where: str = "X") -> Tensor:
    """Return X as a tensor (n, ...) of float32 or int64, or say what is wrong with it."""
    if hasattr(X, "toarray"):
        raise InvalidInputError(
            f"{where} is a sparse matrix; a torch module needs a dense array: X.toarray()."
        )
    rows = X.detach().cpu() if isinstance(X, Tensor) else _from_numpy(np.asarray(X), where)
    if rows.ndim < 2:
        raise InvalidInputError(
            f"{where} has shape {tuple(rows.shape)}; expected two dimensions or more, (n, ...)."
        )
    if not rows.is_floating_point() and rows.dtype != torch.bool:
        return rows.to(torch.int64)
    rows = rows.to(torch.float32)
    bad = ~rows.isfinite().flatten(1).all(dim=1)
    if bool(bad.any()):
        raise InvalidInputError(
            f"{where} is not finite in row {{row}} ({counted(int(bad.sum()), 'such row')}). "
            "Fill missing values first.",
            row=int(bad.nonzero()[0]),
        )
    return rows


def _from_numpy(values: NDArray[Any], where: str) -> Tensor:
    if values.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"{where} has entries of type {values.dtype}; a torch module needs numbers. "
            "Network({remedy}) takes a function that makes them, such as a tokenizer.",
            remedy="preprocess",
        )
    # torch has few unsigned types, and warns about read-only arrays.
    kind = np.float32 if values.dtype.kind in "bf" else np.int64
    return torch.from_numpy(np.require(values, dtype=kind, requirements=["C", "W"]))
