"""The rows of a torch dataset, read when they are needed. This file does not import torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._images import differ_in_size, joined_images
from consilience._optional import is_instance_of
from consilience.exceptions import InvalidInputError


class DatasetRows:
    """Rows of a map-style torch dataset. A part of them is again a `DatasetRows`; `read` gets the values.

    An item of the dataset is a row x, or a tuple that begins with it, such as (x, label).

    Parameters
    ----------
    dataset : torch.utils.data.Dataset
        It has a length. Its items are tensors, arrays or lists of numbers, all of one shape; or texts, or
        images (PIL, or arrays of uint8).
    places : (n,) array of int, optional
        Which items; by default all of them.
    """

    def __init__(self, dataset: Any, places: NDArray[np.intp] | None = None) -> None:
        self._dataset = dataset
        self._places = np.arange(_length(dataset)) if places is None else places
        self._row_shape: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Any]:
        return (self._row(place) for place in self._places)

    def __getitem__(self, rows: Any) -> DatasetRows:
        """Return some rows, by a slice or an array, without reading them."""
        return DatasetRows(self._dataset, np.atleast_1d(self._places[rows]))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, ...) of all rows, from the first; (n,) if they are texts."""
        if self._row_shape is None:
            self._row_shape = np.shape(self[:1].read())[1:] if len(self) else ()
        return (len(self), *self._row_shape)

    def read(self) -> Any:
        """Return the rows: a tensor (n, ...) if items are tensors, an array, or a list of texts or images."""
        places = self._places.tolist()
        together = getattr(self._dataset, "__getitems__", None)
        rows = [first_part(item) for item in together(places)] if together else [self._row(i) for i in places]
        if any(isinstance(row, str | bytes) for row in rows):
            return rows
        if differ_in_size(rows):
            return joined_images(rows)
        tensors = bool(rows) and all(is_instance_of(row, "torch", "Tensor") for row in rows)
        try:
            return sys.modules["torch"].stack(rows) if tensors else _stacked(rows)
        except (ValueError, TypeError, RuntimeError) as error:
            shapes = sorted({str(tuple(np.shape(row))) for row in rows})
            raise InvalidInputError(
                f"The items of the dataset cannot be joined to a batch; their shapes are "
                f"{', '.join(shapes[:3])} ({error}). Pad or resize them to one shape in the dataset."
            ) from error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Read all rows into memory, for models that need them there."""
        found = self.read()
        values = found.detach().cpu().numpy() if hasattr(found, "detach") else np.asarray(found)
        return np.asarray(values, dtype=dtype)

    def _row(self, place: Any) -> Any:
        return first_part(self._dataset[int(place)])


def is_dataset(X: Any) -> bool:
    """Tell whether X is a torch dataset, without importing torch."""
    return is_instance_of(X, "torch.utils.data", "Dataset")


def read_rows(X: Any) -> Any:
    """Return the values of rows of a dataset, and any other rows as they are."""
    return X.read() if isinstance(X, DatasetRows) else X


def parts_of(rows: DatasetRows, size: int = 1024) -> Iterator[Any]:
    """Read rows of a dataset part by part, in order."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size].read()


def _length(dataset: Any) -> int:
    if is_instance_of(dataset, "torch.utils.data", "IterableDataset"):
        raise InvalidInputError(
            f"X is a {type(dataset).__name__}, an IterableDataset, whose rows cannot be read by number. "
            "Teachers and epochs read the rows several times. Give a map-style Dataset, with __len__ and "
            "__getitem__."
        )
    try:
        return len(dataset)
    except TypeError:
        raise InvalidInputError(
            f"X is a {type(dataset).__name__} without a length. Give a map-style Dataset, with __len__ and "
            "__getitem__."
        ) from None


def first_part(item: Any) -> Any:
    """Return the row of an item: its first part if it is a tuple."""
    if isinstance(item, Mapping):
        raise InvalidInputError(
            f"The items of the dataset are dictionaries with the keys {', '.join(map(repr, item))}. Wrap it "
            "in a dataset whose items are the row x, or a tuple (x, ...)."
        )
    if isinstance(item, tuple):
        if not item:
            raise InvalidInputError("An item of the dataset is an empty tuple; expected x or (x, ...).")
        return item[0]
    return item


def _stacked(rows: list[Any]) -> NDArray[Any]:
    values = np.asarray(rows)
    if values.dtype.kind == "O":
        raise ValueError(f"items are {type(rows[0]).__name__}")
    return values
