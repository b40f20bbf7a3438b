"""Which columns of different teachers rank the same rows first."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.unify.ranks import log_odds

# A row of rank r weighs 1 / (r + SHOULDER * the rows of a class). The few surest rows decide: further down
# are rows of foreign classes, which a teacher gives to the nearest class that it has. On trials with hidden
# names 0.05 to 0.15 do equally well.
SHOULDER = 0.08


class Agreement(NamedTuple):
    """How well packed columns agree."""

    correlation: Floats  # (m, m); NaN where a column never changes, or no two rows are answered by both
    n_common: Ints  # (N, N) rows that both teachers answer


def column_ranks(logits: Floats, offsets: Ints) -> Floats:
    """Return the rank of each row in each column (n, m), over the rows answered plus one.

    Rank 1 is the row that the teacher finds most like the class, by log-odds. Ties share their mean rank. NaN
    where a teacher abstains.
    """
    odds = log_odds(logits, offsets)
    ranks = np.full(odds.shape, np.nan)
    for start, stop in pairwise(offsets):
        rows = np.flatnonzero(~np.isnan(odds[:, start]))
        if len(rows):
            ranks[rows, start:stop] = rankdata(-odds[rows, start:stop], axis=0) / (len(rows) + 1)
    return ranks


def rank_agreement(ranks: Floats, offsets: Ints, n_classes: float) -> Agreement:
    """Correlate the weights 1 / (a + 0.08 / L) over the rows, for each pair of columns.

    Each pair of teachers is compared on the rows that both answer.

    Parameters
    ----------
    ranks : (n, m) array
        The ranks a that `column_ranks` returns.
    offsets : (N + 1,) array of int
        Block borders.
    n_classes : float
        L, about how many classes there are: one of them has about n / L rows.
    """
    weights = 1.0 / (ranks + SHOULDER / n_classes)
    answered = ~np.isnan(ranks[:, offsets[:-1]])
    n_common = answered.astype(np.intp).T @ answered.astype(np.intp)
    if answered.all():
        unit = _standardised(weights)
        return Agreement(unit.T @ unit, n_common)
    found = np.full((weights.shape[1],) * 2, np.nan)
    blocks = [slice(int(a), int(b)) for a, b in pairwise(offsets)]
    for i, first in enumerate(blocks):
        for j, second in enumerate(blocks[: i + 1]):
            rows = np.flatnonzero(answered[:, i] & answered[:, j])
            if len(rows) > 1:
                one, other = _standardised(weights[rows, first]), _standardised(weights[rows, second])
                found[first, second] = one.T @ other
                found[second, first] = found[first, second].T
    return Agreement(found, n_common)


def _standardised(weights: Floats) -> Floats:
    """Return columns with mean zero and length one; NaN if a column never changes."""
    centred = weights - weights.mean(axis=0)
    length = np.sqrt((centred**2).sum(axis=0))
    length[length <= 1e-9 * np.abs(weights).max(axis=0)] = np.nan
    standardised: Floats = centred / length
    return standardised


def join_groups(evidence: Floats, groups: Ints, owners: Ints) -> Ints:
    """Join groups of columns while the mean evidence between two of them is not negative, best first.

    This is average linkage, but groups that hold columns of one teacher never join: matches are one-to-one,
    and what holds between two teachers holds through a third.

    Parameters
    ----------
    evidence : (m, m) array
        Symmetric. Positive if two columns look like one class; NaN if nothing is known about them.
    groups : (m,) array of int
        The groups to begin with, numbered from 0.
    owners : (m,) array of int
        The teacher of each column.

    Returns
    -------
    (m,) array of int
        The group of each column: one of the groups given.
    """
    groups = groups.copy()
    n = int(groups.max()) + 1
    member = np.zeros((n, len(groups)))
    member[groups, np.arange(len(groups))] = 1.0
    total = member @ np.nan_to_num(evidence) @ member.T
    count = member @ (~np.isnan(evidence)).astype(np.float64) @ member.T
    has = np.zeros((n, int(owners.max()) + 1), dtype=bool)
    has[groups, owners] = True
    mean = _means(total, count)
    clash = has.astype(np.float32) @ has.T.astype(np.float32) > 0  # of each group with itself, too
    mean[clash] = -np.inf
    while True:
        kept, gone = divmod(int(mean.argmax()), n)
        if not mean[kept, gone] >= 0:
            return groups
        groups[groups == gone] = kept
        has[kept] |= has[gone]
        total[kept] += total[gone]
        count[kept] += count[gone]
        total[:, kept], count[:, kept] = total[kept], count[kept]
        mean[kept] = _means(total[kept], count[kept])
        mean[kept, (has & has[kept]).any(axis=1)] = -np.inf
        mean[:, kept] = mean[kept]
        has[gone] = True  # it clashes with every group from now on
        mean[gone] = mean[:, gone] = -np.inf


def _means(total: Floats, count: Floats) -> Floats:
    means: Floats = np.divide(total, count, out=np.full(total.shape, -np.inf), where=count > 0)
    return means
