"""Exact pseudo-labels: a primal-dual interior-point method with long steps for eq. (11).

With the multipliers of `simplex` and z_ik >= 0 of y_ik >= 0, the conditions of optimality are linear,

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

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.collision.simplex import fairness
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
# Columns of a block of the Cholesky factor, and what replaces a pivot that is not positive.
_BLOCK, _HUGE = 16, 1e128
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

    S: Floats  # (K, K) its Cholesky factor
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
        See `simplex`. All of `start` must be positive. The labels use its memory.

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
        n_iter = _iterate(_Sweeps(rows, pool), nu, weight, offset, tol, max_iter)
    return start, rows.of[:, _PI].copy(), nu, n_iter


def _iterate(sweeps: _Sweeps, nu: Floats, weight: Floats, offset: Floats, tol: float, max_iter: int) -> int:
    """Improve the rows and the prices nu (K,) in place; return the number of iterations."""
    step = _Step(np.zeros_like(nu), 0.0, 0.0, 0.0)
    n_iter = vain = 0
    share = _SHARE
    sweeps.start(nu)
    now = _measure(sweeps, step, nu, weight, offset)
    while (
        n_iter < max_iter
        and vain < _VAIN
        and now.gap > tol * max(now.c.sum(), now.loss + fairness(now.c, weight))
    ):
        S, known = sweeps.advance(step)
        _factorised(S, now.c, nu, weight)
        system = _System(S, known, now.c, nu, weight, offset)
        mean = now.products / sweeps.rows.Y.size
        step, best = _search(sweeps, system, share * mean, now.gap, share)
        if step.length < _SHORT and share < _HIGHEST_SHARE:
            share = _HIGHEST_SHARE
            step, best = _search(sweeps, system, share * mean, now.gap, share)
        if best is None or not best.gap < now.gap:
            step, best = _search(sweeps, system, share * mean, now.gap, share, gently=True)
        if best is None or not best.gap < _WORSE * now.gap:
            step = _Step(step.dnu, 0.0, 0.0, 0.0)
            break
        vain = 0 if best.gap < now.gap else vain + 1
        now = best
        nu += step.length * step.dnu
        if step.length > _LONG:
            share = max(_LEAST_SHARE, _LOWER * share)
        elif step.length <= _SHORT:
            share = min(_HIGHEST_SHARE, share / _LOWER)
        n_iter += 1
    sweeps.finish(step)
    return n_iter


def _search(
    sweeps: _Sweeps, system: _System, target: float, now: float, share: float, gently: bool = False
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
    _solved(system.S, dnu)
    step, best = _Step(dnu, 0.0, target, target), None
    for length in _LENGTHS:
        prices = nu + length * dnu
        if (prices < _KEEP * nu).any():
            continue
        trial = _Step(dnu, length, target, target * length if gently else target)
        after = _measure(sweeps, trial, prices, weight, system.offset)
        if best is None or after.gap < best.gap:
            step, best = trial, after
        elif best.gap < now:
            break
        if after.gap <= (1.0 - _PROMISE * length * (1.0 - share)) * now:
            break
    return step, best


def _measure(sweeps: _Sweeps, step: _Step, prices: Floats, weight: Floats, offset: Floats) -> _Sums:
    """Return the sums after a step that ends at these prices."""
    products, gap, loss, c = sweeps.sums(step)
    c += offset
    return _Sums(products, gap + _fairness_gap(c, prices, weight), loss, c)


class _Sweeps:
    """Sweeps over all rows, in threads."""

    def __init__(self, rows: _Rows, pool: ThreadPoolExecutor) -> None:
        self.rows, self._pool = rows, pool
        size = max(1, _CHUNK // rows.Y.shape[1])
        self._chunks = [_Rows(*(array[i : i + size] for array in rows)) for i in range(0, len(rows.Y), size)]

    def _each(self, function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        """Yield what a function returns for each chunk, in order."""
        each = map if len(self._chunks) == 1 else self._pool.map
        return each(lambda chunk: function(chunk, *arguments), self._chunks)

    def start(self, nu: Floats) -> None:
        """Give pi and z their first values."""
        for _ in self._each(_start_rows, nu):
            pass

    def finish(self, step: _Step) -> None:
        """Take the last step."""
        for _ in self._each(_finish_rows, step):
            pass

    def sums(self, step: _Step) -> tuple[float, float, float, Floats]:
        """Return what `_sums_of_rows` does, for all rows."""
        products = gap = loss = 0.0
        c = np.zeros(self.rows.Y.shape[1])
        for chunk in self._each(_sums_of_rows, step):
            products, gap, loss = products + chunk[0], gap + chunk[1], loss + chunk[2]
            c += chunk[3]
        return products, gap, loss, c

    def advance(self, step: _Step) -> tuple[Floats, Floats]:
        """Take a step; return what `_advance_rows` does, for all rows."""
        K = self.rows.Y.shape[1]
        S, known = np.zeros((K, K)), np.zeros((2, K))
        for chunk in self._each(_advance_rows, step):
            S += chunk[0]
            known += chunk[1]
        return S, known


@part(fastmath=_FAST)
def _start_row(sigma: Floats, y: Floats, nu: Floats, z: Floats) -> float:
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


@part()
def _fairness_gap(c: Floats, nu: Floats, weight: Floats) -> float:
    """Return the part of the gap that comes from c nu = w."""
    gap = 0.0
    for k in range(len(c)):
        if weight[k] > 0.0:
            q = c[k] * nu[k] / weight[k]
            gap += weight[k] * (q - 1.0 - np.log(q))
    return gap


@part()
def _couple(S: Floats, c: Floats, nu: Floats, weight: Floats) -> None:
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


@part(fastmath=_FAST)
def _factorise(S: Floats) -> None:
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
def _solve(S: Floats, x: Floats) -> None:
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


@kernel()
def _factorised(S: Floats, c: Floats, nu: Floats, weight: Floats) -> None:
    """Complete the matrix of the prices, and factorise it in place."""
    _couple(S, c, nu, weight)
    _factorise(S)


@kernel()
def _solved(S: Floats, x: Floats) -> None:
    """Solve the system of the prices in place."""
    _solve(S, x)


@kernel()
def _start_rows(rows: _Rows, nu: Floats) -> None:
    """Give pi and z values that are feasible and near the path."""
    for i in range(len(rows.Y)):
        p = _start_row(rows.sigma[i], rows.Y[i], nu, rows.Z[i])
        rows.of[i, _P], rows.of[i, _PI] = p, 1.0 / p


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
def _finish_rows(rows: _Rows, step: _Step) -> None:
    """Take the last step."""
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
