"""Work on a Ray cluster: blocks of rows are scored by actors that hold teachers, and the cache remembers.

What travels is block numbers. An actor reads a block, asks its teachers as one machine would, and sends the
logits back. So blocks, batches and stored outputs are the same as there. An actor has one block at a time,
and gets the next when its answer is fetched: no more answers wait in Ray's store than there are actors.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience.exceptions import (
    ConsilienceError,
    ConsilienceWarning,
    InvalidInputError,
    ScoringError,
    TeacherError,
    warn,
)
from consilience.labels import LabelSpace
from consilience.options import Options, anything, check_choice, count, number, option, optional
from consilience.rows import Block, Rows
from consilience.rows.datasets import sent_to_ray
from consilience.run import Run
from consilience.scoring.blocks import (
    Asked,
    BlockScores,
    Finish,
    len_of,
    observe_all,
    open_cache,
    open_teachers,
    placed,
    score_here,
    settle,
    side_by_side,
    with_open_cache,
)
from consilience.teachers import Teacher
from consilience.teachers.outputs import summary

START_SECONDS = 60.0
"""The first worker has at least this long to start: it imports what the teachers need."""
TRIES = 3
"""How often a block is begun whose workers die."""
_POLL = 0.5  # seconds between two looks at the workers
_MOST = 1000  # workers that reserve nothing
_KEPT = "Blocks that are done are in the cache, if one was given: the same call goes on from there."


class RayOptions(Options):
    """How to run on Ray: ``Run(engine="ray", engine_options={...})``."""

    address: str | None = option(
        anything("str or None"),
        "Of the cluster. By default the one that is connected or runs on this machine, else a new one here.",
        default=None,
    )
    workers: int | None = option(
        optional(count()),
        "Most actors that score at once. By default as many as the cluster has room for.",
        default=None,
    )
    num_cpus: float = option(number(at_least=0), "Processors that a worker reserves.", default=1)
    num_gpus: float = option(number(at_least=0), "Devices that a worker reserves.", default=0)
    timeout: float = option(
        number(above=0), "Stop with an error if no row is scored for this many seconds.", default=600.0
    )
    train_workers: int | None = option(
        optional(count()),
        "Processes that train a torch student together, by Ray Train. By default it learns in the process "
        "that calls `fit`.",
        default=None,
    )


def engine_options(run: Run) -> RayOptions:
    """Return how to run on Ray, checked."""
    given, known = {} if run.engine_options is None else run.engine_options, RayOptions.declared()
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"{{argument}} must be a dict; it may have {', '.join(known)}.",
            argument="engine_options",
            value=given,
        )
    for key in given:
        check_choice("engine_options", key, known)
    made = RayOptions(**given)
    made.check_options()
    return made


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """Give ray, connected to a cluster; what was started here ends here."""
    ray = require("ray", extra="ray", purpose="Scoring on Ray")
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(
            address=address,
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        place = f"No Ray cluster can be reached at {address!r}" if address else "Ray cannot be started"
        raise ScoringError(f"{place}: {summary(error)}. Start one with: ray start --head") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def offer(ray: Any) -> str:
    """Say what a cluster has."""
    every, free = ray.cluster_resources(), ray.available_resources()
    shown = [f"{every.get(kind, 0):g} {kind} ({free.get(kind, 0):g} free)" for kind in ("CPU", "GPU")]
    return f"the cluster has {' and '.join(shown)}"


def map_on_ray(
    function: Callable[[Any, Any], Any],
    shared: Any,
    items: Sequence[Any],
    options: RayOptions,
) -> Iterator[tuple[int, Any]]:
    """Yield ``function(shared, item)`` for all items, with their positions, as they are finished.

    Each is a task of its own, which Ray starts again if its process dies. If it dies every time, the result
    is a `ScoringError`. `function` handles its own errors.
    """
    with connected(options.address) as ray:
        kept, task = ray.put(_pickled(ray, shared)), ray.remote(max_retries=TRIES - 1)(_call)
        task = task.options(num_cpus=options.num_cpus, num_gpus=options.num_gpus)
        sent = [_pickled(ray, (os.getcwd(), function, item)) for item in items]
        waiting = {task.remote(kept, one): position for position, one in enumerate(sent)}
        try:
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1, timeout=options.timeout)
                if not done:
                    raise ScoringError(
                        f"{len(waiting)} of {len(items)} tasks on Ray are left, and none was finished in "
                        f"{options.timeout:g} seconds; {offer(ray)}. If they only need longer, raise timeout."
                    )
                position = waiting.pop(done[0])
                try:
                    yield position, ray.get(done[0])
                except ray.exceptions.RayError as error:
                    yield position, ScoringError(f"Its process on Ray ended: {summary(error)}")
        finally:
            for left in waiting:
                ray.cancel(left, force=True)


def _call(shared: bytes, sent: bytes) -> Any:
    from ray import cloudpickle

    # unpickled here: Ray would share arrays read-only, and not every model takes that
    folder, function, item = cloudpickle.loads(sent)  # the user's own, from the driver
    with chdir(folder) if os.path.isdir(folder) else nullcontext():  # paths may be relative
        return function(cloudpickle.loads(shared), item)


def _pickled(ray: Any, value: Any, teacher: str | None = None) -> bytes:
    """Pickle here, and not through Ray's store: there, arrays would be read-only."""
    try:
        return bytes(ray.cloudpickle.dumps(value))
    except Exception as error:  # whatever a model's parts raise
        problem = (
            f"cannot be sent to the workers of Ray ({summary(error)}). Give models as files or as objects "
            "that can be pickled, or run on one machine."
        )
        raise TeacherError(teacher, problem) if teacher else InvalidInputError(f"This {problem}") from error


def score_on_ray(
    teachers: Sequence[Teacher], space: LabelSpace, rows: Rows, run: Run, finish: Finish | None = None
) -> Iterator[BlockScores]:
    """Do what `score_blocks` does, on Ray. Blocks come in the order in which they are finished.

    Raises
    ------
    TeacherError
        A teacher failed: the error that one machine would raise, after all blocks before it are done.
    ScoringError
        A worker died several times on one block, or nothing moved for `timeout` seconds.
    """
    options = engine_options(run)
    opened = open_teachers(teachers, rows, run, None)
    held = {i: one for i, one in opened.items() if one.held}  # these need no worker
    sent = [i for i in opened if i not in held]
    for i in sent:
        with placed(i, len(teachers)):
            settle(teachers[i], rows, run)  # here, so that all workers read its scores in the same way
    if not sent or not rows.n_blocks:
        yield from score_here(teachers, space, rows, run, finish)
        return
    columns = np.concatenate([np.arange(space.n_columns)[space.block(i)] for i in sent])
    with connected(options.address) as ray:
        there = None if held else finish
        for number, answer in _answers(ray, {i: teachers[i] for i in sent}, space, rows, run, options, there):
            if held:
                # teachers that hold their answers do not look at rows
                block = Block(number, rows.rows_of(number), np.arange(len(answer)))
                packed = np.empty((len(answer), space.n_columns), np.float32)
                packed[:, columns] = answer
                for i, one in held.items():
                    packed[:, space.block(i)] = one.observe(block, None).logits
                answer = packed if finish is None else finish(block.rows, packed)
            yield number, answer


def _answers(
    ray: Any,
    teachers: Mapping[int, Teacher],
    space: LabelSpace,
    rows: Rows,
    run: Run,
    options: RayOptions,
    finish: Finish | None,
) -> Iterator[BlockScores]:
    """Yield what workers say about each block. After an error, wait for the blocks before it."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    board = ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote()
    every = len(rows) * space.n_teachers
    watch = _Watch(ray, board, every, space.n_teachers / len(teachers), run, options.timeout)
    alone = with_open_cache(run).changed(progress=None, engine="local", engine_options=None)
    pickled = {i: _pickled(ray, teacher, teacher.name) for i, teacher in teachers.items()}
    # Ray deletes what nobody refers to
    kept = [
        ray.put(sent_to_ray(ray, rows)),
        ray.put((pickled, _pickled(ray, finish), space.n_teachers)),
        board,
    ]
    # Ray starts a worker that died again, with what it had to do
    worker = ray.remote(max_restarts=-1, max_task_retries=TRIES - 1)(Worker)
    reserved = worker.options(num_cpus=options.num_cpus, num_gpus=options.num_gpus)
    count = _how_many(ray, rows.n_blocks, options)
    actors = [reserved.remote(kept, alone, os.getcwd()) for _ in range(count)]
    waiting = {actor.ready.remote(): (actor, -1) for actor in actors}
    todo, failed, told = deque(range(rows.n_blocks)), dict[int, ConsilienceError](), set[str]()
    try:
        while todo or any(number < min(failed, default=rows.n_blocks) for _, number in waiting.values()):
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=_POLL)
            watch.look([number for _, number in waiting.values() if number >= 0], moved=bool(done))
            for ref in done:
                actor, number = waiting.pop(ref)
                try:
                    answer, warned = ray.get(ref)
                except ray.exceptions.RayError as error:
                    raise watch.died(number, error) from error
                if todo:  # before someone reads the answer
                    following = todo.popleft()
                    waiting[actor.score.remote(following)] = actor, following
                else:
                    ray.kill(actor)  # others may need its room
                for warning in warned:
                    if str(warning) not in told:
                        told.add(str(warning))
                        warn(warning)
                if isinstance(answer, ConsilienceError):
                    failed[number] = answer
                    todo.clear()
                elif number >= 0:
                    yield number, answer
                    watch.look([], moved=True)  # whoever reads the answers may have taken long
        if failed:
            raise failed[min(failed)]
    finally:
        for actor in (*actors, board):
            with suppress(ray.exceptions.RayError):
                ray.kill(actor)


class At(NamedTuple):
    """What a worker is doing, and how many rows of its block are done, over all teachers."""

    worker: str
    teacher: str
    rows: int


class Board:
    """An actor on the driver's machine that knows what was done about each block."""

    def __init__(self) -> None:
        self._seen: dict[int, At] = {}

    def note(self, number: int, at: At) -> None:
        """Note what a worker does."""
        self._seen[number] = at

    def seen(self) -> dict[int, At]:
        """Return what is known, by the number of the block."""
        return self._seen


class _Watch:
    """Tells how far a run is, and where it hangs."""

    def __init__(self, ray: Any, board: Any, every: int, share: float, run: Run, timeout: float) -> None:
        self._ray, self._board, self._every, self._share = ray, board, every, share
        self._run, self._timeout = run, timeout
        self._seen, self._moved = dict[int, At](), time.monotonic()

    def look(self, numbers: Sequence[int], *, moved: bool) -> None:
        """Ask the board; raise if nothing has moved for too long with the blocks that workers have."""
        seen = self._ray.get(self._board.seen.remote())
        if seen != self._seen:
            done = sum(at.rows for at in seen.values()) * self._share  # others need no worker
            self._run.report("scoring", int(done), self._every)
        if moved or seen != self._seen:
            self._moved, self._seen = time.monotonic(), seen
        still = time.monotonic() - self._moved
        if still <= (self._timeout if seen else max(self._timeout, START_SECONDS)):
            return
        where = f"no worker could be started; {offer(self._ray)}"
        if numbers:
            at = seen.get(numbers[0], At("a process that does not answer", "unknown", 0))
            where = f"teacher {at.teacher!r} has been at block {numbers[0]}, in {at.worker}"
            where += f", and {len(numbers) - 1} more wait too" if len(numbers) > 1 else ""
        raise ScoringError(
            f"Scoring on Ray has not moved for {still:.0f} seconds (timeout {self._timeout:g}): "
            f"{where}. {_KEPT}"
        )

    def died(self, number: int, error: Exception) -> ScoringError:
        """Return an error that names the teacher at which workers died."""
        at = self._ray.get(self._board.seen.remote()).get(number)
        if at is None:
            return ScoringError(f"Workers cannot be started: {summary(error)}. {_KEPT}")
        return ScoringError(
            f"{TRIES} workers died at block {number} of X, while they asked teacher {at.teacher!r} "
            f"({summary(error)}). It may end its process there, or lack memory. {_KEPT}"
        )


def _how_many(ray: Any, n_blocks: int, options: RayOptions) -> int:
    """Return how many workers to start: as there is room for, and at least one."""
    wanted = min(n_blocks, options.workers or _MOST)
    every, needs = ray.cluster_resources(), {"CPU": options.num_cpus, "GPU": options.num_gpus}
    room = int(min((every.get(kind, 0) // need for kind, need in needs.items() if need), default=_MOST))
    if room < 1 or (room < wanted and options.workers):
        told = " and ".join(f"{need:g} {kind}" for kind, need in needs.items() if need)
        text = f"There is room for {room} of {wanted} workers: each needs {told}, and {offer(ray)}."
        warn(ConsilienceWarning(text))
    return max(1, min(wanted, room))


class Worker:
    """An actor: it loads its teachers once, and scores one block after another.

    Parameters
    ----------
    kept : list of ObjectRef
        Of the rows, of the pickled teachers by their places and what to make of their logits; and the board.
        They are fetched with the first block, so that what goes wrong is an answer like any other.
    run : Run
    folder : str
        Of the driver, where relative paths begin.
    """

    def __init__(self, kept: list[Any], run: Run, folder: str) -> None:
        import ray

        self._ray, self._kept, self._run, self._folder = ray, kept, run, folder
        self._name = f"process {os.getpid()} on {ray.util.get_node_ip_address()}"
        self._asked: dict[int, Asked] = {}
        self._rows: Any = None
        self._n_teachers, self._finish = 0, None

    def ready(self) -> tuple[None, list[Any]]:
        """Answer when the worker has started."""
        return None, []

    def score(self, number: int) -> tuple[Any, list[ConsilienceWarning]]:
        """Return the logits (b, k) of a block, or an error; and what was warned of."""
        with warnings.catch_warnings(record=True) as found:  # nobody reads what a worker prints
            warnings.simplefilter("always")
            try:
                answer: Any = self._score(number)
            except ConsilienceError as error:
                answer = error
            except Exception as error:  # a file that is not on this machine, a module that is not installed
                answer = ScoringError(
                    f"Block {number} of X cannot be scored by {self._name}: {summary(error)}. "
                    "Files and modules must be there on every machine of the cluster."
                )
        ours = [one.message for one in found if isinstance(one.message, ConsilienceWarning)]
        return answer, ours  # others may be of a class that cannot be sent

    def _score(self, number: int) -> NDArray[np.float32]:
        if self._rows is None:
            self._fetch()
        X = self._rows.read(number)
        if isinstance(X, np.ndarray) and not X.flags.writeable:
            X = X.copy()  # a model may write to it, as on one machine: Ray shares arrays read-only
        block = Block(number, self._rows.rows_of(number), X)
        names, done, noted = [one.teacher.name for one in self._asked.values()], 0, -1

        def tell(count: int) -> None:
            nonlocal done, noted
            done += count
            place = done // len_of(block)
            name = names[min(place, len(names) - 1)]
            note = self._kept[-1].note.remote(number, At(self._name, name, done))
            if place != noted:  # the next teacher may end this process
                noted = place
                self._ray.get(note)

        tell(0)
        logits = side_by_side(observe_all(self._asked, self._n_teachers, block, tell))
        return logits if self._finish is None else self._finish(block.rows, logits)

    def _fetch(self) -> None:
        """Fetch the rows and the teachers."""
        with suppress(OSError):  # another machine may not have it
            os.chdir(self._folder)
        load = self._ray.cloudpickle.loads  # the user's own, from the driver
        rows: Rows = self._ray.get(self._kept[0])
        pickled, finish, self._n_teachers = self._ray.get(self._kept[1])
        self._finish = load(finish)
        for i, one in pickled.items():
            with placed(i, self._n_teachers):
                self._asked[i] = Asked(load(one), rows, self._run, open_cache(self._run))
        self._rows = rows
