"""Solve graph Laplacians without subtractions.

The Newton step of the cross-entropy method and the shifts of mf-lf are both Laplacian systems. The nodes of
the graph are teachers, the edges are shared classes. Eliminating nodes one by one (Grassmann, Taksar and
Heyman) only adds positive numbers. Weak links between teachers (shared classes of tiny probability) therefore
keep their full relative accuracy, where Cholesky would cancel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import part
from consilience.kernels.elementary import FUSE


def fill_in(linked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return all edges that exist at some time while nodes are eliminated in order.

    Parameters
    ----------
    linked : (size, size) array of bool
        Symmetric; whether two nodes share an edge. A node need not be linked to itself.
    """
    fill = linked.copy()
    for k in range(len(fill) - 1):
        later = k + 1 + np.flatnonzero(fill[k, k + 1 :])
        fill[np.ix_(later, later)] = True
    return fill


@part(fastmath=FUSE)
def solve_laplacian(weights: Floats, rhs: Floats, fill: NDArray[np.bool_]) -> None:
    """Solve ``sum_j w_ij (s_i - s_j) = r_i`` in place, with s = 0 at the last node of each component.

    It solves many systems with the same edges at once. The last axis counts them (the lanes), which makes
    inner loops long, contiguous and free of branches. Lanes do not depend on each other.

    Parameters
    ----------
    weights : (size, size, lanes) array
        Edge weights, not negative, in the upper triangle. Overwritten.
    rhs : (size, lanes) array
        On entry r, which sums to zero over each component; on return s.
    fill : (size, size) array of bool
        From `fill_in`; other entries of `weights` must be zero.
    """
    size, lanes = rhs.shape
    scale = np.empty((1, lanes))
    for k in range(size):
        _add_up_degree(weights[k], k, fill[k])
        for i in range(k + 1, size):
            if not fill[k, i]:
                continue
            for lane in range(lanes):
                degree = weights[k, k, lane]
                ratio = weights[k, i, lane] / degree
                scale[0, lane] = ratio if degree > 0.0 else 0.0
                rhs[i, lane] += scale[0, lane] * rhs[k, lane]
            # the upper triangle is enough: weights[k, j] is read only for j > k
            for j in range(i + 1, size):
                if fill[k, j]:
                    for lane in range(lanes):
                        weights[i, j, lane] += scale[0, lane] * weights[k, j, lane]
    for k in range(size - 1, -1, -1):
        for j in range(k + 1, size):
            if fill[k, j]:
                for lane in range(lanes):
                    rhs[k, lane] += weights[k, j, lane] * rhs[j, lane]
        for lane in range(lanes):
            degree = weights[k, k, lane]
            ratio = rhs[k, lane] / degree
            rhs[k, lane] = ratio if degree > 0.0 else 0.0


@part(fastmath=FUSE)
def _add_up_degree(weights, k, fill):  # type: ignore[no-untyped-def]
    """Put node k's degree, over the nodes not yet eliminated, on the diagonal."""
    weights[k, :] = 0.0
    for j in range(k + 1, len(weights)):
        if fill[j]:
            for lane in range(weights.shape[1]):
                weights[k, lane] += weights[j, lane]
