"""ce: the cross-entropy method (Sec. 3.3), solved by Newton's method row by row.

Eq. (9) depends on the p_i only through their sum a_l = sum_i p_i(l). Teachers with the same class set B share
one term. With w_B the number of these teachers,

    J(u) = sum_B w_B log sum_{k in B} exp(u_k) - sum_l a_l u_l.

Its Hessian is diag(d) - sum_B w_B q_B q_B', where q_B is the softmax of u over B and d = sum_B w_B q_B. With
s_B = q_B' x the Newton system Hx = -g becomes a graph Laplacian on the class sets (edge weights
w_B w_C sum_l q_B(l) q_C(l) / d_l), so a step costs O(m + sum_l r_l^2 + G^3), with r_l sets knowing class l
and G sets, instead of O(L^3): thousands of classes cost no more than their columns. Where G^3 would be the
larger part, conjugate gradients find the step in O(m) an iteration; rows that are too hard for them are
solved by elimination after all.

The start is the least-squares fit of mf-lf, improved by multiplicative updates. A thread then works on
several rows at once, each in a lane (the last axis of every array). Loops along lanes are contiguous and
compile to vector instructions. A lane computes its steps from its own row only. When most of a batch is done,
the late rows are postponed, and resumed later from the point that they have reached.

The multiplicative update of Bradley-Terry models. It brings the start of ce close to the minimum.

With e = exp(u), it sets e_l to a_l / sum_B (w_B / sum_{k in B} e_k), where the outer sum is over the class
sets B that know class l (see `cross_entropy` for the letters). It needs neither exp nor log, and never raises
J.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import kernel, part
from consilience.kernels.elementary import FUSE, exp, log
from consilience.kernels.unify.factorisation import mf_lf_logits
from consilience.kernels.unify.linear_systems import (
    GRADIENTS,
    Links,
    elimination_cost,
    lanes_for,
    make_links,
    solve_by_gradients,
    solve_by_set,
)
from consilience.kernels.unify.packed import (
    LANES,
    Layout,
    add_probabilities,
    block_softmax,
    distinct_blocks,
    in_turns,
    load_lanes,
    make_layout,
)

# Entries of log p below this would dominate the least-squares fit, but do not affect any probability.
START_FLOOR = -40.0
# Newton steps longer than this leave the region where the quadratic model holds.
MAX_STEP = 4.0
# Up to this many multiplications per packed column, elimination is faster than conjugate gradients.
ELIMINATION_PAYS = 150
# The share of the start's right-hand side that conjugate gradients may leave. The updates do the rest.
START_LEFT = 0.03
# The most numbers in a thread's matrices of edge weights (4 MB). Thousands of class sets get fewer lanes.
_MOST_WEIGHTS = 2**19


def ce_logits(
    logits: Floats, layout: Layout, temperature: float, tol: float, max_iter: int
) -> tuple[Floats, Floats, Ints]:
    """Minimise eq. (9) for each row.

    Parameters
    ----------
    logits : (n, m) array
        Packed teacher logits; NaN where a teacher abstains.
    layout : Layout
    temperature : float
    tol : float
        Euclidean norm of the gradient to reach.
    max_iter : int

    Returns
    -------
    U : (n, L) array
        Unified logits at the given temperature.
    norms : (n,) array
        Gradient norms reached.
    n_iter : (n,) array of int
        Newton iterations used.
    """
    n_classes = len(layout.class_offsets) - 1
    set_of, columns, offsets = distinct_blocks(layout.columns, layout.offsets)
    sets = make_layout(columns, offsets, n_classes)

    def solve(Z: Floats, links: Links | None, most: int) -> tuple[Floats, Floats, Ints]:
        n, size = len(Z), 0 if links is None else len(offsets)
        lanes = lanes_for(len(columns), LANES) if size == 0 else max(1, min(LANES, _MOST_WEIGHTS // size**2))
        U = mf_lf_logits(Z, layout, temperature, START_FLOOR, START_LEFT)
        norms, n_iter = np.empty(n), np.empty(n, dtype=np.intp)

        def work(rows: slice) -> None:
            A, W = np.empty(U[rows].shape), np.empty((len(U[rows]), len(offsets) - 1))
            start_rows(Z[rows], layout, set_of, sets, temperature, A, W, U[rows])
            newton_rows(A, W, sets, links, size, lanes, U[rows], (norms[rows], n_iter[rows]), tol, most)

        in_turns(work, n)
        return U, norms, n_iter

    cost = elimination_cost(sets) / len(columns)
    if cost <= ELIMINATION_PAYS:
        return solve(logits, make_links(sets), max_iter)
    # With weak links, conjugate gradients may take forever: try for about as long as elimination takes.
    U, norms, n_iter = solve(logits, None, min(max_iter, 12 + int(cost / 16)))
    late = np.flatnonzero(~(norms <= tol))
    if len(late):
        U[late], norms[late], n_iter[late] = solve(logits[late], make_links(sets), max_iter)
    return U, norms, n_iter


def ce_objective(U: Floats, logits: Floats, layout: Layout, temperature: float) -> Floats:
    """Return J of eq. (9) for each row, at unified logits U (n, L)."""
    _, p = block_softmax(logits, layout.offsets, temperature)
    log_q, _ = block_softmax(np.where(np.isnan(p), np.nan, U[:, layout.columns]), layout.offsets, 1.0)
    J: Floats = -np.nansum(p * log_q, axis=1)
    return J


class _Lanes(NamedTuple):
    """The rows in progress, one per lane.

    A lane sits out a step if its row was just rejected, finished or started. Its direction is computed like
    the others, but not used.
    """

    a: Floats  # (L, lanes) sum of the p_i
    w: Floats  # (G, lanes) number of teachers with each class set
    u: Floats  # (L, lanes) the best point so far
    trial: Floats  # (L, lanes) the point to evaluate next
    x: Floats  # (L, lanes) Newton direction
    t: Floats  # (m, lanes) w_B q_B at the trial point
    d: Floats  # (L, lanes) their sum by class
    g: Floats  # (L, lanes) gradient
    s: Floats  # (size, lanes) unknowns of the Laplacian
    weights: Floats  # (size, size, lanes) its edges
    numbers: Floats  # (6, lanes) rows named below
    row: Ints  # (lanes,) the row in the lane, or -1
    state: Ints  # (lanes,) values named below
    moving: NDArray[np.bool_]  # (lanes,) whether the lane takes the next step


# rows of `numbers`: J at u, J and gradient norm at the trial point, length of the step, two rows of scratch
_VALUE, _TRIAL_VALUE, _TRIAL_NORM, _STEP, _TOP, _TOTAL = range(6)
# `state`: accept any trial point; accept any, then take a Newton step; accept only if J falls
_ACCEPT, _ACCEPT_THEN_NEWTON, _TEST = range(3)


@kernel(fastmath=FUSE)
def newton_rows(A, W, sets, links, size, most, U, out, tol, max_iter):  # type: ignore[no-untyped-def]
    """Minimise J for each row in place, starting from U.

    Rows are processed in batches, one per lane. Rows that are late in their batch move to a later batch.

    Parameters
    ----------
    A : (n, L) array
        a_l, the sum of the p_i.
    W : (n, G) array
        w_B, the number of teachers with each class set.
    sets : Layout
        The distinct class sets.
    links : Links or None
        Where elimination finds the Newton step; None for conjugate gradients. Numba compiles each way
        separately, on first use.
    size : int
        Number of nodes of the Laplacian to eliminate; 0 for conjugate gradients.
    most : int
        The most lanes.
    U : (n, L) array
        On entry the start, on return the minimiser.
    out : two (n,) arrays
        Filled with the gradient norms reached and the iterations used.
    tol, max_iter : float, int
    """
    n_iter = out[1]
    n_iter[:] = 0
    z = _make_lanes(A.shape[1], W.shape[1], len(sets.columns), size, min(most, len(A)))
    rows = np.empty(len(A), np.intp)
    for row in range(len(A)):
        rows[row] = row
    while len(rows) > 0:
        late = 0
        for first in range(0, len(rows), most):
            lanes = min(most, len(rows) - first)
            if lanes != len(z.row):
                z = _make_lanes(A.shape[1], W.shape[1], len(sets.columns), size, lanes)
            for lane in range(lanes):
                _take_up(z, lane, rows[first + lane], A, W, U)
            _newton_batch(z, sets, links, U, out, tol, max_iter)
            for lane in range(lanes):
                if z.row[lane] >= 0:
                    rows[late] = z.row[lane]
                    late += 1
        rows = rows[:late]


@part(fastmath=FUSE)
def _newton_batch(z, sets, links, U, out, tol, max_iter):  # type: ignore[no-untyped-def]
    """Iterate until most rows are done; store the best points of the others in U, and keep their lanes."""
    norms, n_iter = out
    lanes, moving = len(z.row), z.moving
    busy = lanes
    while busy > 0:
        _evaluate(z, sets)
        for lane in range(lanes):
            moving[lane] = z.row[lane] >= 0 and not _reject(z, lane)
            norm = z.numbers[_TRIAL_NORM, lane]
            if moving[lane] and not (norm > tol and n_iter[z.row[lane]] < max_iter):
                row, z.row[lane], moving[lane] = z.row[lane], -1, False
                busy -= 1
                norms[row] = norm
                for c in range(len(z.u)):
                    U[row, c] = z.trial[c, lane]
        if 4 * busy <= lanes:
            break
        for lane in range(lanes):
            n_iter[z.row[lane]] += moving[lane]
        if links is not None:
            solve_by_set(z, sets, links)
        if links is None:  # not `else`: numba drops a branch whose condition it knows
            solve_by_gradients(z, sets, z.numbers[_TRIAL_NORM], tol, GRADIENTS)
        _move(z)
    for lane in range(lanes if busy > 0 else 0):
        for c in range(len(z.u) if z.row[lane] >= 0 else 0):
            U[z.row[lane], c] = z.trial[c, lane] if moving[lane] else z.u[c, lane]


@part(fastmath=FUSE)
def _make_lanes(L, G, m, size, lanes):  # type: ignore[no-untyped-def]
    return _Lanes(
        np.empty((L, lanes)), np.empty((G, lanes)), np.empty((L, lanes)), np.empty((L, lanes)),
        np.empty((L, lanes)), np.empty((m, lanes)), np.empty((L, lanes)), np.empty((L, lanes)),
        np.empty((size, lanes)), np.empty((size, size, lanes)), np.empty((6, lanes)),
        np.empty(lanes, np.intp), np.empty(lanes, np.intp), np.empty(lanes, np.bool_),
    )  # fmt: skip


@part(fastmath=FUSE)
def _take_up(z, lane, row, A, W, U):  # type: ignore[no-untyped-def]
    """Start on a row."""
    # loops, here and below: numba takes seconds to compile an assignment between arrays
    for c in range(len(z.a)):
        z.a[c, lane], z.trial[c, lane] = A[row, c], U[row, c]
    for b in range(len(z.w)):
        z.w[b, lane] = W[row, b]
    z.row[lane], z.state[lane] = row, _ACCEPT


@part(fastmath=FUSE)
def _reject(z, lane):  # type: ignore[no-untyped-def]
    """Accept the trial point, or halve the step and return True."""
    value = z.numbers[_VALUE, lane]
    # the slack covers rounding: near the minimum, J no longer resolves a Newton step, but the gradient does
    worse = z.numbers[_TRIAL_VALUE, lane] > value + 1e-13 * (1.0 + abs(value))
    if z.state[lane] == _TEST and worse and z.numbers[_STEP, lane] >= 1e-6:
        z.numbers[_STEP, lane] *= 0.5
        for c in range(len(z.u)):
            z.trial[c, lane] = 0.5 * (z.u[c, lane] + z.trial[c, lane])
        return True
    z.numbers[_VALUE, lane] = z.numbers[_TRIAL_VALUE, lane]
    return False


@part(fastmath=FUSE)
def _move(z):  # type: ignore[no-untyped-def]
    """Make the trial point the new u and set the next trial point, in the lanes that move."""
    longest, step, moving = z.numbers[_TOP], z.numbers[_STEP], z.moving
    longest[:] = 0.0
    for c in range(len(z.x)):
        for lane in range(len(longest)):
            longest[lane] = max(longest[lane], abs(z.x[c, lane]))
    for c in range(len(z.u)):
        for lane in range(len(moving)):
            z.u[c, lane] = z.trial[c, lane] if moving[lane] else z.u[c, lane]
    for lane in range(len(moving)):
        if not moving[lane]:
            continue
        if longest[lane] > MAX_STEP and z.state[lane] != _ACCEPT_THEN_NEWTON:
            # Far from the minimum, the multiplicative update of Bradley-Terry models sets the scale of all
            # classes at once and never raises J. Weak links need shortened Newton steps too, so alternate.
            moving[lane] = False
            z.state[lane] = _ACCEPT_THEN_NEWTON
            for c in range(len(z.u)):
                if z.a[c, lane] > 0.0 and z.d[c, lane] > 0.0:
                    z.trial[c, lane] += min(30.0, max(-30.0, np.log(z.a[c, lane] / z.d[c, lane])))
        else:
            z.state[lane] = _TEST
            step[lane] = min(1.0, MAX_STEP / longest[lane]) if longest[lane] > 0.0 else 1.0
    for c in range(len(z.u)):
        for lane in range(len(moving)):
            ahead = z.u[c, lane] + step[lane] * z.x[c, lane]
            z.trial[c, lane] = ahead if moving[lane] else z.trial[c, lane]


@part(fastmath=FUSE)
def _evaluate(z, sets):  # type: ignore[no-untyped-def]
    """Fill t, d and the gradient g at the trial points, and J and the gradient's norm."""
    u, t, d, g = z.trial, z.t, z.d, z.g
    numbers = z.numbers
    lanes = u.shape[1]
    for lane in range(lanes):
        numbers[_TOP, lane] = -np.inf
        numbers[_TRIAL_VALUE, lane] = 0.0
        numbers[_TRIAL_NORM, lane] = 0.0
    for c in range(len(u)):
        for lane in range(lanes):
            numbers[_TOP, lane] = max(numbers[_TOP, lane], u[c, lane])
    for c in range(len(u)):
        for lane in range(lanes):
            g[c, lane] = exp(u[c, lane] - numbers[_TOP, lane])
    d[:] = 0.0
    for b in range(len(z.w)):
        for lane in range(lanes):
            numbers[_TOTAL, lane] = 0.0
        for k in range(sets.offsets[b], sets.offsets[b + 1]):
            c = sets.columns[k]
            for lane in range(lanes):
                numbers[_TOTAL, lane] += g[c, lane]
        for lane in range(lanes):
            total = numbers[_TOTAL, lane]
            near = total >= 1e-200
            total = total if near else 1.0
            w = z.w[b, lane] if near else 0.0
            numbers[_TRIAL_VALUE, lane] += w * (log(total) + numbers[_TOP, lane])
            numbers[_TOTAL, lane] = w / total
        lost = 0
        for lane in range(lanes):
            lost += z.w[b, lane] > 0.0 and numbers[_TOTAL, lane] == 0.0
        for k in range(sets.offsets[b], sets.offsets[b + 1]):
            c = sets.columns[k]
            for lane in range(lanes):
                t[k, lane] = numbers[_TOTAL, lane] * g[c, lane]
                d[c, lane] += t[k, lane]
        if lost > 0:
            for lane in range(lanes):
                if z.w[b, lane] > 0.0 and numbers[_TOTAL, lane] == 0.0:
                    _add_far_set(z, sets, b, lane)
    for c in range(len(u)):
        for lane in range(lanes):
            g[c, lane] = d[c, lane] - z.a[c, lane]
            numbers[_TRIAL_NORM, lane] += g[c, lane] * g[c, lane]
        for lane in range(lanes):
            numbers[_TRIAL_VALUE, lane] -= z.a[c, lane] * u[c, lane]
    for lane in range(lanes):
        numbers[_TRIAL_NORM, lane] = np.sqrt(numbers[_TRIAL_NORM, lane])


@part(fastmath=FUSE)
def _add_far_set(z, sets, b, lane):  # type: ignore[no-untyped-def]
    """Add a set that lies so far below the row's largest logit that its exponentials underflow."""
    columns, start, stop = sets.columns, sets.offsets[b], sets.offsets[b + 1]
    peak, total = -np.inf, 0.0
    for k in range(start, stop):
        peak = max(peak, z.trial[columns[k], lane])
    for k in range(start, stop):
        z.t[k, lane] = np.exp(z.trial[columns[k], lane] - peak)
        total += z.t[k, lane]
    z.numbers[_TRIAL_VALUE, lane] += z.w[b, lane] * (np.log(total) + peak)
    for k in range(start, stop):
        z.t[k, lane] *= z.w[b, lane] / total
        z.d[columns[k], lane] += z.t[k, lane]


# If teachers share as many classes as in the paper, an update at least halves the error, for a tenth of the
# cost of a Newton step. With weak links it is slow, and Newton's method takes over.
START_STEPS = 3
# The smallest mass that the update can handle; the largest is about one. It skips rows that start with less.
LEAST_MASS = 1e-150
_LEAST_LOGIT = float(np.log(LEAST_MASS))


@kernel(fastmath=FUSE)
def start_rows(logits, layout, set_of, sets, temperature, A, W, U):  # type: ignore[no-untyped-def]
    """Fill A and W, the data of `newton_rows`, and improve the start in U.

    Parameters
    ----------
    logits : (n, m) array
    layout : Layout
    set_of : (N,) array of int
        The class set of each block.
    sets : Layout
        The distinct class sets.
    temperature : float
    A, W, U : (n, L), (n, G) and (n, L) arrays
    """
    L, G = U.shape[1], W.shape[1]
    lanes = min(LANES, len(U))
    x, active = np.empty((logits.shape[1], lanes)), np.empty((len(set_of), lanes))
    a, e, d = np.empty((L, lanes)), np.empty((L, lanes)), np.empty((L, lanes))
    w, sums, lowest = np.empty((G, lanes)), np.empty((1, lanes)), np.empty(lanes)
    for first in range(0, len(U), lanes):
        load_lanes(logits, first, layout.offsets, x, active)
        add_probabilities(x, active, layout, temperature, a)
        w[:] = 0.0
        for i in range(len(set_of)):
            for lane in range(lanes):
                w[set_of[i], lane] += active[i, lane]
        for lane in range(lanes):
            row = min(first + lane, len(U) - 1)
            sums[0, lane], lowest[lane] = -np.inf, np.inf
            for c in range(L):
                e[c, lane] = U[row, c]
                sums[0, lane] = max(sums[0, lane], U[row, c])
                lowest[lane] = min(lowest[lane], U[row, c])
            lowest[lane] -= sums[0, lane]
        for c in range(L):
            for lane in range(lanes):
                e[c, lane] = max(exp(e[c, lane] - sums[0, lane]), LEAST_MASS)
        for _ in range(START_STEPS):
            _update(a, w, sets, e, d, sums)
        for c in range(L):
            for lane in range(lanes):
                e[c, lane] = log(e[c, lane])
        for lane in range(min(lanes, len(U) - first)):
            for c in range(L):
                A[first + lane, c] = a[c, lane]
            for b in range(G):
                W[first + lane, b] = w[b, lane]
            for c in range(L if lowest[lane] > _LEAST_LOGIT else 0):
                U[first + lane, c] = e[c, lane]


@part(fastmath=FUSE)
def _update(a, w, sets, e, d, sums):  # type: ignore[no-untyped-def]
    """Do a multiplicative update of e (L, lanes); d and sums are scratch."""
    lanes = e.shape[1]
    d[:] = 0.0
    for b in range(len(w)):
        for lane in range(lanes):
            sums[0, lane] = 0.0
        for k in range(sets.offsets[b], sets.offsets[b + 1]):
            c = sets.columns[k]
            for lane in range(lanes):
                sums[0, lane] += e[c, lane]
        for lane in range(lanes):
            sums[0, lane] = w[b, lane] / sums[0, lane]
        for k in range(sets.offsets[b], sets.offsets[b + 1]):
            c = sets.columns[k]
            for lane in range(lanes):
                d[c, lane] += sums[0, lane]
    for c in range(len(e)):
        for lane in range(lanes):
            ratio = max(a[c, lane] / d[c, lane], LEAST_MASS)
            # if no active teacher knows the class, d = 0 and its mass is arbitrary
            e[c, lane] = ratio if d[c, lane] > 0.0 else e[c, lane]
