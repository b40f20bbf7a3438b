"""Match packed columns by what they say about rows, and by their names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.inspect.spelling import spelling
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.unify.agreement import (
    Agreement,
    column_ranks,
    join_groups,
    rank_agreement,
    shared_agreement,
)
from consilience.labels import LabelSpace
from consilience.soft_labels.methods import spread_out

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
    n_sure = n_asked = 0
    for i in range(space.n_teachers):
        block = space.block(i)
        others = (owners != i) & ~np.isin(space.columns, space.columns[block])
        known = surplus[others, block]
        n_sure += int((known >= 0).any(axis=1).sum())
        n_asked += int((~np.isnan(known)).any(axis=1).sum())
    return (n_sure + 0.5) / (n_asked + 1.0)


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
