"""The multiplicative update of Bradley-Terry models. It brings the start of ce close to the minimum.

With e = exp(u), it sets e_l to a_l / sum_B (w_B / sum_{k in B} e_k), where the outer sum is over the class
sets B that know class l (see `cross_entropy` for the letters). It needs neither exp nor log, and never raises
J.
"""

from __future__ import annotations

import numpy as np

from consilience.kernels.compiled import kernel, part
from consilience.kernels.elementary import FUSE, exp, log
from consilience.kernels.unify.packed import LANES, add_probabilities, load_lanes

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
