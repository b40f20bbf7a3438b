"""Which classes are the same? Names against what the teachers say about unlabelled rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience._validation import check_count
from consilience._words import counted, shorten
from consilience.exceptions import InvalidInputError
from consilience.inspect.drawing import Block
from consilience.inspect.matching import Matched, answered_twice, match_columns, spelling, warn_of_unused
from consilience.inspect.page import Column, Told, frame, plain, table
from consilience.kernels.arrays import Floats, Ints
from consilience.labels import LabelSpace
from consilience.rows import as_rows
from consilience.run import Run, resolve_run
from consilience.scoring import score
from consilience.teachers.given import open_teachers

__all__ = ["AliasSuggestions", "SameClass", "SameName", "suggest_aliases"]

MOST_NAMES = 3  # of teachers, when printed


@dataclass(frozen=True)
class SameClass:
    """Two names that are likely one class.

    Attributes
    ----------
    alias : str or number
        The name to give up.
    name : str or number
        The name to keep: the one that more teachers use, or the longer one.
    alias_teachers, name_teachers : tuple of str
        The teachers that use each.
    agreement : float
        Mean correlation, at most 1, between what the teachers say of the two; see `suggest_aliases`. If more
        than two names are one class, between the alias and all the others.
    spelling : float or None
        How alike the names are spelt, from 0 to 1; None for numbers.
    rows : tuple of int
        Up to three rows of X that speak for it most: all these teachers rank them high.
    expressible : bool
        Whether an alias can say it. If not, one of the names is likely two classes: first rename it for the
        teachers concerned with `consilience.teachers.rename_classes`.

    Examples
    --------
    >>> found = SameClass("cat", "house cat", ("a",), ("b",), agreement=0.9, spelling=0.5, rows=(3, 8))
    >>> found.name, found.agreement
    ('house cat', 0.9)
    """

    alias: Any
    name: Any
    alias_teachers: tuple[str, ...]
    name_teachers: tuple[str, ...]
    agreement: float
    spelling: float | None
    rows: tuple[int, ...]
    expressible: bool = True


@dataclass(frozen=True)
class SameName:
    """One name that likely stands for two classes.

    Attributes
    ----------
    name : str or number
    teachers, other_teachers : tuple of str
        The teachers that use it for one class, and those that use it for another.
    agreement : float
        Mean correlation between what the two groups say of it; near zero or below.
    rows : tuple of int
        Up to three rows of X that speak for it most: one group ranks them high, the other low.

    Examples
    --------
    >>> found = SameName("jaguar", ("animals",), ("cars",), agreement=-0.1, rows=(2, 5))
    >>> found.teachers, found.other_teachers
    (('animals',), ('cars',))
    """

    name: Any
    teachers: tuple[str, ...]
    other_teachers: tuple[str, ...]
    agreement: float
    rows: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class AliasSuggestions(Told):
    """What `consilience.suggest_aliases` found. Nothing of it is applied: ``Unifier(aliases=found.aliases)``.

    Attributes
    ----------
    same_class : tuple of SameClass
        Different names that are likely one class, surest first.
    same_name : tuple of SameName
        Names that likely stand for two classes, surest first.
    n_rows : int
        Rows that were compared.
    given : mapping
        The aliases that were given, and had been applied before.

    Examples
    --------
    >>> same = SameClass("cat", "house cat", ("a",), ("b",), agreement=0.9, spelling=0.5, rows=(3, 8))
    >>> AliasSuggestions((same,), (), n_rows=100, given={}).aliases
    {'cat': 'house cat'}
    """

    same_class: tuple[SameClass, ...]
    same_name: tuple[SameName, ...]
    n_rows: int
    given: Mapping[Any, Any]

    @property
    def aliases(self) -> dict[Any, Any]:
        """The aliases to use: those given, and those suggested."""
        return {**self.given, **{pair.alias: pair.name for pair in self.same_class if pair.expressible}}

    def __len__(self) -> int:
        return len(self.same_class) + len(self.same_name)

    def __iter__(self) -> Iterator[SameClass | SameName]:
        return iter((*self.same_class, *self.same_name))

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {name: plain(getattr(self, name)) for name in ("n_rows", "same_class", "same_name")}

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per suggestion."""
        same = [
            {"likely": "one class", **vars(pair), "other_teachers": pair.name_teachers}
            for pair in self.same_class
        ]
        two = [
            {"likely": "two classes", **vars(pair), "alias_teachers": pair.teachers, "expressible": False}
            for pair in self.same_name
        ]
        columns = ["likely", "alias", "name", "agreement", "spelling", "rows", "alias_teachers"]
        return frame([*same, *two], columns=[*columns, "other_teachers", "expressible"])

    def tables(self, places: Sequence[int] | None = None) -> list[Block]:
        """Return the suggestions as tables; `places` are the positions to show for rows, if others."""

        def rows(pair: SameClass | SameName) -> str:
            return shorten(pair.rows if places is None else [places[row] for row in pair.rows])

        def several(names: Sequence[str]) -> str:
            return shorten(names, MOST_NAMES)

        same, two = self.same_class, self.same_name
        classes: list[Column] = [
            ("alias", "name", [pair.alias for pair in same]),
            ("of", "name", [several(pair.alias_teachers) for pair in same]),
            ("is likely", "name", [pair.name for pair in same]),
            ("of", "name", [several(pair.name_teachers) for pair in same]),
            ("agreement", "number", [round(pair.agreement, 2) for pair in same]),
            ("spelling", "number", [pair.spelling and round(pair.spelling, 2) for pair in same]),
            ("rows", "text", [rows(pair) for pair in same]),
            ("", "text", ["" if pair.expressible else "rename first" for pair in same]),
        ]
        names: list[Column] = [
            ("name", "name", [pair.name for pair in two]),
            ("of", "name", [several(pair.teachers) for pair in two]),
            ("is likely not that of", "name", [several(pair.other_teachers) for pair in two]),
            ("agreement", "number", [round(pair.agreement, 2) for pair in two]),
            ("rows", "text", [rows(pair) for pair in two]),
        ]
        likely = "Names that are likely"
        both = table(f"{likely} one class", classes), table(f"{likely} two classes", names)
        return [one for one in both if one["rows"]]

    def told(self) -> list[str | Block]:
        """Return how many there are, and the tables."""
        pairs, names = counted(len(self.same_class), "pair"), counted(len(self.same_name), "name")
        rows = counted(self.n_rows, "row")
        return [f"{pairs} of names likely one class, {names} likely two classes ({rows})", *self.tables()]


def suggest_aliases(
    teachers: Any,
    X: Any,
    *,
    aliases: Mapping[Any, Any] | None = None,
    max_rows: int = 5000,
    run: Run | None = None,
) -> AliasSuggestions:
    """Suggest which classes of different teachers are one, and which that share a name are two.

    If two teachers mean the same class, they rank the same rows of X first, whatever they call it. For each
    column of each teacher, a is the rank of a row as a share of all. It is lowest for the row that the
    teacher finds most like the class: by its log-odds, plus 0.3 times its logit counted from the teacher's
    mean. The *agreement* of two columns is the correlation over rows of

        1 / (a + 0.06 / L)

    Here L is about the number of classes: the geometric mean of the size of the largest label set and the
    number of names. So the few surest rows decide. A teacher gives rows of classes that it does not know to
    the nearest one that it has, but seldom as surely as that class's own rows.

    Columns with one name begin as one group, unless they hardly agree (less than 0.02 on at least 100 rows):
    such names are likely two classes. Groups are also compared by what they *share* with all others. Let e be
    the eigenvalues of the matrix of mean agreements between groups, with ones on the diagonal and zeros for
    groups of one teacher. Those above one, weighted by (e - 1) / e, leave w: the cosine of two groups in what
    several groups say. The evidence that two columns are one class is, as log-odds,

        3.9 w + 5.6 w r - 10.2 v + 0.41 log s - 0.56

    Here r is their agreement, v is the number of eigenvalues above one over the number of groups, and s is
    the share of classes that surely have a match with another teacher: where matches are rare, they must be
    clearer. The odds must be three to one. With n < 1000 rows, 0.8 log(1000 / n) is subtracted. Names that
    are spelt alike (0.8 or more) get 3 more, if they agree by 0.1 at least.

    The two groups with the best mean evidence are joined, again and again, while it is enough. Groups that
    hold classes of one teacher are never joined. So matches are one-to-one, and they hold across more than
    two teachers.

    Nothing is applied. Look at the rows, and pass what you believe to ``Unifier(aliases=...)``.

    Parameters
    ----------
    teachers : sequence, dict, Ranking or teacher
        As for `Unifier`; two or more.
    X : array, sparse matrix, data frame, list, or rows in files
        Unlabelled rows. Classes that do not occur among them cannot be matched. Those of files must fit in
        memory.
    aliases : mapping, optional
        Aliases that you know already. They are applied first.
    max_rows : int
        Compare at most this many rows, evenly spaced.
    run : Run, optional
        How teachers are asked: memory, cache, rows_per_call, progress.

    Returns
    -------
    AliasSuggestions
        Print it to see pairs of names with their agreement, their spelling and three rows that speak for
        each. Its `aliases` are ready for `Unifier`.

    Warns
    -----
    AliasWarning
        With the given aliases that rename no class.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> latin = np.array(["setosa", "versicolor", "virginica"])[y]
    >>> english = np.array(["bristly iris", "blue flag", "southern blue flag"])[y]
    >>> teachers = {name: LogisticRegression(max_iter=500).fit(X[rows], labels[rows])
    ...     for name, labels, rows in (("a", latin, slice(0, None, 2)), ("b", english, slice(1, None, 2)))}
    >>> suggest_aliases(teachers, X).aliases["setosa"]
    'bristly iris'
    """
    check_count("max_rows", max_rows, at_least=2)
    run, opened = resolve_run(run), open_teachers(teachers)
    if len(opened.teachers) < 2:
        raise InvalidInputError("teachers has one teacher; give two or more, to compare their classes.")
    lists = [teacher.classes for teacher in opened.teachers]
    space = LabelSpace(lists, aliases, names=opened.names, disconnected="ignore")
    warn_of_unused(space)
    rows = as_rows(X)
    if len(rows) == 0:
        raise InvalidInputError("X has no rows; give some that the teachers can be compared on.")
    return find_suggestions(score(opened.teachers, space, rows, run), space, aliases or {}, max_rows)


def find_suggestions(
    logits: Any, space: LabelSpace, given: Mapping[Any, Any], max_rows: int
) -> AliasSuggestions:
    """Return what packed logits (n, m) say about the names of a label space."""
    rows = answered_twice(logits, space, max_rows)
    found = match_columns(np.asarray(logits[rows], np.float64), space)
    parts = [np.unique(found.parts[space.columns == code]) for code in range(space.n_classes)]
    doubtful = {code for code, own in enumerate(parts) if len(own) > 1}  # names that are several classes
    same_class = [
        pair
        for group in np.unique(found.groups)
        for pair in _names_of_group(found, group, doubtful, rows, space)
    ]
    same_name = [pair for name in sorted(doubtful) for pair in _parts_of_name(found, name, rows, space)]
    return AliasSuggestions(
        tuple(sorted(same_class, key=lambda pair: -pair.agreement)),
        tuple(sorted(same_name, key=lambda pair: pair.agreement)),
        len(rows),
        dict(given),
    )


def _names_of_group(
    found: Matched, group: int, doubtful: set[int], rows: Ints, space: LabelSpace
) -> list[SameClass]:
    """Return the pairs of names of one group: each with the name to keep."""
    members = np.flatnonzero(found.groups == group)
    own = {
        code: members[space.columns[members] == code] for code in np.unique(space.columns[members]).tolist()
    }
    names = dict(zip(own, space.classes[list(own)].tolist(), strict=True))
    kept = min(
        own,
        key=lambda code: (
            -len(own[code]),
            -len(names[code]) if isinstance(names[code], str) else 0,
            names[code],
        ),
    )
    rest = {code: np.setdiff1d(members, columns) for code, columns in own.items()}
    return [
        SameClass(
            names[code],
            names[kept],
            _teachers(columns, space),
            _teachers(own[kept], space),
            _mean_agreement(found, columns, rest[code]),
            spelling(names[code], names[kept]),
            _speaking_rows(found.ranks, columns, rest[code], rows, same=True),
            not doubtful & {code, kept},
        )
        for code, columns in own.items()
        if code != kept
    ]


def _parts_of_name(found: Matched, name: int, rows: Ints, space: LabelSpace) -> list[SameName]:
    """Return a pair of groups of teachers for each part of a name but the largest."""
    members = np.flatnonzero(space.columns == name)
    parts = [members[found.parts[members] == part] for part in dict.fromkeys(found.parts[members].tolist())]
    parts.sort(key=lambda part: (-len(part), _teachers(part, space)))
    return [
        SameName(
            space.classes[name].item(),
            _teachers(parts[0], space),
            _teachers(part, space),
            _mean_agreement(found, parts[0], part),
            _speaking_rows(found.ranks, parts[0], part, rows, same=False),
        )
        for part in parts[1:]
    ]


def _teachers(columns: Ints, space: LabelSpace) -> tuple[str, ...]:
    places = np.searchsorted(space.offsets, columns, side="right") - 1
    return tuple(space.names[place] for place in places)


def _mean_agreement(found: Matched, columns: Ints, others: Ints) -> float:
    return float(np.nanmean(found.correlation[np.ix_(columns, others)]))


def _speaking_rows(ranks: Floats, columns: Ints, others: Ints, rows: Ints, *, same: bool) -> tuple[int, ...]:
    """Return the three rows that both sides rank highest, or (with same=False) only one of them."""
    sides = np.array([_log_ranks(ranks[:, one]) for one in (columns, others)])
    known = np.flatnonzero(np.isfinite(sides).all(axis=0))
    low, high = sides[:, known].min(axis=0), sides[:, known].max(axis=0)
    # ranks often tie: then the row counts that one side ranks higher
    order = np.lexsort((low, (high if same else low - high).round(9)))
    return tuple(rows[known[order[:3]]].tolist())


def _log_ranks(ranks: Floats) -> Floats:
    """Return the mean logarithm of some columns; infinite in rows on which all these teachers abstain."""
    logs, n_known = np.nansum(np.log(ranks), axis=1), (~np.isnan(ranks)).sum(axis=1)
    return np.where(n_known > 0, logs / np.maximum(n_known, 1), np.inf)
