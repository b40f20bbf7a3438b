"""Functions as teachers: a column per class, or a ranked answer per row."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._words import shorten
from consilience.exceptions import TeacherError, shown
from consilience.options import count, option, takes
from consilience.teachers.base import (
    Adapter,
    ModelOptions,
    check_embed_function,
    own_or_given,
    teacher_name,
)
from consilience.teachers.outputs import NEGATIVE_SLACK, ensure


class FunctionOptions(ModelOptions):
    """What a function takes."""

    n_jobs: int = option(
        count(),
        "Processes in which to ask a slow function about many rows. Each gets a copy of the function.",
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
        inner = function.func if isinstance(function, functools.partial) else function
        own = getattr(inner, "__name__", type(inner).__name__)
        title = teacher_name(name, "function" if own == "<lambda>" else own)
        ensure(
            not isinstance(function, type),
            title,
            "is a class. Give an instance: a fitted model or a function.",
        )
        check_embed_function(options.embed, title)
        super().__init__(title, own_or_given(None, classes, title, what="a function"), options)
        self._function, self.n_jobs = function, options.n_jobs
        ensure(
            self.n_jobs == 1 or self.output is not None,
            title,
            "has n_jobs above 1, so no first batch can show what the scores are. Give {remedy}, too.",
            remedy="output",
        )

    def _run(self, X: Any, rows: int, features: bool) -> tuple[Any, Any]:
        raw = self._function(X)
        if isinstance(raw, Iterator):  # map(rank, texts)
            raw = list(raw)
        answers = ranked_answers(raw)
        return raw if answers is None else self._spread(answers, rows), None

    def _spread(self, answers: Sequence[Any], rows: int) -> NDArray[np.float64]:
        """Return ranked answers as scores (n, k), a row of NaN where there is no answer."""
        output, classes = self._reader.output, self.classes.tolist()
        ensure(
            output != "auto",
            self.name,
            "returned ranked answers, which do not show what the scores are. "
            "Pass output='probabilities', 'logits' or 'costs'.",
        )
        ensure(len(answers) == rows, self.name, f"returned {len(answers)} answers for {rows} rows of X.")
        column = {value: j for j, value in enumerate(classes)}
        scores = np.full((rows, len(column)), np.nan)
        for row, answer in enumerate(answers):
            places, values = self._read(answer, row, column)
            if len(values) == 0:
                continue
            if output == "probabilities":
                least, total = 0.0, values.sum()
                # the best few are scaled to one; what is no probability is for the reader to refuse
                if 0 < total < 1 and values.min() >= -NEGATIVE_SLACK:
                    values = values / total
                ensure(
                    values.any(),
                    self.name,
                    "gave no class a probability above 0 in row {row}. Give None where it abstains.",
                    row=row,
                )
            else:
                least = values.max() if output == "costs" else values.min()
                ensure(
                    len(values) > 1 or len(column) == 1,
                    self.name,
                    f"named one class in row {{row}}, {shown(classes[places[0]])}, and its {output} "
                    "say nothing of it without another's. Name more classes, give probabilities, or None to "
                    "abstain.",
                    row=row,
                )
            scores[row] = least
            scores[row, places] = values
        return scores

    def _read(self, answer: Any, row: int, column: Mapping[Any, int]) -> tuple[list[int], NDArray[Any]]:
        """Return the columns that an answer names, and their scores."""
        advice = (
            f"Give pairs (class, score) of the {len(column)} classes ({shorten(column, 5)}), each once, with "
            "finite numbers as scores; a dictionary of them; or None."
        )
        try:  # no loop over classes: with hundreds, it would take longer than making the answer
            pairs = list(answer.items() if isinstance(answer, Mapping) else () if answer is None else answer)
            given = dict(pairs)
        except (TypeError, ValueError):
            raise TeacherError(
                self.name,
                f"gave {shown(answer)} in row {{row}}, which is no list of pairs. {advice}",
                row=row,
            ) from None
        unknown = [value for value in given if value not in column]
        named = f"named the class {shorten(map(repr, unknown))} in row {{row}}, which is none of its classes."
        ensure(not unknown, self.name, f"{named} {advice}", row=row)
        ensure(len(given) == len(pairs), self.name, f"named a class twice in row {{row}}. {advice}", row=row)
        values = np.array(list(given.values()))
        ensure(
            not len(values) or (values.dtype.kind in "fiu" and np.isfinite(values).all()),
            self.name,
            f"gave the scores {shorten(values)} in row {{row}}. {advice}",
            row=row,
        )
        return [column[value] for value in given], values


def ranked_answers(raw: Any) -> Sequence[Any] | None:
    """Return the answers if a function gave one per row: pairs, a dictionary, an iterator, or nothing.

    The first row with an answer decides: a row of an array of scores holds numbers.

    Examples
    --------
    >>> ranked_answers([None, [("en", 0.9)]]) is not None, ranked_answers([[0.9, 0.1]]) is not None
    (True, False)
    """
    if getattr(raw, "ndim", None) == 1 and str(raw.dtype) == "object":  # an array or a series
        raw = raw.tolist()
    if not isinstance(raw, list | tuple) or not raw:
        return None
    answers = (one for one in raw if one is not None and not (_is_sequence(one) and len(one) == 0))
    first: Any = next(answers, {})
    # what is neither a pair nor a score raises an error later, when the answer is read
    pairs = _is_sequence(first) and (isinstance(first[0], str | np.void) or _is_sequence(first[0]))
    return raw if pairs or isinstance(first, Mapping | Iterator) else None


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
