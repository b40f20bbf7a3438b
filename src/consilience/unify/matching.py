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
NEEDED, FEW_CLASSES = 0.42, 0.3
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
    groups = join_groups(_evidence(agreement, owners, space), parts, owners)
    return Matched(ranks, agreement.correlation, parts, groups)


def _split_names(agreement: Agreement, owners: Ints, space: LabelSpace) -> Ints:
    """Return a number (m,) for each column: equal where columns share a name and agree in the least."""
    evidence = agreement.correlation - UNLIKE
    known = ~np.isnan(evidence) & (agreement.n_common >= LEAST_ROWS)[np.ix_(owners, owners)]
    evidence = np.where(known, evidence, 1.0)  # a name is believed until the rows speak against it
    evidence[space.columns[:, None] != space.columns] = np.nan
    return join_groups(evidence, np.arange(len(owners)), owners)


def needed_agreement(n_common: Ints, n_classes: Ints) -> Floats:
    """Return how well two columns must agree to be one class.

    Parameters
    ----------
    n_common : array of int
        Rows that both teachers answer.
    n_classes : array of int
        Classes of the smaller teacher.
    """
    fewer = (1000 / np.clip(n_common, 1, 1000)) ** 0.2
    needed: Floats = NEEDED * fewer + FEW_CLASSES / n_classes
    return needed


def _evidence(agreement: Agreement, owners: Ints, space: LabelSpace) -> Floats:
    """Return by how much columns (m, m) agree better than needed."""
    sizes = np.diff(space.offsets)
    needed = needed_agreement(agreement.n_common, np.minimum(sizes[:, None], sizes))
    evidence = agreement.correlation - needed[np.ix_(owners, owners)]
    apart = (owners[:, None] != owners) & (space.columns[:, None] != space.columns)
    names = space.classes.tolist()
    # spelling is slow: look only where it decides
    for i, j in zip(*np.nonzero(np.triu(apart & (evidence >= -LESS_IF_ALIKE))), strict=True):
        if (spelling(names[space.columns[i]], names[space.columns[j]]) or 0.0) >= ALIKE:
            evidence[i, j] += LESS_IF_ALIKE
            evidence[j, i] = evidence[i, j]
    return evidence
