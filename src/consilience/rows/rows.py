"""Rows: whatever X is, in blocks that are read one by one, so that they need not fit in memory."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from consilience._dataset_rows import DatasetRows, read_rows
from consilience._images import holds_images
from consilience._sizes import size_text
from consilience._tables import as_values, is_table
from consilience._validation import n_rows, take_rows
from consilience.exceptions import InvalidInputError
from consilience.rows.memory import memory_budget
from consilience.run import Run

BLOCK_ROWS = 2**14
"""Most rows of a block."""
BLOCK_BYTES = 2**26
"""A block is cut to about this size where rows are large."""
SAMPLED_BLOCKS = 32
"""Blocks from which random rows are drawn."""
LOOKED_AT = 64
"""Rows that show how large a row is."""


class Block(NamedTuple):
    """Some rows that follow each other.

    Attributes
    ----------
    number : int
        Which block of the source.
    rows : slice
        Their positions in the source.
    X : array, data frame, list, ...
        The rows.
    """

    number: int
    rows: slice
    X: Any


class Rows(ABC):
    """Rows in blocks. Every pass finds the same blocks, in whatever order it reads them.

    They can be sent to another process: they hold paths and positions, and read when they are asked.

    Attributes
    ----------
    borders : (b + 1,) array of int
        Where each block begins, and the number of rows.
    local : bool
        Whether the rows lie in this process, or in files that only this machine has.
    held : bool
        Whether the rows lie in memory already.
    on_ray : bool
        Whether a Ray cluster holds the rows.
    option : str
        What named the rows, for messages.
    """

    borders: NDArray[np.int64]
    local: bool = False
    held: bool = False
    on_ray: bool = False
    option: str = "X"

    @abstractmethod
    def read(self, block: int) -> Any:
        """Return the rows of one block, by its number."""

    @property
    def stretches(self) -> Sequence[range]:
        """Blocks that are best read one after the other; in between, any order is as quick."""
        return [range(i, i + 1) for i in range(self.n_blocks)]

    def __len__(self) -> int:
        return int(self.borders[-1])

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return len(self.borders) - 1

    @cached_property
    def head(self) -> Any:
        """The first few rows: they show of what kind the rows are."""
        return take_rows(self.read(0), slice(0, LOOKED_AT)) if len(self) else []

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, ...) of all rows; (n,) if they are texts."""
        return (len(self), *np.shape(self.head)[1:])

    @property
    def kind(self) -> Literal["array", "sparse", "table", "texts", "images"]:
        """Of what kind the rows are; "array" is also a list of rows of numbers, and a tensor."""
        if is_table(self.head):
            return "table"
        if issparse(self.head):
            return "sparse"
        if holds_images(self.head):
            return "images"
        texts = len(self) > 0 and all(isinstance(row, str) for row in self.head[:1])
        return "texts" if texts else "array"

    @property
    def given(self) -> Any:
        """X itself where the rows lie in memory already, else these rows."""
        return self

    @property
    def n_bytes(self) -> int:
        """About how much memory all rows would take."""
        return round(bytes_of(self.head) / max(1, n_rows(self.head)) * len(self))

    def rows_of(self, block: int) -> slice:
        """Return the positions of a block's rows."""
        return slice(int(self.borders[block]), int(self.borders[block + 1]))

    def blocks(self, numbers: Iterable[int] | None = None) -> Iterator[Block]:
        """Read some blocks, one by one; by default all, in order."""
        for number in range(self.n_blocks) if numbers is None else numbers:
            yield Block(number, self.rows_of(number), self.read(number))

    def take(self, rows: NDArray[np.intp]) -> Any:
        """Return some rows, by their positions in ascending order. Only their blocks are read."""
        found = np.searchsorted(self.borders, rows, side="right") - 1
        parts = [
            take_rows(self.read(int(block)), rows[found == block] - int(self.borders[block]))
            for block in np.unique(found)
        ]
        return join_rows(parts) if parts else take_rows(self.head, slice(0, 0))

    def __getitem__(self, rows: NDArray[np.intp]) -> Any:
        """Return some rows, as an array does."""
        return self.take(rows)

    def sample_rows(self, count: int, seed: int = 0) -> NDArray[np.intp]:
        """Return the positions of random rows, in order; all, if there are fewer.

        They come from a few random blocks: rows all over a file would mean to read all of it.
        """
        if len(self) <= count:
            return np.arange(len(self))
        random = np.random.default_rng(seed)
        few = random.choice(self.n_blocks, min(self.n_blocks, SAMPLED_BLOCKS), replace=False)
        places = np.concatenate([np.arange(self.borders[i], self.borders[i + 1]) for i in np.sort(few)])
        return np.sort(random.choice(places, min(count, len(places)), replace=False))

    def all(self, run: Run | None) -> Any:
        """Return all rows, in memory; raise where they take more than `run` allows. None allows anything."""
        budget = None if run is None else memory_budget(run)
        if budget is not None and self.n_bytes > budget:
            raise InvalidInputError(
                f"This needs all rows in memory: {self.option} has {len(self):,} rows of about "
                f"{size_text(self.n_bytes)}, and memory is {size_text(budget)}. Give fewer rows, or more."
            )
        return join_rows([block.X for block in self.blocks()])


class HeldRows(Rows):
    """Rows that lie in memory and can be taken by position: an array, a data frame, a list, a torch dataset.

    Parameters
    ----------
    X : array, sparse matrix, data frame, list or torch dataset
        n rows.
    held : bool
        Whether they count as lying in memory: those of a temporary file that is mapped do not.
    rows_of_a_block : int, optional
        By default, what makes a block of a stated size.
    """

    local = True

    def __init__(self, X: Any, *, held: bool = True, rows_of_a_block: int | None = None) -> None:
        self._X, self.held, self._size = as_values(X), held, rows_of_a_block
        self._n_rows = n_rows(self._X)

    @cached_property
    def borders(self) -> NDArray[np.int64]:  # type: ignore[override]
        """Where each block begins, and the number of rows."""
        few = _values(take_rows(self._X, slice(0, min(LOOKED_AT, self._n_rows))))
        return cut([self._n_rows], self._size or block_rows(bytes_of(few), n_rows(few)))

    def __len__(self) -> int:
        return self._n_rows

    @property
    def given(self) -> Any:
        """X itself, if it lies in memory."""
        return self._X if self.held else self

    def read(self, block: int) -> Any:
        """Return the rows of one block."""
        return _values(take_rows(self._X, self.rows_of(block)))

    def all(self, run: Run | None) -> Any:
        """Return all rows: they are in memory already, unless a dataset has to be read."""
        return super().all(run) if isinstance(self._X, DatasetRows) or not self.held else self._X


class SomeRows(Rows):
    """Some rows of others.

    Parameters
    ----------
    rows : Rows
    places : (n,) array of int
        Their positions, in ascending order.
    """

    def __init__(self, rows: Rows, places: NDArray[np.intp]) -> None:
        self._rows, self._places, self.option = rows, places, rows.option
        self.borders = cut([len(places)], int(np.diff(rows.borders).max(initial=1)))

    def read(self, block: int) -> Any:
        """Return the rows of one block."""
        return self._rows.take(self._places[self.rows_of(block)])


def block_rows(n_bytes: int, rows: int) -> int:
    """Return how many rows make a block, if so many rows take so many bytes: a power of two."""
    most = max(1, int(BLOCK_BYTES * max(1, rows) / max(1, n_bytes)))
    return min(BLOCK_ROWS, 1 << (most.bit_length() - 1))


def cut(counts: Sequence[int], size: int) -> NDArray[np.int64]:
    """Return the borders of blocks of up to `size` rows, none of them over the end of a file.

    Examples
    --------
    >>> cut([5, 2], 4).tolist()
    [0, 4, 5, 7]
    """
    borders, start = [0], 0
    for count in counts:
        borders += [start + stop for stop in [*range(size, count, size), count] if stop]
        start += count
    return np.array(borders, dtype=np.int64)


def join_rows(parts: Sequence[Any]) -> Any:
    """Return parts of rows as one: arrays, sparse matrices, data frames, tensors or lists."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if isinstance(first, list | tuple):
        return [row for part in parts for row in part]
    if hasattr(first, "iloc"):
        return sys.modules["pandas"].concat(parts, ignore_index=True)
    if hasattr(first, "detach"):
        return sys.modules["torch"].cat(list(parts))
    if issparse(first):
        return vstack(parts, format="csr")
    if hasattr(first, "vstack") and hasattr(first, "columns"):  # polars
        return sys.modules["polars"].concat(parts)
    return np.concatenate(parts)


def bytes_of(X: Any) -> int:
    """Return about how much memory rows take."""
    if hasattr(X, "memory_usage"):
        return int(np.sum(X.memory_usage(index=False, deep=True)))
    if hasattr(X, "estimated_size"):  # polars
        return int(X.estimated_size())
    if issparse(X):
        X = X.tocsr()
        return int(X.data.nbytes + X.indices.nbytes)
    if isinstance(X, list | tuple):
        return sum(getattr(row, "nbytes", 0) or sys.getsizeof(row) for row in X)
    return int(getattr(X, "nbytes", 0))


def _values(X: Any) -> Any:
    """Return the values of rows of a dataset or of a memory-mapped file, and other rows as they are."""
    rows = read_rows(X)
    return np.array(rows) if isinstance(rows, np.memmap) else rows
