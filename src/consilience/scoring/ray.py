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
from consilience.options import Check, Options, anything, check_choice, count, number, option, optional
from consilience.rows import Block, Rows
from consilience.rows.ray import sent_to_ray
from consilience.run import Run
from consilience.scoring.blocks import (
    Asked,
    BlockScores,
    Finish,
    after,
    digests_of,
    len_of,
    open_teachers,
    placed,
    score_here,
    settle,
)
from consilience.scoring.store import as_store, with_open_cache
from consilience.teachers import Teacher
from consilience.teachers.outputs import summary

START_SECONDS = 60.0
"""The first worker has at least this long to start: it imports what the teachers need."""
TRIES = 3
"""How often a block is begun whose workers die."""
_POLL = 0.5  # seconds between two looks at the workers
_MOST = 1000  # workers that reserve nothing
_KEPT = "Blocks that are done are in the cache, if one was given: the same call goes on from there."


def _read_options(kind: type[Options], given: Any, name: str) -> Any:
    """Return options that were given as a dict, checked."""
    known = kind.declared()
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"{{argument}} must be a dict; it may have {', '.join(known)}.", argument=name, value=given
        )
    for key in given:
        check_choice(name, key, known)
    made = kind(**given)
    made.check_options()
    return made


class TeacherNeeds(Options):
    """What one teacher needs on Ray."""

    num_cpus: float = option(number(at_least=0), "Processors that its workers reserve.", default=1)
    num_gpus: float = option(number(at_least=0), "Devices that its workers reserve.", default=0)
    rows_per_call: int | None = option(optional(count()), "Most rows in one call of it.", default=None)


def _needs_by_name(name: str, given: Any) -> dict[str, TeacherNeeds]:
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            "{argument} must be a dict by the names of teachers.", argument=name, value=given
        )
    return {key: _read_options(TeacherNeeds, value, f"{name}[{key!r}]") for key, value in given.items()}


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
    timeout: float = option(
        number(above=0), "Stop with an error if no row is scored for this many seconds.", default=600.0
    )
    teachers: Any = option(
        Check(_needs_by_name, "dict of dict"),
        "By the name of a teacher: `num_cpus` (1), `num_gpus` (0) and `rows_per_call`.",
        default={},
    )
    train_workers: int | None = option(
        optional(count()),
        "Processes that train a torch student together, by Ray Train. By default it learns in the process "
        "that calls `fit`.",
        default=None,
    )


def engine_options(run: Run) -> RayOptions:
    """Return how to run on Ray, checked; raise if options are given and the engine is another."""
    given = run.engine_options or {}
    if run.engine == "local" and given:
        raise InvalidInputError(
            "{argument} are for {remedy}; drop them.", argument="engine_options", remedy=("engine", "ray")
        )
    found: RayOptions = _read_options(RayOptions, given, "engine_options")
    return found


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
    names: Sequence[str | None],
    options: RayOptions,
) -> Iterator[tuple[int, Any]]:
    """Yield ``function(shared, item)`` for all items, with their positions, as they are finished.

    Each is a task of its own, which Ray starts again if its process dies. If it dies every time, the result
    is a `ScoringError`. `function` handles its own errors; `names` are those of teachers with needs.
    """
    needs = options.resolved("teachers")
    with connected(options.address) as ray:
        kept = ray.put(_pickled(ray, shared))
        task = ray.remote(max_retries=TRIES - 1)(_call)
        waiting = {}
        for i, (item, name) in enumerate(zip(items, names, strict=True)):
            wanted = needs.get(name, TeacherNeeds())
            reserved = task.options(num_cpus=wanted.num_cpus, num_gpus=wanted.num_gpus)
            waiting[reserved.remote(kept, _pickled(ray, (os.getcwd(), function, item)))] = i
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
        sent: bytes = ray.cloudpickle.dumps(value)
    except Exception as error:  # whatever a model's parts raise
        problem = (
            f"cannot be sent to the workers of Ray ({summary(error)}). Give models as files or as objects "
            "that can be pickled, or run on one machine."
        )
        raise TeacherError(teacher, problem) if teacher else InvalidInputError(f"This {problem}") from error
    return sent


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
    for name in options.teachers:
        check_choice("engine_options['teachers']", name, space.names)
    held = {}
    for i, one in enumerate(open_teachers(teachers, rows, run, None)):
        if one.held:  # needs no worker
            held[i] = one
        else:
            with placed(i, len(teachers)):
                settle(one.teacher, rows, run)  # here, so that all workers read its scores in the same way
    groups = _groups(space, options, run, held)
    if not groups or not rows.n_blocks:
        yield from score_here(teachers, space, rows, run, finish)
        return
    with connected(options.address) as ray:
        pool = _Pool(ray, teachers, rows, run, options, groups, finish)
        try:
            yield from _in_turn(pool, rows, space, held, finish)
        finally:
            pool.stop()


def _in_turn(
    pool: _Pool, rows: Rows, space: LabelSpace, held: Mapping[int, Asked], finish: Finish | None
) -> Iterator[BlockScores]:
    """Yield blocks as they are complete. After an error, wait for those before it."""
    columns = [np.arange(space.n_columns)[space.block(i)] for i in range(space.n_teachers)]
    parts: dict[int, NDArray[np.float32]] = {}
    missing: dict[int, int] = {}
    failed: tuple[tuple[int, int], ConsilienceError] | None = None
    while (found := pool.next(None if failed is None else failed[0][0])) is not None:
        job, answer = found
        if answer.error is not None or answer.logits is None:
            place = job.number, job.places[0]
            if answer.error is not None and (failed is None or place < failed[0]):
                failed = place, answer.error
            continue
        if len(job.places) == space.n_teachers:
            yield job.number, answer.logits
            continue
        block = Block(job.number, rows.rows_of(job.number), None)
        if job.number not in parts:
            parts[job.number] = np.empty((len_of(block), space.n_columns), np.float32)
            missing[job.number] = space.n_teachers - len(held)
        packed = parts[job.number]
        packed[:, np.concatenate([columns[i] for i in job.places])] = answer.logits
        missing[job.number] -= len(job.places)
        if not missing[job.number]:
            del parts[job.number], missing[job.number]
            for i, one in held.items():
                with placed(i, space.n_teachers):
                    empty = block._replace(X=np.zeros((len(packed), 1)))  # only the number of rows counts
                    packed[:, columns[i]] = one.observe(empty, None).logits
            yield job.number, packed if finish is None else finish(block.rows, packed)
    if failed is not None:
        raise failed[1]


class _Group(NamedTuple):
    """Teachers that the same workers ask, since they need the same: rows are read once for them."""

    places: tuple[int, ...]
    sizes: tuple[int, ...]  # rows per call
    needs: dict[str, float]


def _groups(space: LabelSpace, options: RayOptions, run: Run, held: Mapping[int, Asked]) -> list[_Group]:
    needs: dict[str, TeacherNeeds] = options.resolved("teachers")
    found: dict[tuple[float, float], list[tuple[int, int]]] = {}
    for i, name in enumerate(space.names):
        if i not in held:
            wanted = needs.get(name, TeacherNeeds())
            size = wanted.rows_per_call or run.rows_per_call
            found.setdefault((wanted.num_cpus, wanted.num_gpus), []).append((i, size))
    return [
        _Group(tuple(i for i, _ in members), tuple(size for _, size in members), {"CPU": cpus, "GPU": gpus})
        for (cpus, gpus), members in found.items()
    ]


class _Job(NamedTuple):
    """Some teachers that are to be asked about one block."""

    number: int
    group: int
    places: tuple[int, ...]
    tries: int = 0


class Answer(NamedTuple):
    """What a worker sends: logits (b, k) of the teachers asked, or an error, and what was warned of."""

    logits: NDArray[np.float32] | None
    error: ConsilienceError | None
    told: list[ConsilienceWarning | UserWarning]


class At(NamedTuple):
    """What a worker is doing, and how many rows of its block are done, over all teachers."""

    worker: str
    teacher: str = ""
    rows: int = 0


class _Pool:
    """The workers of a run, and what is left to do."""

    def __init__(
        self,
        ray: Any,
        teachers: Sequence[Teacher],
        rows: Rows,
        run: Run,
        options: RayOptions,
        groups: Sequence[_Group],
        finish: Finish | None,
    ) -> None:
        self._ray, self._rows, self._run, self._groups = ray, rows, run, groups
        self._names, self._timeout = [teacher.name for teacher in teachers], options.timeout
        there = {"progress": None, "engine": "local", "engine_options": None}
        alone = Run(**{**with_open_cache(run).get_params(deep=False), **there})
        source, self._made = ray.put(sent_to_ray(ray, rows)), []
        worker = ray.remote(concurrency_groups={"look": 1})(Worker)
        for group in groups:
            sent = [_pickled(ray, teachers[i], teachers[i].name) for i in group.places]
            kept = [source, ray.put((sent, _pickled(ray, finish)))]  # Ray deletes what nobody refers to
            reserved = worker.options(num_cpus=group.needs["CPU"], num_gpus=group.needs["GPU"])
            self._made.append((reserved, (group, len(teachers), alone, os.getcwd(), kept)))
        self._todo = [
            deque(_Job(number, g, group.places) for number in range(rows.n_blocks))
            for g, group in enumerate(groups)
        ]
        self._waiting: dict[Any, tuple[Any, int, _Job | None]] = {}  # by what is awaited; None: it starts
        self._seen: dict[Any, At] = {}
        self._started = self._deaths = self._done = self._shown = 0
        self._told: set[str] = set()
        for g in _in_which_order(ray, groups, rows.n_blocks, options):
            self._start(g)
        self._moved = time.monotonic()

    def _start(self, group: int) -> None:
        worker, arguments = self._made[group]
        actor = worker.remote(*arguments)
        self._waiting[actor.ready.remote()] = actor, group, None

    def next(self, last: int | None) -> tuple[_Job, Answer] | None:
        """Return the next answer, or None if there is none left about blocks up to `last`."""
        self._moved = time.monotonic()  # whoever reads the answers may have taken long
        while True:
            if last is not None:
                self._todo = [deque(job for job in jobs if job.number <= last) for jobs in self._todo]
            asked = [job for _, _, job in self._waiting.values() if job is not None]
            if not any(self._todo) and not any(last is None or job.number <= last for job in asked):
                return None
            done, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=_POLL)
            if not done:
                self._look()
                continue
            self._moved = time.monotonic()
            actor, group, job = self._waiting.pop(done[0])
            self._seen.pop(done[0], None)
            try:
                answer: Answer = self._ray.get(done[0])
            except self._ray.exceptions.RayError as error:
                self._lost(actor, group, job, error)
                continue
            self._started += job is None
            if self._todo[group]:  # before someone reads the answer
                following = self._todo[group].popleft()
                sent = actor.score.remote(following.number, following.places)
                self._waiting[sent] = actor, group, following
            else:
                self._ray.kill(actor)  # others may need its room
            if job is not None:
                self._tell(job, answer)
                return job, answer

    def _tell(self, job: _Job, answer: Answer) -> None:
        """Report progress, and give the warnings of a worker once."""
        self._done += len(job.places) * (self._rows.borders[job.number + 1] - self._rows.borders[job.number])
        self._report(0)
        for warning in answer.told:
            if str(warning) not in self._told:
                self._told.add(str(warning))
                warn(warning)  # type: ignore[arg-type]

    def _report(self, begun: int) -> None:
        every = len(self._rows) * len(self._names)
        asked = sum(len(group.places) for group in self._groups)  # others need no worker
        done = (int(self._done) + begun) * len(self._names) // asked
        if done > self._shown:
            self._shown = done
            self._run.report("scoring", done, every)

    def _lost(self, actor: Any, group: int, job: _Job | None, error: Exception) -> None:
        """Start another worker. Its job is done again, teacher by teacher: so the deadly one is known."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor)
        if job is None:
            self._deaths += 1
            if self._deaths >= TRIES:
                raise ScoringError(f"Workers cannot be started: {summary(error)}. {_KEPT}") from error
        else:
            again = [job._replace(places=(place,), tries=job.tries + 1) for place in job.places]
            if job.tries + 1 >= TRIES:
                raise ScoringError(
                    f"{TRIES} workers died at block {job.number} of X, while they asked teacher "
                    f"{self._names[job.places[0]]!r} ({summary(error)}). It may end its process there, or "
                    f"lack memory. {_KEPT}"
                ) from error
            self._todo[group].extendleft(reversed(again))
        self._start(group)

    def _look(self) -> None:
        """Ask workers what they do; raise if none of them has moved for too long."""
        busy = {ref: actor for ref, (actor, _, job) in self._waiting.items() if job is not None}
        asked = {actor.at.options(concurrency_group="look").remote(): ref for ref, actor in busy.items()}
        done = self._ray.wait(list(asked), num_returns=len(asked), timeout=_POLL)[0] if asked else []
        for answer in done:
            with suppress(self._ray.exceptions.RayError):  # the answer that is awaited tells more
                at: At = self._ray.get(answer)
                if self._seen.get(asked[answer]) != at:
                    self._moved = time.monotonic()
                self._seen[asked[answer]] = at
        self._report(sum(at.rows for at in self._seen.values()))
        still = time.monotonic() - self._moved
        if still > (self._timeout if self._started else max(self._timeout, START_SECONDS)):
            raise ScoringError(
                f"Scoring on Ray has not moved for {still:.0f} seconds (timeout {self._timeout:g}): "
                f"{self._awaited()}. {_KEPT}"
            )

    def _awaited(self) -> str:
        busy = [(ref, job) for ref, (_, _, job) in self._waiting.items() if job is not None]
        if not busy:
            return f"no worker could be started; {offer(self._ray)}"
        ref, job = busy[0]  # the oldest
        at = self._seen.get(ref)
        who = "a worker that does not answer" if at is None else f"teacher {at.teacher!r}"
        others = f", and {len(busy) - 1} more wait too" if len(busy) > 1 else ""
        return f"{who} has been at block {job.number}" + (f", in {at.worker}" if at else "") + others

    def stop(self) -> None:
        """End all workers."""
        for actor, _, _ in self._waiting.values():
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        self._waiting.clear()


def _in_which_order(ray: Any, groups: Sequence[_Group], n_blocks: int, options: RayOptions) -> list[int]:
    """Return the group of each worker to start: in turn, while there is room; at least one of each."""
    room = [ray.cluster_resources().get(kind, 0.0) for kind in ("CPU", "GPU")]
    most, order, turn = min(n_blocks, options.workers or _MOST), list[int](), list(range(len(groups)))
    while turn:
        for g in list(turn):
            needs = list(groups[g].needs.values())
            if order.count(g) < most and all(need <= left for need, left in zip(needs, room, strict=True)):
                room = [left - need for need, left in zip(needs, room, strict=True)]
                order.append(g)
            else:
                turn.remove(g)
    for g, group in enumerate(groups):
        started = order.count(g)
        wanted = " and ".join(f"{need:g} {kind}" for kind, need in group.needs.items() if need)
        if not started:
            order.append(g)
            text = f"A worker needs {wanted}, and {offer(ray)}. It waits for {options.timeout:g} seconds."
            warn(ConsilienceWarning(text))
        elif started < min(options.workers or 0, n_blocks):
            warn(
                ConsilienceWarning(f"There is room for {started} of {options.workers} workers: {offer(ray)}.")
            )
    return order


class Worker:
    """An actor: it loads its teachers once, and scores one block after another.

    Parameters
    ----------
    group : _Group
    n_teachers : int
    run : Run
    folder : str
        Of the driver, where relative paths begin.
    kept : list of ObjectRef
        Of the rows, and of the pickled teachers and what to make of their logits. They are fetched with the
        first block, so that what goes wrong is an answer like any other.
    """

    def __init__(self, group: _Group, n_teachers: int, run: Run, folder: str, kept: list[Any]) -> None:
        import ray

        self._group, self._n_teachers, self._run, self._folder = group, n_teachers, run, folder
        self._kept, self._finish = kept, None
        self._rows: Rows | None = None
        self._asked: dict[int, Asked] = {}
        self._at = At(f"process {os.getpid()} on {ray.util.get_node_ip_address()}")

    def ready(self) -> None:
        """Answer when the worker has started."""

    def at(self) -> At:
        """Tell what the worker is doing, in a thread of its own."""
        return self._at

    def score(self, number: int, places: Sequence[int]) -> Answer:
        """Ask some of the teachers about a block."""
        told: list[ConsilienceWarning | UserWarning] = []
        with _recorded(told):
            try:
                return Answer(self._score(number, places), None, told)
            except ConsilienceError as error:
                return Answer(None, error, told)
            except Exception as error:  # a file that is not on this machine, a module that is not installed
                problem = f"Block {number} of X cannot be scored by {self._at.worker}: {summary(error)}."
                advice = "Files and modules must be there on every machine of the cluster."
                return Answer(None, ScoringError(f"{problem} {advice}"), told)

    def _score(self, number: int, places: Sequence[int]) -> NDArray[np.float32]:
        rows = self._fetched()
        block = Block(number, rows.rows_of(number), _own(rows.read(number)))
        asked = [self._asked[i] for i in places]
        parts: list[NDArray[np.float32]] = []
        digests, count = digests_of(block, asked), len_of(block)

        def tell(task: str, done: int, total: int) -> None:
            self._at = self._at._replace(rows=done)

        for i, one in zip(places, asked, strict=True):
            self._at = At(self._at.worker, one.teacher.name, len(parts) * count)
            with placed(i, self._n_teachers):
                seen = one.observe(block, digests, after(tell, len(parts) * count, count, 0))
            parts.append(seen.logits)
        logits = np.concatenate(parts, axis=1)
        whole = len(places) == self._n_teachers
        return self._finish(block.rows, logits) if whole and self._finish is not None else logits

    def _fetched(self) -> Rows:
        """Return the rows; with the first block, fetch them and the teachers."""
        import ray
        from ray import cloudpickle

        if self._rows is None:
            with suppress(OSError):  # another machine may not have it
                os.chdir(self._folder)
            rows: Rows = ray.get(self._kept[0])
            sent, finish = ray.get(self._kept[1])
            self._finish, options = cloudpickle.loads(finish), self._run.get_params(deep=False)
            for i, size, one in zip(self._group.places, self._group.sizes, sent, strict=True):
                run = Run(**{**options, "rows_per_call": size})
                with placed(i, self._n_teachers):  # the user's own teachers, from the driver
                    self._asked[i] = Asked(cloudpickle.loads(one), rows, run, as_store(run.cache))
            self._rows = rows
            return rows
        return self._rows


@contextmanager
def _recorded(told: list[ConsilienceWarning | UserWarning]) -> Iterator[None]:
    """Keep what is warned of for the driver: nobody reads what a worker prints."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for message in {str(entry.message): entry.message for entry in found}.values():
        ours = isinstance(message, ConsilienceWarning)  # others may be of a class that cannot be sent
        told.append(message if ours else UserWarning(f"{type(message).__name__}: {message}"))  # type: ignore[arg-type]


def _own(X: Any) -> Any:
    """Return rows that a model may write to, as it may on one machine: Ray shares arrays read-only."""
    return X.copy() if isinstance(X, np.ndarray) and not X.flags.writeable else X
