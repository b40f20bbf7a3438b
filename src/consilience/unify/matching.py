"""Match packed columns by what they say about rows, and by their names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.unify.agreement import Agreement, column_ranks, join_groups, rank_agreement
from consilience.labels import LabelSpace
from consilience.unify.methods import spread_out
from consilience.unify.spelling import spelling

# Chosen on trials with hidden names, seeds 0 to 9; `python -m benchmarks.papers.aliases` confirms them on
# others. Two columns are one class if they agree by NEEDED on a thousand rows or more, and by more on fewer.
# Between few classes a teacher's choice says less: with k classes, they must agree by FEW_CLASSES / k more.
NEEDED, FEWER, FEW_CLASSES = 0.33, 0.3, 0.15
# The rarer it is that a class surely has a match, by this agreement or more, the better all must agree.
SURE, RARE = 0.45, 0.03
# Names that are spelt as alike as ALIKE need less agreement, by this much.
ALIKE, LESS_IF_ALIKE = 0.8, 0.2
# Columns of one name are two classes if they agree by less than this, on at least this many rows.
UNLIKE, LEAST_ROWS = 0.02, 100


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
    groups = join_groups(agreement.correlation, _needed(agreement, owners, space), parts, owners)
    return Matched(ranks, agreement.correlation, parts, groups)


def _split_names(agreement: Agreement, owners: Ints, space: LabelSpace) -> Ints:
    """Return a number (m,) for each column: equal where columns share a name and agree in the least."""
    known = ~np.isnan(agreement.correlation) & (agreement.n_common >= LEAST_ROWS)[np.ix_(owners, owners)]
    correlation = np.where(
        known, agreement.correlation, 1.0
    )  # a name is believed until rows speak against it
    correlation[space.columns[:, None] != space.columns] = np.nan
    return join_groups(correlation, np.full(correlation.shape, UNLIKE), np.arange(len(owners)), owners)


def needed_agreement(n_common: Ints, n_classes: Ints, share: float = 1.0) -> Floats:
    """Return how well two columns must agree to be one class.

    Parameters
    ----------
    n_common : array of int
        Rows that both teachers answer.
    n_classes : array of int
        Classes of the smaller teacher.
    share : float
        How often a class surely has a match, see `_share_of_sure`.
    """
    fewer = (1000 / np.clip(n_common, 1, 1000)) ** FEWER
    needed: Floats = NEEDED * fewer + FEW_CLASSES / n_classes - RARE * np.log(share)
    return needed


def _share_of_sure(surplus: Floats, owners: Ints, space: LabelSpace) -> float:
    """Return how often a class surely has a match under another name: with each teacher without its name.

    Two classes of one teacher are never one, so each class counts once for each other teacher, by its best
    match there. One half is added to the count, so that the share is never zero.
    """
    n_sure = n_asked = 0
    for i in range(space.n_teachers):
        block = space.block(i)
        others = (owners != i) & ~np.isin(space.columns, space.columns[block])
        known = surplus[others, block]
        n_sure += int((known >= 0).any(axis=1).sum())
        n_asked += int((~np.isnan(known)).any(axis=1).sum())
    return (n_sure + 0.5) / (n_asked + 1.0)


def _needed(agreement: Agreement, owners: Ints, space: LabelSpace) -> Floats:
    """Return how well columns (m, m) must agree."""
    sizes = np.diff(space.offsets)
    smaller, places = np.minimum(sizes[:, None], sizes), np.ix_(owners, owners)
    sure = SURE + FEW_CLASSES / smaller
    share = _share_of_sure(agreement.correlation - sure[places], owners, space)
    needed = needed_agreement(agreement.n_common, smaller, share)[places]
    apart = (owners[:, None] != owners) & (space.columns[:, None] != space.columns)
    doubtful = apart & (
        agreement.correlation >= needed - LESS_IF_ALIKE
    )  # spelling is slow: look where it decides
    names = space.classes.tolist()
    for i, j in zip(*np.nonzero(np.triu(doubtful)), strict=True):
        if (spelling(names[space.columns[i]], names[space.columns[j]]) or 0.0) >= ALIKE:
            needed[i, j] -= LESS_IF_ALIKE
            needed[j, i] = needed[i, j]
    return needed
