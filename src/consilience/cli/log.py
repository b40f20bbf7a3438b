"""What a run says on stderr: bars and plain lines for people, or a JSON object on each line for machines."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import rich.progress

from consilience.cli.console import console, escape
from consilience.exceptions import Spelling, as_keyword
from consilience.run import Progress, silent

SECONDS = 5.0
"""The time between two lines of progress. A task that is shorter has none."""
_MACHINES_ONLY = ("started", "finished")
_STYLES = {"info": "{}", "warning": "[yellow]Warning: {}[/]", "error": "[bold red]Error:[/] {}"}


@dataclass
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

    is_json: bool = False
    warnings: list[dict[str, str]] = field(default_factory=list)
    command: str | None = None
    spell: Spelling = as_keyword
    begun: bool = False

    def tell(self, level: str, event: str, message: str, **data: Any) -> None:
        """Say a sentence: of a level, with the kind of event in a word, and data for machines."""
        message = " ".join(message.split())
        if event == "warning":
            self.warnings.append({"category": data["category"], "message": message})
        if self.is_json:
            now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            head = {"time": now, "level": level, "event": event, "command": self.command}
            # ASCII: whatever the encoding of stderr is, a line stays valid JSON
            print(json.dumps({**head, "message": message, **data}), file=sys.stderr, flush=True)
        elif event not in _MACHINES_ONLY:
            console(stderr=True).print(_STYLES[level].format(escape(message)), soft_wrap=True)


def current() -> Log:
    """Return the log of the command that runs here, or a new one in text if none does."""
    ctx = click.get_current_context(silent=True)
    return (ctx and ctx.find_object(Log)) or Log()


class Reports:
    """Show how far tasks are: by rich's bars, or by lines every few seconds and at the end of a long task.

    `bars` of rich's also know how fast the tasks are.
    """

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        target = console(stderr=True)
        self.live = target.is_terminal and not log.is_json
        columns = (
            "{task.description}",
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            "left",
            rich.progress.TimeRemainingColumn(),
        )
        self.bars = rich.progress.Progress(
            *columns, console=target, transient=True, get_time=clock, speed_estimate_period=60
        )
        self._log, self._clock, self._reported = log, clock, clock()
        self._latest: rich.progress.Task | None = None

    def __call__(self, task: str, done: int, total: int) -> None:
        """Note how far a task is. One that begins again is a new one."""
        if self.live:
            self.bars.start()  # not before: a command may ask something first
        known = next((one for one in reversed(self.bars.tasks) if one.description == task), None)
        if known is None or done < known.completed:
            self.bars.add_task(task)
            known = self.bars.tasks[-1]
        self._latest, self._reported = known, self._clock()
        self.bars.update(known.id, completed=done, total=total)
        if known.finished and (known.elapsed or 0) >= SECONDS:
            self._tell(known)

    def remind(self) -> None:
        """Say how far the latest task is, or that something goes on: a step may take minutes."""
        waited = self._clock() - self._reported
        if self._latest is not None and not self._latest.finished:
            self._tell(self._latest)
        elif waited >= SECONDS and not self.live:
            message = f"working, {timedelta(seconds=round(waited))} since the last report"
            self._log.tell("info", "working", message, task=None, seconds=round(waited, 3))

    def _tell(self, task: rich.progress.Task) -> None:
        if self.live:
            return
        done, total, rate, left = task.completed, task.total or 0, task.speed, task.time_remaining
        message = f"{task.description}: {done:,} of {total:,} ({done / total if total else 1:.0%})"
        if rate:
            message += f", {rate:,.0f} per second" if rate >= 10 else f", {rate:.2g} per second"
        spent = task.elapsed or 0.0
        message += (
            f", {timedelta(seconds=left)} left" if left else f", {timedelta(seconds=round(spent))} passed"
        )
        figures = {"rate": rate, "seconds": spent, "seconds_left": left or None}
        data = {name: None if value is None else round(value, 3) for name, value in figures.items()}
        self._log.tell("info", "progress", message, task=task.description, done=done, total=total, **data)


@contextmanager
def progress_bars(log: Log, *, quiet: bool = False) -> Iterator[Progress]:
    """Show progress on stderr: bars if it is a terminal, else lines; lines of JSON with ``--log json``."""
    if quiet:
        yield silent
        return
    reports, ended = Reports(log), threading.Event()

    def remind() -> None:
        while not ended.wait(SECONDS):
            reports.remind()

    thread = threading.Thread(target=remind, name="progress", daemon=True)
    thread.start()
    try:
        yield reports
    finally:
        ended.set()
        thread.join()
        if reports.live:
            reports.bars.stop()
