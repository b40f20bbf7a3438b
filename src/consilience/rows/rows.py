"""Rows: whatever X is, in blocks that are read one by one, so that they need not fit in memory."""

from __future__ import annotations

import glob
import importlib
import math
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import issparse, vstack

from consilience._words import parse_size, size_text
from consilience.exceptions import InvalidInputError
from consilience.rows.tables import as_values, holds_images, is_instance_of, is_table
from consilience.run import Run

BLOCK_ROWS = 2**14
"""Most rows of a block."""
BLOCK_BYTES = 2**26
"""A block is cut to about this size where rows are large."""
SAMPLED_BLOCKS = 32
"""Blocks from which random rows are drawn."""
LOOKED_AT = 64
"""Rows that show how large a row is."""
SHARE_OF_MACHINE = 0.25
"""By default, work may take this share of the memory."""
SHARE_OF_BUDGET = 1 / 8
"""Of the memory that work may take, for one array: several are there at once, and copies of parts."""

_HOMES = {  # what opens rows that lie elsewhere
    ("torch.utils.data", "Dataset"): "datasets",
    ("torch.utils.data", "DataLoader"): "datasets",
    ("ray.data", "Dataset"): "datasets",
    ("pyarrow.dataset", "Dataset"): "arrow",
    ("datasets", "Dataset"): "arrow",
    ("datasets", "DatasetDict"): "arrow",
    ("datasets", "IterableDataset"): "arrow",
}


class Block(NamedTuple):
    """Some rows that follow each other: the number of the block, their positions, and the rows X."""

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
    names : list of str or None
        The columns of files that name them.
    """

    borders: NDArray[np.int64]
    local: bool = False
    held: bool = False
    on_ray: bool = False
    option: str = "X"
    names: list[str] | None = None

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
        if isinstance(self.head, list | tuple) and holds_images(self.head):
            return "images"
        return "texts" if len(self) and isinstance(self.head[0], str) else "array"

    @property
    def given(self) -> Any:
        """X itself where the rows lie in memory already, else these rows."""
        return self.all(None) if self.held else self

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

    def __getitem__(self, rows: Any) -> Any:
        """Return some rows, as an array does, by positions in ascending order or by a slice."""
        return self.take(np.arange(len(self))[rows] if isinstance(rows, slice) else rows)

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
    """Rows that lie in memory and can be taken by position: an array, a data frame, a list.

    Parameters
    ----------
    X : array, sparse matrix, data frame or list
        n rows.
    held : bool
        Whether they count as lying in memory: those of a temporary file that is mapped do not.
    rows_of_a_block : int, optional
        By default, what makes a block of a stated size.
    """

    local = True

    def __init__(self, X: Any, *, held: bool = True, rows_of_a_block: int | None = None) -> None:
        self._X, self.held = as_values(X), held
        count, few = n_rows(self._X), take_rows(self._X, slice(0, LOOKED_AT))
        self.borders = cut([count], rows_of_a_block or block_rows(bytes_of(few), n_rows(few)))

    def read(self, block: int) -> Any:
        """Return the rows of one block; those of a mapped file in memory."""
        rows = take_rows(self._X, self.rows_of(block))
        return np.array(rows) if isinstance(rows, np.memmap) else rows

    def all(self, run: Run | None) -> Any:
        """Return all rows."""
        return self._X if self.held else super().all(run)


def as_rows(X: Any, option: str = "X") -> Rows:
    """Return whatever X is as `Rows`, to be read block by block; a small array is one block.

    Parameters
    ----------
    X : array, data frame, list, path, list of paths, dataset, iterator of batches, or Rows
        A path names a file, a folder of files, or several by a pattern such as ``"rows/*.parquet"``. A
        dataset is one of Arrow, Hugging Face, Ray or torch.
    option : str
        What named it, for messages.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/rows.npy", np.zeros((1000, 4), dtype=np.float32))
    >>> len(as_rows(f"{folder}/rows.npy"))
    1000
    >>> as_rows(np.eye(3)).n_blocks
    1
    """
    if isinstance(X, Rows):
        return X
    if isinstance(X, str) and X and not _names_files(X):
        raise InvalidInputError(
            f"X is a single text, {X[:80]!r}; give a list of texts. If it is meant as a path: there is "
            "no file or folder of this name."
        )
    several = isinstance(X, list | tuple) and any(isinstance(path, os.PathLike) for path in X)
    if several or isinstance(X, os.PathLike) or (isinstance(X, str) and X):
        from consilience.rows.files import open_files

        return open_files(X, option)
    home = next((home for kind, home in _HOMES.items() if is_instance_of(X, *kind)), None)
    if home is None and hasattr(X, "__next__") and hasattr(X, "__iter__"):
        home = "datasets"
    opener = HeldRows if home is None else importlib.import_module(f"consilience.rows.{home}").open_rows
    rows: Rows = opener(X)
    rows.option = option
    return rows


def _names_files(text: str) -> bool:
    try:
        return Path(text).exists() or bool(glob.glob(text, recursive=True))
    except (OSError, ValueError):  # no name at all: too long, or with a zero byte
        return False


def rows_that_fit(
    X: Any, first: NDArray[np.bool_], run: Run, seed: int, most_others: int | None = None
) -> tuple[Any, NDArray[np.intp] | None]:
    """Return rows in memory: those that are wanted first, and as many random others as fit.

    Parameters
    ----------
    X : rows or Rows
    first : (n,) array of bool
        Rows to take before others, such as those with a label.
    run : Run
        A quarter of its memory is for the rows.
    seed : int
    most_others : int, optional
        Most other rows, if not all rows fit.

    Returns
    -------
    rows : array, data frame or list
    places : (k,) array of int or None
        Their positions, in order; None if these are all.
    """
    if not isinstance(X, Rows):
        return X, None
    most = max(1, int(memory_budget(run) / 4 * len(X) / max(1, X.n_bytes)))
    if len(X) <= most:
        return X.all(None), None
    random = np.random.default_rng(seed)
    chosen = random.permutation(np.flatnonzero(first))[:most]
    room = min(most - len(chosen), len(X) if most_others is None else most_others)
    places = np.sort(np.concatenate([chosen, random.permutation(np.flatnonzero(~first))[:room]]))
    return X.take(places), places


def memory_budget(run: Run) -> int:
    """Return how many bytes work may take: what `run` says, or by default a quarter of the machine.

    Examples
    --------
    >>> from consilience.run import Run
    >>> memory_budget(Run(memory="2GB"))
    2000000000
    """
    if run.memory is not None:
        return parse_size("memory", run.memory)
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else [2**33]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of the container, of either version
        try:
            limits.append(int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return int(SHARE_OF_MACHINE * min(limits))


def new_array(shape: tuple[int, ...], run: Run, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array of zeros to fill: in memory, or mapped from a file where that takes too much.

    Examples
    --------
    >>> from consilience.run import Run
    >>> type(new_array((3, 2), Run())).__name__, type(new_array((1000, 2), Run(memory="10KB"))).__name__
    ('ndarray', 'memmap')
    """
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    return np.zeros(shape, dtype) if n_bytes <= SHARE_OF_BUDGET * memory_budget(run) else mapped(shape, dtype)


def mapped(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros in a file without a name: it is gone with the array, also after a crash."""
    with tempfile.TemporaryFile() as file:
        if hasattr(os, "posix_fallocate"):  # a disk that is full later would end the process
            with growing():
                os.posix_fallocate(file.fileno(), 0, math.prod(shape) * np.dtype(dtype).itemsize)
        return np.memmap(file, dtype, "w+", shape=shape)


@contextmanager
def growing() -> Iterator[None]:
    """Say what to do where the disk has no room for a temporary file."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"A temporary file cannot grow: {error.strerror or error}. Set the environment variable TMPDIR "
            "to a folder with more space."
        ) from error


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


def n_rows(X: Any) -> int:
    """Return the number of rows of an array, a sparse matrix, a data frame or a list."""
    if isinstance(X, str | bytes):
        raise InvalidInputError("X is a single text; give a list of texts.")
    shape = getattr(X, "shape", None)
    if shape is not None:
        if len(shape) == 0:
            raise InvalidInputError("X is a single number; expected one row per sample.")
        return int(shape[0])
    try:
        return len(X)
    except TypeError:
        raise InvalidInputError(
            f"X is a {type(X).__name__}; expected an array, a data frame or a list with one entry per sample."
        ) from None


def take_rows(X: Any, rows: slice | NDArray[Any]) -> Any:
    """Return some rows of an array, a sparse matrix, a data frame, a list or `Rows`."""
    if is_instance_of(X, "torch.utils.data", "Dataset"):
        X = as_rows(X)
    if isinstance(rows, np.ndarray) and rows.dtype == bool:
        rows = np.flatnonzero(rows)  # polars would take a mask as one of columns
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, list | tuple):
        return X[rows] if isinstance(rows, slice) else [X[i] for i in rows]
    try:
        return X[rows]
    except InvalidInputError:
        raise
    except Exception as error:  # an X of any kind at all
        raise InvalidInputError(
            f"X is a {type(X).__name__} whose rows cannot be taken one by one ({error}). Give an array, a "
            "sparse matrix that has rows (CSR), a data frame or a list."
        ) from error


def join_rows(parts: Sequence[Any]) -> Any:
    """Return parts of rows as one: arrays, sparse matrices, data frames, tensors or lists."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if isinstance(first, list | tuple):
        return [row for part in parts for row in part]
    if hasattr(first, "iloc"):
        return sys.modules["pandas"].concat(parts, ignore_index=True)
    if is_table(first):
        return sys.modules["polars"].concat(parts)
    if hasattr(first, "detach"):
        return sys.modules["torch"].cat(list(parts))
    return vstack(parts, format="csr") if issparse(first) else np.concatenate(parts)


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
