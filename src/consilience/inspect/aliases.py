"""Which classes are the same? Names against what the teachers say about unlabelled rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._validation import check_count, n_rows
from consilience.exceptions import InvalidInputError
from consilience.inspect.matching import Matched, answered_twice, match_columns, warn_of_unused
from consilience.inspect.spelling import spelling
from consilience.inspect.suggestions import AliasSuggestions, SameClass, SameName
from consilience.kernels.arrays import Floats, Ints
from consilience.labels import LabelSpace
from consilience.rows import as_rows
from consilience.run import Run
from consilience.scoring.engine import score
from consilience.scoring.store import as_store
from consilience.teachers.given import open_teachers

__all__ = ["AliasSuggestions", "SameClass", "SameName", "suggest_aliases"]


def suggest_aliases(
    teachers: Any,
    X: Any,
    *,
    aliases: Mapping[Any, Any] | None = None,
    max_rows: int = 5000,
    cache: Any = None,
    batch_size: int = 4096,
    progress: Progress | None = None,
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
    cache : path or ScoreStore, optional
        A folder that keeps the teachers' outputs, as for `Unifier`.
    batch_size : int
        Rows per call of a teacher.
    progress : callable, optional
        Called with (task, done, total) during long work.

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
    check_count("batch_size", batch_size)
    opened = open_teachers(teachers)
    if len(opened.teachers) < 2:
        raise InvalidInputError("teachers has one teacher; give two or more, to compare their classes.")
    lists = [teacher.classes for teacher in opened.teachers]
    space = LabelSpace(lists, aliases, names=opened.names, disconnected="ignore")
    warn_of_unused(space)
    X = as_rows(X).all(Run())
    if n_rows(X) == 0:
        raise InvalidInputError("X has no rows; give some that the teachers can be compared on.")
    logits = score(
        opened.teachers, space, X, batch_size=batch_size, store=as_store(cache), progress=progress or silent
    )
    return find_suggestions(logits, space, aliases or {}, max_rows)


def find_suggestions(
    logits: Floats, space: LabelSpace, given: Mapping[Any, Any], max_rows: int
) -> AliasSuggestions:
    """Return what packed logits (n, m) say about the names of a label space."""
    rows = answered_twice(logits, space, max_rows)
    found = match_columns(logits[rows], space)
    doubtful = _repeated(space.columns, found.parts)
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


def _repeated(columns: Ints, parts: Ints) -> set[int]:
    """Return the classes whose columns are in several parts."""
    pairs = np.unique(np.column_stack([columns, parts]), axis=0)
    found, counts = np.unique(pairs[:, 0], return_counts=True)
    return set(found[counts > 1].tolist())


def _names_of_group(
    found: Matched, group: int, doubtful: set[int], rows: Ints, space: LabelSpace
) -> list[SameClass]:
    """Return the pairs of names of one group: each with the name to keep."""
    members = np.flatnonzero(found.groups == group)
    classes, counts = np.unique(space.columns[members], return_counts=True)
    names = space.classes[classes].tolist()
    if len(names) < 2:
        return []
    order = sorted(
        range(len(names)),
        key=lambda k: (-counts[k], -len(names[k]) if isinstance(names[k], str) else 0, names[k]),
    )
    kept = order[0]
    pairs = []
    for k in sorted(order[1:]):
        own = members[space.columns[members] == classes[k]]
        rest = members[space.columns[members] != classes[k]]
        pairs.append(
            SameClass(
                names[k],
                names[kept],
                _teachers(own, space),
                _teachers(members[space.columns[members] == classes[kept]], space),
                _mean_agreement(found, own, rest),
                spelling(names[k], names[kept]),
                _speaking_rows(found.ranks, own, rest, rows, same=True),
                not doubtful & {int(classes[k]), int(classes[kept])},
            )
        )
    return pairs


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
    one, other = _log_ranks(ranks[:, columns]), _log_ranks(ranks[:, others])
    low, high = np.minimum(one, other), np.maximum(one, other)
    # ranks often tie: then the row counts that one side ranks higher
    order = np.lexsort((low, (high if same else low - high).round(9)))
    known: NDArray[np.bool_] = np.isfinite(high[order])
    return tuple(rows[order[known][:3]].tolist())


def _log_ranks(ranks: Floats) -> Floats:
    """Return the mean logarithm of some columns; infinite in rows on which all these teachers abstain."""
    known = ~np.isnan(ranks)
    total = np.where(known, np.log(np.where(known, ranks, 1.0)), 0.0).sum(axis=1)
    means: Floats = np.divide(
        total, known.sum(axis=1), out=np.full(len(ranks), np.inf), where=known.any(axis=1)
    )
    return means
