"""Some rows of a source, read when they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._dataset_rows import DatasetRows, parts_of
from consilience._validation import take_rows
from consilience.rows.rows import Rows


class SourceRows(DatasetRows):
    """Some rows of a source. A part of them is again a `SourceRows`; `read` gets the values.

    Parameters
    ----------
    source : Rows
    places : (n,) array of int
        Which rows. They are read fastest in ascending order: the last block is remembered.
    """

    def __init__(self, source: Rows, places: NDArray[np.intp]) -> None:
        super().__init__(source if isinstance(source, RecentBlock) else RecentBlock(source), places)
        self._row_shape = source.shape[1:]

    def __iter__(self) -> Iterator[Any]:
        for part in parts_of(self):
            yield from part

    def __getitem__(self, rows: Any) -> SourceRows:
        """Return some rows, by a slice or an array, without reading them."""
        return SourceRows(self._dataset, np.atleast_1d(self._places[rows]))

    def read(self) -> Any:
        """Return the rows as the source gives them: an array, a data frame or a list."""
        order = np.argsort(self._places, kind="stable")
        found = self._dataset.take(self._places[order])
        if (np.diff(order) == 1).all():
            return found
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return take_rows(found, back)


class RecentBlock(Rows):
    """A source that remembers the block it has read last."""

    def __init__(self, source: Rows) -> None:
        self._source, self.borders, self.local = source, source.borders, source.local
        self.head = source.head
        self._last: tuple[int, Any] = (-1, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return RecentBlock, (self._source,)  # another process reads for itself

    def read(self, block: int) -> Any:
        """Return the rows of one block."""
        if self._last[0] != block:
            self._last = (-1, None)  # first, so that two are never in memory
            self._last = block, self._source.read(block)
        return self._last[1]
