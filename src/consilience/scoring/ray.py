"""Score blocks of rows on a Ray cluster: Ray Data schedules, actors hold teachers, and the store remembers.

What travels is block numbers. Each actor has the source and its teachers. It reads a block, asks the teachers
as one machine would, and sends the logits back. So blocks, batches and stored outputs are the same as there.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._progress import Progress, silent
from consilience._validation import check_choice, check_count
from consilience.exceptions import ConsilienceWarning, ScoringError, TeacherError
from consilience.labels import LabelSpace
from consilience.rows import Block, Rows
from consilience.rows.ray import sent_to_ray
from consilience.run import Run
from consilience.scoring.blocks import Asked, BlockScores, Finish, open_teachers, placed, score_blocks, settle
from consilience.scoring.ray_board import Board, View
from consilience.scoring.ray_options import RayOptions
from consilience.scoring.ray_worker import Answer, Job, Part, Worker, from_table
from consilience.scoring.store import ScoreStore, as_store
from consilience.teachers import Teacher
from consilience.teachers.base import summary

START_SECONDS = 60.0
"""The first worker has at least this long to start: it imports what the teachers need."""
TRIES = 4
"""How often a block is begun whose workers die. Ray itself would begin it for ever."""
WAITING = 4
"""At most so many blocks wait in this process for their reader; others wait in Ray's object store."""
_POLL = 0.5  # seconds between two looks at the board


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """Give ray, connected to a cluster; what was started here ends here."""
    ray = require("ray", extra="ray", purpose="Scoring on Ray")
    require("ray.data", extra="ray", purpose="Scoring on Ray")
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


def score_on_ray(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    source: Rows,
    *,
    batch_size: int = 4096,
    store: ScoreStore | str | Path | None = None,
    progress: Progress = silent,
    finish: Finish | None = None,
    options: RayOptions | None = None,
) -> Iterator[BlockScores]:
    """Yield the number and the packed logits (b, m) of every block, in the order in which they are finished.

    Parameters
    ----------
    teachers : sequence of Teacher
        In the order of the blocks of `space`. Each actor gets them pickled; those of ONNX files open their
        file there.
    space : LabelSpace
    source : Rows
        Of the rows. Its files must be readable on every machine of the cluster.
    batch_size : int
        Rows per call of a teacher, at most.
    store : ScoreStore or path, optional
        A folder that all machines share, where outputs are kept. Rows in it are not scored again, so a run
        that was stopped goes on where it was.
    progress : callable
        Called with ("scoring", rows done, rows in all), counted over all teachers.
    finish : callable, optional
        What workers make of the logits of a block; its result is yielded instead.
    options : RayOptions, optional

    Raises
    ------
    TeacherError
        A teacher failed: the error that one machine would raise, after all blocks before it are done.
    ScoringError
        A worker died several times on one block, or nothing moved for `timeout` seconds.
    """
    options, kept = options or RayOptions(), as_store(store)
    check_count("batch_size", batch_size)
    # here, so that all workers read the scores of a teacher in the same way
    local = Run(rows_per_call=batch_size, progress=progress)
    asked = open_teachers(teachers, source, local, None)
    held = {i: one for i, one in enumerate(asked) if one.held}  # outputs that need no worker
    for i, teacher in enumerate(teachers):
        if i not in held:
            with placed(i, len(teachers)):
                settle(teacher, source, local)
    parts = _parts(space, options, batch_size, held)
    if not parts or not source.n_blocks:
        yield from score_blocks(teachers, space, source, local, finish)
        return
    there, here = (finish, None) if not held else (None, finish)
    with connected(options.address) as ray, _quiet():
        work = Work(teachers, space, sent_to_ray(ray, source), parts, kept, there)
        run = _Run(ray, work, options)
        try:
            for number, found in _in_turn(run, source, len(teachers), progress):
                rows = source.rows_of(number)
                logits = _filled(found, Block(number, rows, None), held, space) if held else found
                yield number, logits if here is None else here(rows, logits)
        finally:
            run.stop()


def _filled(
    logits: NDArray[np.float32], block: Block, held: Mapping[int, Asked], space: LabelSpace
) -> NDArray[np.float32]:
    """Add the outputs that this process holds to those of the workers."""
    packed, rows = logits.copy(), block._replace(X=np.zeros((len(logits), 1)))  # only their number counts
    for i, one in held.items():
        try:
            packed[:, space.block(i)] = one.observe(rows, None).logits
        except TeacherError as error:
            raise error.at(i, len(space.names)) from error.__cause__
    return packed


def _parts(space: LabelSpace, options: RayOptions, batch_size: int, held: Container[int]) -> list[Part]:
    """Group teachers that need the same resources: their rows are read once."""
    names = list(space.names)
    for name in options.teachers:
        check_choice("engine_options['teachers']", name, names)
    groups: dict[tuple[float, float], list[int]] = {}
    for i, name in enumerate(names):
        if i in held:
            continue
        wanted = options.teachers.get(name, {})
        key = float(wanted.get("num_cpus", 1)), float(wanted.get("num_gpus", 0))
        groups.setdefault(key, []).append(i)
    every = np.arange(space.n_columns)
    return [
        Part(
            [names[i] for i in places],
            places,
            np.concatenate([every[space.block(i)] for i in places]),
            [int(options.teachers.get(names[i], {}).get("batch_size", batch_size)) for i in places],
            *key,
        )
        for key, places in groups.items()
    ]


@dataclass(frozen=True)
class Work:
    """What is to be scored, and how."""

    teachers: Sequence[Teacher]
    space: LabelSpace
    source: Rows
    parts: Sequence[Part]
    store: ScoreStore | None
    finish: Finish | None


class _Run:
    """One pass of Ray Data over the blocks, with a thread that waits for its results.

    Ray Data's iterator waits without an end. So it waits in a thread, and this one looks at the clock.
    """

    def __init__(self, ray: Any, work: Work, options: RayOptions) -> None:
        teachers, source, parts = work.teachers, work.source, work.parts
        self._ray, self._parts, self._timeout = ray, parts, options.timeout
        self._view, self._moved, self._finished = View(), time.monotonic(), list[int]()
        self._over, self._hangs = Switch(), False
        # on the driver's machine and nowhere else: another one may be lost, and the board with it
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._board = ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote()
        blocks = ray.data.from_items(list(range(source.n_blocks)), override_num_blocks=source.n_blocks)
        blocks.context.enable_progress_bars = False
        blocks.context.custom_execution_callback_classes = [_stopper(self._over)]
        self._kept = [ray.put(source)]  # Ray deletes what nobody refers to
        for part, (first, most) in zip(parts, _pool_sizes(ray, parts, source.n_blocks, options), strict=True):
            chosen = [teachers[i] for i in part.places]
            self._kept.append(ray.put(_pickled(ray, chosen, work.finish if part is parts[-1] else None)))
            job = Job(
                part,
                len(teachers),
                work.space.n_columns,
                work.store,
                part is parts[0],
                os.getcwd(),
            )
            blocks = blocks.map_batches(
                Worker,
                fn_constructor_args=(job, self._kept[0], self._kept[-1], self._board),
                batch_size=1,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(
                    min_size=1,
                    initial_size=first,
                    max_size=most,
                    max_tasks_in_flight_per_actor=2,
                ),
                num_cpus=part.num_cpus,
                num_gpus=part.num_gpus,
            )
        self._results: queue.Queue[Answer | BaseException | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._collect, args=(blocks,), daemon=True)
        self._thread.start()

    def _collect(self, blocks: Any) -> None:
        try:
            for table in blocks.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                self._hand_over(from_table(table))
                if self._over.event.is_set():  # nobody reads what is left
                    return
            self._hand_over(None)
        except BaseException as error:
            self._hand_over(error)

    def _hand_over(self, found: Answer | BaseException | None) -> None:
        """Wait until there is room: a reader that is slower than the workers is not to fill the memory."""
        while not self._over.event.is_set():
            with suppress(queue.Full):
                self._results.put(found, timeout=_POLL)
                return

    def next(self, told: Progress) -> Answer | None:
        """Return the next answer, None after the last, or raise if nothing moves any more."""
        while True:
            try:
                found = self._results.get(timeout=_POLL)
            except queue.Empty:
                self._look(told)
                continue
            self._moved = time.monotonic()
            if isinstance(found, BaseException):
                raise ScoringError(
                    f"Scoring on Ray failed: {summary(found)}.{self._last_seen()} {_KEPT}"
                ) from found
            if found is not None:
                self._finished.append(found.number)
            return found

    def _look(self, told: Progress) -> None:
        """Look at the board; raise if nobody did anything for too long."""
        with suppress(self._ray.exceptions.RayError):  # a board that does not answer counts as no news
            view = self._ray.get(self._board.view.remote(self._finished), timeout=10 * _POLL)
            self._finished = []
            if view.reports != self._view.reports:
                self._moved = time.monotonic()
            self._view = view
            told("scoring", view.rows, view.rows)
        block, times, teacher = self._view.tried
        if times >= TRIES:
            asked = f"teacher {teacher!r}" if teacher else "a teacher"
            raise ScoringError(
                f"{times - 1} workers died at block {block} of X, while they asked {asked}. It may end its "
                f"process there, or lack memory. {_KEPT}"
            )
        still = time.monotonic() - self._moved
        if still > (self._timeout if self._view.n_workers else max(self._timeout, START_SECONDS)):
            self._hangs = True
            raise ScoringError(
                f"Scoring on Ray has not moved for {still:.0f} seconds (timeout {self._timeout:g}): "
                f"{self._awaited()}. {_KEPT}"
            )

    def _awaited(self) -> str:
        if self._view.at:
            at = max(self._view.at, key=lambda at: at.seconds)
            others = f", and {len(self._view.at) - 1} more wait too" if len(self._view.at) > 1 else ""
            busy = f"teacher {at.teacher!r} has been at block {at.block} for {at.seconds:.0f} s"
            return f"{busy}, in {at.worker}{others}"
        if not self._view.n_workers:
            needs = "; ".join(_needs(part) for part in self._parts)
            return f"no worker could be started (each needs {needs}); {offer(self._ray)}"
        return f"{self._view.n_workers} workers have started, and none of them is at work"

    def _last_seen(self) -> str:
        seen = [f"{at.worker} at block {at.block}, teacher {at.teacher!r}" for at in self._view.at]
        return f" Last seen: {'; '.join(seen)}." if seen else ""

    def stop(self) -> None:
        """End what still runs."""
        ray = self._ray
        self._over.event.set()
        self._thread.join(timeout=20 * _POLL)
        if self._hangs or self._thread.is_alive():  # Ray Data would wait for its workers
            with suppress(ray.exceptions.RayError):
                for worker in ray.get(self._board.workers.remote(), timeout=10 * _POLL):
                    with suppress(ray.exceptions.RayError):
                        ray.kill(worker)
        with suppress(ray.exceptions.RayError):
            ray.kill(self._board)
        self._kept.clear()


class Switch:
    """A flag of this process. What is sent to another process is a switch that nobody sets."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def __reduce__(self) -> tuple[type[Switch], tuple[()]]:
        return Switch, ()


def _stopper(switch: Switch) -> type:
    """Return a class for Ray Data that ends an execution in order, from inside, when the switch is set."""

    class Stopper:
        def before_execution_starts(self, executor: Any) -> None: ...

        def on_execution_step(self, executor: Any) -> None:
            if switch.event.is_set():
                raise InterruptedError("the run was stopped")

        def after_execution_succeeds(self, executor: Any) -> None: ...

        def after_execution_fails(self, executor: Any, error: Exception) -> None: ...

    return Stopper


_KEPT = "Blocks that are done are in the store, if one was given: the same call goes on from there."


def _in_turn(run: _Run, source: Rows, n_teachers: int, progress: Progress) -> Iterator[BlockScores]:
    """Yield blocks as they come. After an error, wait for all blocks before: one machine meets the first."""
    every, rows, missing = len(source) * n_teachers, 0, set(range(source.n_blocks))
    failed: Answer | None = None
    told: set[str] = set()
    shown = 0

    def report(task: str, done: int, total: int) -> None:
        nonlocal shown
        if rows + done > shown:
            shown = min(rows + done, every)
            progress(task, shown, every)

    while missing and (failed is None or min(missing) < failed.number):
        answer = run.next(report)
        if answer is None:
            break
        if answer.number not in missing:  # computed twice after a machine was lost
            continue
        missing.remove(answer.number)
        _warn(answer, told)
        if answer.error is not None or answer.logits is None:
            failed = answer if failed is None or answer.number < failed.number else failed
            continue
        rows += n_teachers * len(answer.logits)
        report("scoring", 0, every)
        yield answer.number, answer.logits
    if failed is not None and failed.error is not None:
        raise failed.error
    if missing:
        raise ScoringError(f"Ray lost {len(missing)} of {source.n_blocks} blocks. {_KEPT}")


def _warn(answer: Answer, told: set[str]) -> None:
    for warning in answer.told:
        if str(warning) not in told:
            told.add(str(warning))
            warnings.warn(warning, stacklevel=5)


def _pool_sizes(ray: Any, parts: Sequence[Part], n_blocks: int, options: RayOptions) -> list[tuple[int, int]]:
    """Return how many actors each part has at first and at most; say so if not even one has room."""
    every, free = ray.cluster_resources(), ray.available_resources()
    for kind in ("num_cpus", "num_gpus"):
        needed = sum(getattr(part, kind) for part in parts)
        if needed > every.get(_RESOURCE[kind], 0):
            warnings.warn(
                ConsilienceWarning(
                    f"Scoring needs {needed:g} {_RESOURCE[kind]} at once, and {offer(ray)}. It waits for "
                    f"more machines, up to {options.timeout:g} seconds. Lower {kind} of the teachers, or add "
                    "machines."
                ),
                stacklevel=6,
            )
    sizes = []
    for part in parts:
        most = min(_room(part, every), n_blocks)
        if options.workers is not None and options.workers > most and 0 < most < n_blocks:
            warnings.warn(
                ConsilienceWarning(f"There is room for {most} of {options.workers} workers: {offer(ray)}."),
                stacklevel=6,
            )
        most = max(1, min(most, options.workers or most))
        # The pool grows up to its size when there is room. If more are asked for than there is room for now,
        # they wait, and the others work.
        sizes.append((max(1, min(most, _room(part, free) // len(parts))), most))
    return sizes


def _room(part: Part, resources: Mapping[str, float]) -> int:
    """Return how many actors of a part these resources hold."""
    needs = {"CPU": part.num_cpus, "GPU": part.num_gpus}
    room = [resources.get(kind, 0) // need for kind, need in needs.items() if need > 0]
    return int(min(room)) if room else _MOST


_MOST = 1000  # actors that reserve nothing
_RESOURCE = {"num_cpus": "CPU", "num_gpus": "GPU"}


def _needs(part: Part) -> str:
    return f"{part.num_cpus:g} CPU" + (f" and {part.num_gpus:g} GPU" if part.num_gpus else "")


def offer(ray: Any) -> str:
    """Say what a cluster has."""
    every, free = ray.cluster_resources(), ray.available_resources()
    shown = [f"{every.get(kind, 0):g} {kind} ({free.get(kind, 0):g} free)" for kind in ("CPU", "GPU")]
    return f"the cluster has {' and '.join(shown)}"


def _pickled(ray: Any, teachers: Sequence[Teacher], finish: Finish | None) -> bytes:
    """Pickle teachers here, and not through Ray's store: there, their arrays would be read-only."""
    for teacher in teachers:
        try:
            ray.cloudpickle.dumps(teacher)
        except Exception as error:  # whatever a model's parts raise
            raise TeacherError(
                teacher.name,
                f"cannot be sent to the workers of Ray ({summary(error)}). Give it as a file or as an object "
                "that can be pickled, or score on one machine.",
            ) from error
    sent: bytes = ray.cloudpickle.dumps((list(teachers), finish))
    return sent


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data from printing how it executes: progress is ours to show."""
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
