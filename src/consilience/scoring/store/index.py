"""Which segments may hold a row: an index of digests in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROW_BYTES = 12
"""Memory that a row takes: half of its digest, and its number."""
_MOST_OWNERS = 4  # segments of a run in which a row is looked for; a common row may be in all of them


@dataclass(frozen=True)
class _Run:
    """Halves of digests in order, with the row of each, counted over all segments."""

    halves: NDArray[np.uint64]
    rows: NDArray[np.uint32]


class Index:
    """Finds the segments that may hold some rows; that they do, their own digests must tell.

    Half of each digest is kept, in order. New segments make a run of their own, so that not all is sorted
    again for each.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._known: set[str] = set()
        self._starts: list[int] = []  # the number of the first row of each segment
        self._stop = 0
        self._runs: list[_Run] = []

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return sum(len(run.halves) for run in self._runs)

    @property
    def names(self) -> list[str]:
        """The segments in it."""
        return self._names

    def add(self, parts: dict[str, NDArray[np.uint64]]) -> None:
        """Add segments by their names and digests (n, 2)."""
        if not parts:
            return
        halves, rows = [], []
        for name, part in parts.items():
            self._names.append(name)
            self._known.add(name)
            self._starts.append(self._stop)
            distinct, first = np.unique(part[:, 0], return_index=True)
            halves.append(distinct)
            rows.append((first + self._stop).astype(np.uint32))
            self._stop += len(part)
        self._runs.append(_sorted(np.concatenate(halves), np.concatenate(rows)))
        # join runs of like size only: a row is then sorted a few times in all, and there are few runs
        while len(self._runs) > 1 and len(self._runs[-2].halves) <= 2 * len(self._runs[-1].halves):
            last, other = self._runs.pop(), self._runs.pop()
            joined = np.concatenate([other.halves, last.halves])
            self._runs.append(_sorted(joined, np.concatenate([other.rows, last.rows])))

    def candidates(
        self, digests: NDArray[np.uint64]
    ) -> Iterator[tuple[str, NDArray[np.intp], NDArray[np.intp]]]:
        """Yield segments that may hold some of these rows, those of most rows first.

        With each come the places in `digests`, and the rows of the segment where they may be.
        """
        found: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for run in self._runs:
            start = np.searchsorted(run.halves, digests[:, 0], side="left")
            stop = np.searchsorted(run.halves, digests[:, 0], side="right")
            for shift in range(min(_MOST_OWNERS, int((stop - start).max(initial=0)))):
                places = np.flatnonzero(start + shift < stop)
                found.append((run.rows[start[places] + shift], places))
        if not found:
            return
        rows, wanted = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        rows, wanted = rows[order].astype(np.intp), wanted[order]
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        numbers, begin, counts = np.unique(owners, return_index=True, return_counts=True)
        for i in np.argsort(-counts, kind="stable"):
            part, number = slice(begin[i], begin[i] + counts[i]), numbers[i]
            yield self._names[number], wanted[part], rows[part] - self._starts[number]


def _sorted(halves: NDArray[np.uint64], rows: NDArray[np.uint32]) -> _Run:
    order = np.argsort(halves, kind="stable")  # quick where it consists of sorted runs
    return _Run(halves[order], rows[order])


def among(wanted: NDArray[np.uint64], kept: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places in `wanted` (u, 2) of the rows that are in `kept` (n, 2), and their rows there.

    `wanted` must be sorted by the first column and then the second. Of rows that share their first half, one
    is found: the others count as unknown, which does no harm.
    """
    if len(wanted) == 0:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    places = np.searchsorted(wanted[:, 0], kept[:, 0])
    places[places == len(wanted)] = 0
    rows = np.flatnonzero((wanted[places] == kept).all(axis=1))
    return places[rows], rows


def in_order(digests: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return digests sorted by the first column and then the second."""
    return digests[np.lexsort((digests[:, 1], digests[:, 0]))]
