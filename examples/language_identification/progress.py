"""Show how far long work is: bars in a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from consilience._progress import Progress
from consilience.cli.console import console, progress_bars

SECONDS = 5.0
"""The least time between two lines."""


@contextlib.contextmanager
def shown(*, quiet: bool = False) -> Iterator[Progress]:
    """Draw bars on stderr if it is a terminal. Otherwise print a line on stderr every few seconds."""
    if quiet or console(stderr=True).is_terminal:
        with progress_bars(quiet=quiet) as bars:
            yield bars
    else:
        yield Lines(SECONDS)


class Lines:
    """Print progress as lines on stderr: one every few seconds, and one when a task that was named ends.

    Parameters
    ----------
    seconds : float
        The least time between two lines. Work that is shorter prints nothing.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._start = self._last = clock()
        self._named: set[str] = set()

    def __call__(self, task: str, done: int, total: int) -> None:
        """Print a line if it is time for one."""
        now = self._clock()
        ends = done >= total and task in self._named
        if not ends and now - self._last < self._seconds:
            return
        self._last = now
        if done < total:
            self._named.add(task)
        else:
            self._named.discard(task)
        share = f" ({done / total:.0%})" if total else ""
        line = f"{task}: {done:,} of {total:,}{share}, {now - self._start:,.0f} seconds so far"
        print(line, file=sys.stderr, flush=True)
