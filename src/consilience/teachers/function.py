"""Functions as teachers: a column per class, or a ranked answer per row."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._words import shorten
from consilience.exceptions import TeacherError
from consilience.options import count, option, takes
from consilience.teachers.base import (
    Adapter,
    ModelOptions,
    check_embed_function,
    own_or_given,
    teacher_name,
)
from consilience.teachers.outputs import NEGATIVE_SLACK, Output


class FunctionOptions(ModelOptions):
    """What a function takes."""

    n_jobs: int = option(
        count(),
        "Processes in which to ask a slow function about many rows. Each loads what the function needs; the "
        "function must be importable.",
        default=1,
    )


class Function(Adapter):
    """A function ``f(X) -> (n, k)``, or one that returns a ranked answer per row.

    A ranked answer is a list of pairs (class, score) or a dictionary, of all classes or the best few; None
    abstains. Classes that it does not name get p = 0 (the others are scaled to sum to one), the lowest logit
    of the answer, or its highest cost.

    Examples
    --------
    >>> teacher = Function(lambda X: [{"en": 0.9} for x in X], ["de", "en"], output="probabilities")
    >>> teacher.predict_logits(["the"]).argmax(axis=1).tolist()
    [1]
    """

    _gives_costs = True

    @takes(FunctionOptions)
    def __init__(
        self,
        function: Callable[[Any], Any],
        classes: ArrayLike | None = None,
        name: str | None = None,
        options: Any = None,
    ) -> None:
        shown = teacher_name(name, _function_name(function))
        if isinstance(function, type):
            raise TeacherError(shown, "is a class. Give an instance: a fitted model or a function.")
        check_embed_function(options.embed, shown)
        super().__init__(
            shown,
            own_or_given(None, classes, shown, what="a function"),
            options,
        )
        self._function, self.n_jobs = function, options.n_jobs
        if self.n_jobs > 1 and not self.settled:
            raise TeacherError(
                shown,
                "has n_jobs above 1, so no first batch can show what the scores are. Give {remedy}, too.",
                remedy="output",
            )

    def _run(self, X: Any, rows: int, *, scores: bool, features: bool) -> tuple[Any, Any]:
        raw = self._function(X) if scores else None
        if isinstance(raw, Iterator):  # map(rank, texts)
            raw = list(raw)
        if is_ranked(raw):
            raw = spread(raw, self.classes, rows, self.name, self._reader.output)
        return raw, self._embed(X) if features else None


def _function_name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    found = getattr(function, "__name__", type(function).__name__)
    return "function" if found == "<lambda>" else str(found)


def is_ranked(raw: Any) -> bool:
    """Tell whether a function gave an answer per row: pairs, a dictionary, an iterator, or nothing.

    The first row with an answer decides: a row of an array of scores holds numbers.

    Examples
    --------
    >>> is_ranked([None, [("en", 0.9), ("de", 0.1)]]), is_ranked([{"en": 0.9}]), is_ranked([[0.9, 0.1]])
    (True, True, False)
    """
    answers = _listed(raw)
    for answer in answers or ():
        if isinstance(answer, Mapping | Iterator):
            return True
        if answer is None or (_is_sequence(answer) and len(answer) == 0):
            continue
        # what is neither a pair nor a score raises an error later, when the answer is read
        return _is_sequence(answer) and (isinstance(answer[0], str | np.void) or _is_sequence(answer[0]))
    return bool(answers)


def spread(raw: Any, classes: NDArray[Any], rows: int, name: str, output: Output) -> NDArray[np.float64]:
    """Return ranked answers as scores (n, k), a row of NaN where there is no answer.

    Classes that an answer does not name get probability 0, the lowest of its logits or the highest of its
    costs. Probabilities that sum to less than one are those of the best few: they are scaled to one.
    """
    if output == "auto":
        raise TeacherError(
            name,
            "returned ranked answers, which do not show what the scores are. "
            "Pass output='probabilities', 'logits' or 'costs'.",
        )
    answers = _listed(raw) or []
    if len(answers) != rows:
        raise TeacherError(name, f"returned {len(answers)} answers for {rows} rows of X.")
    column = {value: j for j, value in enumerate(classes.tolist())}
    scores = np.full((rows, len(column)), np.nan)
    for row, answer in enumerate(answers):
        pairs = _pairs(answer, row, name)
        if len(pairs) == 0:
            continue
        try:  # on whole arrays: a loop over hundreds of classes would take longer than making the answer
            names, given = zip(*pairs, strict=True)
            places, values = [column[one] for one in names], np.array(given)
            right = len({*places}) == len(places) and values.dtype.kind in "fiu" and np.isfinite(values).all()
        except (KeyError, TypeError, ValueError):
            right = False
        if not right:
            raise TeacherError(
                name,
                f"{_problem(pairs, column)}. Give pairs (class, score) of the {len(column)} "
                f"classes ({shorten(column, 5)}), each once, with finite numbers as scores; or None.",
                row=row,
            )
        if output != "probabilities" and len(values) == 1 < len(column):
            raise TeacherError(
                name,
                f"named one class in row {{row}}, {pairs[0][0]!r}, and its {output} say nothing of it "
                "without another's. Name more classes, give probabilities, or None to abstain.",
                row=row,
            )
        scores[row] = {"probabilities": 0.0, "costs": values.max()}.get(output, values.min())
        scores[row, places] = values
    return _scaled(scores, name) if output == "probabilities" else scores


def _scaled(proba: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Scale partial probabilities to one; what is no probability stays as it is, for the reader to refuse."""
    sums = proba.sum(axis=1)
    empty = np.flatnonzero(np.abs(proba).max(axis=1, initial=0.0) == 0)
    if len(empty):
        raise TeacherError(
            name,
            "gave no class a probability above 0 in row {row}. Give None where it abstains.",
            row=empty[0],
        )
    partial = (sums > 0) & (sums < 1) & (proba >= -NEGATIVE_SLACK).all(axis=1)
    proba[partial] /= sums[partial, None]
    return proba


def _problem(pairs: Sequence[Any], column: Mapping[Any, int]) -> str:
    """Say what is wrong with an answer."""
    found = set[Any]()
    for pair in pairs:
        if not _is_sequence(pair) or len(pair) != 2:
            return f"gave {pair!r} in row {{row}}, which is no pair"
        value, score = pair
        if value not in column:
            return f"named the class {value!r} in row {{row}}, which is none of its classes"
        if value in found:
            return f"named the class {value!r} more than once in row {{row}}"
        number = isinstance(score, int | float | np.number) and not isinstance(score, bool)
        if not number or not np.isfinite(score):
            return f"gave {value!r} the score {score!r} in row {{row}}"
        found.add(value)
    return "gave scores of several kinds in row {row}"


def _pairs(answer: Any, row: int, name: str) -> Sequence[Any]:
    if answer is None:
        return ()
    if isinstance(answer, Iterator):  # zip(classes, scores), which can be read once
        return list(answer)
    if isinstance(answer, Mapping):
        return list(answer.items())
    if not _is_sequence(answer):
        raise TeacherError(
            name,
            f"gave a {type(answer).__name__} in row {{row}}. An answer is a list of pairs (class, score), a "
            "dictionary, or None.",
            row=row,
        )
    pairs: Sequence[Any] = answer.tolist() if isinstance(answer, np.ndarray) else answer
    return pairs


def _listed(raw: Any) -> Sequence[Any] | None:
    """Return the entries of a list, or of a column of objects; None for what is no sequence of answers."""
    if isinstance(raw, list | tuple):
        return raw
    if getattr(raw, "ndim", None) == 1 and str(getattr(raw, "dtype", "")) == "object":
        entries: list[Any] = raw.tolist()
        return entries
    return None


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
