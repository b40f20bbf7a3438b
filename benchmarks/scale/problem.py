"""Rows that are drawn when they are read, and teachers of a known cost: as many rows as one likes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from consilience.rows.rows import BLOCK_ROWS, Rows, cut
from consilience.teachers import Function, Teacher

COLUMNS, CLASSES = 32, 35
CHEAP, SLOW = 15, 5
"""Teachers: one product of matrices, and several wide layers."""
KNOWN = (5, 16)
"""At least 5 and fewer than 16 classes are drawn for a teacher; it knows fewer where one is drawn twice."""
WIDTH = 256
"""Of a layer of a slow teacher."""

Floats = NDArray[np.float32]


class DrawnRows(Rows):
    """Rows from a generator of random numbers: each block has a seed of its own, and none is kept.

    Parameters
    ----------
    n_rows : int
    seed : int
    """

    def __init__(self, n_rows: int, seed: int = 0) -> None:
        self._seed = seed
        self.borders = cut([n_rows], BLOCK_ROWS)

    def read(self, block: int) -> Floats:
        """Return the rows of one block."""
        rows = self.rows_of(block)
        random = np.random.default_rng([self._seed, block])
        return random.standard_normal((rows.stop - rows.start, COLUMNS), dtype=np.float32)


class Layers:
    """Logits by a linear map of the rows, after `depth` wide layers that only cost time.

    Parameters
    ----------
    weights : (columns, k) array
    depth : int
        Layers of WIDTH x WIDTH.
    """

    def __init__(self, weights: Floats, depth: int = 0) -> None:
        self._weights, self._depth = weights, depth
        random = np.random.default_rng(0)
        self._into = random.standard_normal((len(weights), WIDTH), dtype=np.float32) / len(weights) ** 0.5
        self._wide = random.standard_normal((WIDTH, WIDTH), dtype=np.float32) * (2 / WIDTH) ** 0.5

    def __call__(self, X: Any) -> Floats:
        """Return logits (n, k) of rows (n, columns)."""
        logits: Floats = X @ self._weights
        if self._depth:
            hidden = X @ self._into
            for _ in range(self._depth):
                hidden = np.maximum(hidden @ self._wide, 0)
            logits += 1e-3 * hidden[:, : logits.shape[1]]
        return logits


def make_teachers(depth: int, seed: int = 0, cheap: int = CHEAP, slow: int = SLOW) -> list[Teacher]:
    """Draw teachers of one truth with noise. The last `slow` of them have `depth` layers each."""
    random = np.random.default_rng([seed, 2**20])
    truth = random.standard_normal((COLUMNS, CLASSES)) / COLUMNS**0.5 * 4
    teachers = []
    for i in range(cheap + slow):
        # the first ones know all classes between them
        own = set(range(CLASSES)[i::cheap]) if i < cheap else set()
        count = int(random.integers(*KNOWN))
        own |= set(random.choice(CLASSES, count, replace=False).tolist()[: max(0, count - len(own))])
        classes = sorted(own)
        weights = truth[:, classes] + random.standard_normal((COLUMNS, len(classes))) / COLUMNS**0.5 * 2
        model = Layers(weights.astype(np.float32), 0 if i < cheap else depth)
        names = [f"class {k}" for k in classes]
        mark = f"scale {seed} {i} {model._depth}"
        teachers.append(Function(model, names, f"teacher {i}", output="logits", fingerprint=mark))
    return teachers


def depth_for(microseconds: float, rows: int = 4096) -> int:
    """Return how many layers make a teacher take so long for a row, on one core of this machine."""
    if microseconds <= 0:
        return 0
    X = DrawnRows(rows).read(0)
    weights = np.zeros((COLUMNS, 10), np.float32)
    few, many = Layers(weights, 1), Layers(weights, 9)
    with threadpool_limits(1):
        seconds = [min(_cpu_seconds(model, X) for _ in range(5)) for model in (few, many)]
    a_layer = (seconds[1] - seconds[0]) / 8 / rows
    return max(1, round(microseconds * 1e-6 / a_layer))


def _cpu_seconds(model: Layers, X: Floats) -> float:
    start = time.process_time()
    model(X)
    return time.process_time() - start
