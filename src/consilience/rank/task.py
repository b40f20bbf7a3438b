"""The task that teachers are ranked on: labelled rows, in memory or read block by block."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._validation import n_rows
from consilience.exceptions import ConsilienceWarning
from consilience.kernels.arrays import Floats
from consilience.labels.reader import LabelCodes, read_labels
from consilience.rank.metrics import Metric, Settings
from consilience.rows import Rows, memory_budget
from consilience.rows.source_rows import SourceRows
from consilience.run import Run
from consilience.scoring.engine import Observed, observe
from consilience.scoring.ray_options import RayOptions
from consilience.scoring.ray_tasks import map_on_ray
from consilience.scoring.store import ScoreStore
from consilience.scoring.stream import check_takes_blocks
from consilience.students.labelled import LabelledRows, read_labelled_rows
from consilience.teachers import Teacher, as_teacher
from consilience.teachers.given import GivenTeachers

COPIES = 4
"""How often a teacher's outputs are in memory while its metrics are computed, about."""
TOO_WIDE = 2**40
"""Stands for the width of outputs that cannot be made block by block."""


@dataclass(frozen=True, eq=False)
class Task:
    """What all teachers are scored on, and how."""

    X: Any
    y: NDArray[Any]
    codes: NDArray[np.intp]
    n_classes: int
    metrics: dict[str, Metric]  # by name; the first ranks
    settings: Settings
    student_logits: Floats | None  # of Approximation I
    store: ScoreStore | None
    batch_size: int
    all_rows: Any  # X with the rows that have no label
    labelled: NDArray[np.bool_]  # which of these have one
    places: NDArray[np.intp] | None  # where they are among all rows, if not all of these fit in memory

    def observed(self, teacher: Teacher) -> Observed:
        """Return what a teacher says of the labelled rows."""
        if self.places is not None:
            teacher = teacher.part(self.places) or teacher
        if self.labelled.all() or getattr(teacher, "batched", True):
            return observe(teacher, self.X, batch_size=self.batch_size, store=self.store)
        # precomputed outputs belong to all rows
        seen = observe(teacher, self.all_rows, batch_size=self.batch_size, store=self.store)
        features = None if seen.embeddings is None else seen.embeddings[self.labelled]
        return Observed(seen.logits[self.labelled], features)


def read_task_rows(
    X: Any, y: Any, memory: Any, *, seed: int, width: Callable[[Any], int] | None
) -> LabelledRows:
    """Read labelled rows. If they do not fit in memory, but what teachers say of them does, leave them there.

    Parameters
    ----------
    X : rows or Rows
    y : (n,) sequence
    memory : int, str or None
        The budget; see `consilience.rows.memory_budget`.
    seed : int
        Draws rows where not even the outputs of all fit.
    width : callable, optional
        From a few rows to the most numbers that a teacher says of one row. None if the rows themselves are
        needed in memory.
    """
    budget = memory_budget(Run(memory=memory))
    if not isinstance(X, Rows) or width is None or X.n_bytes <= budget / 4:
        return read_labelled_rows(X, y, memory, seed=seed, stacklevel=4)
    labels = read_labels(y, len(X), at_least=2)
    places, fit = np.flatnonzero(labels.known), int(budget / 4 * len(X) / X.n_bytes)
    most = int(budget / 2 / (8 * COPIES * max(1, width(X.head)))) if len(places) > fit else 0
    if most <= fit:
        return read_labelled_rows(X, y, memory, seed=seed, stacklevel=4)
    if len(places) > most:
        warnings.warn(
            f"{most:,} random rows of the {len(places):,} that have a label are used: what teachers say of "
            "all of them would take more memory. Raise memory= for more.",
            ConsilienceWarning,
            stacklevel=3,
        )
        places = np.sort(np.random.default_rng(seed).choice(places, most, replace=False))
    return LabelledRows(SourceRows(X, places), LabelCodes(labels.classes, labels.codes[places]), places)


def widest(given: GivenTeachers, on_ray: RayOptions | None) -> Callable[[Any], int]:
    """Return a function that asks every teacher about a few rows, and returns the most numbers per row."""

    def asked(few: Any) -> int:
        items = list(zip(given.sources, given.names, strict=True))
        if on_ray is None:
            return max(_width(few, item) for item in items)
        needs = [on_ray.teachers.get(name or "", {}) for name in given.names]
        found = map_on_ray(_width, few, items, options=on_ray, needs=needs)
        return max(width if isinstance(width, int) else 0 for _, width in found)

    return asked


def _width(few: Any, item: tuple[Any, str | None]) -> int:
    """Return how many numbers a teacher says of a row; 0 if it fails, which the ranking will tell."""
    source, name = item
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            teacher = as_teacher(source, name=name)
        except Exception:
            return 0
        try:
            check_takes_blocks(teacher)
        except Exception:
            return TOO_WIDE
        try:
            seen = observe(teacher.part(slice(0, n_rows(few))) or teacher, few)
        except Exception:
            return 0
        finally:
            teacher.release()
    return int(seen.logits.shape[1]) + (0 if seen.embeddings is None else int(seen.embeddings.shape[1]))
