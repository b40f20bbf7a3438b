"""Exact pseudo-labels: a primal-dual interior-point method with long steps for eq. (11).

With the multipliers of `first_order` and z_ik >= 0 of y_ik >= 0, the conditions of optimality are linear,

    z_i = gamma_i - sigma_i pi_i - nu,    sum_k y_ik = 1,    p_i = sigma_i . y_i,    c = sum_i y_i + offset,

but for the products y_ik z_ik = 0, p_i pi_i = 1 and c_k nu_k = w_k. Each logarithm is thus a pair whose
product is known instead of zero. Points stay feasible on both sides, so the duality gap is exact at every
iteration,

    gap = sum y z + sum_i h(p_i pi_i) + sum_k w_k h(c_k nu_k / w_k),    h(q) = q - 1 - log q.

The Newton step. Let d = y/z in a row, omega = pi/p, bars be means weighted by d, and V = omega sum_k d_k
(sigma_k - sigma_bar)^2. On steps that keep the row's sum, diag(1/d) + omega sigma sigma' has the inverse

    P = diag(d) - d d' / sum(d) - omega e e' / (1 + V),    e = d (sigma - sigma_bar),

and dy_i = P_i (b_i + dnu) for a known b_i, towards y z = target, a share of the mean product. Rows are
coupled by the column sums alone, so the prices solve

    (diag(c / nu) + S) dnu = known,    S = sum_i P_i,

which is K x K: O(M K^2 + K^3) for an iteration. Since P 1 = 0 the diagonal of S comes from the rest of it,
without the differences of large numbers that labels near one-hot would cause. Such labels are cheap in S:
there P_i is d in the row and the column of its largest entry, and nothing else.

Long steps. The one label or multiplier that would turn negative first usually limits the step of all. Among
millions of labels there always is one. But here the rows are feasible each by itself: whatever the prices
are, z_i > 0 once gamma_i is large enough, and labels that would be negative can stay positive if their row is
scaled to sum to one. So a step is as long as the duality gap falls, and the rows in its way are mended. All
rows are kept near the path, too: each takes the least gamma_i for which no product y z is below the target.

Labels and z are the only arrays (M, K). Directions are not kept: each sweep over the rows computes them anew,
a row at a time in the cache. Sweeps of many rows run in threads, on the same chunks for any number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import pinvh
from scipy.linalg.lapack import dpotrf, dpotrs

from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import fairness
from consilience.kernels.compiled import kernel, kernel_threads, one_thread, part

# Lengths of a step, tried in this order.
_LENGTHS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.03, 0.003)
# A length is taken at once if the gap falls by this share of what the target promises.
_PROMISE = 0.8
# The target as a share of the mean product y z: the first, the least and the highest.
_SHARE, _LEAST_SHARE, _HIGHEST_SHARE = 0.1, 0.03, 0.6
# Long steps lower the share by this factor, and short ones raise it.
_LONG, _SHORT = 0.9, 0.4
_LOWER = 0.3
# After a step, products y z are at least the target, unless z is this multiple of it.
_ENOUGH = 1e4
# No label or price falls to less than this share of itself in one step; for pi it is the second.
_KEEP, _KEEP_PI = 0.02, 0.1
# Stop at a step that raises the gap by this factor, or after so many steps in a row that do not lower it:
# only rounding is left.
_WORSE = 2.0
_VAIN = 5
# What counts as nearly one-hot: the rest of d relative to its sum, and the curvature V of the row.
_ONE_HOT = 1e-3
# Numbers in the buffer from which S is made (1 MB), and labels in a chunk.
_BUFFER = 2**17
_CHUNK = 2**19
# Gamma starts this far above its least feasible value: a share of the spread within the row, and of itself.
_MARGIN, _LEAST_MARGIN = 0.3, 1e-3
# Below all numbers that a maximum is taken of.
_LOW = -1e300
# Sums may be taken in any order, which lets the compiler make vector instructions of them.
_FAST = {"reassoc", "contract", "nsz"}
_FAST_MAXIMA = _FAST | {"nnan"}


class _Rows(NamedTuple):
    """The arrays that have an entry per row."""

    sigma: Floats  # (M, K)
    Y: Floats  # (M, K)
    Z: Floats  # (M, K)
    of: Floats  # (M, 7), see below


# what the columns of _Rows.of are; the last is the residual of p pi = 1 over p
_P, _PI, _SUM, _BAR, _OMEGA, _PIVOT, _REST = range(7)


class _Step(NamedTuple):
    """A step along a direction."""

    dnu: Floats  # (K,)
    length: float
    target: float  # of y z
    floor: float  # of y z after the step


class _System(NamedTuple):
    """What determines the direction and the gap along it, besides the rows."""

    solve: Callable[[Floats], Floats]  # the prices for a right-hand side
    known: Floats  # (2, K), see `_advance_rows`
    c: Floats  # (K,)
    nu: Floats  # (K,)
    weight: Floats  # (K,)
    offset: Floats  # (K,)


class _Sums(NamedTuple):
    """How good labels and multipliers are."""

    products: float  # sum y z
    gap: float
    loss: float  # without fairness
    c: Floats  # (K,) column sums


def interior_point(
    sigma: Floats, start: Floats, weight: Floats, offset: Floats, tol: float, max_iter: int
) -> tuple[Floats, Floats, Floats, int]:
    """Minimise eq. (11).

    Parameters
    ----------
    sigma, start, weight, offset, tol, max_iter
        See `first_order`. All of `start` must be positive. The labels use its memory.

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
    rows = _Rows(sigma, start, np.empty_like(start), np.zeros((len(start), 7)))
    nu = weight / (start.sum(axis=0) + offset)
    with one_thread(), ThreadPoolExecutor(kernel_threads()) as pool:
        n_iter = _iterate(_sweeps_over(rows, pool), nu, weight, offset, tol, max_iter)
    return start, rows.of[:, _PI].copy(), nu, n_iter


# a sweep over all rows: applies a function of rows and more arguments to chunks of them, in threads
_Sweep = Callable[..., list[Any]]


def _sweeps_over(rows: _Rows, pool: ThreadPoolExecutor) -> _Sweep:
    size = max(1, _CHUNK // rows.Y.shape[1])
    chunks = [_Rows(*(array[i : i + size] for array in rows)) for i in range(0, len(rows.Y), size)]
    each = map if len(chunks) == 1 else pool.map
    return lambda function, *arguments: list(each(lambda chunk: function(chunk, *arguments), chunks))


def _total(sweep: _Sweep, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return the sums over chunks of what a function returns for each."""
    return [sum(parts) for parts in zip(*sweep(function, *arguments), strict=True)]


def _iterate(sweep: _Sweep, nu: Floats, weight: Floats, offset: Floats, tol: float, max_iter: int) -> int:
    """Improve the rows and the prices nu (K,) in place; return the number of iterations."""
    step = _Step(np.zeros_like(nu), 0.0, 0.0, 0.0)
    n_iter = vain = 0
    share = _SHARE
    size = sum(sweep(_start_rows, nu))
    now = _measure(sweep, step, nu, weight, offset)
    while (
        n_iter < max_iter
        and vain < _VAIN
        and now.gap > tol * max(now.c.sum(), now.loss + fairness(now.c, weight))
    ):
        S, known = _total(sweep, _advance_rows, step)
        system = _System(_price_solver(S, now.c, nu, weight), known, now.c, nu, weight, offset)
        mean = now.products / size
        step, best = _search(sweep, system, share * mean, now.gap, share)
        if step.length < _SHORT and share < _HIGHEST_SHARE:
            share = _HIGHEST_SHARE
            step, best = _search(sweep, system, share * mean, now.gap, share)
        if best is None or not best.gap < now.gap:
            step, best = _search(sweep, system, share * mean, now.gap, share, gently=True)
        if best is None or not best.gap < _WORSE * now.gap:
            return n_iter
        vain = 0 if best.gap < now.gap else vain + 1
        now = best
        nu += step.length * step.dnu
        if step.length > _LONG:
            share = max(_LEAST_SHARE, _LOWER * share)
        elif step.length <= _SHORT:
            share = min(_HIGHEST_SHARE, share / _LOWER)
        n_iter += 1
    sweep(_take_rows, step)
    return n_iter


def _search(
    sweep: _Sweep, system: _System, target: float, now: float, share: float, gently: bool = False
) -> tuple[_Step, _Sums | None]:
    """Return the best step towards y z = target and the sums after it; None if no length is possible.

    Parameters
    ----------
    now : float
        The gap.
    share : float
        What is left of it if the target is reached.
    gently : bool
        Lift products in proportion to the length of the step only. A short step then hardly changes anything,
        so the gap falls; but rows come back to the path slowly.
    """
    weight, nu = system.weight, system.nu
    used = weight > 0.0
    dnu = np.where(used, system.known[0] + target * system.known[1] - system.c, 0.0)
    dnu[used] += weight[used] / nu[used]
    dnu = system.solve(dnu)
    step, best = _Step(dnu, 0.0, target, target), None
    for length in _LENGTHS:
        prices = nu + length * dnu
        if (prices < _KEEP * nu).any():
            continue
        trial = _Step(dnu, length, target, target * length if gently else target)
        after = _measure(sweep, trial, prices, weight, system.offset)
        if best is None or after.gap < best.gap:
            step, best = trial, after
        elif best.gap < now:
            break
        if after.gap <= (1.0 - _PROMISE * length * (1.0 - share)) * now:
            break
    return step, best


def _measure(sweep: _Sweep, step: _Step, prices: Floats, weight: Floats, offset: Floats) -> _Sums:
    """Return the sums after a step that ends at these prices."""
    products, gap, loss, c = _total(sweep, _sums_of_rows, step)
    c = c + offset
    used = weight > 0.0
    q = c[used] * prices[used] / weight[used]
    return _Sums(products, gap + float(weight[used] @ (q - 1.0 - np.log(q))), loss, c)


def _price_solver(S: Floats, c: Floats, nu: Floats, weight: Floats) -> Callable[[Floats], Floats]:
    """Return what solves diag(c / nu) + S for prices, where those of classes without weight stay zero."""
    used = weight > 0.0
    np.fill_diagonal(S, 0.0)
    np.fill_diagonal(S, np.divide(c, nu, out=np.zeros_like(c), where=used) - S.sum(axis=1))
    S[~used] = S[:, ~used] = 0.0
    S[~used, ~used] = 1.0
    factor, failed = dpotrf(S, lower=1)
    if failed:  # rounding made a pivot negative: along directions without curvature, prices stay
        return pinvh(S, check_finite=False).__matmul__  # type: ignore[no-any-return]
    return lambda known: np.asarray(dpotrs(factor, known, lower=1)[0])


@kernel(fastmath=_FAST)
def _start_rows(rows: _Rows, nu: Floats) -> int:
    """Give z feasible values, for pi = 1 / p, that are near the path; return how many there are."""
    for i in range(len(rows.Y)):
        sigma, y, z = rows.sigma[i], rows.Y[i], rows.Z[i]
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
        rows.of[i, _P], rows.of[i, _PI] = p, 1.0 / p
    return int(rows.Y.size)


@part(fastmath=_FAST_MAXIMA)
def _move(rows: _Rows, i: int, step: _Step, y: Floats, z: Floats, d: Floats) -> tuple[float, float]:
    """Set y and z (K,) to those of row i after a step, with d (K,) for the work; return p and pi.

    Labels that would be negative stay positive. Then gamma becomes the least for which no product is below
    the target, labels too small for that rise, and the row is scaled to sum to one.
    """
    sigma, Y, Z, of = rows.sigma[i], rows.Y[i], rows.Z[i], rows.of[i]
    K, length, dnu = len(y), step.length, step.dnu
    bar, rest, mean, slope = of[_BAR], of[_REST], 0.0, 0.0
    for k in range(K):
        per_z = 1.0 / Z[k]
        d[k] = Y[k] * per_z
        y[k] = step.target * per_z - Y[k] + d[k] * (sigma[k] * rest + dnu[k])
        mean += y[k]
        slope += y[k] * (sigma[k] - bar)
    mean /= of[_SUM]
    slope *= of[_OMEGA]
    total = 0.0
    for k in range(K):
        y[k] -= d[k] * (mean + slope * (sigma[k] - bar))
        total += y[k]
    # the entry of the largest d follows from the others, as the sum is zero: its own formula would cancel
    pivot = int(of[_PIVOT])
    y[pivot] -= total
    # this keeps the multipliers exactly feasible: they do not depend on the rounding of the labels
    dpi = max(length * (rest - slope), (_KEEP_PI - 1.0) * of[_PI])
    rise = length * (mean - slope * bar)
    bump, floor = _LOW, step.floor
    for k in range(K):
        y[k] = max(Y[k] + length * y[k], _KEEP * Y[k])
        z[k] = Z[k] + (rise - sigma[k] * dpi - length * dnu[k])
        bump = max(bump, min(floor / y[k], _ENOUGH * floor) - z[k])
    total = p = 0.0
    for k in range(K):
        z[k] += bump
        y[k] = max(y[k], floor / z[k])
        total += y[k]
    total = 1.0 / total
    for k in range(K):
        y[k] *= total
        p += sigma[k] * y[k]
    return p, of[_PI] + dpi


@kernel(fastmath=_FAST)
def _sums_of_rows(rows: _Rows, step: _Step) -> tuple[float, float, float, Floats]:
    """Return sum y z, the rows' parts of the gap and of the loss, and the column sums (K,) after a step."""
    M, K = rows.Y.shape
    y, z, d, c = np.empty(K), np.empty(K), np.empty(K), np.zeros(K)
    products = gap = loss = 0.0
    for i in range(M):
        if step.length > 0.0:
            p, pi = _move(rows, i, step, y, z, d)
        else:
            y[:], z[:] = rows.Y[i], rows.Z[i]
            p, pi = rows.of[i, _P], rows.of[i, _PI]
        for k in range(K):
            c[k] += y[k]
            products += y[k] * z[k]
        gap += p * pi - 1.0 - np.log(p * pi)
        loss -= np.log(p)
    return products, gap + products, loss, c


@kernel()
def _advance_rows(rows: _Rows, step: _Step) -> tuple[Floats, Floats]:
    """Take a step; return S (K, K), the sum of the P_i without its diagonal, and minus the sum of P_i b_i.

    The latter has two parts (2, K): that without the target, and that which is multiplied with it.
    """
    M, K = rows.Y.shape
    size = min(M, max(1, _BUFFER // (2 * K)))
    W, work = np.empty((2 * size, K)), np.empty((3, K))
    S, stars, known = np.zeros((K, K)), np.zeros((K, K)), np.zeros((2, K))
    n = 0
    for i in range(M):
        _take(rows, i, step, work)
        if _weigh(rows, i, W[2 * n], W[2 * n + 1], known, work):
            n += 1
        else:
            pivot = int(rows.of[i, _PIVOT])
            for k in range(K):
                stars[pivot, k] += work[0, k]
        if n == size or (i == M - 1 and n > 0):
            S -= np.dot(W[: 2 * n].T, W[: 2 * n])
            n = 0
    for k in range(K):
        for j in range(K):
            S[k, j] -= stars[k, j] + stars[j, k]
    return S, known


@kernel()
def _take_rows(rows: _Rows, step: _Step) -> None:
    """Take a step in all rows."""
    work = np.empty((3, rows.Y.shape[1]))
    for i in range(len(rows.Y)):
        _take(rows, i, step, work)


@part()
def _take(rows: _Rows, i: int, step: _Step, work: Floats) -> None:
    """Take a step in row i."""
    if step.length > 0.0:
        p, pi = _move(rows, i, step, work[0], work[1], work[2])
        rows.of[i, _P], rows.of[i, _PI] = p, pi
        for k in range(work.shape[1]):
            rows.Y[i, k], rows.Z[i, k] = work[0, k], work[1, k]


@part(fastmath=_FAST)
def _weigh(rows: _Rows, i: int, first: Floats, second: Floats, known: Floats, work: Floats) -> bool:
    """Set what `_move` needs of row i, the two vectors (K,) whose outer products P_i subtracts, and `known`.

    Return False if the label is so near one-hot that P_i is d in the row and the column of the pivot, up to
    _ONE_HOT. This makes the direction a little less exact, and S much cheaper.
    """
    sigma, Y, Z, of, d, K = rows.sigma[i], rows.Y[i], rows.Z[i], rows.of[i], work[0], len(first)
    total = bar = V = 0.0
    for k in range(K):
        d[k] = Y[k] / Z[k]
        total += d[k]
        bar += d[k] * sigma[k]
    bar /= total
    for k in range(K):
        V += d[k] * (sigma[k] - bar) ** 2
    pivot = 0
    for k in range(K):
        if d[k] > d[pivot]:
            pivot = k
    omega = of[_PI] / of[_P]
    omega /= 1.0 + omega * V
    rest = (1.0 - of[_P] * of[_PI]) / of[_P]
    of[_SUM], of[_BAR], of[_OMEGA], of[_PIVOT], of[_REST] = total, bar, omega, pivot, rest
    one, other = 1.0 / np.sqrt(total), np.sqrt(omega)
    for k in range(K):
        first[k] = one * d[k]
        second[k] = other * d[k] * (sigma[k] - bar)
        work[1, k] = d[k] * sigma[k] * rest - Y[k]
        work[2, k] = 1.0 / Z[k]
    for j in range(2):
        _subtract_projection(work[1 + j], d, sigma, of, known[j])
    return bool(total - d[pivot] > _ONE_HOT * total or omega * V > _ONE_HOT)


@part(fastmath=_FAST)
def _subtract_projection(b: Floats, d: Floats, sigma: Floats, of: Floats, known: Floats) -> None:
    """Subtract P_i b from `known` (K,), for d b given as `b` (K,)."""
    bar, mean, slope, left = of[_BAR], 0.0, 0.0, 0.0
    for k in range(len(b)):
        mean += b[k]
        slope += b[k] * (sigma[k] - bar)
    mean /= of[_SUM]
    slope *= of[_OMEGA]
    for k in range(len(b)):
        out = b[k] - d[k] * (mean + slope * (sigma[k] - bar))
        known[k] -= out
        left += out
    known[int(of[_PIVOT])] += left  # as in `_move`
