"""What runs on Ray's workers: actors that hold teachers and score blocks."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress
from consilience.exceptions import ConsilienceError, ScoringError, TeacherError
from consilience.rows import Block, Rows
from consilience.run import Run
from consilience.scoring.blocks import Asked, Finish
from consilience.scoring.digests import row_digests
from consilience.scoring.store import ScoreStore
from consilience.teachers.base import summary

ANNOUNCE_SECONDS = 5.0
"""How long to wait for a board that does not answer."""
REPORT_SECONDS = 0.2
"""A worker reports its progress at most this often."""
REPORT_TIMEOUT = 60.0
"""How long to wait until the board has taken a report that must not be lost."""


@dataclass(frozen=True)
class Part:
    """Some teachers that are asked by the same actors.

    Attributes
    ----------
    names : list of str
    places : list of int
        Their places among all teachers.
    columns : (k,) array of int
        Their packed columns among those of all teachers.
    batch_sizes : list of int
    num_cpus, num_gpus : float
        What an actor reserves.
    """

    names: list[str]
    places: list[int]
    columns: NDArray[np.intp]
    batch_sizes: list[int]
    num_cpus: float = 1.0
    num_gpus: float = 0.0


@dataclass(frozen=True)
class Job:
    """What an actor needs, apart from its source and its teachers."""

    part: Part
    n_teachers: int
    n_columns: int
    store: ScoreStore | None
    first: bool  # whether its input is block numbers, not yet answers
    folder: str  # of the driver, where relative paths begin


@dataclass
class Answer:
    """What is known about a block after a stage.

    Attributes
    ----------
    number : int
        Which block.
    logits : (b, m) float32 array or None
        NaN in the columns of later stages; what was made of them after the last; None after an error.
    error : ConsilienceError or None
        What a teacher or the source raised.
    told : list of Warning
        What was warned of.
    """

    number: int
    logits: NDArray[np.float32] | None = None
    error: ConsilienceError | None = None
    told: list[Warning] = field(default_factory=list)


def as_table(answer: Answer) -> Any:
    """Return an answer as a table of one row, which Ray can hold."""
    import pyarrow
    from ray import cloudpickle

    logits = np.empty((0, 0), np.float32) if answer.logits is None else np.ascontiguousarray(answer.logits)
    ends = pyarrow.py_buffer(np.array([0, logits.nbytes], np.int64))
    columns = {
        "number": pyarrow.array([answer.number], pyarrow.int64()),
        "shape": pyarrow.array([list(logits.shape)], pyarrow.list_(pyarrow.int64())),
        # not pyarrow.array([logits.data]): that copies them, and never lets go of what it was given
        "logits": pyarrow.LargeBinaryArray.from_buffers(
            pyarrow.large_binary(), 1, [None, ends, pyarrow.py_buffer(logits)]
        ),
        # sent within one cluster, between processes that run the user's own code
        "rest": pyarrow.array([cloudpickle.dumps((answer.error, answer.told))], pyarrow.large_binary()),
    }
    return pyarrow.table(columns)


def from_table(table: Any) -> Answer:
    """Return the answer that a table holds."""
    from ray import cloudpickle

    number, shape = table["number"][0].as_py(), table["shape"][0].as_py()
    error, told = cloudpickle.loads(table["rest"][0].as_py())  # written above
    logits = None
    if error is None:
        logits = np.frombuffer(table["logits"][0].as_buffer(), np.float32).reshape(shape)
    return Answer(number, logits, error, told)


class Worker:
    """An actor: it loads its teachers once, and scores one block after another.

    Parameters
    ----------
    job : Job
    source, sent : ObjectRef
        Of the source, and of the pickled teachers and what to make of their logits. They are fetched with the
        first block, so that what goes wrong is an answer like any other.
    board : actor handle
        Of a `Board`.
    """

    def __init__(self, job: Job, source: Any, sent: Any, board: Any) -> None:
        import ray

        self._job, self._refs, self._board = job, (source, sent), board
        self._source: Rows | None = None
        self._asked: list[Asked] = []
        self._finish: Finish | None = None
        context = ray.get_runtime_context()
        self._name = f"process {os.getpid()} on {ray.util.get_node_ip_address()}"
        self._id = context.get_actor_id()  # stays when Ray starts it again
        board.enter.remote(self._id, self._name, context.current_actor)

    def __call__(self, table: Any) -> Any:
        """Score the block of which the table holds the number, or the answer of the stage before."""
        answer = Answer(table["item"][0].as_py()) if self._job.first else from_table(table)
        if answer.error is None:
            with _recorded(answer):
                self._score(answer)
        return as_table(answer)

    def _score(self, answer: Answer) -> None:
        self._board.begin.remote(self._id, answer.number, self._job.part.places[0])
        try:
            source = self._fetched()
            block = Block(answer.number, source.rows_of(answer.number), _own(source.read(answer.number)))
            answer.logits = self._ask(answer, block)
        except ConsilienceError as error:
            answer.error, answer.logits = error, None
        except Exception as error:  # a file that is not on this machine, a module that is not installed, ...
            answer.logits = None
            answer.error = ScoringError(
                f"Block {answer.number} of X cannot be scored by {self._name}: {summary(error)}. Files and "
                "modules must be there on every machine of the cluster."
            )

    def _ask(self, answer: Answer, block: Block) -> NDArray[np.float32]:
        part, report = self._job.part, self._reporter(answer.number)
        rows, start = block.rows.stop - block.rows.start, 0
        digests = row_digests(block.X) if any(one.stores for one in self._asked) else None
        logits = np.full((rows, self._job.n_columns), np.nan, np.float32)
        if answer.logits is not None:
            logits[:] = answer.logits
        for i, one in enumerate(self._asked):
            columns = part.columns[start : start + len(one.teacher.classes)]
            start += len(columns)
            self._announce(answer.number, one.teacher.name, i * rows)
            step = _step(report, one.teacher.name, i * rows, rows)
            with self._named(i):
                seen = one.observe(block, digests, step)
                logits[:, columns] = seen.logits
        report("", len(self._asked) * rows, rows)
        return logits if self._finish is None else self._finish(block.rows, logits)

    def _fetched(self) -> Rows:
        """Return the source; with the first block, fetch it and the teachers."""
        import ray
        from ray import cloudpickle

        if self._source is None:
            with suppress(OSError):  # another machine may not have it
                os.chdir(self._job.folder)
            source, sent = (ray.get(ref) for ref in self._refs)
            teachers, self._finish = cloudpickle.loads(sent)  # the user's own, from the driver
            self._asked = []
            for i, (teacher, size) in enumerate(zip(teachers, self._job.part.batch_sizes, strict=True)):
                with self._named(i):
                    one = Asked(teacher, source, Run(rows_per_call=size), self._job.store)
                self._asked.append(one)
            self._source = source
        return self._source

    @contextmanager
    def _named(self, i: int) -> Iterator[None]:
        """Say which of all teachers an error is about."""
        try:
            yield
        except TeacherError as error:
            raise error.at(self._job.part.places[i], self._job.n_teachers) from error.__cause__

    def _announce(self, number: int, teacher: str, done: int) -> None:
        """Tell the board which teacher comes next, and wait until it knows: it may end the process."""
        import ray

        told = self._board.report.remote(self._id, number, self._job.part.places[0], teacher, done)
        with suppress(ray.exceptions.RayError):
            ray.get(told, timeout=ANNOUNCE_SECONDS)

    def _reporter(self, number: int) -> Progress:
        """Return a function that tells the board how far this block is."""
        import ray

        last = 0.0

        def report(task: str, done: int, total: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last < REPORT_SECONDS and done % max(1, total):
                return
            last = now
            sent = self._board.report.remote(self._id, number, self._job.part.places[0], task, done)
            if done % max(1, total) == 0:  # a teacher that ends its process is known only if this arrives
                with suppress(ray.exceptions.RayError):  # the scores are there all the same
                    ray.get(sent, timeout=REPORT_TIMEOUT)

        return report


def _step(report: Progress, name: str, before: int, rows: int) -> Progress:
    """Return the progress of one teacher of a block, under its name and after the rows of those before."""

    def step(task: str, done: int, total: int) -> None:
        report(name, before + done * rows // max(1, total), rows)

    return step


@contextmanager
def _recorded(answer: Answer) -> Iterator[None]:
    """Keep what is warned of for the driver: nobody reads what a worker prints."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    known = {str(message) for message in answer.told}
    for entry in found:
        if str(entry.message) not in known and isinstance(entry.message, Warning):
            known.add(str(entry.message))
            answer.told.append(_sendable(entry.message))


def _sendable(warning: Warning) -> Warning:
    from ray import cloudpickle

    try:
        cloudpickle.loads(cloudpickle.dumps(warning))  # made in this line
    except Exception:  # a class inside a function, arguments that are no data, ...
        return UserWarning(f"{type(warning).__name__}: {warning}")
    return warning


def _own(X: Any) -> Any:
    """Return rows that a model may write to, as it may on one machine: Ray shares arrays read-only."""
    return X.copy() if isinstance(X, np.ndarray) and not X.flags.writeable else X
