"""Where scoring runs: every teacher looks at every row, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._validation import check_block, n_rows, take_rows
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.labels import LabelSpace
from consilience.teachers import Observed
from consilience.teachers._features import read_features

__all__ = ["Observed", "Scorer", "observe", "score"]


class Scorer(Protocol):
    """What the engine needs of a teacher; `consilience.teachers.Teacher` is one."""

    name: str
    classes: NDArray[Any]

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return logits (n, k); NaN rows where the teacher abstains."""


def observe(
    teacher: Scorer,
    X: Any,
    *,
    batch_size: int = 4096,
    embeddings: bool = True,
    progress: Progress = silent,
) -> Observed:
    """Return what a teacher says and sees: logits (n, k) and embeddings (n, d) of one pass.

    Parameters
    ----------
    teacher : teacher
    X : array, sparse matrix, data frame or list
        n rows.
    batch_size : int
        Rows per call. A teacher with ``batched = False`` gets all rows at once.
    embeddings : bool
        Whether embeddings are wanted, too.
    progress : callable
        Called with ("scoring", rows done, rows in all).

    Returns
    -------
    Observed
        Its `embeddings` are None where the teacher has no features, or they are not wanted.
    """
    rows = n_rows(X)
    logits = np.empty((rows, len(teacher.classes)))
    features: NDArray[Any] | None = None
    for start, stop, batch in _batches(teacher, X, rows, batch_size):
        with _placed(start):
            seen = _ask(teacher, batch, stop - start, embeddings)
        logits[start:stop] = seen.logits
        if seen.embeddings is None:
            embeddings = False
        elif embeddings:
            if features is None:
                features = np.empty((rows, seen.embeddings.shape[1]), seen.embeddings.dtype)
            features[start:stop] = seen.embeddings
        progress("scoring", stop, rows)
    return Observed(logits, features if embeddings else None)


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
        report = _shifted(progress, i * rows, len(teachers) * rows)
        try:
            seen = observe(teacher, X, batch_size=batch_size, embeddings=False, progress=report)
        except TeacherError as error:
            raise error.at(i, len(teachers)) from error.__cause__
        packed[:, space.block(i)] = seen.logits
    return packed


def _shifted(progress: Progress, done: int, total: int) -> Progress:
    """Return the progress of one teacher as part of that of all."""

    before, of_all = done, total

    def report(task: str, done: int, total: int) -> None:
        progress(task, before + done, of_all)

    return report


def _batches(teacher: Scorer, X: Any, rows: int, batch_size: int) -> Iterator[tuple[int, int, Any]]:
    """Yield the borders and rows of each batch; at least one, so that errors show without rows, too."""
    size = batch_size if getattr(teacher, "batched", True) else max(rows, 1)
    for start in range(0, max(rows, 1), size):
        stop = min(start + size, rows)
        yield start, stop, X if stop - start == rows else take_rows(X, slice(start, stop))


@contextmanager
def _placed(start: int) -> Iterator[None]:
    """Say in an error where its rows begin."""
    try:
        yield
    except TeacherError as error:
        if start:
            problem = f"{error.problem} (Rows count from row {start} of X.)"
            raise TeacherError(error.name, problem) from error.__cause__
        raise


def _ask(teacher: Scorer, X: Any, rows: int, embeddings: bool) -> Observed:
    """Ask one teacher, and check what it says: any object may call itself a teacher."""
    if embeddings and hasattr(teacher, "observe"):
        seen = teacher.observe(X)
        logits, features = np.asarray(seen.logits), seen.embeddings
    else:
        logits = np.asarray(teacher.predict_logits(X))
        features = teacher.embed(X) if embeddings and hasattr(teacher, "embed") else None
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
    return Observed(logits, None if features is None else read_features(features, rows, teacher.name))
