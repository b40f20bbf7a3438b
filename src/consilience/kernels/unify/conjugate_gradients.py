"""Solve the linear systems of ce and mf-lf in O(m) per iteration, for label spaces with many teachers.

Each class set B gives its classes l the weights t_B(l). Their sum over the set is w_B. The system is

    sum over the B that know l of t_B(l) (x_l - mean_B x) = r_l,    mean_B x = sum_l t_B(l) x_l / w_B.

With t_B = w_B q_B this is the Newton step of ce. With t_B = 1 it is the least squares of mf-lf after
eliminating the shifts. Let d_l be the sum of t_B(l) over the sets that know l. Relative to the diagonal d,
eigenvalues lie between 0 and 1. If teachers share many classes, most of these are near 1, and conjugate
gradients need about a dozen iterations for any number of teachers. Elimination takes the cube of that number.
"""

from __future__ import annotations

import numpy as np

from consilience.kernels.compiled import part
from consilience.kernels.elementary import FUSE

# A thread's matrix of weights has at most this many numbers, to stay in its cache (256 KB), and at least this
# many lanes, to fill vector instructions.
_MOST_WEIGHTS = 2**15
_LEAST_LANES = 8
# Added to the diagonal. A class with less weight than this does not affect any residual that we ask for.
_LEAST = 1e-14
# rows of the scratch: |r|^2, r'r / d, p'Hp, the step along p, and a mean
_SQUARE, _SCALED, _CURVATURE, _STEP, _MEAN = range(5)


@part()
def lanes_for(columns, most):  # type: ignore[no-untyped-def]
    """Return how many rows of this many packed columns a thread should process at once."""
    return min(most, max(_LEAST_LANES, _MOST_WEIGHTS // columns))


@part(fastmath=FUSE)
def conjugate_gradients(t, w, r, sets, x, goal, most):  # type: ignore[no-untyped-def]
    """Solve the system above for x, starting at x = 0. Each row has a lane.

    Parameters
    ----------
    t : (m, lanes) array
        Weights of the packed columns.
    w : (G, lanes) array
        Their sum over each class set; 0 for a set without weight.
    r : (L, lanes) array
        The right-hand side, which sums to zero over each component. Overwritten with the residual.
    sets : Layout
    x : (L, lanes) array
        Filled with the solution.
    goal : (lanes,) array
        Stop when the norm of r is at most this.
    most : int
        The largest number of iterations.

    Returns
    -------
    int
        The number of lanes that missed their goal.
    """
    lanes = x.shape[1]
    d, p, Hp, scratch = np.empty(x.shape), np.zeros(x.shape), np.empty(x.shape), np.zeros((5, lanes))
    _fill_diagonal(t, w, sets, d)
    x[:] = 0.0
    left = _next_direction(r, d, p, scratch, goal)
    for _ in range(most):
        if left == 0:
            break
        _apply(t, w, sets, p, Hp, scratch[_MEAN])
        scratch[_CURVATURE] = 0.0
        for c in range(len(x)):
            for lane in range(lanes):
                scratch[_CURVATURE, lane] += p[c, lane] * Hp[c, lane]
        for lane in range(lanes):
            # a lane that is done does not move
            step = scratch[_SCALED, lane] / scratch[_CURVATURE, lane]
            going = scratch[_SQUARE, lane] > goal[lane] ** 2 and scratch[_CURVATURE, lane] > 0.0
            scratch[_STEP, lane] = step if going else 0.0
        for c in range(len(x)):
            for lane in range(lanes):
                x[c, lane] += scratch[_STEP, lane] * p[c, lane]
                r[c, lane] -= scratch[_STEP, lane] * Hp[c, lane]
        left = _next_direction(r, d, p, scratch, goal)
    return left


@part(fastmath=FUSE)
def _fill_diagonal(t, w, sets, d):  # type: ignore[no-untyped-def]
    """Fill d (L, lanes) with the diagonal of the matrix."""
    d[:] = _LEAST
    for b in range(len(w)):
        for k in range(sets.offsets[b], sets.offsets[b + 1]):
            c = sets.columns[k]
            for lane in range(d.shape[1]):
                share = t[k, lane] / w[b, lane] if w[b, lane] > 0.0 else 0.0
                d[c, lane] += t[k, lane] * max(1.0 - share, 0.0)


@part(fastmath=FUSE)
def _next_direction(r, d, p, scratch, goal):  # type: ignore[no-untyped-def]
    """Set p to the next direction; return how many lanes are above their goal."""
    lanes = r.shape[1]
    for lane in range(lanes):
        scratch[_STEP, lane] = scratch[_SCALED, lane]
        scratch[_SQUARE, lane] = 0.0
        scratch[_SCALED, lane] = 0.0
    for c in range(len(r)):
        for lane in range(lanes):
            square = r[c, lane] * r[c, lane]
            scratch[_SQUARE, lane] += square
            scratch[_SCALED, lane] += square / d[c, lane]
    left = 0
    for lane in range(lanes):
        before = scratch[_STEP, lane]
        scratch[_STEP, lane] = scratch[_SCALED, lane] / before if before > 0.0 else 0.0
        left += scratch[_SQUARE, lane] > goal[lane] ** 2
    for c in range(len(r)):
        for lane in range(lanes):
            ratio = r[c, lane] / d[c, lane]
            p[c, lane] = ratio + scratch[_STEP, lane] * p[c, lane]
    return left


@part(fastmath=FUSE)
def _apply(t, w, sets, p, Hp, mean):  # type: ignore[no-untyped-def]
    """Fill Hp with the matrix times p."""
    lanes = p.shape[1]
    Hp[:] = 0.0
    for b in range(len(w)):
        start, stop = sets.offsets[b], sets.offsets[b + 1]
        mean[:] = 0.0
        for k in range(start, stop):
            c = sets.columns[k]
            for lane in range(lanes):
                mean[lane] += t[k, lane] * p[c, lane]
        for lane in range(lanes):
            mean[lane] = mean[lane] / w[b, lane] if w[b, lane] > 0.0 else 0.0
        for k in range(start, stop):
            c = sets.columns[k]
            for lane in range(lanes):
                # subtract first: if p hardly varies within a set, the result must be small
                Hp[c, lane] += t[k, lane] * (p[c, lane] - mean[lane])
