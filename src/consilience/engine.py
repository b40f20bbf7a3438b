"""Where scoring runs: every teacher looks at every row, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._validation import check_block, n_rows, take_rows
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.labels import LabelSpace


class Scorer(Protocol):
    """What the engine needs of a teacher; `consilience.teachers.Teacher` is one."""

    name: str
    classes: NDArray[Any]

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return logits (n, k); NaN rows where the teacher abstains."""


def score(
    teachers: Sequence[Scorer],
    space: LabelSpace,
    X: Any,
    *,
    batch_size: int = 4096,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Return the packed logits (n, m) of all teachers.

    Parameters
    ----------
    teachers : sequence of teachers
        In the order of the blocks of `space`.
    space : LabelSpace
    X : array, sparse matrix, data frame or list
        n rows.
    batch_size : int
        Rows per call. A teacher with ``batched = False`` gets all rows at once.
    progress : callable
        Called with ("scoring", rows done, rows in all), counted over all teachers.
    """
    rows = n_rows(X)
    packed = np.empty((rows, space.n_columns))
    for i, teacher in enumerate(teachers):
        size = batch_size if getattr(teacher, "batched", True) else max(rows, 1)
        for start in range(0, max(rows, 1), size):
            stop = min(start + size, rows)
            batch = X if stop - start == rows else take_rows(X, slice(start, stop))
            try:
                packed[start:stop, space.block(i)] = _ask(teacher, batch, stop - start)
            except TeacherError as error:
                if start:
                    error = TeacherError(error.name, f"{error.problem} (Rows count from row {start} of X.)")
                raise error.at(i, len(teachers)) from error.__cause__
            progress("scoring", i * rows + stop, len(teachers) * rows)
    return packed


def _ask(teacher: Scorer, X: Any, rows: int) -> NDArray[np.float64]:
    """Ask one teacher, and check what it says: any object may call itself a teacher."""
    logits = np.asarray(teacher.predict_logits(X))
    if logits.shape != (rows, len(teacher.classes)):
        raise TeacherError(
            teacher.name,
            f"returned logits of shape {logits.shape} for {rows} rows and {len(teacher.classes)} classes. "
            "A teacher's predict_logits gives a row per row of X and a column per class.",
        )
    try:
        check_block(logits, "logits")
    except InvalidInputError as error:
        raise TeacherError(teacher.name, f"cannot be used: its {error}") from None
    return logits
