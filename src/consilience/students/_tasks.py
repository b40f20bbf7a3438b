"""What an n-gram classifier learns from: texts and soft labels in memory, or read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from consilience.exceptions import InvalidInputError
from consilience.files.ngram_model import Packed, Reading, as_texts, pack
from consilience.rows.targets import (
    BUFFER_SHARE,
    MOST_HELD_OUT,
    Epochs,
    TargetRows,
    in_random_order,
    windows,
)


class Batch(NamedTuple):
    """Some of the packed texts, by their numbers, and what to learn about them."""

    packed: Packed
    rows: NDArray[np.intp]
    targets: NDArray[np.float32]  # (n, L): soft labels times all weights


class Task(Protocol):
    """A learning task, after validation."""

    @property
    def classes(self) -> NDArray[Any]:
        """The names (L,) of the classes."""

    def epochs(self, max_iter: int | None, default: int) -> Epochs:
        """Return how often the texts are read."""

    def batches(self, reading: Reading, random: np.random.Generator, size: int) -> Iterator[Batch]:
        """Yield batches of texts in random order, pass after pass, without end."""


@dataclass(frozen=True, eq=False)
class TextsInMemory:
    """Texts and soft labels in memory."""

    texts: list[str]
    labels: Any  # (n, L) soft labels, an array or a CSR matrix
    classes: NDArray[Any]
    class_weights: NDArray[np.float64]  # (L,)
    row_weights: NDArray[np.float64]  # (n,)

    def epochs(self, max_iter: int | None, default: int) -> Epochs:
        """Return how often the texts are read: an epoch is a pass."""
        if len(self._used) == 0:
            raise InvalidInputError("X has no texts with a weight above 0; give some to learn from.")
        return Epochs(len(self._used), 1, max_iter or default)

    def batches(self, reading: Reading, random: np.random.Generator, size: int) -> Iterator[Batch]:
        """Yield batches of texts, pass after pass."""
        packed = pack(self.texts, reading)
        while True:
            order = random.permutation(self._used)
            for start in range(0, len(order), size):
                rows = order[start : start + size]
                yield Batch(packed, rows, self._targets(rows))

    def _targets(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the soft labels of some rows times all weights. The mean weight of a row is 1."""
        taken = self.labels[rows].toarray() if issparse(self.labels) else self.labels[rows]
        weights = self._row_scale * self.row_weights[rows, None] * self.class_weights
        return np.asarray(taken * weights, dtype=np.float32)

    @cached_property
    def _used(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.row_weights > 0)

    @cached_property
    def _row_scale(self) -> float:
        return float(len(self._used) / self.row_weights.sum())


@dataclass(frozen=True, eq=False)
class TextsByPasses:
    """Texts and soft labels that are read block by block, and shuffled in windows of bounded size."""

    rows: TargetRows
    classes: NDArray[Any]
    class_weights: NDArray[np.float64]  # (L,)
    memory: int

    def epochs(self, max_iter: int | None, default: int) -> Epochs:
        """Return how often the texts are read; as in `Ngrams.fit_by_passes`."""
        if self.rows.n_rows == 0:
            raise InvalidInputError("X has no texts to learn from.")
        return Epochs.of(self.rows.n_rows, max_iter or default, limited=max_iter is None)

    def batches(self, reading: Reading, random: np.random.Generator, size: int) -> Iterator[Batch]:
        """Yield batches of texts, pass after pass."""
        scale = self._row_scale(int(random.integers(2**31)))
        n_bytes = BUFFER_SHARE * self.memory
        rows = in_random_order(self.rows, n_bytes / 2, 0)  # of texts, this only warns
        while True:
            count = 0
            for X, soft, weights in windows(rows, random, n_bytes):
                packed = pack(as_texts(X), reading)
                by_row = scale if weights is None else scale * weights[:, None]
                targets = np.asarray(soft * by_row * self.class_weights, dtype=np.float32)
                count += len(targets)
                for start in range(0, len(targets), size):
                    places = np.arange(start, min(start + size, len(targets)))
                    yield Batch(packed, places, targets[places])
            if not count:
                raise InvalidInputError("X has no texts to learn from.")

    def _row_scale(self, seed: int) -> float:
        """Return what makes the mean weight of a row 1, from a sample."""
        if self.rows.sample(1, seed)[2] is None:
            return 1.0
        weights = self.rows.sample(MOST_HELD_OUT, seed)[2]
        if weights is None or not weights.any():
            raise InvalidInputError("X has no texts with a weight above 0; give some to learn from.")
        return float(np.count_nonzero(weights) / weights.sum(dtype=np.float64))
