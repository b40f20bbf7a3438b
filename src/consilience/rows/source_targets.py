"""Rows of a source with their targets, for a student that learns by passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._validation import n_rows, take_rows
from consilience.rows.rows import Rows, bytes_of
from consilience.rows.targets import Part, TargetRows

Floats = NDArray[np.floating[Any]]


class SourceTargets(TargetRows):
    """Rows of a source with their targets, for a student that learns by passes.

    Parameters
    ----------
    source : Rows
    used : (n,) array of bool
        The rows that the student learns from.
    targets : callable
        From a slice of rows to their targets (k, columns).
    as_seen : callable
        From rows to what the student sees of them.
    n_columns : int
        Of the targets.
    weights : callable, optional
        From a slice of rows to their weights (k,).
    """

    def __init__(
        self,
        source: Rows,
        used: NDArray[np.bool_],
        targets: Callable[[slice], Floats],
        as_seen: Callable[[Any], Any],
        n_columns: int,
        weights: Callable[[slice], Floats] | None = None,
    ) -> None:
        self._source, self._used = source, used
        self._targets, self._as_seen, self._weights = targets, as_seen, weights
        self.n_rows, self.n_columns = int(used.sum()), n_columns
        self.stretches = source.stretches
        head = source.head
        self.n_bytes = round(bytes_of(as_seen(head)) / max(1, n_rows(head)) * self.n_rows)

    def read(self, block: int) -> Part:
        """Return a block without the rows that are not used."""
        rows = self._source.rows_of(block)
        return self._part(self._source.read(block), rows, self._used[rows])

    def sample(self, count: int, seed: int) -> Part:
        """Return some random rows, out of a few random blocks."""
        places = self._source.sample_rows(count, seed)
        places = places[self._used[places]]
        slices = [slice(int(place), int(place) + 1) for place in places]
        targets: list[NDArray[Any]] = [np.empty((0, self.n_columns)), *map(self._targets, slices)]
        weights = None
        if self._weights is not None:
            weights = np.concatenate([np.empty(0, np.float32), *map(self._weights, slices)])
        rows = self._as_seen(self._source.take(places))
        return rows, np.concatenate(targets).astype(np.float32), weights

    def rows_in(self, block: int) -> int:
        """Return how many rows of a block are used."""
        return int(self._used[self._source.rows_of(block)].sum())

    def targets_of(self, block: int) -> NDArray[np.float32]:
        """Return the targets of the rows of a block that are used."""
        rows = self._source.rows_of(block)
        return np.asarray(self._targets(rows), dtype=np.float32)[self._used[rows]]

    def sent(self, send: Callable[[Rows], Rows]) -> SourceTargets:
        """Return the same with rows, targets and weights where `send` puts the blocks of a source."""
        source, weights = self._source, self._weights
        return SourceTargets(
            send(source),
            self._used,
            Slices(send(_Columns(source, self._targets))),
            self._as_seen,
            self.n_columns,
            None if weights is None else Slices(send(_Columns(source, weights))),
        )

    def row_number(self, block: int, row: int) -> int:
        """Return the position in the source of a row of a block."""
        rows = self._source.rows_of(block)
        return int(rows.start) + int(np.flatnonzero(self._used[rows])[row])

    def _part(self, X: Any, rows: slice, kept: NDArray[np.bool_]) -> Part:
        targets = np.asarray(self._targets(rows), dtype=np.float32)
        weights = None if self._weights is None else np.asarray(self._weights(rows), dtype=np.float32)
        if not kept.all():
            X, targets = take_rows(X, kept), targets[kept]
            weights = None if weights is None else weights[kept]
        return self._as_seen(X), targets, weights


class _Columns(Rows):
    """Targets or weights of the rows of a source, in the same blocks."""

    local = True

    def __init__(self, rows: Rows, values: Callable[[slice], Floats]) -> None:
        self.borders, self._values = rows.borders, values

    def read(self, block: int) -> Any:
        """Return what belongs to the rows of one block."""
        return np.asarray(self._values(self.rows_of(block)), dtype=np.float32)


class Slices:
    """The rows of a source by slices, which need not be blocks."""

    def __init__(self, source: Rows) -> None:
        self._source = source

    def __call__(self, rows: slice) -> Any:
        """Return some rows that follow each other."""
        return self._source.take(np.arange(rows.start, rows.stop))
