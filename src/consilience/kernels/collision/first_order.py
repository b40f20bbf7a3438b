"""Pseudo-labels by first-order methods: the paper's EM, and its baseline.

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

EM: eq. (14) and Theorem 1, with the zero-support cases of Appendix B. The weights of the M step are
w_ik = w_k y_ik / c_k = lam u_k y_ik / ybar_k: the factor M that eq. (15) drops is in w = N lam u.

A row of eq. (15), -log(sigma . y) - sum_k w_ik log y_k, is least at y_k = w_ik / (A - sigma_k / x), where
A = 1 + sum_k w_ik and x = sigma . y, eq. (16). As printed it loses its digits where A is near sigma_k / x.
With r = sigma / max(sigma) and delta = A - max(sigma) / x in [0, A) it is

    y_k = w_ik / (A (1 - r_k) + r_k delta),

which adds non-negative numbers only. The sum F(delta) of the y_k falls, and 1 / F is concave and grows:
Newton steps on 1 / F = 1 approach from the left without overshooting, and a step from the right ends on the
left. Appendix B is delta = 0: what is left of the row's mass goes to a class of the largest sigma.

Projected gradient descent is the paper's baseline, for eqs. (10) and (11).
"""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import collisions, fairness, lower_bound
from consilience.kernels.compiled import kernel, part

# Labels of classes with a weight never fall below this: at zero a class would be lost (Property 1).
_FLOOR = 1e-250
# Iterations between two checks of the gap. A check costs as much as an iteration.
_LOOK = 10
_NEWTON_STEPS = 60
_ROUNDING = 1e-15
# Smaller collision probabilities and column sums are raised to this: the gradient has a pole at zero.
_LEAST = 1e-100


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
    p, c = collisions(sigma, Y), offset + Y.sum(axis=0)
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
    if not reverse:
        return float(fairness(c, weight))
    total, lam = 0.0, weight.sum() / c.sum()
    for k in range(len(c)):
        total += lam * c[k] * np.log(max(c[k], _LEAST) * lam / weight[k])
    return total


@kernel()
def expectation_maximisation(
    sigma: Floats, start: Floats, weight: Floats, offset: Floats, tol: float, max_iter: int
) -> tuple[Floats, int]:
    """Minimise eq. (11) by EM.

    Parameters
    ----------
    sigma, start, weight, offset, tol, max_iter
        See above. A zero in `start` can only become positive in the row's most probable class
        (Property 1).

    Returns
    -------
    Y : (M, K) array
        Labels.
    n_iter : int
    """
    Y = start.copy()
    M, K = Y.shape
    deltas, w = np.zeros(M), np.empty(K)
    for n_iter in range(max_iter):
        c = offset + Y.sum(axis=0)
        if n_iter % _LOOK == 0:
            loss, gap = loss_and_gap(sigma, Y, weight, offset, False)
            if gap <= tol * max(c.sum(), loss):
                return Y, n_iter
        for i in range(M):
            for k in range(K):
                w[k] = weight[k] * Y[i, k] / c[k] if weight[k] > 0.0 else 0.0
            deltas[i] = m_step(sigma[i], w, deltas[i], Y[i])
            for k in range(K):
                if w[k] > 0.0:
                    Y[i, k] = max(Y[i, k], _FLOOR)
    return Y, max_iter


@part()
def m_step(sigma: Floats, w: Floats, guess: float, y: Floats) -> float:
    """Set y (K,) to the minimum of -log(sigma . y) - sum_k w_k log y_k on the simplex; return its delta.

    Parameters
    ----------
    sigma : (K,) array
        A row of predictions, not all zero.
    w : (K,) array
        Weights, some of which may be zero.
    guess : float
        A first guess of delta; 0 if there is none.
    y : (K,) array
        Overwritten.
    """
    top, A, delta = sigma.max(), 1.0 + w.sum(), 0.0
    for k in range(len(w)):
        if sigma[k] == top:
            delta += w[k]  # F is at least this over delta, so the solution is not below it
    if delta == 0.0 and _fill(sigma / top, w, A, 0.0, y)[0] <= 1.0:
        y[np.argmax(sigma)] += 1.0 - y.sum()
        return 0.0
    least = delta
    delta = max(guess, least)
    r = sigma / top
    for _ in range(_NEWTON_STEPS):
        F, slope = _fill(r, w, A, delta, y)
        step = F * (F - 1.0) / slope
        if abs(F - 1.0) <= _ROUNDING * len(w) or not abs(step) > _ROUNDING * delta:
            break
        delta = max(least, delta + step)
    total = y.sum()
    for k in range(len(y)):
        y[k] /= total
    return delta


@part()
def _fill(r: Floats, w: Floats, A: float, delta: float, y: Floats) -> tuple[float, float]:
    """Set y for a delta; return its sum F and -dF/d delta."""
    total = slope = 0.0
    for k in range(len(w)):
        y[k] = 0.0
        if w[k] > 0.0:
            share = 1.0 / (A * (1.0 - r[k]) + r[k] * delta)
            y[k] = w[k] * share
            total += y[k]
            slope += y[k] * r[k] * share
    return total, slope


@kernel()
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
        See above. If `reverse`, all weights must be positive.
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
    M, K = Y.shape
    N = M + offset.sum()
    x = np.empty(K)
    for n_iter in range(max_iter):
        c = offset + Y.sum(axis=0)
        if n_iter % _LOOK == 0:
            loss, gap = loss_and_gap(sigma, Y, weight, offset, reverse)
            if np.isfinite(loss) and gap <= tol * max(N, loss):
                return Y, n_iter
        shift = step / N * prices(c, weight, reverse)
        for i in range(M):
            p = 0.0
            for k in range(K):
                p += sigma[i, k] * Y[i, k]
            scale = step / N / max(p, _LEAST)
            for k in range(K):
                x[k] = Y[i, k] + scale * sigma[i, k] + shift[k]
            project_row(x, Y[i])
    return Y, max_iter


@part()
def project_row(x: Floats, y: Floats) -> None:
    """Set y (K,) to the point of the simplex nearest to x (K,).

    Michelot's method: subtract the same number from all entries in use so that their sum is one, drop those
    that fall below zero, and repeat until none does. Entries more than one below the largest end at zero, so
    they are raised to there first: sums of huge entries would lose the differences that count.
    """
    top = x.max()
    total = 0.0
    for k in range(len(x)):
        y[k] = max(x[k] - top, -1.0)
        total += y[k]
    active, threshold = len(x), (total - 1.0) / len(x)
    for _ in range(len(x)):
        total, count = 0.0, 0
        for k in range(len(x)):
            if y[k] > threshold:
                total += y[k]
                count += 1
        if count == active:
            break
        active, threshold = count, (total - 1.0) / count
    for k in range(len(x)):
        y[k] = max(y[k] - threshold, 0.0)
