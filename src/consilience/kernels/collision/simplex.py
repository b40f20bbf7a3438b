"""Labels on the simplex: the fair collision objective, a lower bound of its minimum, and the projection.

A problem has N rows. M of them are free, the others have pinned labels. The free rows have predictions sigma
(M, K) and labels Y (M, K). The objective is in total form, which is N times the mean form of eq. (11),

    N F(Y) = sum_i -log(sigma_i . y_i) + sum_k w_k log(u_k N / c_k),    c = sum_i y_i + offset,

with w = N lam u, so that u = w / sum(w). The multipliers are pi_i of p_i = sigma_i . y_i, nu_k (prices) of
c_k, and gamma_i of row sums. The three solvers share these parameters:

    sigma : (M, K) array       predictions of the free rows; rows sum to one
    start : (M, K) array       labels to start from; rows sum to one
    weight : (K,) array        w, not all zero
    offset : (K,) array        column sums of the pinned labels, so that N = M + sum(offset)
    tol : float                duality gap to reach, relative to N max(1, F)
    max_iter : int             most iterations
"""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel, part


@part()
def column_sums(Y: Floats, offset: Floats) -> Floats:
    """Return c, the sum of all labels of each class (K,)."""
    c = offset.copy()
    for i in range(len(Y)):
        for k in range(len(c)):
            c[k] += Y[i, k]
    return c


@part()
def fairness(c: Floats, weight: Floats) -> float:
    """Return N lam KL(u || c / N), which is sum_k w_k log(u_k N / c_k)."""
    scale = c.sum() / weight.sum()
    total = 0.0
    for k in range(len(c)):
        if weight[k] > 0.0:
            total += weight[k] * np.log(weight[k] * scale / c[k])
    return total


@part()
def collisions(sigma: Floats, Y: Floats) -> Floats:
    """Return p_i = sigma_i . y_i, the probability of a collision in each row (M,)."""
    p = np.empty(len(Y))
    for i in range(len(Y)):
        total = 0.0
        for k in range(Y.shape[1]):
            total += sigma[i, k] * Y[i, k]
        p[i] = total
    return p


@kernel()
def total_loss(sigma: Floats, Y: Floats, weight: Floats, offset: Floats) -> float:
    """Return N F(Y) of the free rows, eq. (11) times N."""
    loss: float = fairness(column_sums(Y, offset), weight) - np.log(collisions(sigma, Y)).sum()
    return loss


@kernel()
def lower_bound(sigma: Floats, pi: Floats, nu: Floats, weight: Floats, offset: Floats) -> float:
    """Return a lower bound of N F(Y), from any positive multipliers.

    The Lagrange dual of eq. (11), with gamma_i = max_k (sigma_ik pi_i + nu_k) the least that is feasible, is

        sum_i (1 + log pi_i) + sum_k w_k (1 + log(nu_k / w_k)) - sum_i gamma_i - nu . offset + constant.

    Along t (pi, nu) it is concave. The bound returned is that of the best t,
    (M + sum(w)) / (sum(gamma) + nu . offset).

    Parameters
    ----------
    sigma : (M, K) array
    pi : (M,) array, positive
    nu : (K,) array, positive where `weight` is, zero elsewhere
    weight, offset : (K,) arrays
    """
    n_classes = len(weight)
    constant = np.log((len(sigma) + offset.sum()) / weight.sum())
    total = slack = degree = 0.0
    for k in range(n_classes):
        if weight[k] > 0.0:
            total += weight[k] * (np.log(nu[k]) + constant)
            degree += weight[k]
            slack += nu[k] * offset[k]
    for i in range(len(sigma)):
        gamma = 0.0
        for k in range(n_classes):
            gamma = max(gamma, sigma[i, k] * pi[i] + nu[k])
        slack += gamma
        total += np.log(pi[i])
    degree += len(sigma)
    bound: float = total + degree * np.log(degree / slack)
    return bound


@part()
def project_row(x: Floats, y: Floats) -> None:
    """Set y (K,) to the point of the simplex nearest to x (K,).

    Michelot's method: subtract the same number from all entries in use so that their sum is one, drop those
    that fall below zero, and repeat until none does.
    """
    active = len(x)
    total = x.sum()
    threshold = (total - 1.0) / active
    while True:
        total, count = 0.0, 0
        for k in range(len(x)):
            if x[k] > threshold:
                total += x[k]
                count += 1
        if count == active or count == 0:
            break
        active, threshold = count, (total - 1.0) / count
    for k in range(len(x)):
        y[k] = max(x[k] - threshold, 0.0)
