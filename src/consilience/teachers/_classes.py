"""Rename, join and split the classes of a teacher."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from consilience._words import shorten
from consilience.exceptions import LabelSpaceError, TeacherError
from consilience.labels import apply_aliases, class_list
from consilience.teachers._base import Teacher
from consilience.teachers._features import Observed
from consilience.teachers._wrapped import Relabelled


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
    teacher = checked_teacher(
        teacher, "aliases", aliases, "the teacher's name of a class to the name it is to have"
    )
    classes = teacher.classes.tolist()
    unused = [alias for alias in aliases if alias not in set(classes)]
    if unused:
        raise TeacherError(
            teacher.name,
            f"has no class {shorten(map(repr, unused), 5)}, which aliases rename; its classes are "
            f"{shorten(classes, 5)}. Drop what is not used.",
        )
    try:
        for new in aliases.values():
            class_list([new], "aliases")  # None, or a list, is no name
        renamed = apply_aliases(classes, aliases, teacher.name)
        return Relabelled(teacher, teacher.name, np.asarray(class_list(renamed)))
    except LabelSpaceError as error:
        raise TeacherError(teacher.name, f"cannot be renamed: {error}") from None


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
    teacher = checked_teacher(
        teacher, "groups", groups, "the name of a joint class to a list of the teacher's classes"
    )
    return Joined(teacher, *_joint(teacher, groups))


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
    teacher = checked_teacher(
        teacher, "groups", groups, "a class of the teacher to a list of those it covers"
    )
    columns = {value: i for i, value in enumerate(teacher.classes.tolist())}
    unknown = [name for name in groups if name not in columns]
    if unknown:
        raise TeacherError(
            teacher.name,
            f"has no class {shorten(map(repr, unknown), 5)} to split; its classes are "
            f"{shorten(teacher.classes, 5)}.",
        )
    try:
        covered = {name: _group(name, given) for name, given in groups.items()}
        finer = [(name, column) for value, column in columns.items() for name in covered.get(value, [value])]
        classes = np.asarray(class_list([name for name, _ in finer]))
    except LabelSpaceError as error:
        raise TeacherError(teacher.name, f"cannot be split like this: {error}") from None
    return Split(teacher, classes, np.array([column for _, column in finer], dtype=np.intp))


class Regrouped(Relabelled):
    """A teacher whose columns are joined or repeated.

    Parameters
    ----------
    teacher : Teacher
    classes : (c,) array
        The new classes.
    columns : array of int
        What becomes of the columns; see the subclasses.
    """

    class_weights = None  # no layer gives the new logits

    def __init__(self, teacher: Teacher, classes: NDArray[Any], columns: NDArray[np.intp]) -> None:
        super().__init__(teacher, teacher.name, classes)
        self._columns, self.class_centres = columns, None

    @abstractmethod
    def _regroup(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logits (n, c) of the new classes."""

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the logits (n, c) of the new classes."""
        return self._regroup(super().predict_logits(X))

    def observe(self, X: Any) -> Observed:
        """Return the logits of the new classes, and the teacher's own embeddings."""
        seen = super().observe(X)
        return Observed(self._regroup(seen.logits), seen.embeddings)

    def randomised(self, seed: int) -> Regrouped | None:
        """Return the same classes of the teacher's random twin, or None."""
        twin = super().randomised(seed)
        return None if twin is None else type(self)(twin, self.classes, self._columns)

    @property
    def fingerprint(self) -> str | None:
        """A hash of the teacher's fingerprint and of the regrouping; None if the teacher has none."""
        own = super().fingerprint
        if own is None:
            return None
        facts = f"{type(self).__name__.lower()} {self._columns.tolist()} {own}"
        return hashlib.blake2b(facts.encode(), digest_size=32).hexdigest()


class Joined(Regrouped):
    """Columns are joined: `columns` (k,) holds the new class of each of the teacher's columns."""

    def _regroup(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        log_proba = log_softmax(logits, axis=1)
        joint = np.empty((len(logits), len(self.classes)))
        for place in range(joint.shape[1]):
            members = np.flatnonzero(self._columns == place)
            single = len(members) == 1
            joint[:, place] = log_proba[:, members[0]] if single else logsumexp(log_proba[:, members], axis=1)
        return joint


class Split(Regrouped):
    """Columns are repeated: `columns` (c,) holds the teacher's column of each new class."""

    def _regroup(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        return logits[:, self._columns]


def checked_teacher(source: Any, what: str, given: object, expected: str) -> Teacher:
    """Return a teacher of whatever `as_teacher` takes; raise unless aliases or groups are a mapping."""
    from consilience.teachers import as_teacher  # which is made of this module, too

    teacher = as_teacher(source)
    if not isinstance(given, Mapping):
        raise TeacherError(
            teacher.name,
            f"cannot be changed: {what} is a {type(given).__name__}; give a mapping, from {expected}.",
        )
    return teacher


def _joint(teacher: Teacher, groups: Mapping[Any, Sequence[Any]]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the joint classes (c,) and the joint class (k,) of each of the teacher's own."""
    classes = teacher.classes.tolist()
    joint: dict[Any, Any] = {}
    for name, given in groups.items():
        members = _members(teacher, name, given)
        twice = [member for member in members if member in joint]
        if twice:
            raise TeacherError(
                teacher.name,
                f"has the class {twice[0]!r} in two groups, {joint[twice[0]]!r} and {name!r}. Drop one.",
            )
        joint.update(dict.fromkeys(members, name))
    kept = [value for value in classes if value in groups and joint.get(value) != value]
    if kept:
        raise TeacherError(
            teacher.name,
            f"has a class {kept[0]!r} that is not in the group of that name. Add it to the group, or rename "
            "the group.",
        )
    named = [joint.get(value, value) for value in classes]
    found = list(dict.fromkeys(named))
    try:
        listed = np.asarray(class_list(found))
    except LabelSpaceError as error:
        raise TeacherError(teacher.name, f"cannot be joined like this: {error}") from None
    return listed, np.array([found.index(value) for value in named], dtype=np.intp)


def _group(name: Any, given: Any) -> list[Any]:
    if not isinstance(given, Iterable):
        raise LabelSpaceError(f"The group {name!r} is {given!r}; give a list of classes.")
    return class_list(given, f"The group {name!r}")  # type: ignore[arg-type]


def _members(teacher: Teacher, name: Any, given: Sequence[Any]) -> list[Any]:
    """Return the classes of one group, or say what is wrong with them."""
    try:
        members = _group(name, given)
    except LabelSpaceError as error:
        raise TeacherError(teacher.name, f"cannot be joined like this: {error}") from None
    known = set(teacher.classes.tolist())
    unknown = [member for member in members if member not in known]
    if unknown:
        raise TeacherError(
            teacher.name,
            f"has no class {shorten(map(repr, unknown), 5)}, which the group {name!r} names; its classes are "
            f"{shorten(teacher.classes, 5)}.",
        )
    return members
