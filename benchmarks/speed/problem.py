"""The problem to solve: packed logits of random teachers, as in Table 1 of the paper."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.unify.packed import Layout, make_layout
from consilience.labels import LabelSpace

TEMPERATURE = 3.0


class Problem(NamedTuple):
    """Packed logits and where they belong."""

    logits: NDArray[np.float64]  # (n, m)
    space: LabelSpace
    layout: Layout

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes n, L and N, for the record."""
        return {"n": len(self.logits), "L": self.space.n_classes, "N": self.space.n_teachers}

    def head(self, rows: int) -> Problem:
        """Return the first rows."""
        return self._replace(logits=self.logits[:rows])


def make_problem(n: int, n_classes: int, n_teachers: int, sizes: tuple[int, int], seed: int) -> Problem:
    """Draw teachers of `sizes` classes. Their logits are shared logits plus noise."""
    rng = np.random.default_rng(seed)
    lists = [rng.choice(n_classes, rng.integers(*sizes), replace=False) for _ in range(n_teachers)]
    space = LabelSpace(lists, disconnected="ignore")
    common = 3.0 * rng.normal(size=(n, space.n_classes))
    logits = common[:, space.columns] + 2.0 * rng.normal(size=(n, space.n_columns))
    return Problem(logits, space, make_layout(space.columns, space.offsets, space.n_classes))


def best_of(repeats: int, work: Callable[[], Any], at_least: float = 1.0) -> float:
    """Return the shortest wall time of `repeats` runs, or more if these take less than `at_least` seconds.

    A first run is not counted. Short runs are often disturbed, so a handful of them is not enough.
    """
    work()
    times: list[float] = []
    while len(times) < repeats or sum(times) < at_least:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
