"""Entropic optimal transport between rows of distributions with one cost matrix, in scaling form.

Letters, after "Selective Cross-Task Distillation": a = p_T (n, m) and b = p_S (n, k) are the
distributions of the teacher and of the student, M (m, k) the cost, K = exp(-M / epsilon), alpha and beta the
duals of eq. (13), u = exp(alpha / epsilon) and v = exp(beta / epsilon) the scalings of eq. (19). One
iteration is eq. (20),

    u = a / (K v),    v = b / (K^T u),

two matrix products for a whole block of rows. Three things make it fast:

- *Over-relaxation.* A plain step multiplies a scaling by some r; ours multiplies it by about r^omega, with
  omega above 1. Each row chooses omega from the speed at which its error falls. The fixed point is the same.
- *Retirement.* Rows that have converged leave the block.
- *Single precision* for all but the last iteration, if exp(-M / epsilon) fits. The last iteration is plain,
  in double precision, and measures the error.

The error of a row is the L1 distance of the plan's marginals from a and b. It needs no extra product: after a
plain update of u the row sums are right, and the column sums are v * (K^T u). Correcting these moves the row
sums by at most the error of the column sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel, threads_for
from consilience.kernels.elementary import log
from consilience.kernels.transport.sinkhorn_log import (
    COOLING,
    FIRST_STEP,
    GAP,
    LARGEST_STEP,
    ROUGH,
    ROUGH_ITERATIONS,
    SMOOTH,
    next_step,
    solve_in_log_domain,
)

Array = NDArray[Any]

REGULARISERS = ("entropy", "kl")

# The largest range of M / epsilon. Intermediate scalings and products reach the square of its exponential,
# times the number of classes; exp(88) and exp(709) still fit.
RANGE = {"float32": 36.0, "float64": 340.0}
# below this error rounding dominates: a row that stops improving is left to the next stage
FLOOR = {"float32": 1e-5, "float64": 1e-11}
ERROR, STEP, _REFERENCE, _LARGEST, _STOPPED = range(5)  # columns of `control`, the state of each row
_STALLED = 0.7  # a row has stalled if more than this share of its error is left at the next check
_TOL_SINGLE = 1e-6  # the error that single precision reaches
_TINY = 1e-37  # added to scalings, to avoid 0 / 0
_BLOCK = 1 << 15  # numbers in each array of a block: five such arrays stay in a core's cache


class Solution(NamedTuple):
    """Duals of eq. (13), with their value and error, one row per problem.

    Alpha belongs to the cost minus its smallest entry. If costs are large and vary little, adding that entry
    back would round away the differences that make the plan. Where a probability is zero, the dual is the
    soft c-transform, -epsilon log((K^T u)_n) for beta, which is epsilon log v_n minus epsilon log b_n. The
    entries of beta sum to zero.
    """

    alpha: Floats  # (n, m)
    beta: Floats  # (n, k)
    value: Floats  # (n,) with the regularizer of eq. (5)
    residual: Floats  # (n,) L1 error of the marginals
    n_iter: NDArray[np.int64]  # (n,)

    def take(self, rows: slice | NDArray[np.intp]) -> Solution:
        """Return some rows: views for a slice, copies for indices."""
        return Solution(*(cast(Any, part)[rows] for part in self))

    def put(self, rows: NDArray[np.intp], solution: Solution) -> None:
        """Replace some rows."""
        for part, values in zip(self, solution, strict=True):
            cast(Any, part)[rows] = values


def solve(
    a: Floats, b: Floats, cost: Floats, epsilon: float, tol: float, max_iter: int, start: Floats | None = None
) -> Solution:
    """Solve eq. (13) in each row until its marginals are right to `tol`.

    Parameters
    ----------
    a, b : (n, m) and (n, k) arrays
        Distributions. Entries may be zero; rows sum to one.
    cost : (m, k) array
    epsilon, tol : float
    max_iter : int
    start : (n, k) array, optional
        Duals beta to start from. A row with NaN starts from scratch.

    Returns
    -------
    Solution
        All NaN if M / epsilon is not finite, and NaN in rows that contain NaN.
    """
    lowest = float(cost.min())
    with np.errstate(over="ignore", invalid="ignore"):
        log_k = (lowest - cost) / epsilon
    n = len(a)
    out = Solution(np.empty_like(a), np.empty_like(b), np.empty(n), np.empty(n), np.zeros(n, dtype=np.int64))
    if not np.isfinite(log_k).all():
        for part in out[:4]:
            part[:] = np.nan
        return out
    if -log_k.min() > RANGE["float64"]:
        out.residual[:] = np.nan
    else:
        size = max(1, _BLOCK // max(cost.shape))
        with threads_for(size * cost.size):
            for low in range(0, len(a), size):
                rows = slice(low, low + size)
                begin = _log_start(b[rows], epsilon, None if start is None else start[rows])
                _solve_block(a[rows], b[rows], log_k, tol, max_iter, begin, out.take(rows))
    lost = np.flatnonzero(~np.isfinite(out.residual))
    if len(lost):  # rows that overflow in scaling form
        begin = _log_start(b[lost], epsilon, None if start is None else start[lost])
        spent = np.minimum(out.n_iter[lost], max_iter - 1)
        out.put(lost, _solve_in_logs(a[lost], b[lost], log_k, tol, max_iter, begin, spent))
    _finish(a, b, epsilon, lowest, out.alpha, out.beta, out.value)
    return out


def plan(a: Floats, b: Floats, cost: Floats, epsilon: float, alpha: Floats, beta: Floats) -> Floats:
    """Return the plan T (m, k) of one row, eq. (18), from the alpha (m,) and beta (k,) of its `Solution`."""
    log_plan = (alpha[:, None] + beta - (cost - cost.min())) / epsilon
    return np.asarray(np.exp(np.where((a > 0)[:, None] & (b > 0), log_plan, -np.inf)))


def transport_cost(a: Floats, b: Floats, cost: Floats, epsilon: float, alpha: Floats, beta: Floats) -> Floats:
    """Return <T, M> in each row (n,) from the duals of a `Solution`."""
    lowest = cost.min()  # all of the mass pays this under any plan
    rows = zip(a, b, alpha, beta, strict=True)
    return np.array([lowest + np.vdot(plan(p, q, cost, epsilon, f, g), cost - lowest) for p, q, f, g in rows])


def plain_iterates(a: Floats, b: Floats, cost: Floats, epsilon: float, n_iter: int) -> Iterator[Floats]:
    """Yield beta = epsilon log v (n, k) before and after each plain iteration of eq. (20), from v = b."""
    log_k = (cost.min() - cost) / epsilon
    log_a, log_v = np.log(a), np.log(b)
    log_b = log_v
    yield epsilon * log_v
    for _ in range(n_iter):
        log_u = log_a - logsumexp(log_k + log_v[:, None, :], axis=2)
        log_v = log_b - logsumexp(log_k + log_u[:, :, None], axis=1)
        yield epsilon * log_v


def log_psi(cost: Floats, epsilon: float) -> float:
    """Return log psi(K) of Theorem B.2, psi = max K_ik K_jl / (K_jk K_il).

    For two rows i and j of K, the maximum over columns is the range of log K_i - log K_j: m^2 k steps in all.
    """
    rows = cost if cost.shape[0] <= cost.shape[1] else cost.T
    return max(float(np.ptp(rows - row, axis=1).max()) for row in rows) / epsilon


def shortfall(
    residual: Floats,
    n_iter: NDArray[np.int64],
    tol: float,
    max_iter: int,
    adjustable: tuple[str, ...] = ("max_iter", "epsilon", "tol"),
) -> str:
    """Return a sentence about the rows that did not converge, empty where all did.

    It names only the options in `adjustable`, those that its reader has.
    """
    off = ~(residual <= tol)
    if not off.any():
        return ""
    patient = bool((n_iter[off] < max_iter).all())  # more iterations would not help
    where = "stalled at rounding" if patient else f"stopped at max_iter={max_iter}"
    options = [name for name in adjustable if not (patient and name == "max_iter")]
    listed = " or ".join([", ".join(options[:-1]), options[-1]] if options[1:] else options)
    return (
        f"Sinkhorn {where} with marginal error {residual.max():.1e} (tol {tol:g}) "
        f"in {int(off.sum())} of {len(off)} rows. Raise {listed}."
    )


def _log_start(b: Floats, epsilon: float, start: Floats | None) -> Floats:
    """Return the start log v (n, k): log b (the independent plan), or the duals given."""
    with np.errstate(divide="ignore"):
        fresh = np.log(b)
    if start is None:
        return fresh
    warm = start / epsilon
    warm = warm - warm.max(axis=1, keepdims=True)
    return np.where(np.isfinite(warm).all(axis=1, keepdims=True), warm, fresh)


def _solve_in_logs(
    a: Floats, b: Floats, log_k: Floats, tol: float, max_iter: int, log_v: Floats, n_iter: NDArray[np.int64]
) -> Solution:
    """Solve rows in the log domain, after `n_iter` (n,) iterations in scaling form."""
    log_a, log_b = (np.log(np.where(p > 0, p, 1.0)) for p in (a, b))
    f, g = np.zeros_like(a), np.where(np.isfinite(log_v), log_v - log_b, 0.0)
    residual = solve_in_log_domain(a, b, log_k, tol, max_iter, g, f, n_iter)
    return Solution(f + log_a, g + log_b, np.empty(len(a)), residual, n_iter)


def _solve_block(
    a: Floats, b: Floats, log_k: Floats, tol: float, max_iter: int, log_v: Floats, out: Solution
) -> None:
    """Solve a block of rows: in single precision if K allows it, then in double precision."""
    kernel = np.exp(log_k)
    if -log_k.min() <= RANGE["float32"]:
        v = _iterate_short(a, b, log_k, np.exp(log_v), max(tol, _TOL_SINGLE), max_iter - 1, out.n_iter)
    else:
        v = _cool(a, b, log_k, log_v, max_iter - 1, out.n_iter)
    _last_step(a, b, kernel, v, out)
    left = np.flatnonzero((out.residual > tol) & (out.n_iter < max_iter))
    if len(left):
        part = out.take(left)
        v = _iterate(a[left], b[left], kernel, v[left], tol, max_iter - 1, part.n_iter)
        _last_step(a[left], b[left], kernel, v, part)
        out.put(left, part)


def _cool(
    a: Floats, b: Floats, log_k: Floats, log_v: Floats, max_iter: int, n_iter: NDArray[np.int64]
) -> Floats:
    """Return v (n, k) from smoother problems: the cost is divided by a temperature that falls to one."""
    log_b = np.log(np.where(b > 0, b, 1.0))
    # exp(potential) is v / b: unlike v itself, it changes little from one temperature to the next
    potential = np.where(b > 0, log_v - log_b, 0.0)
    temperature = -log_k.min() / SMOOTH
    while temperature > 1.0:
        v = b * np.exp((potential - potential.max(axis=1, keepdims=True)) / temperature)
        limit = min(max_iter, int(n_iter.max()) + ROUGH_ITERATIONS)
        v = _iterate_short(a, b, log_k / temperature, v, ROUGH, limit, n_iter)
        with np.errstate(divide="ignore"):  # underflowed entries carry no mass; the next step restores them
            potential = temperature * (np.log(np.where(b > 0, v, 1.0)) - log_b)
        temperature *= COOLING
    return np.asarray(b * np.exp(potential - potential.max(axis=1, keepdims=True)))


def _iterate_short(
    a: Floats, b: Floats, log_k: Floats, v: Floats, tol: float, max_iter: int, n_iter: NDArray[np.int64]
) -> Floats:
    """Return v (n, k) after `_iterate`, in the lowest precision that holds K."""
    dtype = np.dtype("float32" if -log_k.min() <= RANGE["float32"] else "float64")
    p, q, kernel, scaling = (array.astype(dtype) for array in (a, b, np.exp(log_k), v))
    return np.asarray(_iterate(p, q, kernel, scaling, tol, max_iter, n_iter), dtype=np.float64)


def _iterate(
    a: Array, b: Array, kernel: Array, v: Array, tol: float, max_iter: int, n_iter: NDArray[np.int64]
) -> Array:
    """Return v (n, k) after over-relaxed iterations, until each row meets `tol` or stops improving.

    `n_iter` (n,) counts the iterations; a row stops at `max_iter`. The input arrays are overwritten.
    """
    floor, tiny = FLOOR[kernel.dtype.name], kernel.dtype.type(_TINY)
    to_teacher = np.ascontiguousarray(kernel.T)
    result, live, u = np.empty_like(v), np.arange(len(a)), np.ones_like(a)
    a_product, b_product = np.empty_like(a), np.empty_like(b)
    control, gaps = np.zeros((len(a), 5), dtype=v.dtype), check_gaps()
    control[:, [ERROR, _REFERENCE]], control[:, _LARGEST] = np.inf, LARGEST_STEP
    while True:
        stopped = review(control, n_iter, live, tol, floor, max_iter, next(gaps))
        if 8 * stopped >= len(live):
            left = _retire(control, live, a, b, u, v, result)
            if left == 0:
                return result
            control, live, a, b, u, v, a_product, b_product = (
                part[:left] for part in (control, live, a, b, u, v, a_product, b_product)
            )
        np.matmul(v, to_teacher, out=a_product)
        control[:, ERROR] = 0
        _relax(a, a_product, u, control, tiny, False)
        np.matmul(u, kernel, out=b_product)
        _relax(b, b_product, v, control, tiny, True)


def check_gaps() -> Iterator[int]:
    """Yield `gap` for `review`: steps are chosen after two iterations, then at growing intervals."""
    yield -2
    yield -1
    yield 0
    iteration = 2
    while True:
        gap = GAP + iteration // 4
        yield from (-1,) * (gap - 1)
        yield gap
        iteration += gap


@kernel()
def review(
    control: Array, n_iter: NDArray[np.int64], live: NDArray[np.intp],
    tol: float, floor: float, max_iter: int, gap: int,
) -> int:  # fmt: skip
    """Decide after an iteration which rows stop, and over-relax the others; return how many have stopped.

    Parameters
    ----------
    control : (n, 5) array
        The state of each row: its error, and the columns that this function maintains.
    n_iter : array
        Iterations of all rows; ``live`` (n,) are the indices of these rows.
    tol, max_iter
        A row stops at this error, or after this many iterations.
    floor : float
        Below this error, a row also stops if its error falls slowly.
    gap : int
        Iterations since the steps were last chosen: 0 the first time, -1 to leave them as they are, -2
        before the first iteration.
    """
    stopped = 0
    for i in range(len(control)):
        row, error = control[i], control[i, ERROR]
        if row[_STOPPED] == 0.0:
            n_iter[live[i]] += int(gap > -2)
            lost = gap > -2 and not error < np.inf
            stalled = gap > 0 and error <= floor and error > _STALLED * row[_REFERENCE]
            if error <= tol or stalled or lost or n_iter[live[i]] >= max_iter:
                row[_STOPPED] = 1.0
        stopped += int(row[_STOPPED])
        if gap == 0:
            row[STEP] = FIRST_STEP
        elif gap > 0:
            row[STEP], row[_LARGEST] = next_step(row[STEP], row[_LARGEST], error / row[_REFERENCE], gap)
        if gap >= 0:
            row[_REFERENCE] = error
    return stopped


@kernel()
def _retire(
    control: Array, live: NDArray[np.intp], a: Array, b: Array, u: Array, v: Array, result: Array
) -> int:
    """Store v of the rows that have stopped, move the other rows to the front and count them."""
    left = 0
    for i in range(len(live)):
        if control[i, _STOPPED] > 0.0:
            result[live[i]] = v[i]
        else:
            if left < i:
                control[left], live[left] = control[i], live[i]
                a[left], b[left], u[left], v[left] = a[i], b[i], u[i], v[i]
            left += 1
    return left


@kernel(fastmath={"reassoc", "contract", "nsz"})
def _relax(marginal: Array, product: Array, scaling: Array, control: Array, tiny: Any, before: bool) -> None:
    """Move scalings (n, j) to marginal / product and beyond it, by a share omega - 1 of the step.

    With s = omega - 1, the extra factor r^s is replaced by its Pade approximant
    ((1 + s) r + 1 - s) / ((1 - s) r + 1 + s). It has the same slope at r = 1 and needs no logarithm. It
    stays between (1 - s) / (1 + s) and its inverse, which bounds the step. Each row's error grows by the
    error of the marginal, measured before the step if `before`, else after it.
    """
    n, size = marginal.shape
    for i in range(n):
        s, total = control[i, STEP], control[i, ERROR]
        if before:
            for j in range(size):
                total += abs(scaling[i, j] * product[i, j] - marginal[i, j])
        for j in range(size):
            plain = marginal[i, j] / product[i, j]
            old = scaling[i, j]
            middle, tilt = plain + old + tiny, s * (plain - old)
            new = plain * ((middle + tilt) / (middle - tilt))
            scaling[i, j] = new
            if not before:
                total += abs(new * product[i, j] - marginal[i, j])
        control[i, ERROR] = total


def _last_step(a: Floats, b: Floats, kernel: Floats, v: Floats, out: Solution) -> None:
    """Do one plain iteration in double precision; store log u and log v as the duals, and the error."""
    u = np.matmul(v, kernel.T)
    _scale(a, u, out.alpha)
    product = np.matmul(u, kernel)
    out.residual[:] = np.abs(v * product - b).sum(axis=1)
    _scale(b, product, out.beta)
    out.n_iter[:] += 1


@kernel(fastmath={"contract"})
def _scale(marginal: Floats, product: Floats, log_scaling: Floats) -> None:
    """Turn products into scalings, in place, and set their logarithms; where p is zero, log(1 / product)."""
    for i in range(product.shape[0]):
        for j in range(product.shape[1]):
            p, inverse = marginal[i, j], 1.0 / product[i, j]
            product[i, j] = p * inverse
            log_scaling[i, j] = log(p * inverse if p > 0.0 else inverse)


def _finish(a: Floats, b: Floats, epsilon: float, lowest: float, u: Floats, v: Floats, value: Floats) -> None:
    """Turn log u and log v into duals, in place, and set the value <alpha, a> + <beta, b> - epsilon.

    The value belongs to the full cost, alpha to the cost minus its smallest entry.
    """
    mean = v.mean(axis=1, keepdims=True)
    v -= mean
    v *= epsilon
    u += mean
    u *= epsilon
    value[:] = np.einsum("ij,ij->i", u, a) + np.einsum("ij,ij->i", v, b) + (lowest - epsilon)
