"""Which segments may hold a row: an index of digests in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROW_BYTES = 12
"""Memory that a row takes: half of its digest, and the number of its segment."""
_MOST_OWNERS = 4  # segments of a run in which a row is looked for; a common row may be in all of them


@dataclass(frozen=True)
class _Run:
    """Halves of digests in order, with the number of the segment of each."""

    halves: NDArray[np.uint64]
    owners: NDArray[np.uint32]


class Index:
    """Finds the segments that may hold some rows; that they do, their own digests must tell.

    Half of each digest is kept, in order. New segments make a run of their own, so that not all is sorted
    again for each.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._runs: list[_Run] = []

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

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
        first = len(self._names)
        self._names.extend(parts)
        self._numbers.update({name: first + i for i, name in enumerate(parts)})
        halves = [np.unique(part[:, 0]) for part in parts.values()]
        numbers = np.arange(first, len(self._names), dtype=np.uint32)
        self._runs.append(_sorted(np.concatenate(halves), np.repeat(numbers, [len(part) for part in halves])))
        # join runs of like size only: a row is then sorted a few times in all, and there are few runs
        while len(self._runs) > 1 and len(self._runs[-2].halves) <= 2 * len(self._runs[-1].halves):
            last, other = self._runs.pop(), self._runs.pop()
            joined = np.concatenate([other.halves, last.halves])
            self._runs.append(_sorted(joined, np.concatenate([other.owners, last.owners])))

    def candidates(self, digests: NDArray[np.uint64]) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Yield the segments that may hold some of these rows, those of most rows first, and which rows."""
        found: list[tuple[NDArray[np.uint32], NDArray[np.intp]]] = []
        for run in self._runs:
            start = np.searchsorted(run.halves, digests[:, 0], side="left")
            stop = np.searchsorted(run.halves, digests[:, 0], side="right")
            for shift in range(min(_MOST_OWNERS, int((stop - start).max(initial=0)))):
                places = np.flatnonzero(start + shift < stop)
                found.append((run.owners[start[places] + shift], places))
        if not found:
            return
        owners, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(owners, kind="stable")
        numbers, begin, counts = np.unique(owners[order], return_index=True, return_counts=True)
        for i in np.argsort(-counts, kind="stable"):
            yield self._names[numbers[i]], rows[order[begin[i] : begin[i] + counts[i]]]


def _sorted(halves: NDArray[np.uint64], owners: NDArray[np.uint32]) -> _Run:
    order = np.argsort(halves, kind="stable")  # quick where it consists of sorted runs
    return _Run(halves[order], owners[order])


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
