"""How good are identifiers on labelled sentences? Names of languages in, figures out.

A language that a system does not know counts as an error of that system, and so does a sentence that it
refuses.
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
"""By how many teachers a language is known."""

NOTHING = ""
"""The answer of a system that gives none."""


@dataclass(frozen=True)
class Group:
    """The sentences whose languages so many teachers know.

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
        How many it knows, where that is known.
    accuracy : float
        Over all sentences.
    macro : float
        Mean over languages, so that each counts the same.
    by_group : dict
        Accuracy over the sentences of each group that has some.
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
        How many know it.
    accuracy : float
        Of the system that is looked at.
    best_teacher : float
        Of the teacher that is best at this language.
    confusions : tuple of (code, share of the sentences)
        What it is taken for most often.
    """

    code: str
    rows: int
    teachers: int
    accuracy: float
    best_teacher: float
    confusions: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` finds.

    Attributes
    ----------
    rows, languages : int
        Of the labelled sentences.
    uncovered : int
        Sentences of languages that no teacher knows.
    groups : tuple of Group
        Those that have sentences.
    systems : tuple of System
        In the order given; last the choice of the right one of the teachers' answers, a ceiling.
    by_language : tuple of Language
        The worst first.
    """

    rows: int
    languages: int
    uncovered: int
    groups: tuple[Group, ...]
    systems: tuple[System, ...]
    by_language: tuple[Language, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
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
    """Compare what systems answer with the truth.

    Parameters
    ----------
    truth : (n,) sequence of str
        The language of each sentence.
    answers : mapping of name to (n,) sequence of str
        What each system says; ``""`` where it says nothing. Names that `known` has, too, are teachers.
    known : mapping of name to collection of str
        The languages that each teacher knows.
    look_at : str
        The system of the table by language.
    n_confusions : int
        How many languages that one is taken for are listed.
    n_classes : mapping of name to int, optional
        How many languages systems know that are no teachers.

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
    sizes[CEILING] = len(set().union(*(known[name] for name in teachers)))
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
    """Return by how many teachers a language is known; of a single teacher "all" says more than "one"."""
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
    """Return the answer that most systems give for each sentence; ties go to the greater sum of confidence.

    Parameters
    ----------
    votes : N sequences of n answers
        ``""`` where a system says nothing.
    confidence : (N, n) array
        How sure each system is of its answer.

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
