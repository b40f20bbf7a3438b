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
    against = odds if reference is None else log_odds(reference, offsets)
    z = np.full(odds.shape, np.nan)

    def fill(block: int) -> None:
        start, stop = int(offsets[block]), int(offsets[block + 1])
        rows, values = _answers(odds[:, start:stop])
        others = values if reference is None else _answers(against[:, start:stop])[1]
        pooled = np.sort(others, axis=None)
        a, b = np.empty(len(rows)), np.empty(len(rows))
        for k, column in enumerate(values):
            order = np.argsort(column)
            _fill_ranks(column, order, column[order] if reference is None else np.sort(others[k]), a)
            _fill_ranks(column, order, pooled, b)
            z[rows, start + k] = -0.5 * np.log(a * b)

    with ThreadPoolExecutor(kernel_threads()) as pool:
        list(pool.map(fill, range(len(offsets) - 1)))  # reading the results raises the errors of the threads
    return z


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
def _fill_ranks(values, order, reference, ranks):  # type: ignore[no-untyped-def]
    """Fill ranks (n,) of values (n,), which `order` sorts, among a sorted reference (r,).

    Ranks count from the top, and are divided by r + 1.
    """
    r = len(reference)
    low = high = 0  # how many of the reference are smaller, and how many are no larger
    for position in order:
        value = values[position]
        if high == 0 or reference[high - 1] < value:  # else they are those of the value before
            low = _pass(reference, high, value, False)
            high = _pass(reference, low, value, True)
        ranks[position] = (r - high + 0.5 * (high - low + 1)) / (r + 1)


@part()
def _pass(reference, place, value, ties):  # type: ignore[no-untyped-def]
    """Go on from a place in the sorted reference past what is smaller than the value, or is a tie.

    Steps double, then halve: the reference may be much longer than the values.
    """
    step, growing = 1, True
    while step > 0:
        last = place + step - 1
        passed = last < len(reference) and (reference[last] < value or (ties and reference[last] == value))
        if passed:
            place += step
        growing = growing and passed
        step = step * 2 if growing else step // 2
    return place


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
