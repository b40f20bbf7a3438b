"""Progress as a callback, so that the library prints nothing by itself.

A `Progress` is called with what is done, how much of it, and the total; the command line draws bars from
these calls, and a notebook or a test may do what it likes.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Anything that can be told how far a task is."""

    def __call__(self, task: str, done: int, total: int) -> None:
        """Report that `done` of `total` steps of `task` are finished."""


def silent(task: str, done: int, total: int) -> None:
    """Ignore every report: the default."""


def part_of(progress: Progress, index: int, count: int) -> Progress:
    """Return the progress of one of `count` equal parts, such as teachers, as that of all.

    Examples
    --------
    >>> report = part_of(lambda task, done, total: print(task, done, total), 1, 3)  # the second of three
    >>> report("scoring", 4, 10)
    scoring 14 30
    """

    def report(task: str, done: int, total: int) -> None:
        progress(task, index * total + done, count * total)

    return report
