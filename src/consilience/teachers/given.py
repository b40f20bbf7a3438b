"""The teachers that a user gives: a list, a dict by name, a Ranking, or one teacher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from consilience.exceptions import InvalidInputError, TeacherError
from consilience.teachers import Teacher, as_teacher, is_source


@runtime_checkable
class HasScoredTeachers(Protocol):
    """An object with ranked teachers that can be given as a list; `consilience.rank.Ranking` is one."""

    def scored_teachers(self) -> Sequence[tuple[str, Any, float]]:
        """Return name, teacher and score of each teacher that has a score, best first."""
        ...


class GivenTeachers(NamedTuple):
    """The sources of teachers, before any is opened."""

    names: list[str | None]  # None where the source names itself
    sources: list[Any]
    scores: list[float] | None  # where a Ranking was given


class OpenedTeachers(NamedTuple):
    """Teachers, ready to be asked."""

    names: list[str]  # each once
    teachers: list[Teacher]
    scores: list[float] | None  # where a Ranking was given


def column_kinds(teachers: Sequence[Teacher]) -> dict[Any, str]:
    """Return what columns of a table hold, by name, where teachers say so and do not contradict each other.

    Parameters
    ----------
    teachers : sequence of Teacher
        With a `column_kinds` each.
    """
    found: dict[Any, set[str]] = {}
    for teacher in teachers:
        for name, kind in teacher.column_kinds.items():
            found.setdefault(name, set()).update({kind} - {"unused"})
    return {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1}


def given_teachers(teachers: Any) -> GivenTeachers:
    """List what was given as teachers, without opening any.

    Parameters
    ----------
    teachers : sequence, mapping, Ranking or teacher
        A list of what `as_teacher` takes, a dict of such by name, what `rank_teachers` returned (teachers
        that failed are left out), or a single one.

    Examples
    --------
    >>> given_teachers({"birds": "birds.onnx", "pets": "pets.onnx"}).names
    ['birds', 'pets']
    >>> given_teachers("birds.onnx").sources
    ['birds.onnx']
    """
    if isinstance(teachers, HasScoredTeachers):
        ranked = teachers.scored_teachers()
        if not ranked:
            raise InvalidInputError("teachers is a Ranking in which no teacher has a score; give others.")
        names, sources, scores = zip(*ranked, strict=True)
        return GivenTeachers(list(names), list(sources), list(scores))
    if isinstance(teachers, Mapping):
        given = GivenTeachers([str(name) for name in teachers], list(teachers.values()), None)
        twice = [name for name, count in Counter(given.names).items() if count > 1]
        if twice:
            raise InvalidInputError(f"teachers has two names that read {twice[0]!r}. Rename one.")
    elif isinstance(teachers, Sequence) and not isinstance(teachers, str | bytes):
        given = GivenTeachers([None] * len(teachers), list(teachers), None)
    elif is_source(teachers):
        given = GivenTeachers([None], [teachers], None)
    else:
        raise InvalidInputError(
            f"teachers is a {type(teachers).__name__}; give a list of teachers, a dict of them by name, "
            "a Ranking, or one teacher."
        )
    if not given.sources:
        raise InvalidInputError("teachers is empty; give at least one teacher.")
    return given


def open_teachers(teachers: Any) -> OpenedTeachers:
    """Make teachers of what was given; see `given_teachers`. An error says which of them it is about."""
    names, sources, scores = given_teachers(teachers)
    opened = [
        numbered_teacher(source, i, len(sources), name)
        for i, (source, name) in enumerate(zip(sources, names, strict=True))
    ]
    return OpenedTeachers(distinct_names([teacher.name for teacher in opened]), opened, scores)


def numbered_teacher(source: Any, index: int, count: int, name: str | None = None) -> Teacher:
    """Make a teacher, or say which of several cannot be made."""
    try:
        return as_teacher(source, name=name)
    except TeacherError as error:
        raise error.at(index, count) from error.__cause__


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return names with a number where several teachers share one.

    Examples
    --------
    >>> distinct_names(["forest", "SVC", "forest"])
    ['forest 1', 'SVC', 'forest 2']
    """
    counts, seen, taken = Counter(names), Counter[str](), set(names)
    distinct = []
    for name in names:
        new = name
        while counts[name] > 1 and new in taken:
            seen[name] += 1
            new = f"{name} {seen[name]}"
        taken.add(new)
        distinct.append(new)
    return distinct
