"""Rows that lie in an order, such as by class, brought into a random one before a student learns from them.

A student that learns by passes shuffles rows in a buffer. If all rows in it are of one class, it forgets the
others until they come again. So sorted rows are copied once, to random parts on disk. Each part is a sample
of all rows, whatever order they had.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import warnings
from itertools import pairwise

import numpy as np

from consilience._sizes import size_text
from consilience.exceptions import ConsilienceWarning
from consilience.files.spool import Spool
from consilience.rows.rows import BLOCK_ROWS
from consilience.rows.targets import Part, TargetRows, check_block

SORTED = 0.05
"""Rows count as sorted if the block tells so much of the variance of targets."""
MOST_PARTS = 128
"""Most parts, each of which is a few open files."""
_LOOKED_AT = 256  # blocks whose targets are compared
_ROW_BITS = 32


def in_random_order(rows: TargetRows, n_bytes: float, seed: int) -> TargetRows:
    """Return rows of which every part looks like all: themselves, or a copy on disk if they are sorted.

    Warn if they are sorted and cannot be copied: they are no plain arrays, or the disk is too small.

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
    first = rows.read(rows.stretches[0][0])[0]
    plain = isinstance(first, np.ndarray) and first.dtype.kind in "biuf"
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if plain and size + 8 * rows.n_rows < free:
        return Rearranged(rows, min(MOST_PARTS, math.ceil(2 * size / n_bytes)), seed)
    why = (
        f"a copy of {size_text(round(size))} does not fit on the disk"
        if plain
        else "only arrays of numbers are copied"
    )
    warnings.warn(
        f"The rows are sorted: soft labels differ from block to block, and the buffer of "
        f"{size_text(round(n_bytes))} does not hold all rows. The student may learn much worse than it "
        f"could. They cannot be put into a random order here: {why}. Shuffle the files, or raise memory=.",
        ConsilienceWarning,
        stacklevel=2,
    )
    return rows


def is_sorted(rows: TargetRows, seed: int) -> bool:
    """Tell whether targets differ from block to block by more than chance, in some random blocks."""
    blocks = [block for stretch in rows.stretches for block in stretch]
    few = np.random.default_rng(seed).choice(len(blocks), min(len(blocks), _LOOKED_AT), replace=False)
    counts, means, squares = [], [], []
    for place in few:
        targets = np.nan_to_num(rows.targets_of(blocks[place]).astype(np.float64), posinf=0.0, neginf=0.0)
        if len(targets):
            counts.append(len(targets))
            means.append(targets.mean(axis=0))
            squares.append((targets**2).sum(axis=1).mean())
    if len(counts) < 2:
        return False
    share, M = np.array(counts) / sum(counts), np.array(means)
    centre = share @ M
    total = share @ np.array(squares) - (centre**2).sum()
    between = share @ ((M - centre) ** 2).sum(axis=1)
    return bool(between > (SORTED + 5 * len(counts) / sum(counts)) * total)


class Rearranged(TargetRows):
    """A copy of rows on disk, in parts to which each row was sent at random.

    Parameters
    ----------
    rows : TargetRows
        Of plain arrays.
    parts : int
    seed : int
    """

    def __init__(self, rows: TargetRows, parts: int, seed: int) -> None:
        self._rows, self.n_rows, self.n_columns, self.n_bytes = (
            rows,
            rows.n_rows,
            rows.n_columns,
            rows.n_bytes,
        )
        random = np.random.default_rng([seed, parts])
        self._parts: list[tuple[Spool, ...]] = []
        for stretch in rows.stretches:
            for block in stretch:
                X, targets, weights = check_block(rows.read(block), rows, block)
                if not self._parts:
                    like = [X, targets, np.empty(0, np.int64)] + ([] if weights is None else [weights])
                    self._parts = [
                        tuple(Spool(values.shape[1:], values.dtype) for values in like) for _ in range(parts)
                    ]
                numbers = (block << _ROW_BITS) + np.arange(len(targets))
                together = [X, targets, numbers] + ([] if weights is None else [weights])
                to = random.integers(parts, size=len(targets))
                for part, spools in enumerate(self._parts):
                    chosen = np.flatnonzero(to == part)
                    for spool, values in zip(spools, together, strict=True):
                        spool.append(values[chosen])
        self._blocks = [
            (part, slice(start, min(start + BLOCK_ROWS, len(spools[0]))))
            for part, spools in enumerate(self._parts)
            for start in range(0, len(spools[0]), BLOCK_ROWS)
        ]
        ends = np.cumsum([0, *(math.ceil(len(spools[0]) / BLOCK_ROWS) for spools in self._parts)]).tolist()
        self.stretches = [range(a, b) for a, b in pairwise(ends) if b > a]

    def read(self, block: int) -> Part:
        """Return some rows of a part."""
        part, rows = self._blocks[block]
        X, targets, _, *weights = (spool[rows] for spool in self._parts[part])
        return X, targets, weights[0] if weights else None

    def sample(self, count: int, seed: int) -> Part:
        """Return some random rows."""
        return self._rows.sample(count, seed)

    def rows_in(self, block: int) -> int:
        """Return how many rows a block has."""
        rows = self._blocks[block][1]
        return int(rows.stop - rows.start)

    def row_number(self, block: int, row: int) -> int | None:
        """Return the number, for messages, that a row had before."""
        part, rows = self._blocks[block]
        was = int(self._parts[part][2][rows][row])
        return self._rows.row_number(was >> _ROW_BITS, was & ((1 << _ROW_BITS) - 1))
