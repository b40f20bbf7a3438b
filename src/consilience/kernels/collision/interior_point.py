"""Exact pseudo-labels: a primal-dual interior-point method for eq. (11).

With the multipliers of `simplex` and z_ik >= 0 of y_ik >= 0, the conditions of optimality are linear,

    z_i = gamma_i - sigma_i pi_i - nu,    sum_k y_ik = 1,    p_i = sigma_i . y_i,    c = sum_i y_i + offset,

but for the products y_ik z_ik = 0, p_i pi_i = 1 and c_k nu_k = w_k. Each logarithm is thus a pair whose
product is known instead of zero: the problem is a linear program whose central path ends at a weighted
centre, and Mehrotra's predictor-corrector method applies to it as to linear programs. Points stay feasible
on both sides, so the duality gap is exact at every iteration,

    gap = sum y z + sum_i h(p_i pi_i) + sum_k w_k h(c_k nu_k / w_k),    h(q) = q - 1 - log q.

The Newton step. Let d = y/z in a row, omega = pi/p, bars be means weighted by d, and V = omega sum_k d_k
(sigma_k - sigma_bar)^2. On steps that keep the row's sum, diag(1/d) + omega sigma sigma' has the inverse

    P = diag(d) - d d' / sum(d) - omega e e' / (1 + V),    e = d (sigma - sigma_bar),

and dy_i = P_i (b_i + dnu) for a known b_i. Rows are coupled by the column sums alone, so the prices solve

    (diag(c / nu) + S) dnu = known,    S = sum_i P_i,

which is K x K: O(M K^2 + K^3) for an iteration. Since P 1 = 0 the diagonal of S comes from
the rest of it, without the differences of large numbers that labels near one-hot would cause.

One row can shorten the step of all, which costs many rows many steps: `long_steps` is for those.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.collision.simplex import column_sums, fairness
from consilience.kernels.compiled import kernel, part
from consilience.kernels.threads import one_thread

# A step may go this share of the way to the boundary.
_BACK_OFF = 0.995
# Numbers in the buffer from which S is made (1 MB), and columns of a block of the Cholesky factor.
_BUFFER = 2**17
_BLOCK = 16
# BLAS starts threads for products of more multiplications than this, and they cost more than they save.
_THREADED = 500_000
# Replaces a pivot that is not positive.
_HUGE = 1e128
# Gamma starts this far above its least feasible value: a share of the spread within the row, and of itself.
_MARGIN = 0.3
_LEAST_MARGIN = 1e-3
# Steps shorter than the first call for another direction; those shorter than the second are rounding.
_SHORT = 0.1
_SHORTEST = 1e-10
# The other directions aim at these shares of the mean product y z.
_ALONG = (0.5, 1.0)


class _Rows(NamedTuple):
    """The arrays that have an entry per row."""

    sigma: Floats  # (M, K)
    Y: Floats  # (M, K)
    Z: Floats  # (M, K)
    dy: Floats  # (M, K)
    dz: Floats  # (M, K)
    per_y: Floats  # (M, K) 1 / y
    D: Floats  # (M, K) y / z
    B: Floats  # (M, K) right-hand sides
    of: Floats  # (8, M), see below


# what the entries of _Rows.of are; the last is the residual of p pi = 1 over p
_P, _PI, _DPI, _SUM, _BAR, _OMEGA, _PIVOT, _REST = range(8)
# Sums may be taken in any order, which lets the compiler make vector instructions of them.
_FAST = {"reassoc", "contract", "nsz"}


def interior_point(
    sigma: Floats, start: Floats, weight: Floats, offset: Floats, tol: float, max_iter: int
) -> tuple[Floats, Floats, Floats, int]:
    """Minimise eq. (11).

    Parameters
    ----------
    sigma, start, weight, offset, tol, max_iter
        See `simplex`. All of `start` must be positive.

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
    of = np.zeros((8, size[0]))
    Z, dy, dz, per_y, D, B = (np.zeros(size) for _ in range(6))
    rows = _Rows(sigma, Y, Z, dy, dz, per_y, D, B, of)
    multiplications = min(2 * size[0] * size[1], _BUFFER) * size[1]
    with one_thread() if multiplications > _THREADED else nullcontext():
        nu, n_iter = _iterate(rows, weight, offset, tol, max_iter)
    Y /= Y.sum(axis=1, keepdims=True)
    return Y, of[_PI], nu, n_iter


@kernel()
def _iterate(rows: _Rows, weight: Floats, offset: Floats, tol: float, max_iter: int) -> tuple[Floats, int]:
    """Improve `rows` in place; return the prices nu (K,) and the number of iterations."""
    M, K = rows.Y.shape
    nu = weight / column_sums(rows.Y, offset)
    _start_multipliers(rows, nu)
    dnu, dc = np.zeros(K), np.zeros(K)
    S = np.empty((K, K))
    n_iter = 0
    products, gap, loss = _measure(rows, 0.0, 0.0)
    while n_iter < max_iter:
        c = column_sums(rows.Y, offset)
        if gap + fairness_gap(c, nu, weight) <= tol * max(c.sum(), loss + fairness(c, weight)):
            break
        _add_rows(rows, S)
        couple(S, c, nu, weight)
        factorise(S)
        # predictor: straight at the solution; corrector: with the predictor's second-order terms
        _clear_direction(rows, dnu, dc)
        primal, dual, left = _direction(rows, S, c, nu, weight, 0.0, dnu, dc)
        target = products / (M * K) * (left / products) ** 3
        primal, dual, left = _direction(rows, S, c, nu, weight, target, dnu, dc)
        # stuck at the boundary, where second-order terms mislead: go along the path, or else back towards it
        for share in _ALONG:
            if min(primal, dual) < _SHORT:
                _clear_direction(rows, dnu, dc)
                primal, dual, left = _direction(rows, S, c, nu, weight, share * products / (M * K), dnu, dc)
        if not min(primal, dual) > _SHORTEST:
            break
        primal, dual = min(1.0, _BACK_OFF * primal), min(1.0, _BACK_OFF * dual)
        products, gap, loss = _measure(rows, primal, dual)
        for k in range(K):
            nu[k] += dual * dnu[k]
        n_iter += 1
    return nu, n_iter


@part()
def _start_multipliers(rows: _Rows, nu: Floats) -> None:
    """Give pi and z values that are feasible and near the path."""
    for i in range(len(rows.Y)):
        rows.of[_PI, i] = 1.0 / start_row(rows.sigma[i], rows.Y[i], nu, rows.Z[i])


@part(fastmath=_FAST)
def start_row(sigma: Floats, y: Floats, nu: Floats, z: Floats) -> float:
    """Set z (K,) of a row so that it is feasible for pi = 1 / p, and near the path; return p."""
    p = gamma = mean = 0.0
    for k in range(len(nu)):
        p += sigma[k] * y[k]
    for k in range(len(nu)):
        z[k] = sigma[k] / p + nu[k]
        gamma = max(gamma, z[k])
        mean += y[k] * z[k]
    gamma += _MARGIN * (gamma - mean) + _LEAST_MARGIN * gamma
    for k in range(len(nu)):
        z[k] = gamma - z[k]
    return p


@part(fastmath=_FAST)
def _measure(rows: _Rows, primal: float, dual: float) -> tuple[float, float, float]:
    """Take a step; return sum y z, the rows' part of the gap and of the loss, and set p."""
    sigma, Y, Z, of = rows.sigma, rows.Y, rows.Z, rows.of
    products = gap = loss = 0.0
    for i in range(len(Y)):
        p = total = 0.0
        for k in range(Y.shape[1]):
            y = Y[i, k] + primal * rows.dy[i, k]
            z = Z[i, k] + dual * rows.dz[i, k]
            p += sigma[i, k] * y
            total += y * z
            Y[i, k], Z[i, k] = y, z
        of[_P, i] = p
        of[_PI, i] += dual * of[_DPI, i]
        q = p * of[_PI, i]
        products += total
        gap += q - 1.0 - np.log(q)
        loss -= np.log(p)
    return products, gap + products, loss


@part()
def fairness_gap(c: Floats, nu: Floats, weight: Floats) -> float:
    """Return the part of the gap that comes from c nu = w."""
    gap = 0.0
    for k in range(len(c)):
        if weight[k] > 0.0:
            q = c[k] * nu[k] / weight[k]
            gap += weight[k] * (q - 1.0 - np.log(q))
    return gap


@part(allocates=True)
def _add_rows(rows: _Rows, S: Floats) -> None:
    """Set S (K, K) to the sum of the P_i without its diagonal, and what `_project` needs of each row."""
    M, K = rows.Y.shape
    size = min(M, max(1, _BUFFER // (2 * K)))
    W = np.empty((2 * size, K))
    for start in range(0, M, size):
        n = min(size, M - start)
        for i in range(n):
            _weigh(rows, start + i, W[2 * i], W[2 * i + 1])
        part = np.dot(W[: 2 * n].T, W[: 2 * n])
        for k in range(K):
            for j in range(K):
                S[k, j] = (S[k, j] if start else 0.0) - part[k, j]


@part(fastmath=_FAST)
def _weigh(rows: _Rows, i: int, first: Floats, second: Floats) -> None:
    """Set d = y / z of row i, its means, and the two vectors (K,) whose outer products P_i subtracts."""
    sigma, D, of = rows.sigma, rows.D, rows.of
    total = bar = 0.0
    for k in range(len(first)):
        d = rows.Y[i, k] / rows.Z[i, k]
        rows.per_y[i, k] = 1.0 / rows.Y[i, k]
        total += d
        bar += d * sigma[i, k]
        D[i, k] = d
    bar /= total
    V = 0.0
    pivot = 0
    for k in range(len(first)):
        V += D[i, k] * (sigma[i, k] - bar) ** 2
    for k in range(len(first)):
        if D[i, k] > D[i, pivot]:
            pivot = k
    omega = of[_PI, i] / of[_P, i]
    omega /= 1.0 + omega * V
    of[_SUM, i], of[_BAR, i], of[_OMEGA, i], of[_PIVOT, i] = total, bar, omega, pivot
    one, other = 1.0 / np.sqrt(total), np.sqrt(omega)
    for k in range(len(first)):
        first[k] = one * D[i, k]
        second[k] = other * D[i, k] * (sigma[i, k] - bar)


@part()
def couple(S: Floats, c: Floats, nu: Floats, weight: Floats) -> None:
    """Complete the diagonal of S and add c / nu; keep the prices of classes without weight at zero."""
    for k in range(len(c)):
        total = 0.0
        for j in range(len(c)):
            total -= S[k, j] if j != k else 0.0
        S[k, k] = total + (c[k] / nu[k] if weight[k] > 0.0 else 0.0)
    for k in range(len(c)):
        if weight[k] == 0.0:
            for j in range(len(c)):
                S[k, j] = S[j, k] = 0.0
            S[k, k] = 1.0


@part(fastmath=_FAST, allocates=True)
def factorise(S: Floats) -> None:
    """Replace the lower triangle of S (K, K), in place, by its Cholesky factor.

    A pivot that rounding made non-positive becomes huge, so that its price does not change in this step.
    """
    K = len(S)
    column = np.empty(K)
    for start in range(0, K, _BLOCK):
        stop = min(K, start + _BLOCK)
        for i in range(start, K):
            for j in range(start, min(stop, i + 1)):
                total = 0.0
                for k in range(start):
                    total += S[i, k] * S[j, k]
                S[i, j] -= total
        for j in range(start, stop):
            S[j, j] = np.sqrt(S[j, j]) if S[j, j] > 0.0 else _HUGE
            for i in range(j + 1, K):
                S[i, j] /= S[j, j]
            for k in range(j + 1, stop):
                column[k] = S[k, j]
            for i in range(j + 1, K):
                for k in range(j + 1, stop):
                    S[i, k] -= S[i, j] * column[k]


@part(fastmath=_FAST)
def solve(S: Floats, x: Floats) -> None:
    """Solve L L' x = x in place, with L the lower triangle of S."""
    for i in range(len(x)):
        total = 0.0
        for k in range(i):
            total += S[i, k] * x[k]
        x[i] = (x[i] - total) / S[i, i]
    for i in range(len(x) - 1, -1, -1):
        x[i] /= S[i, i]
        for k in range(i):
            x[k] -= S[i, k] * x[i]


@part(fastmath=_FAST)
def _project(rows: _Rows, i: int, shift: Floats, out: Floats) -> tuple[float, float]:
    """Set `out` (K,) to P_i (b_i + shift); return m and s of P b = d (b - m - s (sigma - sigma_bar)).

    The entry of the largest d follows from the others, as the sum is zero: its own formula would cancel.
    """
    sigma, D, B = rows.sigma, rows.D, rows.B
    bar, mean, slope = rows.of[_BAR, i], 0.0, 0.0
    for k in range(len(out)):
        b = D[i, k] * (B[i, k] + shift[k])
        mean += b
        slope += b * (sigma[i, k] - bar)
    mean /= rows.of[_SUM, i]
    slope *= rows.of[_OMEGA, i]
    for k in range(len(out)):
        out[k] = D[i, k] * (B[i, k] + shift[k] - mean - slope * (sigma[i, k] - bar))
    total, pivot = 0.0, int(rows.of[_PIVOT, i])
    out[pivot] = 0.0
    for k in range(len(out)):
        total += out[k]
    out[pivot] = -total
    return mean, slope


@part(allocates=True)
def _direction(
    rows: _Rows, S: Floats, c: Floats, nu: Floats, weight: Floats, target: float, dnu: Floats, dc: Floats
) -> tuple[float, float, float]:
    """Set dy, dz, dpi, dnu and dc to the Newton step towards y z = target, p pi = 1 and c nu = w.

    What they hold before is the predictor, whose products are the second-order terms.

    Returns
    -------
    primal, dual : float
        How far labels and multipliers can go before one of them is negative.
    left : float
        What sum y z would be after such steps, of at most one.
    """
    known = _known(rows, target)
    for k in range(len(c)):
        if weight[k] > 0.0:
            known[k] += (weight[k] - dc[k] * dnu[k]) / nu[k] - c[k]
        else:
            known[k] = 0.0
    solve(S, known)
    fall = 0.0
    for k in range(len(c)):
        dnu[k] = known[k]
        dc[k] = 0.0
        if nu[k] > 0.0:
            fall = max(fall, -dnu[k] / nu[k])
    primal, dual, now, by_y, by_z, by_both = _spread(rows, dnu, dc)
    primal, dual = 1.0 / primal, 1.0 / max(dual, fall)
    y, z = min(1.0, primal), min(1.0, dual)
    return primal, dual, now + y * by_y + z * by_z + y * z * by_both


@part(fastmath=_FAST, allocates=True)
def _known(rows: _Rows, target: float) -> Floats:
    """Set the right-hand sides b of the rows; return minus the sum of P_i b_i (K,)."""
    sigma, dy, dz, of = rows.sigma, rows.dy, rows.dz, rows.of
    K = sigma.shape[1]
    still, step, known = np.zeros(K), np.empty(K), np.zeros(K)
    for i in range(len(sigma)):
        dp = 0.0
        for k in range(K):
            dp += sigma[i, k] * dy[i, k]
        rest = (1.0 - of[_P, i] * of[_PI, i] - dp * of[_DPI, i]) / of[_P, i]
        of[_REST, i] = rest
        for k in range(K):
            products = (target - dy[i, k] * dz[i, k]) * rows.per_y[i, k]
            rows.B[i, k] = products - rows.Z[i, k] + sigma[i, k] * rest
        _project(rows, i, still, step)
        for k in range(K):
            known[k] -= step[k]
    return known


@part(fastmath=_FAST | {"nnan"})
def _spread(rows: _Rows, dnu: Floats, dc: Floats) -> tuple[float, float, float, float, float, float]:
    """Set the rows' steps from that of the prices; return the largest relative falls of y and of z, pi, and
    the sums of y z, z dy, y dz and dy dz."""
    sigma, Y, Z, dy, dz, of = rows.sigma, rows.Y, rows.Z, rows.dy, rows.dz, rows.of
    primal = dual = now = by_y = by_z = by_both = 0.0
    for i in range(len(Y)):
        # this keeps the multipliers exactly feasible: they do not depend on the rounding of dy
        mean, slope = _project(rows, i, dnu, dy[i])
        pi = slope - of[_REST, i]
        gamma = mean - slope * of[_BAR, i]
        of[_DPI, i] = -pi
        for k in range(len(dnu)):
            dz[i, k] = gamma + sigma[i, k] * pi - dnu[k]
        for k in range(len(dnu)):
            dc[k] += dy[i, k]
        for k in range(len(dnu)):
            per_y = rows.per_y[i, k]
            primal = max(primal, -dy[i, k] * per_y)
            dual = max(dual, -dz[i, k] * rows.D[i, k] * per_y)
            now += Y[i, k] * Z[i, k]
            by_y += dy[i, k] * Z[i, k]
            by_z += dz[i, k] * Y[i, k]
            by_both += dy[i, k] * dz[i, k]
        dual = max(dual, -of[_DPI, i] / of[_PI, i])
    return primal, dual, now, by_y, by_z, by_both


@part()
def _clear_direction(rows: _Rows, dnu: Floats, dc: Floats) -> None:
    """Clear the last direction."""
    for i in range(len(rows.Y)):
        rows.of[_DPI, i] = 0.0
        for k in range(len(dc)):
            rows.dy[i, k] = 0.0
    for k in range(len(dc)):
        dnu[k] = dc[k] = 0.0
