"""Teachers around teachers: under another name, or with classes renamed, joined or split."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from consilience._words import shorten
from consilience.exceptions import LabelSpaceError, TeacherError
from consilience.labels import apply_aliases, class_list
from consilience.teachers.base import Teacher, TeacherLike, class_array
from consilience.teachers.outputs import Observed, as_numbers, describe, ensure, foreign, in_the_name_of


class Regroup(NamedTuple):
    """New classes: for each, the teacher's columns whose probabilities it adds up.

    Parameters
    ----------
    groups : tuple of tuple of int
        Each holds at least one column.
    normalised : bool
        Whether the new logits are log-probabilities.
    """

    groups: tuple[tuple[int, ...], ...]
    normalised: bool

    def __call__(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logits (n, c) of the new classes."""
        order = [column for group in self.groups for column in group]
        starts = np.cumsum([0, *(len(group) for group in self.groups[:-1])])
        scores = log_softmax(logits, axis=1) if self.normalised else logits
        with np.errstate(invalid="ignore"):  # numpy warns of the NaN of an abstention
            return np.asarray(np.logaddexp.reduceat(scores[:, order], starts, axis=1))


class Renamed(Teacher):
    """A teacher, or an object of yours with the members of `TeacherLike`, under a name and with classes.

    Any other member of `Teacher` that the source has is used, too. If its columns are regrouped, its
    embedding stays, but no layer gives the new logits, and no mean is that of a new class.
    """

    _passed_on = frozenset(
        {
            *("batched", "check_rows", "column_kinds", "embed", "file"),
            *("inputs", "n_jobs", "release", "served", "smoothing"),
        }
    )

    def __init__(
        self,
        source: Teacher | TeacherLike,
        name: str | None = None,
        classes: NDArray[Any] | None = None,
        regroup: Regroup | None = None,
    ) -> None:
        self.source, self.name, self._regroup = source, name or str(source.name), regroup
        self.classes = class_array(source.classes, self.name) if classes is None else classes

    def __getattribute__(self, name: str) -> Any:
        """Return a member as the source has it, or else as `Teacher` has it."""
        passed_on = name in super().__getattribute__("_passed_on")
        found = getattr(self.source, name, None) if passed_on else None
        if found is None:
            return super().__getattribute__(name)
        return partial(self._called, found) if callable(found) else found

    def _called(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call a member of the source; what it raises is told in this teacher's name."""
        try:
            with foreign(self.name, f"failed on {describe(given[0])}" if given else "failed"):
                return function(*given)
        except TeacherError as error:
            raise error.changed(teacher=self.name) from error.__cause__

    def _read(self, logits: Any) -> NDArray[np.float64]:
        numbers = as_numbers(logits, self.name)
        return numbers if self._regroup is None else self._regroup(numbers)

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the source's logits, of the classes (n, k)."""
        return self._read(self._called(self.source.predict_logits, X))

    def observe(self, X: Any) -> Observed:
        """Return what the source observes, or its logits and embeddings."""
        if not hasattr(self.source, "observe"):
            return super().observe(X)
        seen = self._called(self.source.observe, X)
        return Observed(self._read(seen.logits), seen.embeddings)

    @property
    def output(self) -> str | None:  # type: ignore[override]
        """What the source gives; None until that is known."""
        return getattr(self.source, "output", "logits")

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The source's weights (k, d), or None."""
        found = getattr(self.source, "class_weights", None) if self._regroup is None else None
        return None if found is None else np.asarray(found)

    @property
    def class_centres(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The source's centres (k, d), or None."""
        return getattr(self.source, "class_centres", None) if self._regroup is None else None

    @property
    def fingerprint(self) -> str | None:
        """The source's fingerprint, with what becomes of its columns; None if it has none."""
        own = getattr(self.source, "fingerprint", None)
        if own is None or self._regroup is None:
            return own
        return hashlib.blake2b(f"{self._regroup} {own}".encode(), digest_size=32).hexdigest()

    def part(self, rows: slice | NDArray[np.intp]) -> Teacher | None:
        """Return a teacher of some rows, under this name; None if the source is asked by batches."""
        return self._like(self._called(getattr(self.source, "part", super().part), rows))

    def randomised(self, seed: int) -> Teacher | None:
        """Return the source's random twin, or None."""
        return self._like(self._called(getattr(self.source, "randomised", super().randomised), seed))

    def _like(self, source: Any) -> Teacher | None:
        """Return the same around another source, or None where there is none."""
        return None if source is None else Renamed(source, self.name, self.classes, self._regroup)


def rename_classes(teacher: Any, aliases: Mapping[Any, Any]) -> Teacher:
    """Return a teacher whose classes have other names.

    All are renamed at once, so two classes may swap names: unlike in a `LabelSpace`, no chain is followed.
    Two classes must not become one (use `join_classes` for that). Every alias must be a class of this
    teacher; any other is an error.

    Parameters
    ----------
    teacher : Teacher
        Or whatever `as_teacher` takes without further options.
    aliases : mapping
        From the teacher's name of a class to its new name. Other classes keep theirs.

    Returns
    -------
    Teacher
        The same in all else, with the same fingerprint: stored outputs stay valid.

    Raises
    ------
    TeacherError
        An alias is not used, or makes one class of two.

    Examples
    --------
    >>> from consilience import as_teacher
    >>> teacher = as_teacher([[0.9, 0.1]], classes=["no", "da"], name="nordic")
    >>> rename_classes(teacher, {"no": "nob", "da": "dan"}).classes.tolist()
    ['nob', 'dan']
    """
    teacher = _checked(teacher, "aliases", aliases, "the teacher's name of a class to the name it is to have")
    _check_known(teacher, aliases, " to rename")
    with in_the_name_of(teacher.name, "cannot be renamed: "):
        for new in aliases.values():
            class_list([new], "aliases")  # None, or a list, is no name
        renamed = apply_aliases(teacher.classes.tolist(), aliases, teacher.name)
        return Renamed(teacher, classes=np.asarray(class_list(renamed)))


def join_classes(teacher: Any, groups: Mapping[Any, Sequence[Any]]) -> Teacher:
    """Return a teacher that treats several of its classes as one; their probabilities add.

    With p = softmax(z) over the teacher's own classes, a group G of them gets the logit
    log sum_{l in G} p(l), and every other class log p(l).

    Parameters
    ----------
    teacher : Teacher
        Or whatever `as_teacher` takes without further options.
    groups : mapping
        From the name of the joint class to the teacher's classes that become it; the name may be one of them.

    Returns
    -------
    Teacher
        With a column per joint class, at the place of its first member. Rows on which the teacher abstains
        stay abstentions. It has the teacher's embedding, but no last layer: `class_weights` and
        `class_centres` are None.

    Raises
    ------
    TeacherError
        A group is empty, names what is no class of the teacher, shares a class with another group, or has the
        name of a class outside it.

    Examples
    --------
    >>> from consilience import as_teacher
    >>> teacher = as_teacher([[0.2, 0.5, 0.3]], classes=["ja", "zh-cn", "zh-tw"], name="detector")
    >>> joint = join_classes(teacher, {"zh": ["zh-cn", "zh-tw"]})
    >>> joint.classes.tolist(), np.exp(joint.predict_logits([0])).round(2).tolist()
    (['ja', 'zh'], [[0.2, 0.8]])
    """
    teacher = _checked(
        teacher, "groups", groups, "the name of a joint class to a list of the teacher's classes"
    )
    classes = teacher.classes.tolist()
    with in_the_name_of(teacher.name, "cannot be joined like this: "):
        members = {name: _group(name, given) for name, given in groups.items()}
        every = [value for group in members.values() for value in group]
        _check_known(teacher, every, " to join")
        twice = shorten(repr(value) for value, count in Counter(every).items() if count > 1)
        ensure(not twice, teacher.name, f"has the class {twice} in two groups. Drop one.")
        joint = {value: name for name, group in members.items() for value in group}
        outside = shorten(repr(value) for value in classes if value in groups and joint.get(value) != value)
        ensure(
            not outside,
            teacher.name,
            f"has a class {outside} that is not in the group of that name. Add it to the group, or "
            "rename the group.",
        )
        columns: dict[Any, list[int]] = {}
        for column, value in enumerate(classes):
            columns.setdefault(joint.get(value, value), []).append(column)
        regroup = Regroup(tuple(map(tuple, columns.values())), normalised=True)
        return Renamed(teacher, classes=np.asarray(class_list(list(columns))), regroup=regroup)


def split_classes(teacher: Any, groups: Mapping[Any, Sequence[Any]]) -> Teacher:
    """Return a teacher in which one class stands for several that it cannot tell apart.

    A teacher that knows "bird" also informs about "owl" and "wren", if other teachers know these. Each member
    of the group G gets the logit z(g) of the class g that it replaces. So each is as probable against any
    other class as g was, and within G the other teachers decide.

    Parameters
    ----------
    teacher : Teacher
        Or whatever `as_teacher` takes without further options.
    groups : mapping
        From a class of the teacher to the classes it covers.

    Returns
    -------
    Teacher
        With the classes of a group at the place of the one they replace. Rows on which the teacher abstains
        stay abstentions. It has the teacher's embedding, but no last layer of its own: `class_weights` and
        `class_centres` are None.

    Raises
    ------
    TeacherError
        A group is empty, replaces what is no class of the teacher, or names a class that it has already.

    Examples
    --------
    >>> from consilience import as_teacher
    >>> teacher = as_teacher([[0.2, 0.8]], classes=["cat", "bird"], name="zoo")
    >>> finer = split_classes(teacher, {"bird": ["owl", "wren"]})
    >>> finer.classes.tolist(), np.exp(finer.predict_logits([0])).round(2).tolist()
    (['cat', 'owl', 'wren'], [[0.2, 0.8, 0.8]])
    """
    teacher = _checked(teacher, "groups", groups, "a class of the teacher to a list of those it covers")
    _check_known(teacher, groups, " to split")
    with in_the_name_of(teacher.name, "cannot be split like this: "):
        covered = {name: _group(name, given) for name, given in groups.items()}
        own = enumerate(teacher.classes.tolist())
        finer = [(name, column) for column, value in own for name in covered.get(value, [value])]
        regroup = Regroup(tuple((column,) for _, column in finer), normalised=False)
        return Renamed(teacher, classes=np.asarray(class_list([name for name, _ in finer])), regroup=regroup)


def _checked(source: Any, what: str, given: object, expected: str) -> Teacher:
    """Return a teacher of whatever `as_teacher` takes; raise unless aliases or groups are a mapping."""
    from consilience.teachers.given import as_teacher  # which is made of this module, too

    teacher = as_teacher(source)
    found = f"cannot be changed: {what} is a {type(given).__name__}"
    ensure(isinstance(given, Mapping), teacher.name, f"{found}; give a mapping, from {expected}.")
    return teacher


def _check_known(teacher: Teacher, names: Iterable[Any], why: str) -> None:
    classes = teacher.classes.tolist()
    unknown = shorten((repr(name) for name in names if name not in classes), 5)
    known = f"its classes are {shorten(classes, 5)}. Drop what is none of them."
    ensure(not unknown, teacher.name, f"has no class {unknown}{why}; {known}")


def _group(name: Any, given: Any) -> list[Any]:
    if not isinstance(given, Iterable):
        raise LabelSpaceError(f"The group {name!r} is {given!r}; give a list of classes.")
    return class_list(given, f"The group {name!r}")
