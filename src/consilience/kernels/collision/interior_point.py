"""Exact pseudo-labels: a primal-dual interior-point method for eq. (11).

With the multipliers of `simplex` and z_ik >= 0 of y_ik >= 0, the conditions of optimality are linear,

    z_i = gamma_i - sigma_i pi_i - nu,    sum_k y_ik = 1,    p_i = sigma_i . y_i,    c = sum_i y_i + offset,

but for the products y_ik z_ik = 0, p_i pi_i = 1 and c_k nu_k = w_k. Each logarithm is thus a pair whose
product is known instead of zero: the problem is a linear program whose central path ends at a weighted
centre. Points stay feasible on both sides, so the duality gap is exact at every iteration,

    gap = sum y z + sum_i h(p_i pi_i) + sum_k w_k h(c_k nu_k / w_k),    h(q) = q - 1 - log q.

The Newton step towards y z = target. Let d = y/z in a row, omega = pi/p, bars be means weighted by d, and
V = omega sum_k d_k (sigma_k - sigma_bar)^2. On steps that keep the row's sum, diag(1/d) + omega sigma sigma'
has the inverse

    P = diag(d) - d d' / sum(d) - omega e e' / (1 + V),    e = d (sigma - sigma_bar),

and dy_i = P_i (b_i + dnu) for a known b_i. Rows are coupled by the column sums alone, so the prices solve

    (diag(c / nu) + S) dnu = known,    S = sum_i P_i,

which is K x K. Since P 1 = 0 the diagonal of S comes from the rest of it, without the differences of large
numbers that labels near one-hot would cause.

The length of the step. In a linear program, the one entry that would turn negative first limits the step of
all. Among millions of labels there always is one, and steps become short. But here rows are feasible each by
itself: whatever the prices are, a row that raises its gamma_i enough has z_i > 0, and labels that would be
negative can stay positive if the row is scaled to sum to one. So a step may be as long as the gap falls, and
the rows in its way are mended (`_move`). Rows are also kept near the path, each by the best gamma_i for its
labels: no product is below the target. This takes a fraction of the steps.

Labels and z are the only arrays of M x K: directions are computed again wherever they are needed, row by row
in the cache. Many labels are split into chunks of rows, for threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.collision.simplex import fairness
from consilience.kernels.compiled import in_kernels, kernel, part
from consilience.kernels.threads import kernel_threads, one_thread

# Numbers in the buffer from which S is made (1 MB), and columns of a block of the Cholesky factor.
_BUFFER = 2**17
_BLOCK = 16
# Replaces a pivot that is not positive.
_HUGE = 1e128
# Gamma starts this far above its least feasible value: a share of the spread within the row, and of itself.
_MARGIN = 0.3
_LEAST_MARGIN = 1e-3
# Lengths of a step, tried in this order. A length below _SHORT calls for a direction with a higher target.
_LENGTHS = np.array([1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.03, 0.003])
_SHORT = 0.4
# The target is a share of the mean product y z: the first, the least and the highest.
_SHARE, _LEAST_SHARE, _HIGHEST_SHARE = 0.1, 0.03, 0.6
# A step longer than this lowers the share of the next target, and a short one raises it, by this factor.
_LONG = 0.9
_LOWER = 0.3
# A length is taken at once if the gap falls by this share of what the target promises.
_PROMISE = 0.8
# After a step, products y z are at least the target, unless z is this multiple of it.
_ENOUGH = 1e4
# No label, price or pi falls to less than this share of itself in one step.
_KEEP = 0.02
_KEEP_PI = 0.1
# Stop after this many steps in a row that did not lower the gap: only rounding is left.
_VAIN = 5
# The other entries of d and the curvature of a label that counts as one-hot, relative to the largest d and to 1.
_STAR = 1e-3
# Labels of a chunk, and the work (M K^2) from which chunks go to threads.
_CHUNK = 2**20
_MANY = 3e8


class _Rows(NamedTuple):
    """The arrays that have an entry per row."""

    sigma: Floats  # (M, K)
    Y: Floats  # (M, K)
    Z: Floats  # (M, K)
    of: Floats  # (M, 7), see below


# what the columns of _Rows.of are; the last is the residual of p pi = 1 over p
_P, _PI, _SUM, _BAR, _OMEGA, _PIVOT, _REST = range(7)
# Sums may be taken in any order, which lets the compiler make vector instructions of them.
_FAST = {"reassoc", "contract", "nsz"}
_FAST_MAXIMA = _FAST | {"nnan"}


class _Step(NamedTuple):
    """A step along a direction."""

    dnu: Floats  # (K,)
    length: float
    target: float  # of y z


class _System(NamedTuple):
    """What determines the direction and the gap along it, besides the rows."""

    S: Floats  # (K, K) its Cholesky factor
    known: Floats  # (2, K), see `_advance_rows`
    c: Floats  # (K,)
    nu: Floats  # (K,)
    weight: Floats  # (K,)
    offset: Floats  # (K,)


def interior_point(
    sigma: Floats, start: Floats, weight: Floats, offset: Floats, tol: float, max_iter: int
) -> tuple[Floats, Floats, Floats, int]:
    """Minimise eq. (11).

    Parameters
    ----------
    sigma, start, weight, offset, tol, max_iter
        See `simplex`. All of `start` must be positive. Its memory is that of the labels returned.

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
    many = start.size * start.shape[1] >= _MANY
    with one_thread() if start.shape[1] >= _BLOCK else nullcontext():  # of BLAS: the products are small
        n_iter = (_iterate if many else _iterate_compiled)(rows, nu, weight, offset, tol, max_iter)
    return start, rows.of[:, _PI].copy(), nu, n_iter


def _iterate(rows: _Rows, nu: Floats, weight: Floats, offset: Floats, tol: float, max_iter: int) -> int:
    """Improve `rows` and the prices nu (K,) in place; return the number of iterations.

    Compiled, it is for few labels. As plain Python, for many: then the sweeps over rows run in threads.
    """
    M, K = rows.Y.shape
    S, known = np.empty((K, K)), np.empty((2, K))
    c, moved = np.empty(K), np.empty(K)
    step = _Step(np.zeros(K), 0.0, 0.0)
    n_iter = vain = 0
    share = _SHARE
    _start(rows, nu)
    products, gap, loss = _sums(rows, step, c)
    c += offset
    gap += _fairness_gap(c, nu, weight)
    while n_iter < max_iter and vain < _VAIN and gap > tol * max(c.sum(), loss + fairness(c, weight)):
        _advance(rows, step, S, known)
        _factorise(S, c, nu, weight)
        system = _System(S, known, c, nu, weight, offset)
        aim = products / (M * K)
        step, sums = _search(rows, system, share * aim, share, gap, moved)
        if step.length < _SHORT and share < _HIGHEST_SHARE:
            share = _HIGHEST_SHARE
            step, sums = _search(rows, system, share * aim, share, gap, moved)
        if not sums[1] < np.inf:
            step = _Step(step.dnu, 0.0, 0.0)
            break
        vain = 0 if sums[1] < gap else vain + 1
        products, gap, loss = sums
        nu += step.length * step.dnu
        c[:] = moved
        if step.length > _LONG:
            share = max(_LEAST_SHARE, _LOWER * share)
        elif step.length <= _SHORT:
            share = min(_HIGHEST_SHARE, share / _LOWER)
        n_iter += 1
    _finish(rows, step)
    return n_iter


_iterate_compiled = kernel()(_iterate)


@part(allocates=True)
def _search(
    rows: _Rows, system: _System, target: float, share: float, gap: float, moved: Floats
) -> tuple[_Step, tuple[float, float, float]]:
    """Find the best length of the step towards y z = target.

    Returns
    -------
    step : _Step
    sums : (products, gap, loss) after it; the gap is infinite if no length is possible. The column sums after
        it are in `moved`.
    """
    nu, weight = system.nu, system.weight
    dnu = system.known[0] + target * system.known[1]
    for k in range(len(nu)):
        dnu[k] = dnu[k] + weight[k] / nu[k] - system.c[k] if weight[k] > 0.0 else 0.0
    _solve(system.S, dnu)
    best = (0.0, np.inf, 0.0)
    step, c = _Step(dnu, 0.0, target), np.empty(len(nu))
    for length in _LENGTHS:
        prices = nu + length * dnu
        if (prices < _KEEP * nu).any():
            continue
        trial = _Step(dnu, length, target)
        products, total, loss = _sums(rows, trial, c)
        c += system.offset
        total += _fairness_gap(c, prices, weight)
        if not total < best[1]:
            break
        best, step = (products, total, loss), trial
        moved[:] = c
        if total <= (1.0 - _PROMISE * length * (1.0 - share)) * gap:
            break
    return step, best


@kernel(fastmath=_FAST)
def _start_rows(rows: _Rows, nu: Floats) -> None:
    """Give pi and z values that are feasible and near the path."""
    sigma, Y, Z = rows.sigma, rows.Y, rows.Z
    for i in range(len(Y)):
        p = 0.0
        for k in range(len(nu)):
            p += sigma[i, k] * Y[i, k]
        rows.of[i, _P], rows.of[i, _PI] = p, 1.0 / p
        gamma = mean = 0.0
        for k in range(len(nu)):
            Z[i, k] = sigma[i, k] / p + nu[k]
            gamma = max(gamma, Z[i, k])
            mean += Y[i, k] * Z[i, k]
        gamma += _MARGIN * (gamma - mean) + _LEAST_MARGIN * gamma
        for k in range(len(nu)):
            Z[i, k] = gamma - Z[i, k]


@part(fastmath=_FAST_MAXIMA)
def _move(rows: _Rows, i: int, step: _Step, y: Floats, z: Floats, d: Floats) -> tuple[float, float]:
    """Set y and z (K,) to those of row i after a step, with d (K,) for the work; return p and pi.

    Labels that would be negative stay positive. Then gamma becomes the least for which no product is below the
    target, labels too small for that rise, and the row is scaled to sum to one.
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
    bump = -_HUGE
    for k in range(K):
        y[k] = max(Y[k] + length * y[k], _KEEP * Y[k])
        z[k] = Z[k] + (rise - sigma[k] * dpi - length * dnu[k])
        bump = max(bump, min(step.target / y[k], _ENOUGH * step.target) - z[k])
    total = p = 0.0
    for k in range(K):
        z[k] += bump
        y[k] = max(y[k], step.target / z[k])
        total += y[k]
    total = 1.0 / total
    for k in range(K):
        y[k] *= total
        p += sigma[k] * y[k]
    return p, of[_PI] + dpi


@kernel(fastmath=_FAST)
def _sums_of_rows(rows: _Rows, step: _Step, c: Floats) -> tuple[float, float, float]:
    """Return sum y z and the rows' part of the gap and of the loss after a step, and set c to the column sums."""
    M, K = rows.Y.shape
    work = np.empty((3, K))
    y, z, d = work
    products = gap = loss = 0.0
    c[:] = 0.0
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
    return products, gap + products, loss


@part()
def _fairness_gap(c: Floats, nu: Floats, weight: Floats) -> float:
    """Return the part of the gap that comes from c nu = w."""
    gap = 0.0
    for k in range(len(c)):
        if weight[k] > 0.0:
            q = c[k] * nu[k] / weight[k]
            gap += weight[k] * (q - 1.0 - np.log(q))
    return gap


@kernel()
def _advance_rows(rows: _Rows, step: _Step, S: Floats, known: Floats) -> None:
    """Take a step, and set S (K, K) to the sum of the P_i, without its diagonal.

    `known` (2, K) becomes minus the sum of P_i b_i: the part of b without the target, and what the target is
    multiplied with.
    """
    M, K = rows.Y.shape
    size = min(M, max(1, _BUFFER // (2 * K)))
    W, work = np.empty((2 * size, K)), np.empty((3, K))
    stars = np.zeros((K, K))
    S[:] = 0.0
    known[:] = 0.0
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
    _STAR. This makes the direction a little less exact, and S much cheaper.
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
    return bool(total - d[pivot] > _STAR * total or omega * V > _STAR)


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


@kernel(fastmath=_FAST)
def _factorise(S: Floats, c: Floats, nu: Floats, weight: Floats) -> None:
    """Complete the matrix S (K, K) of the prices; replace its lower triangle by its Cholesky factor.

    The prices of classes without weight stay at zero. A pivot that rounding made non-positive becomes huge, so
    that its price does not change in this step.
    """
    _couple(S, c, nu, weight)
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


@kernel(fastmath=_FAST)
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


def _in_chunks(function: Callable[..., Any], rows: _Rows, *arguments: Any) -> Iterator[Any]:
    """Yield what a function returns for each chunk of rows, in order. The chunks are the same for any threads."""
    M, K = rows.Y.shape
    size = max(1, _CHUNK // K)
    chunks = [_Rows(*(array[i : i + size] for array in rows)) for i in range(0, M, size)]
    with ThreadPoolExecutor(kernel_threads()) as pool:
        yield from pool.map(lambda chunk: function(chunk, *arguments), chunks)


def _start(rows: _Rows, nu: Floats) -> None:
    for _ in _in_chunks(_start_rows, rows, nu):
        pass


def _finish(rows: _Rows, step: _Step) -> None:
    for _ in _in_chunks(_finish_rows, rows, step):
        pass


def _sums(rows: _Rows, step: _Step, c: Floats) -> tuple[float, float, float]:
    def of_chunk(chunk: _Rows) -> tuple[tuple[float, float, float], Floats]:
        column_sums = np.empty(len(c))
        return _sums_of_rows(chunk, step, column_sums), column_sums

    sums = np.zeros(3)
    c[:] = 0.0
    for of_rows, column_sums in _in_chunks(of_chunk, rows):
        sums += of_rows
        c += column_sums
    products, gap, loss = sums.tolist()
    return products, gap, loss


def _advance(rows: _Rows, step: _Step, S: Floats, known: Floats) -> None:
    def of_chunk(chunk: _Rows) -> tuple[Floats, Floats]:
        its_S, its_known = np.empty(S.shape), np.empty(known.shape)
        _advance_rows(chunk, step, its_S, its_known)
        return its_S, its_known

    S[:] = 0.0
    known[:] = 0.0
    for its_S, its_known in _in_chunks(of_chunk, rows):
        S += its_S
        known += its_known


# compiled, `_iterate` calls the kernels themselves
in_kernels(_start, _start_rows)
in_kernels(_finish, _finish_rows)
in_kernels(_sums, _sums_of_rows)
in_kernels(_advance, _advance_rows)
