"""Ranked answers: pairs (class, score) for each row, in place of a column per class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from consilience._words import shorten
from consilience.exceptions import TeacherError
from consilience.teachers._outputs import NEGATIVE_SLACK, Output


def is_ranked(raw: Any) -> bool:
    """Tell whether a function gave an answer per row: pairs, a dictionary, an iterator, or nothing.

    The first row with an answer decides: a row of an array of scores holds numbers.

    Examples
    --------
    >>> is_ranked([None, [("en", 0.9), ("de", 0.1)]]), is_ranked([{"en": 0.9}]), is_ranked([[0.9, 0.1]])
    (True, True, False)
    """
    answers = _listed(raw)
    if answers is None:
        return False
    for answer in answers:
        if isinstance(answer, Mapping | Iterator):
            return True
        if answer is None or (_is_sequence(answer) and len(answer) == 0):
            continue
        # what is neither a pair nor a score raises an error later, when the answer is read
        return _is_sequence(answer) and (isinstance(answer[0], str | np.void) or _is_sequence(answer[0]))
    return len(answers) > 0


def spread(raw: Any, classes: NDArray[Any], rows: int, name: str, output: Output) -> NDArray[np.float64]:
    """Return ranked answers as scores (n, k), a row of NaN where there is no answer.

    Classes that an answer does not name get probability 0, the lowest of its logits or the highest of its
    costs. Probabilities that sum to less than one are those of the best few: they are scaled to one.

    Parameters
    ----------
    raw : sequence of n answers
        Each a sequence of pairs (class, score), a mapping from class to score, or None.
    classes : (k,) array
    rows : int
        n, as many as X has.
    name : str
        The teacher's name, for messages.
    output : {"probabilities", "logits", "costs"}
        What the scores are.
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
        named, values = _columns(pairs, column) or _complain(pairs, row, column, name)
        if output != "probabilities" and len(values) == 1 < len(column):
            raise TeacherError(
                name,
                f"named one class in row {{row}}, {pairs[0][0]!r}, and its {output} say nothing of it "
                "without another's. Name more classes, give probabilities, or None to abstain.",
                row=row,
            )
        scores[row] = {"probabilities": 0.0, "costs": values.max()}.get(output, values.min())
        scores[row, named] = values
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


def _columns(pairs: Sequence[Any], column: Mapping[Any, int]) -> tuple[list[int], NDArray[Any]] | None:
    """Return the columns and scores of one answer, or None where something is wrong with it.

    It works on whole arrays: a loop over hundreds of classes would take longer than making the answer.
    """
    try:
        names, scores = zip(*pairs, strict=True)
        columns, values = [column[name] for name in names], np.array(scores)
    except (KeyError, TypeError, ValueError):
        return None
    right = len(set(columns)) == len(columns) and values.dtype.kind in "fiu" and np.isfinite(values).all()
    return (columns, values) if right else None


def _complain(pairs: Sequence[Any], row: int, column: Mapping[Any, int], name: str) -> NoReturn:
    """Say what is wrong with an answer."""
    found: set[Any] = set()
    for pair in pairs:
        if not _is_pair(pair):
            raise TeacherError(
                name,
                f"gave {pair!r} in row {{row}}, which is no pair (class, score). An answer is a list of such "
                "pairs, a dictionary, or None.",
                row=row,
            )
        value, score = pair
        if value not in column:
            raise TeacherError(
                name,
                f"named the class {value!r} in row {{row}}, which is none of its {len(column)} classes "
                f"({shorten(column, 5)}). Give {{remedy}} every name it may use.",
                row=row,
                remedy="classes",
            )
        if value in found:
            raise TeacherError(
                name,
                f"named the class {value!r} more than once in row {{row}}. Name each class once.",
                row=row,
            )
        if (
            not isinstance(score, int | float | np.number)
            or isinstance(score, bool)
            or not np.isfinite(score)
        ):
            raise TeacherError(
                name,
                f"gave {value!r} the score {score!r} in row {{row}}. Scores are finite numbers.",
                row=row,
            )
        found.add(value)
    raise TeacherError(name, "gave scores of several kinds in row {row}. Scores are finite numbers.", row=row)


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


def _is_pair(value: Any) -> bool:
    return _is_sequence(value) and len(value) == 2
