"""Which columns of different teachers rank the same rows first."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.unify.ranks import STEPS, log_odds

# A row of rank r weighs 1 / (r + SHOULDER * the rows of a class). The few surest rows decide: further down
# are rows of foreign classes, which a teacher gives to the nearest class that it has. On trials with hidden
# names 0.05 to 0.1 do equally well.
SHOULDER = 0.06
# How much a logit above the mean of its teacher counts beside the log-odds. Log-odds compare a class with its
# strongest rival only. A row of a foreign class has none, but its other logits are less low.
ABOVE_MEAN = 0.3
# How well the columns of a group agree with each other, until pairs of them show it: as if one pair did.
TYPICAL, LEAST = 0.6, 0.1


class Agreement(NamedTuple):
    """How well packed columns agree."""

    correlation: Floats  # (m, m); NaN where a column never changes, or no two rows are answered by both
    n_common: Ints  # (N, N) rows that both teachers answer


def column_ranks(logits: Floats, offsets: Ints) -> Floats:
    """Return the rank of each row in each column (n, m), over the rows answered plus one.

    Rank 1 is the row that the teacher finds most like the class: by its log-odds plus 0.3 times its logit,
    counted from the mean logit of the teacher. Ties share their mean rank. NaN where a teacher abstains.
    """
    odds = log_odds(logits, offsets)
    ranks = np.full(odds.shape, np.nan)
    for start, stop in pairwise(offsets):
        rows = np.flatnonzero(~np.isnan(odds[:, start]))
        if len(rows):
            own = logits[rows, start:stop]
            scores = odds[rows, start:stop] + ABOVE_MEAN * (own - own.mean(axis=1, keepdims=True))
            scores = np.rint(scores * STEPS)  # what differs by rounding only is a tie
            ranks[rows, start:stop] = rankdata(-scores, axis=0) / (len(rows) + 1)
    return ranks


def rank_agreement(ranks: Floats, offsets: Ints, n_classes: float) -> Agreement:
    """Correlate the weights 1 / (a + 0.06 / L) over the rows, for each pair of columns.

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
    if len(ranks) > 1 and answered.all():
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


def join_groups(agreement: Floats, needed: Floats, groups: Ints, owners: Ints) -> Ints:
    """Join groups of columns while two of them agree well enough on average, best first.

    This is average linkage, but groups that hold columns of one teacher never join: matches are one-to-one,
    and what holds between two teachers holds through a third. What is well enough depends on the groups: the
    mean agreement between them is divided by the geometric mean of those within them, and multiplied by 0.6,
    a typical agreement. So good teachers must agree better than poor ones.

    Parameters
    ----------
    agreement : (m, m) array
        Symmetric; NaN if nothing is known about two columns.
    needed : (m, m) array
        Symmetric: how well two columns must agree to look like one class.
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
    known = ~np.isnan(agreement)
    np.fill_diagonal(known, False)
    sums = np.stack([np.where(known, values, 0.0) for values in (agreement, needed, known)])
    sums = member @ sums @ member.T  # (3, n, n)
    has = np.zeros((n, int(owners.max()) + 1), dtype=bool)
    has[groups, owners] = True
    within = _within(sums)
    surplus = _surplus(sums, within[:, None], within)
    clash = has.astype(np.float32) @ has.T.astype(np.float32) > 0  # of each group with itself, too
    surplus[clash] = -np.inf
    while True:
        kept, gone = divmod(int(surplus.argmax()), n)
        if not surplus[kept, gone] >= 0:
            return groups
        groups[groups == gone] = kept
        has[kept] |= has[gone]
        sums[:, kept] += sums[:, gone]
        sums[:, :, kept] += sums[:, :, gone]
        within[kept] = _within(sums[:, kept : kept + 1, kept : kept + 1])[0]
        surplus[kept] = _surplus(sums[:, kept], within[kept], within)
        surplus[kept, (has & has[kept]).any(axis=1)] = -np.inf
        surplus[:, kept] = surplus[kept]
        has[gone] = True  # it clashes with every group from now on
        surplus[gone] = surplus[:, gone] = -np.inf


def _within(sums: Floats) -> Floats:
    """Return how well the columns of each group agree with each other (n,), by sums (3, n, n) over pairs."""
    total, _, count = (np.diagonal(part) / 2 for part in sums)
    within: Floats = np.maximum((total + TYPICAL) / (count + 1.0), LEAST)
    return within


def _surplus(sums: Floats, within: Floats, within_others: Floats) -> Floats:
    """Return by how much groups agree better than needed; -inf if nothing is known about two of them."""
    total, needed, count = sums
    scaled = total * (TYPICAL / np.sqrt(within * within_others))
    surplus: Floats = np.divide(scaled - needed, count, out=np.full(count.shape, -np.inf), where=count > 0)
    return surplus
