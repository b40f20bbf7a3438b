"""The experiment protocol of "Unifying Heterogeneous Classifiers" (Sec. 4.1.1): random teachers and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._validation import as_random_state
from consilience._words import shorten
from consilience.exceptions import InvalidInputError
from consilience.labels import LabelSpace

Range = tuple[int, int]

# Give up after drawing the sizes of a trial this many times. The ranges of Table 1 need one or two draws.
MAX_DRAWS = 10_000


class Sizes(TypedDict):
    """The size of a trial: the first three arguments of `random_classes`, each (fewest, most)."""

    n_classes: Range
    n_teachers: Range
    n_teacher_classes: Range


_LARGE = Sizes(n_classes=(20, 50), n_teachers=(10, 20), n_teacher_classes=(5, 15))
SIZES: Mapping[str, Sizes] = MappingProxyType(
    {
        "imagenet": _LARGE,
        "lsun": Sizes(n_classes=(5, 10), n_teachers=(3, 7), n_teacher_classes=(2, 5)),
        "places365": _LARGE,
    }
)
"""Table 1 of the paper, for ``random_classes(y, **SIZES["lsun"])``."""


@dataclass(frozen=True)
class Trial:
    """One trial: the classes of each teacher, and the rows that train it.

    Attributes
    ----------
    classes : (L,) array
        The classes of the unified classifier, sorted.
    teacher_classes : tuple of (k_i,) arrays
        The classes of each teacher, sorted. Together they are `classes`, in one connected component.
    teacher_rows : tuple of arrays of int
        The rows of y that train each teacher, sorted. No two teachers share a row.
    """

    classes: NDArray[Any]
    teacher_classes: tuple[NDArray[Any], ...]
    teacher_rows: tuple[NDArray[np.intp], ...]

    @property
    def n_teachers(self) -> int:
        """The number of teachers, N."""
        return len(self.teacher_classes)

    @property
    def union_rows(self) -> NDArray[np.intp]:
        """The training rows of all teachers together, sorted. The benchmark SPV learns from them."""
        return np.sort(np.concatenate(self.teacher_rows))

    @property
    def label_space(self) -> LabelSpace:
        """The label space of the teachers."""
        return LabelSpace(self.teacher_classes)


class _Numbers(NamedTuple):
    classes: int  # L
    sizes: NDArray[np.intp]  # |L_i| of each teacher


def random_classes(
    y: ArrayLike,
    *,
    n_classes: Range = (5, 10),
    n_teachers: Range = (3, 7),
    n_teacher_classes: Range = (2, 5),
    n_per_class: Range = (50, 200),
    completely_overlapping: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> Trial:
    """Draw a trial of the paper's experiment: teachers that know random classes and share no data.

    The paper does not say how it covers the union of classes. Here the sets of classes are random, under two
    conditions: every class has a teacher, and chains of shared classes connect all classes. Without such
    chains, the teachers do not determine the union (see `LabelSpace.components`). If no such sets exist for
    the numbers of classes and teachers drawn, these are drawn again.

    Hold back rows for transfer and test yourself: y has only the rows that teachers may be trained on.

    Parameters
    ----------
    y : (n,) array
        Labels of the rows that teachers may be trained on.
    n_classes : (int, int)
        The fewest and the most classes of the union, L. See `SIZES` for Table 1.
    n_teachers : (int, int)
        The fewest and the most teachers, N.
    n_teacher_classes : (int, int)
        The fewest and the most classes of a teacher, at least two.
    n_per_class : (int, int)
        The fewest and the most training rows for each class of each teacher. If a class has too few rows for
        all teachers that know it, their numbers shrink in proportion: teachers never share rows.
    completely_overlapping : bool
        Whether every teacher knows every class of the union, the paper's second configuration.
    random_state : int, RandomState or None
        Reproduces the trial.

    Examples
    --------
    >>> y = np.repeat(np.arange(10), 400)
    >>> trial = random_classes(y, **SIZES["lsun"], random_state=0)
    >>> [known.tolist() for known in trial.teacher_classes]
    [[1, 2, 5, 8, 9], [0, 1, 3, 4, 9], [0, 1, 4, 6, 8]]
    >>> [len(rows) for rows in trial.teacher_rows]
    [483, 660, 591]
    """
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise InvalidInputError(f"y has shape {labels.shape}; expected (n,), one label for each row.")
    ranges = {
        "n_classes": _check_range("n_classes", n_classes, 2),
        "n_teachers": _check_range("n_teachers", n_teachers, 1),
        "n_teacher_classes": _check_range("n_teacher_classes", n_teacher_classes, 2),
    }
    per_class = _check_range("n_per_class", n_per_class, 1)
    known = np.unique(labels)
    if len(known) < n_classes[1]:
        raise InvalidInputError(
            f"{{argument}} asks for up to {n_classes[1]} classes, but y has {len(known)}. Lower it.",
            argument="n_classes",
            value=n_classes,
        )
    random = as_random_state(random_state)
    numbers = _draw_numbers(ranges, completely_overlapping, random)
    classes = np.sort(random.choice(known, numbers.classes, replace=False))
    if completely_overlapping:
        members = [np.arange(numbers.classes)] * len(numbers.sizes)
    else:
        members = _draw_members(numbers, random)
    rows = _draw_rows(labels, classes, members, per_class, random)
    return Trial(classes, tuple(classes[own] for own in members), rows)


def _check_range(name: str, value: Any, least: int) -> Range:
    try:
        low, high = value
    except (TypeError, ValueError):
        low, high = None, None
    whole = all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in (low, high))
    if not whole or not least <= low <= high:
        raise InvalidInputError(
            f"{{argument}} must be two whole numbers (fewest, most), the first at least {least}.",
            argument=name,
            value=value,
        )
    return int(low), int(high)


def _draw_numbers(
    ranges: Mapping[str, Range], completely_overlapping: bool, random: np.random.RandomState
) -> _Numbers:
    """Draw L, N and the size of each teacher, until connected sets of these sizes can cover L classes."""
    for _ in range(MAX_DRAWS):
        count = _between(ranges["n_classes"], random)
        teachers = _between(ranges["n_teachers"], random)
        if completely_overlapping:
            return _Numbers(count, np.full(teachers, count, dtype=np.intp))
        low, high = ranges["n_teacher_classes"]
        sizes = np.minimum(random.randint(low, high + 1, size=teachers), count)
        # a teacher that shares one class with those before it adds its size minus one
        if (sizes - 1).sum() >= count - 1:
            return _Numbers(count, sizes.astype(np.intp))
    raise InvalidInputError(
        f"Teachers of n_teacher_classes={ranges['n_teacher_classes']} classes, "
        f"n_teachers={ranges['n_teachers']} of them, cannot connect n_classes={ranges['n_classes']} classes. "
        "Allow more teachers, larger teachers or fewer classes."
    )


def _draw_members(numbers: _Numbers, random: np.random.RandomState) -> list[NDArray[np.intp]]:
    """Draw each teacher's classes, as positions: first a random tree that connects all, then the rest.

    A teacher of size s shares one class with the tree so far, and has room for s - 1 classes that are new to
    it. A random draw decides which of this room holds a new class. The rest is filled from all classes.
    """
    count, sizes = numbers
    places = np.repeat(np.arange(len(sizes)), sizes - 1)
    new = np.bincount(random.choice(places, count - 1, replace=False), minlength=len(sizes))
    order = random.permutation(count)
    members: list[NDArray[np.intp]] = [np.empty(0, dtype=np.intp)] * len(sizes)
    reached = 1
    for teacher in random.permutation(len(sizes)):
        link = order[random.randint(reached)]
        own = np.append(order[reached : reached + new[teacher]], link)
        reached += int(new[teacher])
        others = np.setdiff1d(np.arange(count), own)
        filling = random.choice(others, sizes[teacher] - len(own), replace=False)
        members[teacher] = np.sort(np.concatenate([own, filling])).astype(np.intp)
    return members


def _draw_rows(
    labels: NDArray[Any],
    classes: NDArray[Any],
    members: list[NDArray[np.intp]],
    per_class: Range,
    random: np.random.RandomState,
) -> tuple[NDArray[np.intp], ...]:
    """Deal the rows of each class out to the teachers that know it."""
    dealt: list[list[NDArray[np.intp]]] = [[] for _ in members]
    for position, name in enumerate(classes):
        owners = [i for i, own in enumerate(members) if position in own]
        rows = random.permutation(np.flatnonzero(labels == name))
        if len(rows) < len(owners):
            raise InvalidInputError(
                f"Class {shorten([name])} has {len(rows)} rows, but {len(owners)} teachers know it; "
                "each needs at least one of its own. Give more rows or fewer teachers."
            )
        wanted = random.randint(per_class[0], per_class[1] + 1, size=len(owners))
        stops = np.cumsum(_cut(wanted, len(rows)))
        for teacher, part in zip(owners, np.split(rows[: stops[-1]], stops[:-1]), strict=True):
            dealt[teacher].append(part)
    return tuple(np.sort(np.concatenate(parts)) for parts in dealt)


def _cut(wanted: NDArray[np.intp], available: int) -> NDArray[np.intp]:
    """Scale numbers down until they add up to at most `available`, but none below one."""
    total = int(wanted.sum())
    if total <= available:
        return wanted
    # give each one row first, so that rounding down leaves no teacher without a row
    return np.asarray(1 + (wanted - 1) * (available - len(wanted)) // max(total - len(wanted), 1))


def _between(bounds: Range, random: np.random.RandomState) -> int:
    return int(random.randint(bounds[0], bounds[1] + 1))
