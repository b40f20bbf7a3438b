"""The multiplicative update of Bradley-Terry models, which brings ce's start close to its minimum.

With e = exp(u) it sets e_l to a_l over the sum of w_B / sum_{k in B} e_k over the class sets B that know
class l (see `cross_entropy` for the letters). It takes neither exp nor log, and never raises J.
"""

from __future__ import annotations

import numpy as np

from consilience.kernels.compiled import kernel, part
from consilience.kernels.elementary import FUSE, exp, log
from consilience.kernels.unify.packed import LANES, add_probabilities, load_lanes

# Where teachers share classes as richly as in the paper an update halves the error and more, for a tenth of
# the cost of a Newton step. Where links are weak it creeps, and Newton's method sees to that.
START_STEPS = 3
# Least mass that it can handle, where the largest is about one. A row whose start has less is left as it is.
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
            # a class that no active teacher knows has d = 0, and any mass will do
            e[c, lane] = ratio if d[c, lane] > 0.0 else e[c, lane]
