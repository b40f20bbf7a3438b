"""Functions as teachers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import ArrayLike

from consilience.exceptions import TeacherError
from consilience.teachers._base import Adapter, Options, Teacher, check_embed_function, given_classes
from consilience.teachers._ranked import is_ranked, spread


class CallableTeacher(Adapter):
    """A function f(X) -> (n, k), or a ranked answer per row."""

    _function: Callable[[Any], Any]

    def _scores(self, X: Any, rows: int) -> Any:
        raw = self._function(X)
        if isinstance(raw, Iterator):  # map(rank, texts)
            raw = list(raw)
        if not is_ranked(raw):
            return raw
        return spread(raw, self.classes, rows, self.name, self._reader.output)


def callable_teacher(
    function: Callable[[Any], Any], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of a function."""
    shown = name or _function_name(function)
    if isinstance(function, type):
        raise TeacherError(shown, "is a class. Give an instance: a fitted model or a function.")
    check_embed_function(options.embed, shown)
    found = given_classes(classes, shown, "a function")
    if options.n_jobs > 1 and options.output == "auto":
        raise TeacherError(
            shown,
            "has n_jobs above 1, so no first batch can show what the scores are. Give {remedy}, too.",
            remedy="output",
        )
    teacher = CallableTeacher(shown, found, options)
    teacher._function, teacher.n_jobs = function, options.n_jobs
    return teacher


def _function_name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    found = getattr(function, "__name__", type(function).__name__)
    return "function" if found == "<lambda>" else str(found)
