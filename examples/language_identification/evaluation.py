"""Measure how good identifiers are on labelled sentences: names of languages in, figures out.

A sentence counts as an error if the system does not know its language or refuses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._validation import check_choice
from consilience.exceptions import InvalidInputError

GROUPS = ("all teachers", "some", "one", "none")
"""How many teachers know a language."""

NOTHING = ""
"""Stands for no answer."""


@dataclass(frozen=True)
class Group:
    """The sentences in languages that a given number of teachers know.

    Attributes
    ----------
    name : str
        One of `GROUPS`.
    rows, languages : int
    """

    name: str
    rows: int
    languages: int


@dataclass(frozen=True)
class System:
    """How good one system is.

    Attributes
    ----------
    name : str
    languages : int or None
        The number of languages that it knows, if given.
    accuracy : float
        Over all sentences.
    macro : float
        Mean over languages: each has the same weight.
    by_group : dict
        Accuracy over the sentences of each group that is not empty.
    """

    name: str
    languages: int | None
    accuracy: float
    macro: float
    by_group: dict[str, float]


@dataclass(frozen=True)
class Language:
    """How good the systems are at one language.

    Attributes
    ----------
    code : str
    rows : int
    teachers : int
        The number of teachers that know it.
    accuracy : float
        The accuracy of the system in question.
    best_teacher : float
        The accuracy of the teacher that is best at this language.
    confusions : tuple of (code, share of the sentences)
        The most frequent wrong answers.
    """

    code: str
    rows: int
    teachers: int
    accuracy: float
    best_teacher: float
    confusions: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`.

    Attributes
    ----------
    rows, languages : int
        The number of labelled sentences and of their languages.
    uncovered : int
        The number of sentences in languages that no teacher knows.
    groups : tuple of Group
        The groups that have sentences.
    systems : tuple of System
        In the given order. The last is a ceiling: the right answer, if any teacher gives it.
    by_language : tuple of Language
        Worst first.
    """

    rows: int
    languages: int
    uncovered: int
    groups: tuple[Group, ...]
    systems: tuple[System, ...]
    by_language: tuple[Language, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values that JSON can hold."""
        return asdict(self)


CEILING = "any teacher right"


def evaluate(
    truth: Sequence[str] | NDArray[Any],
    answers: Mapping[str, Sequence[str] | NDArray[Any]],
    known: Mapping[str, Collection[str]],
    *,
    look_at: str,
    n_confusions: int = 3,
    n_classes: Mapping[str, int] | None = None,
) -> Evaluation:
    """Compare the answers of systems with the truth.

    Parameters
    ----------
    truth : (n,) sequence of str
        The language of each sentence.
    answers : mapping of name to (n,) sequence of str
        The answers of each system, ``""`` for none. Systems that are also in `known` are teachers.
    known : mapping of name to collection of str
        The languages that each teacher knows.
    look_at : str
        The system that the table by language is about.
    n_confusions : int
        The most confusions to list for each language.
    n_classes : mapping of name to int, optional
        The number of languages that systems other than teachers know.

    Examples
    --------
    >>> found = evaluate(["de", "fr"], {"A": ["de", "de"], "B": ["de", "fr"]}, {"A": ["de"]}, look_at="B")
    >>> [(system.name, system.accuracy) for system in found.systems]
    [('A', 0.5), ('B', 1.0), ('any teacher right', 0.5)]
    """
    y = np.asarray(truth, dtype=str)
    if len(y) == 0:
        raise InvalidInputError("There is no labelled sentence to evaluate on.")
    check_choice("look_at", look_at, tuple(answers))
    given = {name: np.asarray(said, dtype=str) for name, said in answers.items()}
    for name, said in given.items():
        if said.shape != y.shape:
            raise InvalidInputError(f"{name} has {len(said)} answers for {len(y)} sentences.")
    languages, code = np.unique(y, return_inverse=True)
    teachers = [name for name in given if name in known]
    n_knowing = np.array([sum(one in known[name] for name in teachers) for one in languages.tolist()])
    group = np.array([_group(int(count), len(teachers)) for count in n_knowing], dtype=object)
    right = {name: said == y for name, said in given.items()}
    if teachers:
        right[CEILING] = np.any([right[name] for name in teachers], axis=0)
    sizes = {name: len(set(known[name])) for name in teachers} | dict(n_classes or {})
    sizes.setdefault(CEILING, len(set().union(*(known[name] for name in teachers))))
    return Evaluation(
        rows=len(y),
        languages=len(languages),
        uncovered=int((n_knowing[code] == 0).sum()),
        groups=tuple(
            Group(name, int((group[code] == name).sum()), int((group == name).sum()))
            for name in GROUPS
            if (group == name).any()
        ),
        systems=tuple(_system(name, sizes.get(name), hit, code, group) for name, hit in right.items()),
        by_language=_by_language(languages, code, n_knowing, given[look_at], right, teachers, n_confusions)
        if teachers
        else (),
    )


def _group(count: int, n_teachers: int) -> str:
    """Return how many teachers know a language. With a single teacher, this is "all", not "one"."""
    if count == 0:
        return "none"
    if count == n_teachers:
        return "all teachers"
    return "one" if count == 1 else "some"


def _system(
    name: str, size: int | None, hit: NDArray[np.bool_], code: NDArray[np.intp], group: NDArray[Any]
) -> System:
    per_language = np.bincount(code, weights=hit) / np.bincount(code)
    return System(
        name,
        size,
        float(hit.mean()),
        float(per_language.mean()),
        {one: float(hit[group[code] == one].mean()) for one in GROUPS if (group == one).any()},
    )


def _by_language(
    languages: NDArray[Any],
    code: NDArray[np.intp],
    n_knowing: NDArray[np.intp],
    said: NDArray[Any],
    right: Mapping[str, NDArray[np.bool_]],
    teachers: Sequence[str],
    n_confusions: int,
) -> tuple[Language, ...]:
    found = []
    for i, language in enumerate(languages.tolist()):
        rows = np.flatnonzero(code == i)
        wrong = Counter(one for one in said[rows].tolist() if one != language)
        ranked = sorted(wrong.items(), key=lambda item: (-item[1], item[0]))[:n_confusions]
        found.append(
            Language(
                language,
                len(rows),
                int(n_knowing[i]),
                1 - sum(wrong.values()) / len(rows),
                max(float(right[name][rows].mean()) for name in teachers),
                tuple((one, count / len(rows)) for one, count in ranked),
            )
        )
    return tuple(sorted(found, key=lambda one: (one.accuracy, one.code)))


def plurality(votes: Sequence[Sequence[str]], confidence: NDArray[np.float64]) -> list[str]:
    """Return the most frequent answer for each sentence. Ties go to the greater sum of confidence.

    Parameters
    ----------
    votes : N sequences of n answers
        ``""`` if a system gives no answer.
    confidence : (N, n) array
        The confidence of each system in its answer.

    Examples
    --------
    >>> plurality([["de", "de"], ["de", "fr"], ["fr", ""]], np.array([[0.1, 0.6], [0.1, 0.9], [0.9, 0.0]]))
    ['de', 'fr']
    """
    winners = []
    for i, row in enumerate(zip(*votes, strict=True)):
        tally: dict[str, tuple[int, float]] = {}
        for said, sure in zip(row, confidence[:, i].tolist(), strict=True):
            if said != NOTHING:
                count, total = tally.get(said, (0, 0.0))
                tally[said] = (count + 1, total + sure)
        winners.append(max(tally, key=lambda one: (*tally[one], one)) if tally else NOTHING)
    return winners
