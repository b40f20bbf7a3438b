"""Ranks over rows make scores of different teachers comparable, and show which columns mean the same."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import kernel, kernel_threads, part
from consilience.kernels.unify.packed import Layout, in_turns

Odds = NDArray[np.float32]
# Log-odds are whole multiples of one over this.
STEPS = 2.0**20
# A row of rank r weighs 1 / (r + SHOULDER * the rows of a class). The few surest rows decide: further down
# are rows of foreign classes, which a teacher gives to the nearest class that it has. On trials with hidden
# names 0.05 to 0.1 do equally well.
SHOULDER = 0.06
# How much a logit above the mean of its teacher counts beside the log-odds. Log-odds compare a class with its
# strongest rival only. A row of a foreign class has none, but its other logits are less low.
ABOVE_MEAN = 0.3
# Eigenvalues of correlations sum up to their number: what is larger than one is more than a column alone.
ALONE = 1.0 + 1e-9


def rank_scores(logits: Floats, offsets: Ints, reference: Floats | None = None) -> Floats:
    """Turn packed logits into scores by rank: z_il = -1/2 log a_il - 1/2 log b_il.

    a_il(x) is the rank of row x in column (i, l), over the number of rows plus one: rank 1 for the row that
    teacher i finds most like class l. b_il(x) is the same rank among all columns of teacher i. Rows are
    ranked by log-odds, and ties share their mean rank.

    Parameters
    ----------
    logits : (n, m) array
        NaN where a teacher abstains: such rows have no rank, and NaN in the result. A teacher has at most
        2^32 of them.
    offsets : (N + 1,) array of int
        Block borders.
    reference : (r, m) array, optional
        The rows to rank against. By default, the rows themselves.
    """
    return RankTable(logits if reference is None else reference, offsets).scores(
        None if reference is None else logits
    )


class RankTable:
    """Rows to rank other rows against, however many come: what `rank_scores` needs of them, sorted once.

    Parameters
    ----------
    reference : (r, m) array
        Packed logits; NaN where a teacher abstains.
    offsets : (N + 1,) array of int
        Block borders.
    """

    def __init__(self, reference: Floats, offsets: Ints) -> None:
        self._offsets, self._shape = offsets, reference.shape
        self._sorted = self._sort(reference)

    def scores(self, logits: Floats | None = None) -> Floats:
        """Return the scores (n, m) by rank of rows with these packed logits (n, m), or of its own rows."""
        asked = self._sorted if logits is None else self._sort(logits)
        z = np.full(self._shape if logits is None else logits.shape, np.nan)

        def fill(block: int) -> None:
            (rows, keys), (others, table) = asked[block], self._sorted[block]
            columns = slice(int(self._offsets[block]), int(self._offsets[block + 1]))
            product = np.empty((columns.stop - columns.start, len(rows)))
            _multiply_ranks(keys, table, len(others), product)
            z[rows, columns] = -0.5 * np.log(product).T

        self._for_each_block(fill)
        return z

    def _sort(self, logits: Floats) -> list[tuple[Ints, NDArray[np.uint64]]]:
        """Return for each teacher the rows that it answers, and its log-odds there in order."""
        odds = log_odds(logits, self._offsets)

        def answers(block: int) -> tuple[Ints, NDArray[np.uint64]]:
            own = odds[:, self._offsets[block] : self._offsets[block + 1]]
            rows = np.flatnonzero(~np.isnan(own[:, 0]))
            return rows, _sorted_keys(np.ascontiguousarray(own[rows].T))

        return self._for_each_block(answers)

    def _for_each_block(self, function: Callable[[int], Any]) -> list[Any]:
        with ThreadPoolExecutor(kernel_threads()) as pool:
            return list(pool.map(function, range(len(self._offsets) - 1)))


def _sorted_keys(values: Odds) -> NDArray[np.uint64]:
    """Return log-odds (k, n) in order: each in the upper half of a key, with its place in the lower half.

    Whole numbers are sorted several times as fast as the order of floats is found.
    """
    bits = (values.ravel() + np.float32(0.0)).view(np.uint32)  # -0 is 0
    negative = (bits >> np.uint32(31)).astype(bool)
    keys = np.where(negative, ~bits, bits | np.uint32(2**31)).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(keys.size, dtype=np.uint64)
    keys.sort()
    return keys


def log_odds(logits: Floats, offsets: Ints) -> Odds:
    """Return log p / (1 - p) for each column, p by the softmax over its block; NaN where a teacher abstains.

    p itself would not do: a p of 1 - 1e-20 and one of 1 - 1e-30 are the same number. A teacher with a single
    class has log-odds of zero. They are whole multiples of 2^-20, so that what differs by rounding only is a
    tie.
    """
    odds = np.empty(logits.shape, dtype=np.float32)

    def work(rows: slice) -> None:
        with np.errstate(over="ignore"):  # logits may be as large as floats go
            for start, stop in pairwise(offsets):
                odds[rows, start:stop] = _log_odds(logits[rows, start:stop])

    in_turns(work, len(logits), most=4096)
    return odds


def _log_odds(z: Floats) -> Floats:
    """Return the log-odds (n, k) of a teacher's logits, in steps."""
    if z.shape[1] == 1:
        return 0.0 * z
    first = z.argmax(axis=1)[:, None]
    top, others = np.take_along_axis(z, first, axis=1), z.copy()
    np.put_along_axis(others, first, -np.inf, axis=1)
    below = others.max(axis=1, keepdims=True)
    share = np.exp(z - top)
    odds = z - top - np.log(np.maximum(share.sum(axis=1, keepdims=True) - share, 1.0))
    of_first = top - below - np.log(np.exp(others - below).sum(axis=1, keepdims=True))
    np.put_along_axis(odds, first, of_first, axis=1)
    whole: Floats = np.rint(odds * STEPS) / STEPS
    return whole


def add_smallest_shifts(z: Floats, layout: Layout, component: Ints, pattern: Ints, U: Floats) -> None:
    """Add a constant to each component of U (n, L) so that the shifts c of the teachers are smallest.

    Least squares, sum of (u_l + c_i - z_il)^2, leaves one constant per component open. This takes the one
    with the smallest sum of c_i^2: the mean of c_i over the component's teachers becomes zero.

    Parameters
    ----------
    z : (n, m) array
        Scores; NaN where a teacher abstains.
    layout : Layout
    component : (number of patterns, L) array of int
        Component of each class, for each abstention pattern.
    pattern : (n,) array of int
        Pattern of each row.
    U : (n, L) array
        Changed in place.
    """
    columns, starts, L = layout.columns, layout.offsets[:-1], U.shape[1]

    def work(rows: slice) -> None:
        part, ids = U[rows], component[pattern[rows]]
        shifts = np.add.reduceat(z[rows] - part[:, columns], starts, axis=1) / np.diff(layout.offsets)
        answered = ~np.isnan(shifts)
        cell = (ids[:, columns[starts]] + L * np.arange(len(part))[:, None])[answered]
        total, count = np.bincount(cell, shifts[answered], part.size), np.bincount(cell, minlength=part.size)
        part += np.take_along_axis((total / np.maximum(count, 1)).reshape(part.shape), ids, axis=1)

    in_turns(work, len(U))


@kernel()
def _multiply_ranks(keys, table, count, product):  # type: ignore[no-untyped-def]
    """Fill product (k, n) with the rank of each value in its column times that in all columns.

    Ranks among the `count` rows of a table count from the top, are divided by the number of values plus one,
    and ties share their mean rank. `keys` (k n,) and `table` (k count,) come in order; see `_sorted_keys`.
    """
    k, n = product.shape
    passed, tied = np.zeros(k), np.zeros(k)  # of the table, in each column: below the value, equal to it
    start, below = 0, 0
    while start < len(keys):
        value, stop = keys[start] >> 32, start + 1
        while stop < len(keys) and keys[stop] >> 32 == value:
            stop += 1
        while below < len(table) and table[below] >> 32 < value:
            passed[_column(table[below], count)] += 1.0
            below += 1
        above = below
        while above < len(table) and table[above] >> 32 == value:
            tied[_column(table[above], count)] += 1.0
            above += 1
        overall = _mean_rank(below, above - below, k * count)
        for i in range(start, stop):
            column = _column(keys[i], n)
            row = np.intp(keys[i] & 0xFFFFFFFF) - column * n
            product[column, row] = overall * _mean_rank(passed[column], tied[column], count)
        for i in range(below, above):
            column = _column(table[i], count)
            passed[column] += tied[column]
            tied[column] = 0.0
        start, below = stop, above


@part()
def _mean_rank(below, ties, count):  # type: ignore[no-untyped-def]
    """Return the rank from the top, over the count plus one, that tied values share."""
    return (count - below - ties + 0.5 * (ties + 1.0)) / (count + 1.0)


@part()
def _column(key, width):  # type: ignore[no-untyped-def]
    # numbers below 2^53 have exact quotients here, and dividing floats is quicker
    return np.intp(float(key & 0xFFFFFFFF) / width)


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
