"""Match packed columns by what they say about rows, and by their names; warn of names that do not fit."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._words import shorten
from consilience.exceptions import AliasWarning, visible, warn
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.unify.ranks import (
    Agreement,
    column_ranks,
    join_groups,
    rank_agreement,
    shared_agreement,
)
from consilience.labels import LabelSpace
from consilience.soft_labels.solvers import spread_out

# The evidence that two columns are one class, as log-odds: how they agree in what they share with others (w),
# the same times their own agreement (w r), things shared per name (v), and how often a class surely has a
# match (log s). A logistic regression on trials with hidden names found these weights, on seeds 0 to 39;
# `python -m benchmarks.papers.aliases` confirms them on others.
SHARED, BOTH, THINGS, COMMON, ALWAYS = 3.9, 5.6, -10.2, 0.41, -0.56
# How probable one class must be: three to one.
ODDS = 3.0
# An agreement that surely is a match: SURE + FEW_CLASSES / k, with k classes of the smaller teacher.
SURE, FEW_CLASSES = 0.45, 0.15
# Names that are spelt as alike as ALIKE need less evidence, by this much, if the columns agree by LEAST.
ALIKE, LESS_IF_ALIKE, LEAST = 0.8, 3.0, 0.1
# On n rows, fewer than this, more evidence is needed: FEWER times log(MANY_ROWS / n).
MANY_ROWS, FEWER = 1000, 0.8
# What initials count in spelling: "MI" and "myocardial infarction".
INITIALS = 0.9
# Columns of one name are two classes if they agree by less than this, on at least this many rows.
UNLIKE, LEAST_ROWS = 0.02, 100
# How well a pair of columns must agree, how many pairs of two teachers must do so, and what share of the
# smaller label set they must be. One pair alone may be twins: dolphins for one teacher, whales for the other.
STRONG, PAIRS, SHARE = 0.65, 2, 0.25
# Two classes are mirror images: their two pairs are one fact, and rows of a third class decide it.
LEAST_CLASSES = 3
# What share of the names that two teachers share must be two classes, and how much better one of them must
# agree with another class, as in a list whose order was changed. Poor teachers agree with nothing.
SHARE_OF_NAMES, BETTER = 0.5, 0.3
# At most this many rows and columns, so that it costs little.
MOST_ROWS, MOST_COLUMNS = 2000, 500


class Matched(NamedTuple):
    """How columns belong together."""

    ranks: Floats  # (k, m)
    correlation: Floats  # (m, m)
    parts: Ints  # (m,) columns of one name that agree
    groups: Ints  # (m,) columns that are likely one class


def answered_twice(logits: Floats, space: LabelSpace, max_rows: int) -> Ints:
    """Return rows that two teachers answer, evenly spaced."""
    answers = (~np.isnan(logits[:, space.offsets[:-1]])).sum(axis=1)
    return spread_out(np.flatnonzero(answers >= 2), max_rows)


def match_columns(logits: Floats, space: LabelSpace) -> Matched:
    """Group the columns of packed logits (k, m)."""
    ranks = column_ranks(logits, space.offsets)
    # there are at least as many classes as the largest teacher has, and at most as many as there are names
    likely_classes = float(np.sqrt(space.n_classes * np.diff(space.offsets).max()))
    agreement = rank_agreement(ranks, space.offsets, likely_classes)
    owners = np.repeat(np.arange(space.n_teachers), np.diff(space.offsets))
    parts = _split_names(agreement, owners, space)
    groups = join_groups(_evidence(agreement, parts, owners, space), parts, owners)
    return Matched(ranks, agreement.correlation, parts, groups)


def _split_names(agreement: Agreement, owners: Ints, space: LabelSpace) -> Ints:
    """Return a number (m,) for each column: equal where columns share a name and agree in the least."""
    known = ~np.isnan(agreement.correlation) & (agreement.n_common >= LEAST_ROWS)[np.ix_(owners, owners)]
    correlation = np.where(
        known, agreement.correlation, 1.0
    )  # a name is believed until rows speak against it
    correlation[space.columns[:, None] != space.columns] = np.nan
    parts = join_groups(correlation - UNLIKE, np.arange(len(owners)), owners)
    return np.unique(parts, return_inverse=True)[1]


def _share_of_sure(surplus: Floats, owners: Ints, space: LabelSpace) -> float:
    """Return how often a class surely has a match under another name: with each teacher without its name.

    Two classes of one teacher are never one, so each class counts once for each other teacher, by its best
    match there. One half is added to the count, so that the share is never zero.
    """
    counts = np.array([0.5, 1.0])  # sure, and asked
    for i in range(space.n_teachers):
        block = space.block(i)
        others = (owners != i) & ~np.isin(space.columns, space.columns[block])
        known = surplus[others, block]
        counts += [(known >= 0).any(axis=1).sum(), (~np.isnan(known)).any(axis=1).sum()]
    return float(counts[0] / counts[1])


def _evidence(agreement: Agreement, parts: Ints, owners: Ints, space: LabelSpace) -> Floats:
    """Return log-odds (m, m), beyond those that are needed, that columns are one class."""
    places, sizes = np.ix_(owners, owners), np.diff(space.offsets)
    sure = SURE + FEW_CLASSES / np.minimum(sizes[:, None], sizes)[places]
    share = _share_of_sure(agreement.correlation - sure, owners, space)
    shared = shared_agreement(agreement.correlation, parts, owners)
    both = shared.agreement[np.ix_(parts, parts)]
    fewer = FEWER * np.log(MANY_ROWS / np.clip(agreement.n_common, 1, MANY_ROWS))[places]
    evidence: Floats = (
        (SHARED + BOTH * agreement.correlation) * both
        + THINGS * shared.n_things / len(shared.agreement)
        + COMMON * np.log(share)
        + ALWAYS
        - np.log(ODDS)
        - fewer
    )
    # spelling is slow: look where it decides
    doubtful = (evidence >= -LESS_IF_ALIKE) & (agreement.correlation >= LEAST)
    doubtful &= (parts[:, None] != parts) & (owners[:, None] != owners)
    names = space.classes.tolist()
    for i, j in zip(*np.nonzero(np.triu(doubtful)), strict=True):
        if (spelling(names[space.columns[i]], names[space.columns[j]]) or 0.0) >= ALIKE:
            evidence[i, j] += LESS_IF_ALIKE
            evidence[j, i] = evidence[i, j]
    return evidence


def spelling(first: Any, second: Any) -> float | None:
    """Return how alike two names are spelt, from 0 to 1; None for numbers, which have no spelling.

    Case, punctuation and the borders of words do not count. The initials of a name are nearly that name.
    Names with different numbers in them are not alike: ``"class 7"`` is not ``"class 8"``.

    Examples
    --------
    >>> spelling("Automobile", "auto-mobile"), spelling("MI", "myocardial infarction")
    (1.0, 0.9)
    >>> spelling("class 7", "class 8"), spelling(7, 8)
    (0.0, None)
    """
    if not (isinstance(first, str) and isinstance(second, str)):
        return None
    words, others = _words(first), _words(second)
    if re.findall(r"\d+", first) != re.findall(r"\d+", second) or not words or not others:
        return 0.0
    one, other = "".join(words), "".join(others)
    for short, long in ((one, others), (other, words)):
        if 1 < len(short) == len(long) and short == "".join(word[0] for word in long):
            return INITIALS
    # the matcher depends on the order of its arguments
    return max(SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in ((one, other), (other, one)))


def _words(name: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", apart.casefold())


def warn_of_unused(space: LabelSpace, *, labels_given: bool = False) -> None:
    """Warn of aliases that rename no class. Labels may use an alias that no teacher does."""
    classes = set(space.classes.tolist()) if labels_given else set()
    unused = [alias for alias in space.unused_aliases if space.renamed(alias) not in classes]
    if unused:
        warn(AliasWarning(f"No teacher has the classes that these aliases rename: {shorten(unused)}."))


def warn_of_names(logits: Floats, space: LabelSpace) -> None:
    """Warn if two teachers seem to use different names for the same classes, or the same for different ones.

    Only strong evidence counts: several classes of the two teachers must look like that.
    """
    if space.n_teachers < 2 or space.n_columns > MOST_COLUMNS:
        return
    rows = answered_twice(logits, space, MOST_ROWS)
    if len(rows) < LEAST_ROWS:
        return
    found = match_columns(logits[rows], space)
    renamed, confused = _suspects(found, space)
    for pairs, what in ((renamed, "different names for one class"), (confused, "one name for two classes")):
        if pairs:
            more = f"; and {len(pairs) - 3} more" if len(pairs) > 3 else ""
            warn(
                AliasWarning(
                    f"Some teachers seem to have {what}, judged by the rows that they rank first: "
                    f"{'; '.join(pairs[:3])}{more}. "
                    "Look at consilience.suggest_aliases(teachers, X), which shows rows that speak for it."
                )
            )


def _suspects(found: Matched, space: LabelSpace) -> tuple[list[str], list[str]]:
    """Return the pairs of teachers whose names do not fit, in words: two names for one, one for two."""
    renamed, confused = [], []
    for i, j in combinations(range(space.n_teachers), 2):
        one, other = space.block(i), space.block(j)
        agreement = found.correlation[one, other]
        if min(agreement.shape) < LEAST_CLASSES:
            continue
        first, second = space.class_lists[i], space.class_lists[j]
        same_name = space.columns[one][:, None] == space.columns[other]
        same_group = found.groups[one][:, None] == found.groups[other]
        joined = np.argwhere(same_group & ~same_name & (agreement >= STRONG)).tolist()
        if len(joined) >= max(PAIRS, SHARE * min(agreement.shape)):
            renamed.append(_told(space, i, j, [f"{first[k]} = {second[m]}" for k, m in joined]))
        apart = same_name & (found.parts[one][:, None] != found.parts[other])
        enough = apart.sum() >= max(PAIRS, SHARE_OF_NAMES * same_name.sum())
        if enough and _has_better_match(agreement, apart):
            confused.append(_told(space, i, j, first[apart.any(axis=1)].tolist()))
    return renamed, confused


def _told(space: LabelSpace, i: int, j: int, names: list[Any]) -> str:
    return f"{visible(space.names[i])} and {visible(space.names[j])}: {shorten(names, 3)}"


def _has_better_match(agreement: Floats, apart: NDArray[np.bool_]) -> bool:
    """Tell whether one of these pairs agrees much less than one of its two columns does with another."""
    known = np.nan_to_num(agreement)
    best = np.maximum(known.max(axis=1)[:, None], known.max(axis=0))
    return bool((best - known)[apart].max() >= BETTER)
