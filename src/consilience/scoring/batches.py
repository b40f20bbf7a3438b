"""How a teacher is asked: in batches sized by its speed, and in several processes if n_jobs is above one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pickle import PicklingError
from typing import Any, NamedTuple

import numpy as np
from joblib.externals.loky import ProcessPoolExecutor  # type: ignore[import-untyped]
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from consilience.exceptions import InvalidInputError, TeacherError
from consilience.labels import check_block
from consilience.teachers import Observed, Teacher
from consilience.teachers.outputs import read_features, summary

FIRST = 4
"""Rows of the first batch, before a teacher's speed is known."""
SETTLE = 64
"""Rows of the first batch where the scores themselves must show whether they are logits."""
BATCH_SECONDS = 2.0
"""A batch takes at most this long: it bounds the work lost on a stop and the time between two updates."""
PARALLEL_SECONDS = 10.0
"""Start other processes only if the remaining rows would take one process longer: starting takes a while."""


class Batch(NamedTuple):
    """Some rows of a block: their positions (b,) there, the rows themselves, and where the block begins."""

    places: NDArray[np.intp]
    X: Any
    start: int = 0


class Pace:
    """The number of rows of the next batch, from how long the last one took.

    Parameters
    ----------
    most : int
        Most rows of a batch.
    first : int
        Rows of the first batch.
    """

    def __init__(self, most: int, first: int = FIRST) -> None:
        self._most, self.size = most, min(first, most)
        self.seconds_a_row = 0.0

    def took(self, rows: int, seconds: float) -> None:
        """Choose the next size from how long some rows took."""
        self.seconds_a_row = seconds / max(rows, 1)
        fit = BATCH_SECONDS / max(self.seconds_a_row, 1e-12)  # rows that would fill a batch's time
        if self.size > fit:
            self.size = max(1, int(fit))
            return
        # Grow by powers of two, so that a quick teacher always gets the same batches. Leave room: the next
        # rows may take several times as long.
        factor = 16 if self.size * 64 <= fit else 2 if self.size * 4 <= fit else 1
        self.size = min(self.size * factor, self._most)


def ask_batches(
    teacher: Teacher, batches: Iterator[Batch], rows: int, pace: Pace, *, embeddings: bool
) -> Iterator[tuple[Batch, Observed]]:
    """Ask a teacher about batches of `rows` rows in all; yield each with the answer, in any order.

    The first two batches are asked in this process: the first may load a model, the second shows the speed.
    If the teacher has ``n_jobs`` above one and the rest would take long, the rest is asked in that many
    processes.
    """
    for number, batch in enumerate(batches):
        with _placed(batch):
            seen, seconds = timed(teacher, batch.X, len(batch.places), embeddings)
        pace.took(len(batch.places), seconds)
        yield batch, seen
        rows -= len(batch.places)
        if teacher.n_jobs > 1 and number > 0 and pace.seconds_a_row * rows > PARALLEL_SECONDS:
            yield from _in_processes(teacher, batches, pace, embeddings)


def _in_processes(
    teacher: Teacher, batches: Iterator[Batch], pace: Pace, embeddings: bool
) -> Iterator[tuple[Batch, Observed]]:
    # each process gets the teacher once; functions of a notebook, which none can import, are sent by value
    pool = ProcessPoolExecutor(teacher.n_jobs, initializer=set_worker_teacher, initargs=(teacher,))
    waiting: dict[Future[tuple[Observed, float]], Batch] = {}
    try:
        while True:
            # only one more than there are processes: a submitted batch cannot be called back
            while len(waiting) <= teacher.n_jobs and (batch := next(batches, None)) is not None:
                waiting[pool.submit(ask_in_worker, batch.X, len(batch.places), embeddings)] = batch
            if not waiting:
                return
            for job in wait(waiting, return_when=FIRST_COMPLETED).done:
                batch = waiting.pop(job)
                with _placed(batch):
                    seen, seconds = job.result()
                pace.took(len(batch.places), seconds)
                yield batch, seen
    except (BrokenProcessPool, PicklingError, TypeError, AttributeError) as error:
        raise TeacherError(
            teacher.name,
            f"cannot be asked in {teacher.n_jobs} processes: one of them ended, or the teacher cannot be "
            f"sent there ({summary(error)}). Each process needs memory for the model. Otherwise make the "
            "teacher with {remedy}.",
            remedy=("n_jobs", 1),
        ) from None
    finally:
        pool.shutdown(kill_workers=True)


_worker_teacher: list[Teacher] = []  # in a worker process: the teacher that it asks


def set_worker_teacher(teacher: Teacher) -> None:
    """Keep the teacher that this worker process asks."""
    _worker_teacher[:] = [teacher]


def ask_in_worker(X: Any, rows: int, embeddings: bool) -> tuple[Observed, float]:
    """Ask the teacher of this worker process, with one thread: the processes share the cores."""
    with threadpool_limits(1):
        return timed(_worker_teacher[0], X, rows, embeddings)


def timed(teacher: Teacher, X: Any, rows: int, embeddings: bool) -> tuple[Observed, float]:
    """Return a teacher's answer on some rows, and the seconds it took."""
    start = time.perf_counter()
    seen = ask(teacher, X, rows, embeddings)
    return seen, time.perf_counter() - start


def ask(teacher: Teacher, X: Any, rows: int, embeddings: bool) -> Observed:
    """Ask one teacher, and check its answer: it may be an object of the user's. It gets single precision."""
    seen = teacher.observe(X) if embeddings else Observed(teacher.predict_logits(X), None)
    logits, features = np.asarray(seen.logits), seen.embeddings
    if logits.shape != (rows, len(teacher.classes)):
        raise TeacherError(
            teacher.name,
            f"returned logits of shape {logits.shape} for {rows} rows and {len(teacher.classes)} classes. "
            "A teacher's predict_logits gives a row per row of X and a column per class.",
        )
    try:
        check_block(logits, "logits")
    except InvalidInputError as error:
        unusable = TeacherError(teacher.name, f"cannot be used: its {error.message}")
        raise unusable.changed(**error.data) from None
    if features is not None:
        features = as_float32(read_features(features, rows, teacher.name))
    return Observed(as_float32(logits), features)


def as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return numbers in single precision, as they are kept. What is too large becomes the largest.

    Examples
    --------
    >>> as_float32(np.array([0.5, 1e300])).tolist()
    [0.5, 3.4028234663852886e+38]
    """
    if values.dtype == np.float32:
        return values
    most = float(np.finfo(np.float32).max)
    low: NDArray[np.float32] = np.clip(values, -most, most).astype(np.float32)
    return low


@contextmanager
def _placed(batch: Batch) -> Iterator[None]:
    """Name rows in an error as X counts them; a teacher only knows its batch."""
    try:
        yield
    except InvalidInputError as error:
        if type(error) not in (InvalidInputError, TeacherError):
            raise
        places = batch.start + batch.places
        if error.row is not None and error.row < len(places):
            raise error.changed(row=int(places[error.row])) from error.__cause__
        if not len(places) or not places[0]:
            raise
        where = f"{error.message} (In a batch from row {places[0]} to row {places[-1]} of X.)"
        raise error.changed(message=where) from error.__cause__
