"""Exact pseudo-labels: a primal-dual interior-point method for eq. (11).

With the multipliers of `simplex` and z_ik >= 0 of y_ik >= 0, the conditions of optimality are linear,

    z_i = gamma_i - sigma_i pi_i - nu,    sum_k y_ik = 1,    p_i = sigma_i . y_i,    c = sum_i y_i + offset,

but for the products y_ik z_ik = 0, p_i pi_i = 1 and c_k nu_k = w_k. Each logarithm is thus a pair whose
product is known instead of zero: the problem is a linear program whose central path ends at a weighted
centre, and Mehrotra's predictor-corrector does for it what it does for linear programs. Points stay feasible
on both sides, so that the duality gap is exact at every iteration,

    gap = sum y z + sum_i h(p_i pi_i) + sum_k w_k h(c_k nu_k / w_k),    h(q) = q - 1 - log q.

The Newton step. Let d = y/z in a row, omega = pi/p, bars be means weighted by d, and V = omega sum_k d_k
(sigma_k - sigma_bar)^2. On steps that keep the row's sum, diag(1/d) + omega sigma sigma' has the inverse

    P = diag(d) - d d' / sum(d) - omega e e' / (1 + V),    e = d (sigma - sigma_bar),

and dy_i = P_i (b_i + dnu) for a known b_i. Rows meet in the column sums alone, so that the prices solve

    (diag(c / nu) + S) dnu = known,    S = sum_i P_i,

which is K x K: O(M K^2 + K^3) for an iteration and O(M K) memory. Since P 1 = 0 the diagonal of S comes from
the rest of it, without the difference of large numbers that y -> one-hot brings about.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from consilience.kernels.simplex import Floats, column_sums, fairness

# Share of the way to the boundary that a step may go.
_BACK_OFF = 0.99
# Numbers in the buffer from which S is made (1 MB), and columns of a block of the Cholesky factor.
_BUFFER = 2**17
_BLOCK = 48
# How far gamma starts above its least feasible value: a share of the spread within the row, and of itself.
_MARGIN = 0.3
_LEAST_MARGIN = 1e-3
# Steps shorter than this are rounding.
_SHORTEST = 1e-10


class _Rows(NamedTuple):
    """All that belongs to rows; scalars of row i are in ``of[:, i]``."""

    sigma: Floats  # (M, K)
    Y: Floats  # (M, K)
    Z: Floats  # (M, K)
    dy: Floats  # (M, K)
    dz: Floats  # (M, K)
    D: Floats  # (M, K) y / z
    B: Floats  # (M, K) right-hand sides
    of: Floats  # (7, M), see below


# what the entries of _Rows.of are; the last is the residual of p pi = 1 over p
_P, _PI, _DPI, _SUM, _BAR, _OMEGA, _REST = range(7)


def interior_point(
    sigma: Floats, start: Floats, weight: Floats, offset: Floats, tol: float, max_iter: int
) -> tuple[Floats, Floats, Floats, int]:
    """Minimise eq. (11).

    Parameters
    ----------
    sigma : (M, K) array
        Predictions; rows sum to one.
    start : (M, K) array
        Labels to start from: positive rows that sum to one.
    weight : (K,) array
        w = N lam u, not all zero.
    offset : (K,) array
        Column sums of pinned labels.
    tol : float
        Duality gap to reach, relative to N max(1, F).
    max_iter : int

    Returns
    -------
    Y : (M, K) array
        Labels.
    pi : (M,) array
        Multipliers of the collision probabilities.
    nu : (K,) array
        Prices of the classes; `lower_bound` of `pi` and `nu` proves how good Y is.
    n_iter : int
    """
    Y = start.copy()
    size = Y.shape
    of = np.zeros((7, size[0]))
    Z, dy, dz, D, B = (np.zeros(size) for _ in range(5))
    rows = _Rows(sigma, Y, Z, dy, dz, D, B, of)
    nu, n_iter = _iterate(rows, weight, offset, tol, max_iter)
    Y /= Y.sum(axis=1, keepdims=True)
    return Y, of[_PI], nu, n_iter


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate(rows: _Rows, weight: Floats, offset: Floats, tol: float, max_iter: int) -> tuple[Floats, int]:
    """Improve `rows` in place; return the prices nu (K,) and the number of iterations."""
    M, K = rows.Y.shape
    nu = _set_out(rows, weight, offset)
    dnu, dc = np.zeros(K), np.zeros(K)
    S = np.empty((K, K))
    n_iter = 0
    while True:
        c = column_sums(rows.Y, offset)
        products, done = _measure(rows, c, nu, weight, tol)
        if done or n_iter == max_iter:
            break
        _add_rows(rows, S)
        for k in range(K):
            S[k, k] += c[k] / nu[k] if weight[k] > 0.0 else 0.0
        _leave_out(S, weight)
        _factorise(S)
        # predictor: straight at the solution; corrector: with the predictor's second-order terms
        _forget(rows, dnu, dc)
        _direction(rows, S, c, nu, weight, 0.0, dnu, dc)
        primal, dual = _longest_steps(rows, nu, dnu)
        left = _products_after(rows, min(1.0, primal), min(1.0, dual))
        target = products / (M * K) * (left / products) ** 3
        _direction(rows, S, c, nu, weight, target, dnu, dc)
        primal, dual = _longest_steps(rows, nu, dnu)
        if not min(primal, dual) > _SHORTEST:
            break
        primal, dual = min(1.0, _BACK_OFF * primal), min(1.0, _BACK_OFF * dual)
        _move(rows, primal, dual)
        nu += dual * dnu
        n_iter += 1
    return nu, n_iter


@njit(cache=True, nogil=True, error_model="numpy")
def _set_out(rows: _Rows, weight: Floats, offset: Floats) -> Floats:
    """Give pi, nu and z values that are feasible and near the path; return nu (K,)."""
    sigma, Y, Z, of = rows.sigma, rows.Y, rows.Z, rows.of
    nu: Floats = weight / column_sums(Y, offset)
    for i in range(len(Y)):
        p = 0.0
        for k in range(len(nu)):
            p += sigma[i, k] * Y[i, k]
        of[_PI, i] = 1.0 / p
        gamma = mean = 0.0
        for k in range(len(nu)):
            Z[i, k] = sigma[i, k] / p + nu[k]
            gamma = max(gamma, Z[i, k])
            mean += Y[i, k] * Z[i, k]
        gamma += _MARGIN * (gamma - mean) + _LEAST_MARGIN * gamma
        for k in range(len(nu)):
            Z[i, k] = gamma - Z[i, k]
    return nu


@njit(cache=True, nogil=True, error_model="numpy")
def _measure(rows: _Rows, c: Floats, nu: Floats, weight: Floats, tol: float) -> tuple[float, bool]:
    """Return sum y z, and whether the duality gap is within `tol`; set p."""
    products = gap = 0.0
    loss = fairness(c, weight)
    for i in range(len(rows.Y)):
        p = 0.0
        for k in range(len(c)):
            products += rows.Y[i, k] * rows.Z[i, k]
            p += rows.sigma[i, k] * rows.Y[i, k]
        q = p * rows.of[_PI, i]
        gap += q - 1.0 - np.log(q)
        loss -= np.log(p)
        rows.of[_P, i] = p
    for k in range(len(c)):
        if weight[k] > 0.0:
            q = c[k] * nu[k] / weight[k]
            gap += weight[k] * (q - 1.0 - np.log(q))
    return products, gap + products <= tol * max(c.sum(), loss)


@njit(cache=True, nogil=True, error_model="numpy")
def _add_rows(rows: _Rows, S: Floats) -> None:
    """Set S (K, K) to the sum of the P_i, and what `_project` needs of each row."""
    M, K = rows.Y.shape
    size = min(M, max(1, _BUFFER // (2 * K)))
    W = np.empty((2 * size, K))
    S[:] = 0.0
    for start in range(0, M, size):
        n = min(size, M - start)
        for i in range(start, start + n):
            _weigh(rows, i, W[2 * (i - start)], W[2 * (i - start) + 1])
        S -= np.dot(W[: 2 * n].T, W[: 2 * n])
    for k in range(K):
        S[k, k] = 0.0
        S[k, k] = -S[k].sum()


@njit(cache=True, nogil=True, error_model="numpy")
def _weigh(rows: _Rows, i: int, first: Floats, second: Floats) -> None:
    """Set d = y / z of row i, its means, and the two vectors (K,) whose outer products P_i subtracts."""
    sigma, D, of = rows.sigma, rows.D, rows.of
    total = bar = 0.0
    for k in range(len(first)):
        D[i, k] = rows.Y[i, k] / rows.Z[i, k]
        total += D[i, k]
        bar += D[i, k] * sigma[i, k]
    bar /= total
    V = 0.0
    for k in range(len(first)):
        V += D[i, k] * (sigma[i, k] - bar) ** 2
    omega = of[_PI, i] / of[_P, i]
    omega /= 1.0 + omega * V
    of[_SUM, i], of[_BAR, i], of[_OMEGA, i] = total, bar, omega
    one, other = 1.0 / np.sqrt(total), np.sqrt(omega)
    for k in range(len(first)):
        first[k] = one * D[i, k]
        second[k] = other * D[i, k] * (sigma[i, k] - bar)


@njit(cache=True, nogil=True, error_model="numpy")
def _leave_out(S: Floats, weight: Floats) -> None:
    """Keep the prices of classes without weight at zero."""
    for k in range(len(weight)):
        if weight[k] == 0.0:
            S[k] = 0.0
            S[:, k] = 0.0
            S[k, k] = 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _factorise(S: Floats) -> None:
    """Replace the lower triangle of S (K, K), in place, by its Cholesky factor.

    A pivot that rounding made non-positive becomes huge: its price then stands still for this step.
    """
    K = len(S)
    for start in range(0, K, _BLOCK):
        stop = min(K, start + _BLOCK)
        if start:
            done = np.ascontiguousarray(S[start:, :start])
            S[start:, start:stop] -= np.dot(done, done[: stop - start].T)
        for j in range(start, stop):
            for i in range(j, K):
                total = S[i, j]
                for k in range(start, j):
                    total -= S[i, k] * S[j, k]
                if i == j:
                    S[j, j] = np.sqrt(total) if total > 0.0 else 1e128
                else:
                    S[i, j] = total / S[j, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(S: Floats, x: Floats) -> None:
    """Solve L L' x = x in place, with L the lower triangle of S."""
    for i in range(len(x)):
        for k in range(i):
            x[i] -= S[i, k] * x[k]
        x[i] /= S[i, i]
    for i in range(len(x) - 1, -1, -1):
        x[i] /= S[i, i]
        for k in range(i):
            x[k] -= S[i, k] * x[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _project(rows: _Rows, i: int, shift: Floats, out: Floats) -> None:
    """Set `out` (K,) to P_i (b_i + shift).

    The entry of the largest d follows from the others, as the sum is zero: its own formula would cancel.
    """
    sigma, D, B = rows.sigma, rows.D, rows.B
    bar, mean, slope = rows.of[_BAR, i], 0.0, 0.0
    pivot = 0
    for k in range(len(out)):
        b = D[i, k] * (B[i, k] + shift[k])
        mean += b
        slope += b * (sigma[i, k] - bar)
        if D[i, k] > D[i, pivot]:
            pivot = k
    mean /= rows.of[_SUM, i]
    slope *= rows.of[_OMEGA, i]
    total = 0.0
    for k in range(len(out)):
        out[k] = D[i, k] * (B[i, k] + shift[k] - mean - slope * (sigma[i, k] - bar))
        total += out[k] if k != pivot else 0.0
    out[pivot] = -total


@njit(cache=True, nogil=True, error_model="numpy")
def _direction(
    rows: _Rows, S: Floats, c: Floats, nu: Floats, weight: Floats, target: float, dnu: Floats, dc: Floats
) -> None:
    """Take one Newton step towards y z = target, p pi = 1 and c nu = w; set dy, dz, dpi, dnu and dc.

    What they hold before is the predictor, whose products are the second-order terms.
    """
    sigma, Y, Z, dy, dz, of = rows.sigma, rows.Y, rows.Z, rows.dy, rows.dz, rows.of
    K = len(c)
    still, step, known = np.zeros(K), np.empty(K), np.zeros(K)
    for i in range(len(Y)):
        dp = 0.0
        for k in range(K):
            dp += sigma[i, k] * dy[i, k]
        rest = (1.0 - of[_P, i] * of[_PI, i] - dp * of[_DPI, i]) / of[_P, i]
        of[_REST, i] = rest
        for k in range(K):
            rows.B[i, k] = (target - dy[i, k] * dz[i, k]) / Y[i, k] - Z[i, k] + sigma[i, k] * rest
        _project(rows, i, still, step)
        for k in range(K):
            known[k] -= step[k]
    for k in range(K):
        if weight[k] > 0.0:
            known[k] += (weight[k] - dc[k] * dnu[k]) / nu[k] - c[k]
        else:
            known[k] = 0.0
    _solve(S, known)
    dnu[:] = known
    dc[:] = 0.0
    for i in range(len(Y)):
        _project(rows, i, dnu, dy[i])
        dp = 0.0
        for k in range(K):
            dp += sigma[i, k] * dy[i, k]
            dc[k] += dy[i, k]
            dz[i, k] = rows.B[i, k] - sigma[i, k] * of[_REST, i] - dy[i, k] / rows.D[i, k]
        of[_DPI, i] = of[_REST, i] - of[_PI, i] / of[_P, i] * dp


@njit(cache=True, nogil=True, error_model="numpy")
def _forget(rows: _Rows, dnu: Floats, dc: Floats) -> None:
    """Clear the last direction."""
    dnu[:] = 0.0
    dc[:] = 0.0
    rows.dy[:] = 0.0
    rows.of[_DPI] = 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _longest_steps(rows: _Rows, nu: Floats, dnu: Floats) -> tuple[float, float]:
    """Return how far labels, and how far multipliers, can go before one of them is negative."""
    primal = dual = 0.0  # the largest decrease, relative to the value
    for i in range(len(rows.Y)):
        for k in range(len(nu)):
            primal = max(primal, -rows.dy[i, k] / rows.Y[i, k])
            dual = max(dual, -rows.dz[i, k] / rows.Z[i, k])
        dual = max(dual, -rows.of[_DPI, i] / rows.of[_PI, i])
    for k in range(len(nu)):
        if nu[k] > 0.0:
            dual = max(dual, -dnu[k] / nu[k])
    return 1.0 / primal, 1.0 / dual


@njit(cache=True, nogil=True, error_model="numpy")
def _products_after(rows: _Rows, primal: float, dual: float) -> float:
    """Return what sum y z would be after steps of these lengths."""
    total = 0.0
    for i in range(len(rows.Y)):
        for k in range(rows.Y.shape[1]):
            total += (rows.Y[i, k] + primal * rows.dy[i, k]) * (rows.Z[i, k] + dual * rows.dz[i, k])
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _move(rows: _Rows, primal: float, dual: float) -> None:
    """Take the step."""
    for i in range(len(rows.Y)):
        for k in range(rows.Y.shape[1]):
            rows.Y[i, k] += primal * rows.dy[i, k]
            rows.Z[i, k] += dual * rows.dz[i, k]
        rows.of[_PI, i] += dual * rows.of[_DPI, i]
