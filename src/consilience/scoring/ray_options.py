"""How scoring on Ray is asked for: the options of engine="ray"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from consilience._validation import check_choice, check_count, check_number
from consilience.exceptions import InvalidInputError
from consilience.run import Run

TIMEOUT = 600.0
"""Seconds in which at least one row must be scored."""
_OF_A_TEACHER = ("num_cpus", "num_gpus", "batch_size")


@dataclass(frozen=True)
class RayOptions:
    """How to run on Ray.

    Attributes
    ----------
    address : str, optional
        Of the cluster. By default the one that is connected or runs on this machine, or else a new one here.
    workers : int, optional
        Most actors that score at once. By default as many as the cluster has room for.
    timeout : float
        Stop with an error if no row is scored for this many seconds.
    teachers : dict of dict
        By the name of a teacher: ``num_cpus`` (1) and ``num_gpus`` (0) that its actors reserve, and its
        ``batch_size``.
    train_workers : int, optional
        Processes that train a torch student together, by Ray Train. By default it learns in the process that
        calls ``fit``.
    """

    address: str | None = None
    workers: int | None = None
    timeout: float = TIMEOUT
    teachers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    train_workers: int | None = None


def read_options(given: Mapping[str, Any] | RayOptions | None) -> RayOptions:
    """Return checked options.

    Examples
    --------
    >>> read_options({"workers": 4}).workers
    4
    """
    if given is None or isinstance(given, RayOptions):
        return given or RayOptions()
    known = [option.name for option in fields(RayOptions)]
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"{{argument}} must be a dict; it may have {', '.join(known)}.",
            argument="engine_options",
            value=given,
        )
    for key in given:
        check_choice("engine_options", key, known)
    options = RayOptions(**given)
    for name in ("workers", "train_workers"):
        if getattr(options, name) is not None:
            check_count(name, getattr(options, name))
    check_number("timeout", options.timeout, above=0)
    if not isinstance(options.teachers, Mapping):
        raise InvalidInputError(
            "{argument} must be a dict by the names of teachers.", argument="teachers", value=options.teachers
        )
    for name, resources in options.teachers.items():
        if not isinstance(resources, Mapping):
            raise InvalidInputError(f"The options of teacher {name!r} must be a dict, not {resources!r}.")
        for key, value in resources.items():
            check_choice(f"engine_options['teachers'][{name!r}]", key, _OF_A_TEACHER)
            if key == "batch_size":
                check_count(key, value)
            else:
                check_number(key, value, at_least=0)
    return options


def ray_options(run: Run) -> RayOptions:
    """Return how to run on Ray, checked; raise if options are given and ``engine`` is not "ray"."""
    if run.engine == "local" and run.engine_options:
        raise InvalidInputError(
            "{argument} are for {remedy}; drop them.", argument="engine_options", remedy=("engine", "ray")
        )
    return read_options(run.engine_options)
