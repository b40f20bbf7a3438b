"""Show how far a run is: bars in a terminal, and anywhere else a line every few seconds."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from consilience._progress import Progress, silent
from consilience.cli.log import Log, current

SECONDS = 5.0
"""The time between two lines. A task that is shorter prints none."""

WINDOW = 60.0
"""The rate is that of the last so many seconds: answers from a cache come fast, and later ones do not."""


@contextmanager
def progress_bars(*, quiet: bool = False) -> Iterator[Progress]:
    """Show progress on stderr: bars if it is a terminal, else lines; lines of JSON with ``--log json``."""
    import rich.progress

    from consilience.cli.console import console

    log, target = current(), console(stderr=True)
    if quiet:
        yield silent
    elif log.is_json or not target.is_terminal:
        lines = Lines(log, SECONDS)
        with _every(SECONDS / 5, lines.remind):
            yield lines
    else:
        columns = (
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("left"),
            rich.progress.TimeRemainingColumn(),
        )
        with rich.progress.Progress(*columns, console=target, transient=True) as bars:
            tasks: dict[str, rich.progress.TaskID] = {}

            def report(task: str, done: int, total: int) -> None:
                if task not in tasks:
                    tasks[task] = bars.add_task(task, total=total)
                bars.update(tasks[task], completed=done, total=total)

            yield report


class Lines:
    """Write progress as lines on stderr: one every few seconds, and one at the end of a long task.

    Parameters
    ----------
    log : Log
        Says whether a line is plain text or JSON.
    seconds : float
        The least time between two lines. A task that takes less has no line at its end.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(self, log: Log, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._seconds, self._clock = log, seconds, clock
        self._reported = self._last_line = clock()  # when something was reported, and when shown
        self._running: dict[str, _Task] = {}
        self._latest: _Task | None = None
        self._lock = threading.Lock()

    def __call__(self, task: str, done: int, total: int) -> None:
        """Write a line if it is time for one."""
        with self._lock:
            now = self._clock()
            if task not in self._running or done < self._running[task].done:
                # what took place since the last report was the first part of this task
                self._running[task] = _Task(task, self._reported)
            known = self._latest = self._running[task]
            self._reported = now
            known.add(now, done, total)
            ended = done >= total
            if ended:
                del self._running[task]
            was_long = known.shown or now - known.start >= self._seconds
            if was_long if ended else now - self._last_line >= self._seconds:
                self._write(known, now)

    def remind(self) -> None:
        """Write how far the latest task is if no line came for long: a step may take minutes."""
        with self._lock:
            now = self._clock()
            if now - self._last_line < self._seconds:
                return
            if self._latest is not None and self._latest.done < self._latest.total:
                self._write(self._latest, now)
                return
            after = "" if self._latest is None else f" since {self._latest.name} ended"
            waited = now - self._reported
            self._last_line = now
            message = f"working: {duration(waited)}{after}"
            self._log.say("working", message, task=None, seconds=round(waited, 3))

    def _write(self, task: _Task, now: float) -> None:
        self._last_line, task.shown = now, True
        rate, left, spent = task.rate(now), task.seconds_left(now), now - task.start
        share = f" ({task.done / task.total:.0%})" if task.total else ""
        parts = [f"{task.name}: {task.done:,} of {task.total:,}{share}"]
        if rate:
            parts.append(f"{rate:,.0f} per second" if rate >= 10 else f"{rate:.2g} per second")
        if task.done >= task.total:
            parts.append(f"{duration(spent)} in all")
        else:
            parts.append(f"{duration(spent)} so far" if left is None else f"{duration(left)} left")
        self._log.say(
            "progress", ", ".join(parts),
            task=task.name, done=task.done, total=task.total,
            rate=None if rate is None else round(rate, 6),
            seconds=round(spent, 3),
            seconds_left=None if left is None else round(left, 3),
        )  # fmt: skip


class _Task:
    """How far one task is, and how fast."""

    def __init__(self, name: str, start: float) -> None:
        self.name, self.start, self.done, self.total, self.shown = name, start, 0, 0, False
        self._samples = deque([(start, 0)])

    def add(self, now: float, done: int, total: int) -> None:
        self.done, self.total = done, total
        if now - self._samples[-1][0] >= WINDOW / 100 or done >= total:
            self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[1][0] > WINDOW:
            self._samples.popleft()

    def rate(self, now: float) -> float | None:
        """Steps per second in the last minute; None as long as there are none."""
        start, before = self._samples[0]
        steps = self.done - before
        return steps / (now - start) if steps > 0 and now > start else None

    def seconds_left(self, now: float) -> float | None:
        rate = self.rate(now)
        return (self.total - self.done) / rate if rate else None


def duration(seconds: float) -> str:
    """Return a time in two units at most.

    Examples
    --------
    >>> duration(4.2), duration(200), duration(7500)
    ('4 s', '3 min 20 s', '2 h 5 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@contextmanager
def _every(seconds: float, action: Callable[[], None]) -> Iterator[None]:
    """Call `action` every few seconds, in a thread of its own, until the block ends."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(max(seconds, 0.1)):
            action()

    thread = threading.Thread(target=work, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
