"""Rows and what a student is to learn about them: passes in random order, held-out rows, samples."""

from __future__ import annotations

import copy
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._words import size_text
from consilience.exceptions import ConsilienceWarning, InvalidInputError, warn
from consilience.rows.rows import (
    BLOCK_ROWS,
    HeldRows,
    Rows,
    bytes_of,
    cut,
    join_rows,
    mapped,
    n_rows,
    take_rows,
)

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
BUFFER = 2**26
"""Bytes in which rows are shuffled, whatever the memory is: the same call gives the same student."""
SORTED = 0.05
"""Rows count as sorted if the block tells so much of the variance of targets."""
MOST_PARTS = 128
"""Most parts of a copy in random order."""
_LOOKED_AT = 256  # blocks from which rows are held out and sampled, and whose targets are compared
_PARTS_OF_A_SHARE = 8  # with fewer stretches for each process, single blocks are dealt out

Part = tuple[Any, NDArray[np.float32], NDArray[np.float32] | None]
"""Rows X as the student sees them, targets (b, k), and row weights (b,) or None."""


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


class TargetRows:
    """Rows and what a student is to learn about them, read block by block.

    Parameters
    ----------
    rows : Rows
    targets : (n, k) array or Rows
        Soft labels, or packed logits.
    weights : (n,) array or Rows, optional
        Of the rows.
    used : (n,) array of bool, optional
        The rows that the student learns from; by default all.
    as_seen : callable, optional
        From rows to what the student sees of them.

    Attributes
    ----------
    n_rows : int
        How many rows are used.
    n_columns : int
        Of the targets.
    stretches : sequence of range
        Numbers of blocks that are best read one after the other.
    """

    def __init__(
        self,
        rows: Rows,
        targets: Any,
        weights: Any = None,
        used: NDArray[np.bool_] | None = None,
        as_seen: Callable[[Any], Any] | None = None,
    ) -> None:
        self._rows, self._targets, self._weights = rows, targets, weights
        self._used, self._as_seen = used, as_seen
        self._numbers: NDArray[np.intp] | None = None  # of rows in another order, what they were before
        self.n_rows = len(rows) if used is None else int(used.sum())
        self.n_columns = int(targets.shape[1])
        self.stretches: Sequence[range] = rows.stretches
        seen = rows.head if as_seen is None or not len(rows) else as_seen(rows.head)
        self._seen_bytes = bytes_of(seen) / max(1, n_rows(rows.head))

    @property
    def n_bytes(self) -> int:
        """About how much memory all rows X would take, as the student sees them."""
        return round(self._seen_bytes * self.n_rows)

    @property
    def row_bytes(self) -> float:
        """About how much memory a row and its targets take."""
        return self._seen_bytes + 4 * (self.n_columns + 1)

    @property
    def numbers(self) -> list[int]:
        """The numbers of all blocks, in order."""
        return [block for stretch in self.stretches for block in stretch]

    def read(self, block: int) -> Part:
        """Return the rows of a block that are used; there may be none."""
        X, rows, places = self._rows.read(block), self._rows.rows_of(block), self.places(block)
        if len(places) < rows.stop - rows.start:
            X = take_rows(X, places - rows.start)
        return self._part(X, places)

    def parts(self) -> Iterator[Part]:
        """Yield the blocks that have rows, in order."""
        for block in self.numbers:
            part = self.read(block)
            if len(part[1]):
                yield part

    def take(self, places: NDArray[np.intp]) -> Part:
        """Return some rows, by their positions among all rows, in order."""
        return self._part(self._rows.take(places), places)

    def sample(self, count: int, seed: int) -> Part:
        """Return some random rows, out of a few random blocks of all rows."""
        places = self._rows.sample_rows(count, seed)
        return self.take(places if self._used is None else places[self._used[places]])

    def without(self, places: NDArray[np.intp]) -> TargetRows:
        """Return the same without some rows, by their positions among all rows."""
        found = copy.copy(self)
        found._used = np.ones(len(self._rows), bool) if self._used is None else self._used.copy()
        found._used[places] = False
        found.n_rows -= len(places)
        return found

    def everything(self) -> Part:
        """Return all rows that are used, in memory."""
        if not self.n_rows:
            raise InvalidInputError("X has no rows to train on.")
        return join_parts(list(self.parts()))

    def places(self, block: int) -> NDArray[np.intp]:
        """Return the positions among all rows of those of a block that are used."""
        rows = self._rows.rows_of(block)
        if self._used is None:
            return np.arange(rows.start, rows.stop)
        return np.flatnonzero(self._used[rows]) + int(rows.start)

    def rows_in(self, block: int) -> int:
        """Return how many rows of a block are used."""
        return len(self.places(block))

    def targets_of(self, block: int) -> NDArray[np.float32]:
        """Return the targets (b, k) of a block, without its rows."""
        return np.asarray(self._targets[self.places(block)], dtype=np.float32)

    def row_number(self, place: int) -> int:
        """Return the number, for messages, of the row at a position among all rows."""
        return int(place if self._numbers is None else self._numbers[place])

    def shuffled(self, random: np.random.Generator) -> list[int]:
        """Return the numbers of all blocks, with the stretches in random order."""
        order = random.permutation(len(self.stretches))
        return [block for i in order for block in self.stretches[i]]

    def share(self, place: int, count: int) -> TargetRows:
        """Return the blocks that one of `count` processes learns from; a sample is still one of all rows.

        Whole stretches are dealt out in turn; single blocks if there are too few stretches for that to be
        fair.
        """
        dealt = list(self.stretches)
        if len(dealt) < _PARTS_OF_A_SHARE * count:
            dealt = [range(block, block + 1) for block in self.numbers]
        found = copy.copy(self)
        found.stretches = dealt[place::count]
        found.n_rows = sum(map(self.rows_in, found.numbers))
        return found

    def sent(self, send: Callable[[Rows], Rows]) -> TargetRows:
        """Return the same with rows, targets and weights where `send` puts the blocks of rows."""
        weights = None if self._weights is None else send(HeldRows(self._weights))
        return TargetRows(send(self._rows), send(HeldRows(self._targets)), weights, self._used, self._as_seen)

    def _part(self, X: Any, places: Any) -> Part:
        weights = None if self._weights is None else np.asarray(self._weights[places], dtype=np.float32)
        X = X if self._as_seen is None else self._as_seen(X)
        return X, np.asarray(self._targets[places], dtype=np.float32), weights


class Look(NamedTuple):
    """What is in memory before the first pass: held-out rows, and a sample of the others."""

    rest: TargetRows  # all but the held-out rows
    measured: Part | None  # the held-out rows
    sample: Part


def look_at(rows: TargetRows, seed: int, *, fraction: float, n_sample: int) -> Look:
    """Read some blocks: hold rows out at random, and sample others.

    Parameters
    ----------
    rows : TargetRows
    seed : int
        The same seed holds out the same rows.
    fraction : float
        Share of the rows to hold out, but at most `MOST_HELD_OUT`. They come from up to 256 random blocks.
    n_sample : int
        How many rows to sample, if that is not more than half the buffer holds.
    """
    n_sample = min(n_sample, max(2, int(BUFFER / 2 / rows.row_bytes)))
    random = np.random.default_rng([seed, 2**32 - 1])
    blocks = np.sort(random.permutation(rows.numbers)[:_LOOKED_AT]).astype(np.intp)
    places = np.concatenate([np.empty(0, np.intp), *map(rows.places, blocks)])
    wanted = min(math.ceil(fraction * rows.n_rows), MOST_HELD_OUT, len(places) // 2)
    wanted = wanted if rows.n_rows >= MIN_ROWS_TO_SPLIT else 0
    drawn = places[random.choice(len(places), min(len(places), wanted + n_sample), replace=False)]
    part, held = rows.take(np.sort(drawn)), np.argsort(drawn) < wanted
    measured = take_part(part, held) if wanted else None
    return Look(rows.without(drawn[:wanted]), measured, take_part(part, ~held))


def windows(rows: TargetRows, random: np.random.Generator, n_bytes: float) -> Iterator[Part]:
    """Yield the rows of one pass, as many at a time as fit in `n_bytes`, in random order.

    Parameters
    ----------
    rows : TargetRows
    random : Generator
        Orders the stretches, and the rows of a window.
    n_bytes : float
        Half of this is filled: a window is copied once, to shuffle it.
    """
    most = max(1, int(n_bytes / 2 / rows.row_bytes))
    parts: list[Part] = []
    count = 0
    for block in rows.shuffled(random):
        part = rows.read(block)
        if count and count + len(part[1]) > most:
            yield _shuffle(parts, random)
            count = 0
        if len(part[1]):
            parts.append(part)
            count += len(part[1])
    if parts:
        yield _shuffle(parts, random)


def _shuffle(parts: list[Part], random: np.random.Generator) -> Part:
    part = join_parts(parts)
    parts.clear()
    return take_part(part, random.permutation(len(part[1])))


def take_part(part: Part, rows: Any) -> Part:
    """Return some rows of a part."""
    X, targets, weights = part
    return take_rows(X, rows), targets[rows], None if weights is None else weights[rows]


def join_parts(parts: Sequence[Part]) -> Part:
    """Return parts as one."""
    X, targets, weights = zip(*parts, strict=True)
    return join_rows(X), np.concatenate(targets), None if weights[0] is None else np.concatenate(weights)


def in_random_order(rows: TargetRows, n_bytes: float, seed: int) -> TargetRows:
    """Return rows of which every part looks like all: themselves, or a copy on disk if they are sorted.

    A student that learns by passes shuffles rows in a buffer. If all rows in it are of one class, it forgets
    the others until they come again. Warn if rows are sorted and cannot be copied: they are no plain arrays,
    or the disk is too small.

    Parameters
    ----------
    rows : TargetRows
    n_bytes : float
        What the buffer holds. Rows that fit in it are shuffled there, in whatever order they come.
    seed : int
    """
    size = rows.n_rows * rows.row_bytes
    if size <= n_bytes or not is_sorted(rows, seed):
        return rows
    first = next(rows.parts())[0]
    plain = isinstance(first, np.ndarray) and first.dtype.kind in "biuf"
    if plain and size < shutil.disk_usage(tempfile.gettempdir()).free:
        return _copy(rows, min(MOST_PARTS, math.ceil(2 * size / n_bytes)), seed)
    why = f"a copy of {size_text(size)} does not fit on the disk"
    why = why if plain else "only arrays of numbers are copied"
    warn(
        ConsilienceWarning(
            "The rows are sorted: soft labels differ from block to block, and the buffer of "
            f"{size_text(n_bytes)} does not hold all rows. The student may learn much worse than it "
            f"could. They cannot be put into a random order here: {why}. Shuffle the files."
        )
    )
    return rows


def is_sorted(rows: TargetRows, seed: int) -> bool:
    """Tell whether targets differ from block to block by more than chance, in some random blocks."""
    few = np.random.default_rng(seed).permutation(rows.numbers)[:_LOOKED_AT].tolist()
    plain = (rows.targets_of(block).astype(np.float64) for block in few if rows.rows_in(block))
    found = [np.nan_to_num(targets, posinf=0.0, neginf=0.0) for targets in plain]
    if len(found) < 2:
        return False
    counts = np.array([len(targets) for targets in found])
    share, M = counts / counts.sum(), np.array([targets.mean(axis=0) for targets in found])
    squares = np.array([(targets**2).sum(axis=1).mean() for targets in found])
    centre = share @ M
    total = share @ squares - (centre**2).sum()
    between = share @ ((M - centre) ** 2).sum(axis=1)
    return bool(between > (SORTED + 5 * len(counts) / counts.sum()) * total)


def _copy(rows: TargetRows, n_parts: int, seed: int) -> TargetRows:
    """Return a copy on disk, in parts to which each row was sent at random; a part is a stretch."""
    part_of = np.random.default_rng([seed, n_parts]).integers(n_parts, size=rows.n_rows, dtype=np.uint8)
    before = np.argsort(part_of, kind="stable")
    place = np.empty_like(before)
    place[before] = np.arange(rows.n_rows)
    copies: list[Any] = []
    start = 0
    for part in rows.parts():
        to = place[start : start + len(part[1])]
        start += len(to)
        values = [value for value in part if value is not None]
        copies = copies or [mapped((rows.n_rows, *value.shape[1:]), value.dtype) for value in values]
        for whole, value in zip(copies, values, strict=True):
            whole[to] = value
    held = HeldRows(copies[0], held=False)
    counts = np.bincount(part_of, minlength=n_parts).tolist()
    held.borders = cut(counts, BLOCK_ROWS)
    found = TargetRows(held, *copies[1:])
    ends = np.searchsorted(held.borders, np.cumsum([0, *counts])).tolist()
    found.stretches = [range(a, b) for a, b in pairwise(ends) if b > a]
    found._numbers = np.concatenate([rows.places(block) for block in rows.numbers])[before]
    return found
