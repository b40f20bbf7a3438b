"""Entropic optimal transport between rows of distributions with one cost matrix.

Letters, after "Selective Cross-Task Distillation": a = p_T (n, m) and b = p_S (n, k) the distributions of the
teacher and of the student, M (m, k) the cost, K = exp(-M / epsilon), alpha and beta the duals of eq. (13) and
u = exp(alpha / epsilon), v = exp(beta / epsilon) the scalings of eq. (19).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]

SPREADS = 0.5  # epsilon="auto" in standard deviations of the cost
PAPER_EPSILON = 0.1
_CONSTANT = 1e-9  # a cost that varies by less than this share of its size is constant


class Solution(NamedTuple):
    """Duals and how well the marginals are met, a row per problem.

    `alpha` (n, m) and `beta` (n, k) are soft c-transforms: add epsilon log p to have the duals of eq. (13).
    """

    alpha: Floats
    beta: Floats
    residual: Floats
    n_iter: NDArray[np.int64]


def automatic_epsilon(cost: Floats) -> float:
    """Return the epsilon that "auto" stands for: half the standard deviation of the cost.

    The plan depends on the cost only through M / epsilon less what is constant along rows or columns, so
    that an epsilon in units of the spread gives plans of the same sharpness whatever the scale of M. With a
    constant cost every epsilon gives the same plan, p_T p_S^T, and the paper's 0.1 is returned.
    """
    spread = float(np.std(cost))
    if spread <= _CONSTANT * float(np.abs(cost).max()):
        return PAPER_EPSILON
    return SPREADS * spread


def solve(
    a: Floats, b: Floats, cost: Floats, epsilon: float, tol: float, max_iter: int, beta: Floats | None
) -> Solution:
    """Run Sinkhorn's iteration in log domain until the marginals are met to `tol` in each row."""
    log_k = -(cost - cost.min()) / epsilon
    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(a), np.log(b)
    n = len(a)
    g = np.zeros_like(b) if beta is None else beta / epsilon - np.where(b > 0, log_b, 0.0)
    f = np.zeros_like(a)
    residual, n_iter = np.full(n, np.inf), np.zeros(n, dtype=np.int64)
    active = np.arange(n)
    for iteration in range(1, max_iter + 1):
        if not len(active):
            break
        f[active] = -logsumexp(log_k[None] + (g + log_b)[active][:, None, :], axis=2)
        new = -logsumexp(log_k[None] + (f + log_a)[active][:, :, None], axis=1)
        residual[active] = (b[active] * np.abs(np.expm1(g[active] - new))).sum(axis=1)
        g[active] = new
        n_iter[active] = iteration
        active = active[residual[active] > tol]
    return Solution(epsilon * f, epsilon * g, residual, n_iter)
