"""Ranks over rows: what makes the scores of different teachers comparable."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import kernel, kernel_threads, part
from consilience.kernels.elementary import FUSE, exp
from consilience.kernels.unify.packed import Layout, in_turns

Odds = NDArray[np.float32]
# Log-odds are whole multiples of one over this.
STEPS = 2.0**20
# Keys of a sort have 32 bits for the place of a value.
PLACES = np.uint64(2**32 - 1)


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
    if reference is not None:
        return RankTable(reference, offsets).scores(logits)
    odds = log_odds(logits, offsets)
    z = np.full(odds.shape, np.nan)

    def fill(block: int) -> None:
        columns = slice(int(offsets[block]), int(offsets[block + 1]))
        rows, values = _answers(odds[:, columns])
        z[rows, columns] = -0.5 * np.log(_rank(values)).T

    _for_each_block(fill, offsets)
    return z


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
        odds = log_odds(reference, offsets)
        self._offsets = offsets
        blocks = len(offsets) - 1
        # of each teacher: how many rows it answers, its log-odds in order, and the column of each
        self._counts = np.zeros(blocks, dtype=np.intp)
        self._ordered: list[NDArray[np.uint32]] = [np.empty(0, np.uint32)] * blocks
        self._columns: list[NDArray[np.int32]] = [np.empty(0, np.int32)] * blocks

        def fill(block: int) -> None:
            _, values = _answers(odds[:, offsets[block] : offsets[block + 1]])
            keys = _sorted_keys(values)
            self._counts[block] = values.shape[1]
            self._ordered[block] = (keys >> np.uint64(32)).astype(np.uint32)
            places = keys & PLACES
            self._columns[block] = (places // max(1, values.shape[1])).astype(np.int32)

        _for_each_block(fill, offsets)

    def scores(self, logits: Floats) -> Floats:
        """Return the scores (n, m) by rank of rows with these packed logits (n, m)."""
        odds = log_odds(logits, self._offsets)
        z = np.full(odds.shape, np.nan)

        def fill(block: int) -> None:
            columns = slice(int(self._offsets[block]), int(self._offsets[block + 1]))
            rows, values = _answers(odds[:, columns])
            product = np.empty(values.shape)
            _merge_ranks(
                _sorted_keys(values), self._ordered[block], self._columns[block], self._counts[block], product
            )
            z[rows, columns] = -0.5 * np.log(product).T

        _for_each_block(fill, self._offsets)
        return z


def _for_each_block(fill: Callable[[int], None], offsets: Ints) -> None:
    with ThreadPoolExecutor(kernel_threads()) as pool:
        list(pool.map(fill, range(len(offsets) - 1)))  # reading the results raises the errors of the threads


def _rank(values: Odds) -> Floats:
    """Return a_il b_il (k, n) of `rank_scores` for log-odds (k, n) of one teacher: one sort serves both."""
    product = np.empty(values.shape)
    _multiply_ranks(_sorted_keys(values), product)
    return product


def _sorted_keys(values: Odds) -> NDArray[np.uint64]:
    """Return log-odds (k, n) in order: each in the upper half of a key, with its place in the lower half.

    Whole numbers are sorted several times as fast as the order of floats is found.
    """
    keys = _ascending(values.ravel()).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(keys.size, dtype=np.uint64)
    keys.sort()
    return keys


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
def _multiply_ranks(keys, product):  # type: ignore[no-untyped-def]
    """Fill product (k, n) with the rank of each value in its column times that in all columns.

    Ranks count from the top, are divided by the number of values plus one, and ties share their mean rank.
    `keys` (k n,) are sorted, smallest first; see `_rank`.
    """
    k, n = product.shape
    passed, tied = np.zeros(k), np.zeros(k)  # values of each column below the ties, and among them
    start = 0
    while start < len(keys):
        value, stop = keys[start] >> 32, start + 1
        while stop < len(keys) and keys[stop] >> 32 == value:
            stop += 1
        for i in range(start, stop):
            tied[_column(keys[i], n)] += 1.0
        overall = _mean_rank(start, stop - start, k * n)
        for i in range(start, stop):
            column = _column(keys[i], n)
            row = _place(keys[i]) - column * n
            product[column, row] = overall * _mean_rank(passed[column], tied[column], n)
        for i in range(start, stop):
            column = _column(keys[i], n)
            passed[column] += tied[column]
            tied[column] = 0.0
        start = stop


@kernel()
def _merge_ranks(keys, ordered, columns, count, product):  # type: ignore[no-untyped-def]
    """Fill product (k, n) as `_multiply_ranks` does, with ranks among other values.

    These come in order, as the upper halves of keys, with the column of each; `count` are in each column.
    """
    k, n = product.shape
    passed, tied = np.zeros(k), np.zeros(k)  # of the others, in each column: below the value, equal to it
    start, below = 0, 0
    while start < len(keys):
        value, stop = keys[start] >> 32, start + 1
        while stop < len(keys) and keys[stop] >> 32 == value:
            stop += 1
        while below < len(ordered) and ordered[below] < value:
            passed[columns[below]] += 1.0
            below += 1
        above = below
        while above < len(ordered) and ordered[above] == value:
            tied[columns[above]] += 1.0
            above += 1
        overall = _mean_rank(below, above - below, k * count)
        for i in range(start, stop):
            column = _column(keys[i], n)
            row = _place(keys[i]) - column * n
            product[column, row] = overall * _mean_rank(passed[column], tied[column], count)
        for i in range(below, above):
            passed[columns[i]] += tied[columns[i]]
            tied[columns[i]] = 0.0
        start, below = stop, above


@part()
def _mean_rank(below, ties, count):  # type: ignore[no-untyped-def]
    """Return the rank from the top, over the count plus one, that tied values share."""
    return (count - below - ties + 0.5 * (ties + 1.0)) / (count + 1.0)


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
