"""Score rows with teachers, block by block; what the cache knows is not asked.

Memory does not grow with the number of rows, and rows are read once for all teachers. A small array is one
block. Within a block a teacher is asked in batches sized by its speed, and in several processes if its
`n_jobs` is above one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from consilience.labels import LabelSpace, check_block
from consilience.rows.rows import Block, Rows, as_rows, new_array, take_rows
from consilience.run import Run, Tell
from consilience.scoring.store import ScoreStore, as_store
from consilience.teachers import Observed, Teacher
from consilience.teachers.outputs import read_features, summary

BlockScores = tuple[int, NDArray[np.float32]]
"""The number of a block, and the packed logits (b, m) of its rows."""
Finish = Callable[[slice, NDArray[np.float32]], NDArray[np.float32]]
"""What to make of the packed logits (b, m) of a block where they are: from its rows and these to (b, c)."""
Digests = NDArray[np.uint64] | None

FIRST = 4
"""Rows of the first batch, before a teacher's speed is known."""
SETTLE = 64
"""Rows of the first batch where the scores themselves must show whether they are logits."""
BATCH_SECONDS = 2.0
"""A batch takes at most this long: it bounds the work lost on a stop and the time between two updates."""
PARALLEL_SECONDS = 10.0
"""Start other processes only if the remaining rows would take one process longer: starting takes a while."""


def open_cache(run: Run) -> ScoreStore | None:
    """Return the cache of a run, opened; None if it has none."""
    return None if run.cache is None else as_store(run.cache, run.cache_limit)


def with_open_cache(run: Run) -> Run:
    """Return the same `Run`, checked, with its cache opened, for a verb that asks teachers several times."""
    if run.engine == "ray":
        from consilience.scoring.ray import engine_options

        engine_options(run)
    return run.changed(cache=open_cache(run), cache_limit=None)


def score(teachers: Sequence[Teacher], space: LabelSpace, rows: Rows, run: Run) -> NDArray[np.float32]:
    """Return the packed logits (n, m) of all teachers, in single precision; see `score_blocks`."""
    packed = new_array((len(rows), space.n_columns), run)
    for i, logits in score_blocks(teachers, space, rows, run):
        packed[rows.rows_of(i)] = logits
    return packed


def score_blocks(
    teachers: Sequence[Teacher], space: LabelSpace, rows: Rows, run: Run, finish: Finish | None = None
) -> Iterator[BlockScores]:
    """Yield the number and the packed logits (b, m) of every block: in order, or on Ray as they are done.

    Parameters
    ----------
    teachers : sequence of Teacher
        In the order of the blocks of `space`. One with ``batched = False`` gets all rows at once.
    space : LabelSpace
    rows : Rows
        Those that Ray holds are always scored on Ray.
    run : Run
        Rows in its cache are not scored again, and a run that was stopped goes on there. Progress is told as
        ("scoring", rows done, rows in all), counted over all teachers.
    finish : callable, optional
        What to make of the logits of a block, on Ray in the worker; its result is yielded instead.
    """
    if run.engine == "ray" or rows.on_ray:
        from consilience.scoring.ray import score_on_ray

        return score_on_ray(teachers, space, rows, run, finish)
    return score_here(teachers, space, rows, run, finish)


def score_here(
    teachers: Sequence[Teacher], space: LabelSpace, rows: Rows, run: Run, finish: Finish | None = None
) -> Iterator[BlockScores]:
    """Do what `score_blocks` does, in this process."""
    asked = open_teachers(teachers, rows, run, open_cache(run))
    tell = run.counter("scoring", len(teachers) * len(rows))
    for block in rows.blocks():
        packed = side_by_side(observe_all(asked, len(teachers), block, tell))
        yield block.number, packed if finish is None else finish(block.rows, packed)


def observe(teacher: Teacher, rows: Any, run: Run, embeddings: bool = True) -> Observed:
    """Return a teacher's logits (n, k) and embeddings (n, d), of one pass over the rows.

    The values have single precision. Embeddings are None if the teacher has none, or they are not wanted.

    Parameters
    ----------
    teacher : Teacher
    rows : Rows, array, sparse matrix, data frame or list
        n rows.
    run : Run
        As for `score_blocks`, but the teacher is always asked on this machine.
    embeddings : bool
        Whether embeddings are wanted, too.
    """
    rows = as_rows(rows)
    asked = Asked(teacher, rows, run, open_cache(run), embeddings)
    answers, tell = _Answers(teacher, len(rows), run, np.float64), run.counter("scoring", len(rows))
    # no rows are asked about, too: they may be of a wrong kind
    for block in rows.blocks() if len(rows) else [Block(0, slice(0, 0), rows.given)]:
        answers.put(block.rows, asked.observe(block, digests_of(block, [asked]), tell))
    return answers.all()


class Asked:
    """A teacher that is asked about one block after the other.

    The batches of a block do not depend on other blocks: some models answer in other last digits if they get
    other batches, and a block must have the same logits on every machine and after every stop.

    Parameters
    ----------
    teacher : Teacher
    rows : Rows
        All of them. The first show how to read the teacher's scores.
    run : Run
    store : ScoreStore, optional
        Where answers are kept. Not those of teachers without a fingerprint, or that hold the answers.
    embeddings : bool
        Whether embeddings are wanted, too.

    Attributes
    ----------
    held : bool
        Whether the answers for all rows are here: the teacher holds them, or it wants all rows at once.
    shelf : Shelf or None
        Where answers are kept; rows must then be told apart by their digests.
    """

    def __init__(
        self, teacher: Teacher, rows: Rows, run: Run, store: ScoreStore | None, embeddings: bool = False
    ) -> None:
        self.teacher, self._run, self._embeddings = teacher, run, embeddings
        self.shelf, self._whole = None, None
        self.held = teacher.part(slice(0, 0)) is not None
        if self.held:
            teacher.check_rows(rows.given)
        elif not teacher.batched:
            self._whole, self.held = ask(teacher, rows.all(run), len(rows), embeddings), True
        elif store is not None:
            # the rows that would decide without a cache: the fingerprint depends on it
            settle(teacher, rows, run)
            if teacher.fingerprint is not None:
                self.shelf = store.shelf(teacher.fingerprint, len(teacher.classes), teacher.name)

    def observe(self, block: Block, digests: Digests, tell: Tell = lambda count: None) -> Observed:
        """Return the logits (b, k) of a block in single precision, and its embeddings (b, d) if wanted.

        Parameters
        ----------
        block : Block
        digests : (b, 2) array or None
            Of its rows; None if rows have no plain content.
        tell : callable
            Called with the number of rows that were just answered.
        """
        if not self.held:
            return self._asked(block, digests, tell)
        tell(len_of(block))
        if self._whole is not None:
            return self._whole.take(block.rows)
        part: Any = self.teacher.part(block.rows)
        try:
            return ask(part, block.X, len_of(block), self._embeddings)
        except InvalidInputError as error:  # the part knows its own rows only
            raise error.moved(block.rows.start) from error.__cause__

    def _asked(self, block: Block, digests: Any, tell: Tell) -> Observed:
        """Return what the cache knows and the teacher answers."""
        count, shelf = len_of(block), None if digests is None else self.shelf
        answers = _Answers(self.teacher, count, self._run)
        missing = first = np.arange(count)  # first: of equal rows, the one that is asked about
        if shelf is not None:
            known, seen = shelf.find(digests, embeddings=self._embeddings)
            answers.put(known, seen.take(known))
            missing = np.flatnonzero(~known)
            tell(count - len(missing))
            if not len(missing):
                return answers.all()
            _, at, which = np.unique(digests[missing], axis=0, return_index=True, return_inverse=True)
            first = missing[at[which.ravel()]]
        wanted = np.unique(first)
        pace = Pace(self._run.rows_per_call, SETTLE if self.teacher.output is None else FIRST)
        try:
            for batch, seen in ask_batches(
                self.teacher, _batches(block, wanted, pace), len(wanted), pace, embeddings=self._embeddings
            ):
                if shelf is not None:
                    shelf.add(digests[batch.places], seen, embeddings=self._embeddings)
                answers.put(batch.places, seen)
                tell(len(batch.places))
        finally:
            if shelf is not None:
                shelf.flush()
        found = answers.all()
        if len(wanted) < len(missing):
            answers.put(missing, found.take(first))
            tell(len(missing) - len(wanted))
        return found


class _Answers:
    """Logits (n, k) and embeddings (n, d) of a teacher, which come part by part."""

    def __init__(self, teacher: Teacher, rows: int, run: Run, dtype: type = np.float32) -> None:
        self._teacher, self._rows, self._run = teacher, rows, run
        self._logits = new_array((rows, len(teacher.classes)), run, dtype)
        self._features: NDArray[Any] | None = None
        self._begun = False

    def put(self, places: Any, seen: Observed) -> None:
        """Note what the teacher says of some rows."""
        self._logits[places] = seen.logits
        if not len(seen.logits) and self._rows:
            return
        width = None if seen.embeddings is None else seen.embeddings.shape[1]
        if not self._begun and width is not None:
            self._features = new_array((self._rows, width), self._run)
        known, self._begun = None if self._features is None else self._features.shape[1], True
        if width != known:
            raise TeacherError(
                self._teacher.name,
                f"has embeddings of width {known} for some rows and {width} for others. If it was changed, "
                "give it another fingerprint, or clear the cache.",
            )
        if self._features is not None:
            self._features[places] = seen.embeddings

    def all(self) -> Observed:
        """Return what the teacher said."""
        return Observed(self._logits, self._features)


def open_teachers(
    teachers: Sequence[Teacher],
    rows: Rows,
    run: Run,
    store: ScoreStore | None,
    *,
    places: Iterable[int] | None = None,
    embeddings: bool = False,
) -> dict[int, Asked]:
    """Make teachers ready to be asked, by their places, which an error names; by default all."""
    opened = {}
    for i in range(len(teachers)) if places is None else places:
        with placed(i, len(teachers)):
            opened[i] = Asked(teachers[i], rows, run, store, embeddings)
    return opened


def observe_all(asked: Mapping[int, Asked], n_teachers: int, block: Block, tell: Tell) -> dict[int, Observed]:
    """Return what some teachers say of a block, by their places."""
    digests, seen = digests_of(block, asked.values()), {}
    for i, one in asked.items():
        with placed(i, n_teachers):
            seen[i] = one.observe(block, digests, tell)
    return seen


def side_by_side(seen: Mapping[int, Observed]) -> NDArray[np.float32]:
    """Return the logits (b, k) of some teachers."""
    return np.concatenate([one.logits for one in seen.values()], axis=1)


def settle(teacher: Teacher, rows: Rows, run: Run) -> None:
    """Decide from the first rows how to read a teacher's scores, unless that is known."""
    if teacher.output is None and len(rows):
        teacher.predict_logits(take_rows(rows.head, slice(0, min(SETTLE, run.rows_per_call))))


def len_of(block: Block) -> int:
    """Return the number of rows of a block."""
    return int(block.rows.stop - block.rows.start)


def digests_of(block: Block, asked: Iterable[Asked]) -> Digests:
    """Return the digests of the rows of a block, if a teacher needs them."""
    if all(one.shelf is None for one in asked):
        return None
    from consilience.scoring.digests import row_digests

    return row_digests(block.X)


@contextmanager
def placed(place: int, count: int) -> Iterator[None]:
    """Say which of `count` teachers an error is about."""
    try:
        yield
    except TeacherError as error:
        raise error.at(place, count) from error.__cause__


def _batches(block: Block, rows: NDArray[np.intp], pace: Pace) -> Iterator[Batch]:
    """Yield some rows of a block in order; at least one batch, so that no rows show errors, too."""
    if not len(rows):
        yield Batch(rows, block.X, block.rows.start)
    while len(rows):
        part, rows = rows[: pace.size], rows[pace.size :]
        follow = int(part[-1] - part[0]) == len(part) - 1  # then it is a view, where X is an array
        places: Any = slice(int(part[0]), int(part[-1]) + 1) if follow else part
        X = block.X if len(part) == len_of(block) else take_rows(block.X, places)
        yield Batch(part, X, block.rows.start)


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
        with _naming_rows(batch):
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
                with _naming_rows(batch):
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
def _naming_rows(batch: Batch) -> Iterator[None]:
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
