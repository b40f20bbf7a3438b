"""Solve graph Laplacians without a subtraction.

Both the Newton step of the cross-entropy method and the shifts of mf-lf are Laplacian systems on the graph
whose nodes are teachers and whose edges are shared classes. Eliminating nodes one by one (Grassmann, Taksar
and Heyman) only ever adds positive numbers, so weak links between teachers (shared classes of tiny
probability) keep their full relative accuracy where Cholesky would cancel.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@njit(cache=True)
def solve_laplacian(weights: Floats, rhs: Floats, size: int) -> None:
    """Solve ``sum_j w_ij (s_i - s_j) = r_i`` in place, with s = 0 at the last node of each component.

    Parameters
    ----------
    weights : (>= size, >= size) array
        Symmetric edge weights, not negative; the diagonal is ignored. Overwritten.
    rhs : (>= size,) array
        r on entry (its sum over a component is zero), s on return.
    size : int
        Number of nodes.
    """
    for k in range(size):
        degree = 0.0
        for j in range(k + 1, size):
            degree += weights[k, j]
        weights[k, k] = degree
        if degree <= 0.0:
            continue
        inverse = 1.0 / degree
        for i in range(k + 1, size):
            if weights[k, i] == 0.0:
                continue
            scale = weights[k, i] * inverse
            rhs[i] += scale * rhs[k]
            # the upper triangle is enough: weights[k, j] is read with j > k only
            for j in range(i + 1, size):
                weights[i, j] += scale * weights[k, j]
    for k in range(size - 1, -1, -1):
        degree = weights[k, k]
        if degree <= 0.0:
            rhs[k] = 0.0
            continue
        total = rhs[k]
        for j in range(k + 1, size):
            total += weights[k, j] * rhs[j]
        rhs[k] = total / degree
