"""What a run says on stderr: bars and plain lines for people, or a JSON object on each line for machines."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import rich.progress

from consilience.cli.console import console, escape
from consilience.exceptions import Spelling, as_keyword
from consilience.run import Progress, silent

SECONDS = 5.0
"""The time between two lines of progress. A task that is shorter has none."""
_MACHINES_ONLY = ("started", "finished")
_STYLES = {"info": "{}", "warning": "[yellow]Warning: {}[/]", "error": "[bold red]Error:[/] {}"}


class Log:
    """What one run of a command says on stderr. It also keeps the warnings, which ``--json`` prints.

    Attributes
    ----------
    is_json : bool
        Whether lines are JSON.
    warnings : list of dict
        The category and the message of each warning so far.
    command : str or None
        The name of the command, as soon as it is known.
    spell : callable
        Writes an argument of the library as the option that it is.
    begun : bool
        Whether the command has begun its work.
    """

    def __init__(self) -> None:
        self.is_json = False
        self.warnings: list[dict[str, str]] = []
        self.command: str | None = None
        self.spell: Spelling = as_keyword
        self.begun = False

    def tell(self, level: str, event: str, message: str, **data: Any) -> None:
        """Say a sentence: of a level, with the kind of event in a word, and data for machines."""
        message = " ".join(message.split())
        if event == "warning":
            self.warnings.append({"category": data["category"], "message": message})
        if not self.is_json and event in _MACHINES_ONLY:
            return
        if not self.is_json:
            console(stderr=True).print(_STYLES[level].format(escape(message)), soft_wrap=True)
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = {"time": now, "level": level, "event": event, "command": self.command}
        # ASCII: whatever the encoding of stderr is, a line stays valid JSON
        print(json.dumps({**head, "message": message, **data}), file=sys.stderr, flush=True)


_CURRENT: ContextVar[Log] = ContextVar("log")


def current() -> Log:
    """Return the log of the command that runs here, or a new one in text if none does."""
    return _CURRENT.get(None) or Log()


@contextmanager
def new_log() -> Iterator[Log]:
    """Give the code in this block a log of its own."""
    token = _CURRENT.set(Log())
    try:
        yield current()
    finally:
        _CURRENT.reset(token)


@contextmanager
def progress_bars(*, quiet: bool = False) -> Iterator[Progress]:
    """Show progress on stderr: bars if it is a terminal, else lines; lines of JSON with ``--log json``."""
    if quiet:
        yield silent
        return
    reports = Reports(current())
    with _every(SECONDS, reports.remind):
        try:
            yield reports
        finally:
            if reports.live:
                reports.bars.stop()


class Reports:
    """Show how far tasks are: by rich's bars, or by lines every few seconds and at the end of a long task.

    `bars` of rich's also know how fast the tasks are.
    """

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        target = console(stderr=True)
        self.live = target.is_terminal and not log.is_json
        columns = (
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("left"),
            rich.progress.TimeRemainingColumn(),
        )
        self.bars = rich.progress.Progress(
            *columns, console=target, transient=True, get_time=clock, speed_estimate_period=60
        )
        self._log, self._clock, self._reported = log, clock, clock()
        self._tasks: dict[str, rich.progress.Task] = {}
        self._latest: rich.progress.Task | None = None

    def __call__(self, task: str, done: int, total: int) -> None:
        """Note how far a task is. One that begins again is a new one."""
        if self.live:
            self.bars.start()  # not before: a command may ask something first
        if task not in self._tasks or done < self._tasks[task].completed:
            self.bars.add_task(task)
            self._tasks[task] = self.bars.tasks[-1]
        known = self._latest = self._tasks[task]
        self._reported = self._clock()
        self.bars.update(known.id, completed=done, total=total)
        if not self.live and known.finished and (known.elapsed or 0) >= SECONDS:
            self._write(known)

    def remind(self) -> None:
        """Write how far the latest task is, or that something goes on: a step may take minutes."""
        if self.live:
            return
        if self._latest is not None and not self._latest.finished:
            self._write(self._latest)
            return
        waited = self._clock() - self._reported
        if waited >= SECONDS:
            after = "" if self._latest is None else f" since {self._latest.description} ended"
            seconds = round(waited, 3)
            self._log.tell(
                "info", "working", f"working: {duration(waited)}{after}", task=None, seconds=seconds
            )

    def _write(self, task: rich.progress.Task) -> None:
        done, total, rate, spent = task.completed, task.total or 0, task.speed, task.elapsed or 0.0
        left = (total - done) / rate if rate and not task.finished else None
        message = f"{task.description}: {done:,} of {total:,} ({done / total if total else 1:.0%})"
        if rate:
            message += f", {rate:,.0f} per second" if rate >= 10 else f", {rate:.2g} per second"
        ending = "in all" if task.finished else "so far"
        message += f", {duration(spent)} {ending}" if left is None else f", {duration(left)} left"
        figures = {"rate": rate, "seconds": spent, "seconds_left": left}
        data = {name: None if value is None else round(value, 3) for name, value in figures.items()}
        self._log.tell("info", "progress", message, task=task.description, done=done, total=total, **data)


def duration(seconds: float) -> str:
    """Return a time in two units at most.

    Examples
    --------
    >>> duration(4.2), duration(200), duration(7500)
    ('4 s', '3 min 20 s', '2 h 5 min')
    """
    whole = round(seconds)
    if whole < 3600:
        return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
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
