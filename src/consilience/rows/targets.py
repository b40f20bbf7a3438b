"""Rows and what a student is to learn about them, read block by block."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._validation import n_rows, take_rows
from consilience.exceptions import InvalidInputError
from consilience.rows.rows import bytes_of, join_rows

EPOCH_ROWS = 2**20
"""After at most this many rows a student is measured on held-out rows, also in the middle of a pass."""
ROW_VISITS = 20_000_000
"""How many rows a student learns from unless it is told how many passes to make; at least one pass."""
MOST_HELD_OUT = 20_000
"""Most rows held out; more would not make a mean loss much surer."""
SAMPLED = 100_000
"""Rows that give the mean and scale of columns."""
MIN_ROWS_TO_SPLIT = 20
"""With fewer rows nothing is held out: the validation loss of one or two rows is only noise."""
BUFFER_SHARE = 0.25
"""The share of the memory in which rows are shuffled."""
_LOOKED_AT = 256  # blocks from which rows are held out and sampled
_PARTS_OF_A_SHARE = 8  # with fewer stretches for each process, single blocks are dealt out

Weights = NDArray[np.float32] | None
Part = tuple[Any, NDArray[np.float32], Weights]


class Epochs(NamedTuple):
    """How passes over many rows are cut into epochs, after each of which a student is measured."""

    n_rows: int
    parts: int  # epochs that make a pass
    total: int  # the most epochs

    @property
    def visits(self) -> int:
        """How many rows are learnt from in all epochs."""
        return self.end(self.total - 1, self.n_rows)

    def end(self, epoch: int, of: int) -> int:
        """Return how many of the rows, or batches, are done when an epoch is over; a pass has `of`."""
        passes, part = divmod(epoch + 1, self.parts)
        return passes * of + part * of // self.parts

    @classmethod
    def of(cls, n_rows: int, passes: int, *, limited: bool) -> Epochs:
        """Cut passes over rows; if they are limited, to `ROW_VISITS` rows, but at least one pass."""
        parts = math.ceil(n_rows / EPOCH_ROWS)
        total = parts * passes
        return cls(n_rows, parts, min(total, max(parts, ROW_VISITS * parts // n_rows)) if limited else total)


class TargetRows(ABC):
    """Rows and what a student is to learn about them, read block by block.

    Every pass finds the same blocks.

    Attributes
    ----------
    n_rows : int
        How many rows take part.
    n_columns : int
        Columns of the targets: L soft labels, or m packed logits.
    stretches : sequence of range
        Numbers of blocks that are best read one after the other.
    n_bytes : int
        About how much memory all rows X would take.
    """

    n_rows: int
    n_columns: int
    stretches: Sequence[range]
    n_bytes: int

    @abstractmethod
    def read(self, block: int) -> Part:
        """Return X of a block as the student sees it, targets (b, k), and row weights (b,) or None.

        A block may have no rows.
        """

    @abstractmethod
    def sample(self, count: int, seed: int) -> Part:
        """Return some random rows, in memory; all, if there are fewer."""

    def row_number(self, block: int, row: int) -> int | None:
        """Return the number, for messages, of a row in a block; None if it is not known."""
        return None

    def rows_in(self, block: int) -> int:
        """Return how many rows of a block take part."""
        return len(self.read(block)[1])

    def targets_of(self, block: int) -> NDArray[np.float32]:
        """Return the targets (b, k) of a block, without its rows where that is possible."""
        return self.read(block)[1]

    @property
    def row_bytes(self) -> float:
        """About how much memory a row and its targets take."""
        return self.n_bytes / max(1, self.n_rows) + 4 * (self.n_columns + 1)

    def shuffled(self, random: np.random.Generator) -> list[int]:
        """Return the numbers of all blocks, with the stretches in random order."""
        order = random.permutation(len(self.stretches))
        return [block for i in order for block in self.stretches[i]]


class ArrayTargets(TargetRows):
    """Rows and targets that are in memory already.

    Parameters
    ----------
    X : array, sparse matrix, data frame or list
        n rows.
    targets : (n, k) array
    weights : (n,) array, optional
    block_rows : int
        Rows of a block.
    """

    def __init__(self, X: Any, targets: Any, weights: Any = None, *, block_rows: int = 2**14) -> None:
        self._X = X
        self._targets = np.asarray(targets, dtype=np.float32)
        self._weights = None if weights is None else np.asarray(weights, dtype=np.float32)
        self._size = block_rows
        self.n_rows, self.n_columns = self._targets.shape
        self.stretches = [range(i, i + 1) for i in range(math.ceil(self.n_rows / block_rows))]
        self.n_bytes = bytes_of(X)

    def read(self, block: int) -> Part:
        """Return a block of rows."""
        return self._take(slice(block * self._size, (block + 1) * self._size))

    def sample(self, count: int, seed: int) -> Part:
        """Return some random rows."""
        count = min(count, self.n_rows)
        return self._take(np.sort(np.random.default_rng(seed).choice(self.n_rows, count, replace=False)))

    def row_number(self, block: int, row: int) -> int:
        """Return the position of a row."""
        return block * self._size + row

    def rows_in(self, block: int) -> int:
        """Return how many rows a block has."""
        return min(self._size, self.n_rows - block * self._size)

    def targets_of(self, block: int) -> NDArray[np.float32]:
        """Return the targets of a block."""
        return self._targets[block * self._size : (block + 1) * self._size]

    def _take(self, rows: Any) -> Part:
        weights = None if self._weights is None else self._weights[rows]
        return take_rows(self._X, rows), self._targets[rows], weights


class Share(TargetRows):
    """The blocks of rows that one of several processes learns from.

    Whole stretches are dealt out, the largest first, each to whoever has the fewest rows; single blocks if
    there are too few stretches for that to be fair.

    Parameters
    ----------
    rows : TargetRows
        All of them; every process has the same.
    place, count : int
        Which share of how many.
    """

    def __init__(self, rows: TargetRows, place: int, count: int) -> None:
        self._rows, self.n_columns = rows, rows.n_columns
        parts = list(rows.stretches)
        if len(parts) < _PARTS_OF_A_SHARE * count:
            parts = [range(block, block + 1) for stretch in parts for block in stretch]
        sizes = [sum(map(rows.rows_in, stretch)) for stretch in parts]
        given, mine = [0] * count, []
        for i in sorted(range(len(parts)), key=lambda i: -sizes[i]):
            to = given.index(min(given))
            given[to] += sizes[i]
            if to == place:
                mine.append(i)
        self.stretches, self.n_rows = [parts[i] for i in sorted(mine)], given[place]
        self.n_bytes = round(rows.n_bytes * self.n_rows / max(1, rows.n_rows))

    def read(self, block: int) -> Part:
        """Return a block, by its number among all."""
        return self._rows.read(block)

    def sample(self, count: int, seed: int) -> Part:
        """Return some random rows of all shares."""
        return self._rows.sample(count, seed)

    def row_number(self, block: int, row: int) -> int | None:
        """Return the number, for messages, of a row in a block."""
        return self._rows.row_number(block, row)


class HeldOut(NamedTuple):
    """Which rows are held out: those with a small random number, in some of the blocks."""

    seed: int
    below: float
    blocks: frozenset[int]

    def rest(self, block: int, count: int) -> NDArray[np.intp] | None:
        """Return which of the `count` rows of a block are left to learn from; None means all."""
        if block not in self.blocks:
            return None
        held = _row_keys(self.seed, block, count) < self.below
        return np.flatnonzero(~held) if held.any() else None


class Look(NamedTuple):
    """What is in memory before the first pass: held-out rows, and a sample of the others."""

    held_out: HeldOut
    measured: Part | None  # the held-out rows
    n_held_out: int
    sample: Part


def look_at(rows: TargetRows, seed: int, *, fraction: float, n_sample: int) -> Look:
    """Read some blocks: hold rows out at random, and sample others.

    Parameters
    ----------
    rows : TargetRows
    seed : int
        The same seed holds out the same rows. Which they are is computed, so it takes no memory.
    fraction : float
        Share of the rows to hold out, but at most `MOST_HELD_OUT`. They come from up to 256 random blocks.
    n_sample : int
        How many rows to sample, about.
    """
    blocks = [block for stretch in rows.stretches for block in stretch]
    random = np.random.default_rng([seed, 2**32 - 1])
    chosen = sorted(random.choice(len(blocks), min(len(blocks), _LOOKED_AT), replace=False).tolist())
    blocks = [blocks[i] for i in chosen]
    expected = rows.n_rows * len(blocks) / max(1, sum(len(stretch) for stretch in rows.stretches))
    wanted = min(math.ceil(fraction * rows.n_rows), MOST_HELD_OUT, int(expected / 2))
    wanted = wanted if rows.n_rows >= MIN_ROWS_TO_SPLIT else 0
    # a few more than wanted; how many are below a border is random
    border = min(1.0, (wanted + 5 * math.sqrt(wanted) + 5) / max(expected, 1.0)) if wanted else 0.0
    above = 1.0 - n_sample / max(expected, 1.0)
    candidates: list[Part] = []
    keys: list[NDArray[np.float64]] = []
    samples: list[Part] = []
    for block in blocks:
        part = rows.read(block)
        key = _row_keys(seed, block, len(part[1]))
        low, high = np.flatnonzero(key < border), np.flatnonzero(key >= max(above, border))
        if len(low):
            candidates.append(take_part(part, low))
            keys.append(key[low])
        if len(high) or not samples:
            samples.append(take_part(part, high))
    return _cut(candidates, keys, samples, wanted, HeldOut(seed, border, frozenset(blocks)))


def _cut(
    candidates: list[Part],
    keys: list[NDArray[np.float64]],
    samples: list[Part],
    wanted: int,
    held_out: HeldOut,
) -> Look:
    """Return exactly as many held-out rows as wanted, if there are enough candidates."""
    sample = join_parts([part for part in samples if len(part[1])] or samples[:1])
    if not candidates:
        return Look(held_out._replace(below=0.0), None, 0, sample)
    part, key = join_parts(candidates), np.concatenate(keys)
    below = held_out.below if len(key) <= wanted else float(np.partition(key, wanted)[wanted])
    rest = key >= below
    if rest.any() and not len(sample[1]):  # so few rows that all of them were candidates
        sample = take_part(part, np.flatnonzero(rest))
    measured = take_part(part, np.flatnonzero(~rest))
    return Look(held_out._replace(below=below), measured, len(measured[1]), sample)


def windows(
    rows: TargetRows, random: np.random.Generator, n_bytes: float, held_out: HeldOut | None = None
) -> Iterator[Part]:
    """Yield the rows of one pass, as many at a time as fit in `n_bytes`, in random order; held-out rows not.

    Parameters
    ----------
    rows : TargetRows
    random : Generator
        Orders the stretches, and the rows of a window.
    n_bytes : float
        Half of this is filled: a window is copied once, to shuffle it.
    held_out : HeldOut, optional
    """
    most = max(1, int(n_bytes / 2 / rows.row_bytes))
    parts: list[Part] = []
    count = 0
    for block in rows.shuffled(random):
        part = rows.read(block)
        rest = None if held_out is None else held_out.rest(block, len(part[1]))
        part = part if rest is None else take_part(part, rest)
        if count and count + len(part[1]) > most:
            yield _shuffle(parts, random)
            parts, count = [], 0
        if len(part[1]):
            parts.append(part)
            count += len(part[1])
    if parts:
        yield _shuffle(parts, random)


def _shuffle(parts: list[Part], random: np.random.Generator) -> Part:
    part = join_parts(parts)
    parts.clear()
    return take_part(part, random.permutation(len(part[1])))


def read_everything(rows: TargetRows) -> Part:
    """Return all rows, in memory, in the order of the stretches. Arrays are filled, not joined."""
    targets = np.empty((rows.n_rows, rows.n_columns), dtype=np.float32)
    X: Any = None
    parts: list[Any] = []
    weights: NDArray[np.float32] | None = None
    end = 0
    for stretch in rows.stretches:
        for block in stretch:
            part, goals, by_row = check_block(rows.read(block), rows, block)
            start, end = end, end + len(goals)
            if not len(goals) or end > rows.n_rows:
                continue
            targets[start:end] = goals
            if isinstance(part, np.ndarray):
                X = np.empty((rows.n_rows, *part.shape[1:]), part.dtype) if X is None else X
                X[start:end] = part
            else:
                parts.append(part)
            if by_row is not None:
                weights = np.ones(rows.n_rows, dtype=np.float32) if weights is None else weights
                weights[start:end] = by_row
    if end != rows.n_rows or end == 0:
        found = "no rows to train on" if end == 0 else f"{end} rows; expected {rows.n_rows}"
        raise InvalidInputError(f"X has {found}.")
    return join_rows(parts) if X is None else X, targets, weights


def take_part(part: Part, rows: Any) -> Part:
    """Return some rows of a part."""
    X, targets, weights = part
    return take_rows(X, rows), targets[rows], None if weights is None else weights[rows]


def join_parts(parts: Sequence[Part]) -> Part:
    """Return parts as one; rows without a weight count 1 if others have one."""
    weights = None
    if any(part[2] is not None for part in parts):
        ones = [np.ones(len(part[1]), np.float32) if part[2] is None else part[2] for part in parts]
        weights = np.concatenate(ones)
    return join_rows([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), weights


def _row_keys(seed: int, block: int, count: int) -> NDArray[np.float64]:
    """Return a random number in [0, 1) for each row of a block, the same each time."""
    return np.random.default_rng([seed, block]).random(count)


def check_block(part: Part, rows: TargetRows, block: int) -> Part:
    """Return a block, or raise if its rows and targets do not fit together."""
    X, targets, weights = part
    if targets.ndim != 2 or targets.shape != (n_rows(X), rows.n_columns):
        raise InvalidInputError(
            f"Block {block} has {n_rows(X)} rows and targets of shape {targets.shape}; expected "
            f"({n_rows(X)}, {rows.n_columns})."
        )
    if weights is not None and weights.shape != (len(targets),):
        raise InvalidInputError(
            f"Block {block} has row weights of shape {weights.shape}; expected ({len(targets)},)."
        )
    return part
