"""Ranks over rows: what makes the scores of different teachers comparable."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import kernel, part
from consilience.kernels.elementary import FUSE, exp
from consilience.kernels.threads import kernel_threads
from consilience.kernels.unify.packed import Layout, in_turns

Odds = NDArray[np.float32]
# Log-odds are whole multiples of one over this.
STEPS = 2.0**20
# Keys of a sort have 32 bits for the place of a value.
MOST_KEYS = 2**32


def rank_scores(logits: Floats, offsets: Ints, reference: Floats | None = None) -> Floats:
    """Turn packed logits into scores by rank: z_il = -1/2 log a_il - 1/2 log b_il.

    a_il(x) is the rank of row x in column (i, l), over the number of rows plus one: rank 1 for the row that
    teacher i finds most like class l. b_il(x) is the same rank among all columns of teacher i. Rows are
    ranked by log-odds, and ties share their mean rank.

    Parameters
    ----------
    logits : (n, m) array
        NaN where a teacher abstains: such rows have no rank, and NaN in the result.
    offsets : (N + 1,) array of int
        Block borders.
    reference : (r, m) array, optional
        The rows to rank against. By default, the rows themselves.
    """
    odds = log_odds(logits, offsets)
    against = None if reference is None else log_odds(reference, offsets)
    z = np.full(odds.shape, np.nan)

    def fill(block: int) -> None:
        columns = slice(int(offsets[block]), int(offsets[block + 1]))
        rows, values = _answers(odds[:, columns])
        if against is None:
            product = _rank(values, values.shape[1], 0)
        else:
            n = values.shape[1]
            product = _rank(np.hstack([values, _answers(against[:, columns])[1]]), n, n)
        z[rows, columns] = -0.5 * np.log(product).T

    with ThreadPoolExecutor(kernel_threads()) as pool:
        list(pool.map(fill, range(len(offsets) - 1)))  # reading the results raises the errors of the threads
    return z


def _rank(values: Odds, n: int, first: int) -> Floats:
    """Return a_il b_il (k, n) of `rank_scores` for one teacher.

    One sort serves both ranks. Its keys hold a value in the upper half and its place in the lower half:
    whole numbers are sorted several times as fast as the order of floats is found. More values than the lower
    half can count are ranked column by column.

    Parameters
    ----------
    values : (k, w) array
        Log-odds.
    n : int
        The columns before this one are ranked.
    first : int
        The columns from this one on are those to rank against.
    """
    if values.size > MOST_KEYS:
        return _rank_by_column(values, n, first)
    keys = _ascending(values.ravel()).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(keys.size, dtype=np.uint64)
    keys.sort()
    product = np.empty((len(values), n))
    _multiply_ranks(keys, values.shape[1], first, product)
    return product


def _rank_by_column(values: Odds, n: int, first: int) -> Floats:
    """Return what `_rank` does, by a sort of each column and one of all. It takes several times as long."""
    pooled = np.sort(values[:, first:], axis=None)
    product = np.empty((len(values), n))
    for column, found in zip(values, product, strict=True):
        found[:] = _among(column[:n], np.sort(column[first:])) * _among(column[:n], pooled)
    return product


def _among(values: Odds, ordered: Odds) -> Floats:
    """Return ranks (n,) from the top among r ordered values, over r + 1; ties share their mean rank."""
    low, high = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    ranks: Floats = (len(ordered) - high + 0.5 * (high - low + 1)) / (len(ordered) + 1)
    return ranks


def _ascending(values: Odds) -> NDArray[np.uint32]:
    """Return whole numbers in the order of floats: -0 is 0, and larger values have larger numbers."""
    bits = (values + np.float32(0.0)).view(np.uint32)
    negative = (bits >> np.uint32(31)).astype(bool)
    return np.where(negative, ~bits, bits | np.uint32(2**31))


def _answers(odds: Odds) -> tuple[Ints, Odds]:
    """Return the rows on which a teacher answers, and its log-odds there (k, number of rows)."""
    rows = np.flatnonzero(~np.isnan(odds[:, 0]))
    return rows, np.ascontiguousarray(odds[rows].T)


def log_odds(logits: Floats, offsets: Ints) -> Odds:
    """Return log p / (1 - p) for each column, p by the softmax over its block; NaN where a teacher abstains.

    p itself would not do: a p of 1 - 1e-20 and one of 1 - 1e-30 are the same number. A teacher with a single
    class has log-odds of zero. They are whole multiples of 2^-20, so that what differs by rounding only is a
    tie.
    """
    odds = np.empty(logits.shape, dtype=np.float32)
    in_turns(lambda rows: _log_odds_rows(logits[rows], offsets, odds[rows]), len(logits))
    return odds


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
    in_turns(lambda rows: _shift_rows(z[rows], layout, component, pattern[rows], U[rows]), len(U))


@kernel()
def _log_odds_rows(logits, offsets, odds):  # type: ignore[no-untyped-def]
    """Fill odds (n, m) as in `log_odds`."""
    for row in range(len(logits)):
        for b in range(len(offsets) - 1):
            start, stop = offsets[b], offsets[b + 1]
            first, second = start, -1
            for k in range(start + 1, stop):
                if logits[row, k] > logits[row, first]:
                    first, second = k, first
                elif second < 0 or logits[row, k] > logits[row, second]:
                    second = k
            top = logits[row, first]
            if second < 0 or np.isnan(top):
                for k in range(start, stop):
                    odds[row, k] = 0.0 * top  # NaN stays NaN
                continue
            below = logits[row, second]
            rest, rest_of_first = 0.0, 0.0
            for k in range(start, stop):
                if k != first:
                    rest += exp(logits[row, k] - top)
                    rest_of_first += exp(logits[row, k] - below)
            for k in range(start, stop):
                if k != first:
                    others = max(1.0 + rest - exp(logits[row, k] - top), 1.0)
                    odds[row, k] = np.rint((logits[row, k] - top - np.log(others)) * STEPS) / STEPS
            odds[row, first] = np.rint((top - below - np.log(rest_of_first)) * STEPS) / STEPS


@kernel()
def _multiply_ranks(keys, width, first, product):  # type: ignore[no-untyped-def]
    """Fill product (k, n) with the rank of each value in its column times that in all columns.

    Ranks count from the top, are divided by the number of values plus one, and ties share their mean rank.
    `keys` (k width,) are sorted, smallest first; see `_rank` for the other arguments.
    """
    k, n = product.shape
    r = width - first
    passed, tied = np.zeros(k), np.zeros(k)  # values of each column below the ties, and among them
    start, below = 0, 0.0
    while start < len(keys):
        value, stop = keys[start] >> 32, start + 1
        while stop < len(keys) and keys[stop] >> 32 == value:
            stop += 1
        ties = 0.0
        for i in range(start, stop):
            column = _column(keys[i], width)
            if _place(keys[i]) - column * width >= first:
                tied[column] += 1.0
                ties += 1.0
        overall = (k * r - below - ties + 0.5 * (ties + 1.0)) / (k * r + 1.0)
        for i in range(start, stop):
            column = _column(keys[i], width)
            row = _place(keys[i]) - column * width
            if row < n:
                rank = r - passed[column] - tied[column] + 0.5 * (tied[column] + 1.0)
                product[column, row] = overall * (rank / (r + 1.0))
        for i in range(start, stop):
            column = _column(keys[i], width)
            passed[column] += tied[column]
            tied[column] = 0.0
        start, below = stop, below + ties


@part()
def _place(key):  # type: ignore[no-untyped-def]
    return np.intp(key & 0xFFFFFFFF)


@part()
def _column(key, width):  # type: ignore[no-untyped-def]
    # numbers below 2^53 have exact quotients here, and dividing floats is quicker
    return np.intp(float(key & 0xFFFFFFFF) / width)


@kernel(fastmath=FUSE)
def _shift_rows(z, layout, component, pattern, U):  # type: ignore[no-untyped-def]
    """Change U (n, L) as in `add_smallest_shifts`."""
    n_classes = U.shape[1]
    total, count = np.empty(n_classes), np.empty(n_classes)
    for row in range(len(U)):
        ids = component[pattern[row]]
        total[:] = 0.0
        count[:] = 0.0
        for b in range(len(layout.offsets) - 1):
            start, stop = layout.offsets[b], layout.offsets[b + 1]
            if np.isnan(z[row, start]):
                continue
            shift = 0.0
            for k in range(start, stop):
                shift += z[row, k] - U[row, layout.columns[k]]
            total[ids[layout.columns[start]]] += shift / (stop - start)
            count[ids[layout.columns[start]]] += 1.0
        for c in range(n_classes):
            if count[ids[c]] > 0.0:
                U[row, c] += total[ids[c]] / count[ids[c]]
