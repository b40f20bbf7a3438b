"""The board of a run on Ray: workers say what they do, and the driver looks while it waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple


class At(NamedTuple):
    """What a worker does, and since how many seconds."""

    worker: str
    block: int
    teacher: str
    seconds: float


class Tried(NamedTuple):
    """A block, how often it was begun, and the teacher that was asked when a worker was lost."""

    block: int = -1
    times: int = 0
    teacher: str = ""


class View(NamedTuple):
    """What the board says.

    Attributes
    ----------
    reports : int
        Rises with every report.
    n_workers : int
        How many workers have started.
    rows : int
        Rows done of blocks that are under way, over all teachers.
    at : list of At
        What each worker does.
    tried : Tried
        The block that was begun most often.
    """

    reports: int = 0
    n_workers: int = 0
    rows: int = 0
    at: Sequence[At] = ()
    tried: Tried = Tried()


class Board:
    """An actor of no weight, where workers say what they do; the driver looks at it while it waits."""

    def __init__(self) -> None:
        self._workers: dict[str, tuple[str, Any]] = {}
        self._at: dict[str, tuple[int, int, str, float]] = {}
        self._done: dict[tuple[int, int], int] = {}
        self._begun: dict[tuple[int, int], int] = {}
        self._lost: dict[tuple[int, int], str] = {}  # the teacher that was asked when a worker was lost
        self._reports = 0
        self._over: set[int] = set()  # blocks that the driver has

    def enter(self, worker: str, name: str, handle: Any) -> None:
        """Add a worker, or one that was started again."""
        self._workers[worker] = name, handle
        self._reports += 1

    def begin(self, worker: str, block: int, stage: int) -> None:
        """Note that a worker begins a block: the second time only if a worker was lost at it."""
        self._reports += 1
        for key, (its_block, its_stage, teacher, _) in list(self._at.items()):
            # A worker that was lost keeps its name when it starts again. It may get another block first:
            # keep at which teacher it was.
            if key == worker or (its_block, its_stage) == (block, stage):
                self._lost[its_block, its_stage] = teacher
                del self._at[key]
        self._begun[block, stage] = self._begun.get((block, stage), 0) + 1

    def report(self, worker: str, block: int, stage: int, task: str, done: int) -> None:
        """Note that a worker is at a block, at which teacher, and how many rows are done there."""
        self._reports += 1
        self._done[block, stage] = done
        if task:
            self._at[worker] = block, stage, task, time.monotonic()
        else:
            self._at.pop(worker, None)

    def view(self, finished: Sequence[int]) -> View:
        """Return what is known, and forget blocks that the driver has."""
        self._over.update(finished)
        self._done = {key: rows for key, rows in self._done.items() if key[0] not in self._over}
        self._begun = {key: times for key, times in self._begun.items() if key[0] not in self._over}
        self._lost = {key: teacher for key, teacher in self._lost.items() if key[0] not in self._over}
        now = time.monotonic()
        at = [
            At(self._workers[worker][0], block, task, now - since)
            for worker, (block, _, task, since) in self._at.items()
        ]
        tried = Tried()
        for key, times in self._begun.items():
            tried = Tried(key[0], times, self._lost.get(key, "")) if times > tried.times else tried
        return View(self._reports, len(self._workers), sum(self._done.values()), at, tried)

    def workers(self) -> list[Any]:
        """Return the handles of all workers."""
        return [handle for _, handle in self._workers.values()]
