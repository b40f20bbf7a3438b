"""How work is run, apart from what is asked: memory, cache, engine, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, Self

from consilience.exceptions import InvalidInputError
from consilience.options import Options, anything, check_choice, choice, count, option, optional, size

__all__ = ["Progress", "Run", "Tell", "part_of", "resolve_run", "silent", "using"]


class Progress(Protocol):
    """Anything that can be told how far a task is."""

    def __call__(self, task: str, done: int, total: int) -> None:
        """Report that `done` of `total` steps of `task` are finished."""


Tell = Callable[[int], None]
"""What is told how many steps were just done."""


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


class Run(Options):
    """How work is run: how much memory it takes, what it remembers, and where teachers are asked.

    Every verb takes one as ``run=``. It is frozen: it can be shared, and `clone` keeps it.

    Examples
    --------
    >>> Run(memory="2GB", cache="scores").memory
    '2GB'
    """

    memory: Any = option(
        optional(size()),
        "How much memory the work may take, such as '2GB'. By default a quarter of the machine's.",
        default=None,
    )
    cache: Any = option(
        anything("path, URL, ScoreStore or None", str),
        "A folder that keeps the teachers' outputs for each row. Another fit on the same rows asks no "
        "teacher again, and a fit that was stopped continues where it was.",
        default=None,
    )
    cache_limit: Any = option(
        optional(size()),
        "Most bytes of the cache, such as '20GB'. What was not used for longest is deleted.",
        default=None,
    )
    rows_per_call: int = option(count(), "Most rows in one call of a teacher.", default=4096)
    engine: str = option(
        choice("local", "ray"), "Where teachers run: on this machine, or on a Ray cluster.", default="local"
    )
    engine_options: Any = option(
        anything("dict or None"),
        "For engine='ray': address, workers, timeout, teachers, train_workers.",
        default=None,
    )
    n_jobs: int = option(
        count(),
        "Processes that share work which several can do, such as starts of clustering.",
        default=1,
        flag="--jobs",
    )
    progress: Progress | None = option(
        anything("callable or None"), "Called with (task, done, total) during long work.", default=None
    )

    def __init_subclass__(cls, **settings: Any) -> None:
        raise TypeError("Run cannot be subclassed.")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"A Run is frozen; make a new one: Run({name}=...).")

    def __sklearn_clone__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def check_options(self) -> None:
        """Raise if an option is wrong, or lacks another."""
        super().check_options()
        if self.cache_limit is not None and self.cache is None:
            raise InvalidInputError(
                "{argument} needs a folder to apply to. Give {remedy}, too.",
                argument="cache_limit",
                value=self.cache_limit,
                remedy="cache",
            )
        if self.engine == "local" and self.engine_options:
            raise InvalidInputError(
                "{argument} are for {remedy}; drop them.", argument="engine_options", remedy=("engine", "ray")
            )

    def changed(self, **options: Any) -> Run:
        """Return a copy with other options."""
        return Run(**{**self.get_params(deep=False), **options})

    def report(self, task: str, done: int, total: int) -> None:
        """Tell whoever listens how far a task is."""
        (self.progress or silent)(task, done, total)

    def counter(self, task: str, total: int) -> Tell:
        """Return what to call with the number of steps that were just done; it tells how far the task is."""
        done = 0

        def add(count: int) -> None:
            nonlocal done
            done += count
            if count:
                self.report(task, done, total)

        return add


_DEFAULT = Run()
_current: ContextVar[Run] = ContextVar("consilience_run", default=_DEFAULT)


def resolve_run(run: Run | None) -> Run:
    """Return the given `Run`, that of `using`, or the default. Read it once, when a call starts."""
    found = _current.get() if run is None else run
    if not isinstance(found, Run):
        raise InvalidInputError("{argument} must be a consilience.Run or None.", argument="run", value=run)
    found.check_options()
    return found


@contextmanager
def using(run: Run | None = None, **options: Any) -> Iterator[Run]:
    """Set how work is run within a ``with`` block; a `run=` that is given to a verb wins.

    Parameters
    ----------
    run : Run, optional
    **options
        Those of `Run`, which change what was set before.

    Examples
    --------
    >>> with using(memory="2GB") as run:
    ...     print(resolve_run(None).memory)
    2GB
    """
    before = resolve_run(run)
    for name in options:
        check_choice("option", name, Run.declared())
    chosen = before.changed(**options)
    chosen.check_options()
    token = _current.set(chosen)
    try:
        yield chosen
    finally:
        _current.reset(token)
