"""Pseudo-labels by projected gradient descent: the paper's baseline, for eqs. (10) and (11)."""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.collision.simplex import (
    collisions,
    column_sums,
    fairness,
    lower_bound,
    project_row,
)
from consilience.kernels.compiled import kernel, part

# Iterations between two checks of the gap.
_LOOK = 10
# Smaller collision probabilities and column sums are raised to this: the gradient has a pole at zero.
_LEAST = 1e-100


def projected_gradient(
    sigma: Floats,
    start: Floats,
    weight: Floats,
    offset: Floats,
    reverse: bool,
    step: float,
    tol: float,
    max_iter: int,
) -> tuple[Floats, int]:
    """Minimise eq. (11), or eq. (10) if `reverse`, by projected gradient descent.

    Parameters
    ----------
    sigma, start, weight, offset, tol, max_iter
        See `simplex`. If `reverse`, all weights must be positive.
    reverse : bool
        Whether the divergence is KL(ybar || u) instead of KL(u || ybar).
    step : float
        Step size; multiplies the gradient of the mean-form loss, as in the paper.

    Returns
    -------
    Y : (M, K) array
        Labels.
    n_iter : int
    """
    Y = start.copy()
    return Y, _iterate(sigma, Y, weight, offset, reverse, step, tol, max_iter)


@kernel()
def _iterate(
    sigma: Floats,
    Y: Floats,
    weight: Floats,
    offset: Floats,
    reverse: bool,
    step: float,
    tol: float,
    max_iter: int,
) -> int:
    """Improve Y in place; return the number of iterations."""
    M, K = Y.shape
    N = M + offset.sum()
    x, shift = np.empty(K), np.empty(K)
    n_iter = 0
    while n_iter < max_iter:
        c = column_sums(Y, offset)
        if n_iter % _LOOK == 0:
            loss, gap = loss_and_gap(sigma, Y, weight, offset, reverse)
            if np.isfinite(loss) and gap <= tol * max(N, loss):
                break
        nu = prices(c, weight, reverse)
        for k in range(K):
            shift[k] = step / N * nu[k]
        for i in range(M):
            p = 0.0
            for k in range(K):
                p += sigma[i, k] * Y[i, k]
            scale = step / N / max(p, _LEAST)
            for k in range(K):
                x[k] = Y[i, k] + scale * sigma[i, k] + shift[k]
            project_row(x, Y[i])
        n_iter += 1
    return n_iter


@part()
def prices(c: Floats, weight: Floats, reverse: bool) -> Floats:
    """Return minus the gradient of the fairness term (K,) in the column sums c."""
    nu = np.empty(len(c))
    total = weight.sum()
    for k in range(len(c)):
        if reverse:  # N lam KL(c / N || u) has the gradient lam (log(c / (N u)) + 1)
            nu[k] = -total / c.sum() * (np.log(max(c[k], _LEAST) / c.sum() * total / weight[k]) + 1.0)
        else:
            nu[k] = weight[k] / max(c[k], _LEAST)
    return nu


@kernel()
def loss_and_gap(
    sigma: Floats, Y: Floats, weight: Floats, offset: Floats, reverse: bool
) -> tuple[float, float]:
    """Return N F(Y) and a bound on its distance to the minimum; both are infinite if F is."""
    p, c = collisions(sigma, Y), column_sums(Y, offset)
    nu = prices(c, weight, reverse)
    loss = fairness_loss(c, weight, reverse) - np.log(p).sum()
    if not np.isfinite(loss):
        return np.inf, np.inf
    if not reverse:
        return loss, loss - lower_bound(sigma, 1.0 / p, nu, weight, offset)
    # F is convex, so it lies above its tangent. The tangent is least at a corner of the simplex in every row.
    gap = -float(len(Y))
    for k in range(len(c)):
        gap -= nu[k] * (c[k] - offset[k])
    for i in range(len(Y)):
        gap += (sigma[i] / p[i] + nu).max()
    return loss, gap


@kernel()
def fairness_loss(c: Floats, weight: Floats, reverse: bool) -> float:
    """Return N lam times the divergence: KL(c / N || u) if `reverse`, else KL(u || c / N)."""
    total: float = 0.0
    if not reverse:
        total = fairness(c, weight)
        return total
    lam = weight.sum() / c.sum()
    for k in range(len(c)):
        total += lam * c[k] * np.log(max(c[k], _LEAST) * lam / weight[k])
    return total
