"""Which columns of different teachers rank the same rows first."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
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
# Eigenvalues of correlations sum up to their number: what is larger than one is more than a column alone.
ALONE = 1.0 + 1e-9


class Agreement(NamedTuple):
    """How well packed columns agree."""

    correlation: Floats  # (m, m); NaN where a column never changes, or no two rows are answered by both
    n_common: Ints  # (N, N) rows that both teachers answer


class Shared(NamedTuple):
    """What groups of columns share with all others."""

    agreement: Floats  # (G, G) how alike two groups are in what they share; 0 if one shares nothing
    n_things: int  # how many different things are shared


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


def shared_agreement(correlation: Floats, groups: Ints, owners: Ints) -> Shared:
    """Compare groups of columns by what they share with all other groups.

    The mean correlations between groups form a matrix with ones on its diagonal, and zeros for groups that
    hold columns of one teacher: they are known to be different. Let e be its eigenvalues. The part that is
    shared has the eigenvalues (e - 1) / e, as far as they are positive: a Wiener filter, which takes what is
    not above one for noise of single columns. The agreement of two groups is their cosine in this part. So it
    counts whether they agree with the same third groups, and how well.

    Parameters
    ----------
    correlation : (m, m) array
        Of columns; NaN if nothing is known about two of them.
    groups : (m,) array of int
        Numbered from 0.
    owners : (m,) array of int
        The teacher of each column.
    """
    member, has = _members(groups, owners)
    known = ~np.isnan(correlation)
    count = member @ known @ member.T
    means = np.divide(
        member @ np.where(known, correlation, 0.0) @ member.T,
        count,
        out=np.zeros(count.shape),
        where=count > 0,
    )
    means[_clashes(has)] = 0.0
    np.fill_diagonal(means, 1.0)
    values, vectors = np.linalg.eigh(means)
    above = values > ALONE
    part = vectors[:, above] * np.sqrt(1.0 - 1.0 / values[above])
    length = np.sqrt((part**2).sum(axis=1))
    part = np.divide(part, length[:, None], out=np.zeros(part.shape), where=length[:, None] > 1e-6)
    return Shared(part @ part.T, int(above.sum()))


def join_groups(evidence: Floats, groups: Ints, owners: Ints) -> Ints:
    """Join groups of columns while the mean evidence for two of them is not negative, best first.

    This is average linkage, but groups that hold columns of one teacher never join: matches are one-to-one,
    and what holds between two teachers holds through a third.

    Parameters
    ----------
    evidence : (m, m) array
        Symmetric: positive if two columns look like one class; NaN if nothing is known about them.
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
    member, has = _members(groups, owners)
    known = ~np.isnan(evidence)
    sums = np.stack([np.where(known, values, 0.0) for values in (evidence, known)])
    sums = member @ sums @ member.T  # (2, G, G)
    means = _means(sums)
    means[_clashes(has)] = -np.inf
    while True:
        kept, gone = divmod(int(means.argmax()), len(has))
        if not means[kept, gone] >= 0:
            return groups
        groups[groups == gone] = kept
        has[kept] |= has[gone]
        sums[:, kept] += sums[:, gone]
        sums[:, :, kept] += sums[:, :, gone]
        means[kept] = _means(sums[:, kept])
        means[kept, (has & has[kept]).any(axis=1)] = -np.inf
        means[:, kept] = means[kept]
        has[gone] = True  # it clashes with every group from now on
        means[gone] = means[:, gone] = -np.inf


def _members(groups: Ints, owners: Ints) -> tuple[Floats, NDArray[np.bool_]]:
    """Return which columns (G, m) and which teachers (G, N) groups have."""
    n = int(groups.max()) + 1
    member = np.zeros((n, len(groups)))
    member[groups, np.arange(len(groups))] = 1.0
    has = np.zeros((n, int(owners.max()) + 1), dtype=bool)
    has[groups, owners] = True
    return member, has


def _clashes(has: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which groups (G, G) hold columns of one teacher: each with itself, too."""
    clashes: NDArray[np.bool_] = has.astype(np.float32) @ has.T.astype(np.float32) > 0
    return clashes


def _means(sums: Floats) -> Floats:
    """Return the mean evidence; -inf if nothing is known about two groups."""
    total, count = sums
    means: Floats = np.divide(total, count, out=np.full(count.shape, -np.inf), where=count > 0)
    return means
