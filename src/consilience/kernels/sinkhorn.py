"""Entropic optimal transport between rows of distributions with one cost matrix, in scaling form.

Letters, after "Selective Cross-Task Distillation": a = p_T (n, m) and b = p_S (n, k) are the
distributions of the teacher and of the student, M (m, k) the cost, K = exp(-M / epsilon), alpha and
beta the duals of eq. (13), u = exp(alpha / epsilon) and v = exp(beta / epsilon) the scalings of eq. (19). One iteration is eq. (20),

    u = a / (K v),    v = b / (K^T u),

two matrix products for a whole block of rows. Three things make it fast:

- *Over-relaxation.* With r what a plain step multiplies a scaling by, the step taken is close to r^omega with
  omega above 1, chosen in each row from how fast its error falls. The fixed point is the same.
- *Retirement.* Rows that have converged leave the block.
- *Single precision* for all but the last iteration, where exp(-M / epsilon) fits. The last one is plain, in
  double precision, and measures the error.

The error of a row is the L1 distance of the plan's marginals from a and b. It is read off the products that
are there anyway: after u is plain the row sums are right and the column sums are v * (K^T u); making these
right as well moves the row sums by at most as much as they were wrong.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from consilience.kernels.elementary import log
from consilience.kernels.relaxation import FIRST_STEP, LARGEST_STEP, next_step
from consilience.kernels.sinkhorn_log import solve_in_log_domain

Floats = NDArray[np.float64]
Array = NDArray[Any]

SPREADS = 0.5  # epsilon="auto", in standard deviations of the cost
PAPER_EPSILON = 0.1
_CONSTANT = 1e-9  # a cost that varies by less than this share of its size is constant

# The largest range of M / epsilon. Scalings and products reach the square of its exponential, times the number
# of classes, on their way; exp(88) and exp(709) fit.
_RANGE = {np.dtype(np.float32): 36.0, np.dtype(np.float64): 340.0}
# below this error rounding rules, and a row that improves no more is left to the next stage
_FLOOR = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-11}
_TOL_SINGLE = 1e-6  # what single precision reaches
_TINY = 1e-37  # added to a scaling where zero would be divided by zero
_BLOCK = 1 << 15  # numbers in an array of a block: five such arrays stay in a core's cache


class Solution(NamedTuple):
    """Duals of eq. (13) and what they amount to, a row per problem.

    Where a probability is zero the dual is the soft c-transform, -epsilon log((K^T u)_n) for beta: what
    epsilon log v_n exceeds epsilon log b_n by. The entries of beta sum to zero.
    """

    alpha: Floats  # (n, m)
    beta: Floats  # (n, k)
    value: Floats  # (n,) with the regulariser of eq. (5)
    residual: Floats  # (n,) L1 error of the marginals
    n_iter: NDArray[np.int64]  # (n,)


def automatic_epsilon(cost: Floats) -> float:
    """Return the epsilon that "auto" stands for: half the standard deviation of the cost.

    The plan depends on the cost only through M / epsilon, less what is constant along rows or columns: an
    epsilon in units of the spread gives plans of the same sharpness whatever the scale of M. With a constant
    cost every epsilon gives the same plan, p_T p_S^T, and the paper's 0.1 is returned.
    """
    spread = float(np.std(cost))
    return PAPER_EPSILON if spread <= _CONSTANT * float(np.abs(cost).max()) else SPREADS * spread


def solve(
    a: Floats, b: Floats, cost: Floats, epsilon: float, tol: float, max_iter: int, start: Floats | None = None
) -> Solution:
    """Solve eq. (13) in each row until the marginals are met to `tol`.

    Parameters
    ----------
    a, b : (n, m) and (n, k) arrays
        Distributions; entries may be zero, rows sum to one.
    cost : (m, k) array
    epsilon, tol : float
    max_iter : int
    start : (n, k) array, optional
        Duals beta to start from; a row with a NaN has none.
    """
    lowest = cost.min()
    log_k = (lowest - cost) / epsilon
    out = _empty(a, b)
    if -log_k.min() > _RANGE[np.dtype(np.float64)]:
        out.residual[:] = np.nan
    else:
        kernel = np.exp(log_k)
        size = max(1, _BLOCK // max(cost.shape))
        for low in range(0, len(a), size):
            rows = slice(low, low + size)
            begin = _log_start(b[rows], epsilon, None if start is None else start[rows])
            block = Solution(*(part[rows] for part in out))
            _solve_block(a[rows], b[rows], kernel, tol, max_iter, begin, block)
    lost = np.flatnonzero(~np.isfinite(out.residual))
    if len(lost):  # what scaling form cannot hold
        begin = _log_start(b[lost], epsilon, None if start is None else start[lost])
        for array, values in zip(
            out, _solve_in_logs(a[lost], b[lost], log_k, tol, max_iter, begin), strict=True
        ):
            array[lost] = values
    _finish(a, b, epsilon, lowest, out.alpha, out.beta, out.value)
    return out


def _empty(a: Floats, b: Floats) -> Solution:
    n = len(a)
    return Solution(np.empty_like(a), np.empty_like(b), np.empty(n), np.empty(n), np.zeros(n, dtype=np.int64))


def _log_start(b: Floats, epsilon: float, start: Floats | None) -> Floats:
    """Return log v (n, k) to start from: log b (the independent plan), or duals that are known."""
    with np.errstate(divide="ignore"):
        fresh = np.log(b)
    if start is None:
        return fresh
    warm = start / epsilon
    warm = warm - warm.max(axis=1, keepdims=True)
    return np.where(np.isfinite(warm).all(axis=1, keepdims=True), warm, fresh)


def _solve_in_logs(a: Floats, b: Floats, log_k: Floats, tol: float, max_iter: int, log_v: Floats) -> Solution:
    """Solve rows in log domain."""
    log_a, log_b = (np.log(np.where(p > 0, p, 1.0)) for p in (a, b))
    f, g = np.zeros_like(a), np.where(np.isfinite(log_v), log_v - log_b, 0.0)
    residual, n_iter = solve_in_log_domain(a, b, log_k, tol, max_iter, g, f)
    return Solution(f + log_a, g + log_b, np.empty(len(a)), residual, n_iter)


def _solve_block(
    a: Floats, b: Floats, kernel: Floats, tol: float, max_iter: int, log_v: Floats, out: Solution
) -> None:
    """Solve a block of rows: in single precision where K allows it, then in double precision."""
    v = np.exp(log_v)
    if -np.log(kernel.min()) <= _RANGE[np.dtype(np.float32)]:
        single = [np.asarray(array, dtype=np.float32) for array in (a, b, kernel, v)]
        v[:] = _iterate(*single, max(tol, _TOL_SINGLE), max_iter - 1, out.n_iter)
    _last_step(a, b, kernel, v, out)
    left = np.flatnonzero((out.residual > tol) & (out.n_iter < max_iter))
    if not len(left):
        return
    part = Solution(*(array[left] for array in out))
    v_left = _iterate(a[left], b[left], kernel, v[left], tol, max_iter - 1, part.n_iter)
    _last_step(a[left], b[left], kernel, v_left, part)
    for array, values in zip(out, part, strict=True):
        array[left] = values


def _iterate(
    a: Array, b: Array, kernel: Array, v: Array, tol: float, max_iter: int, n_iter: NDArray[np.int64]
) -> Array:
    """Return v (n, k) after over-relaxed iterations, until each row has met `tol` or improves no more.

    `n_iter` (n,) counts them, and a row stops where it reaches `max_iter`.
    """
    result, live = v.copy(), np.arange(len(a))
    rows = _Rows(a, b, v)
    to_teacher = np.ascontiguousarray(kernel.T)
    iteration, check, gap = 0, 2, 0
    while True:
        stopped = (rows.error <= tol) | (n_iter[live] >= max_iter) | rows.stagnant
        if 4 * np.count_nonzero(stopped) >= len(live):
            result[live[stopped]] = rows.v[stopped]
            live = live[~stopped]
            if not len(live):
                return result
            rows.keep(~stopped)
            stopped = stopped[~stopped]
        rows.step(kernel, to_teacher)
        n_iter[live[~stopped]] += 1
        iteration += 1
        if iteration == check:
            rows.choose_steps(gap)
            gap = 4 + iteration // 4
            check += gap


class _Rows:
    """The rows that are still at work: their scalings, errors and steps, in one precision."""

    def __init__(self, a: Array, b: Array, v: Array) -> None:
        n, dtype = len(a), v.dtype
        self.floor = _FLOOR[dtype]
        self.a, self.b, self.v, self.tiny = a, b, v.copy(), dtype.type(_TINY)
        self.u = np.ones_like(self.a)
        self.a_product, self.b_product = np.empty_like(self.a), np.empty_like(self.b)
        self.error, self.reference = np.full(n, np.inf, dtype), np.full(n, np.inf, dtype)
        self.step_size, self.largest = np.zeros(n, dtype), np.full(n, LARGEST_STEP, dtype)
        self.stagnant = np.zeros(n, dtype=np.bool_)

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        """Drop the rows that are not chosen."""
        for name in ("a", "b", "u", "v", "error", "reference", "step_size", "largest", "stagnant"):
            setattr(self, name, getattr(self, name)[chosen])
        self.a_product, self.b_product = self.a_product[: len(self.a)], self.b_product[: len(self.b)]

    def step(self, kernel: Array, to_teacher: Array) -> None:
        """Do one over-relaxed iteration of eq. (20)."""
        np.matmul(self.v, to_teacher, out=self.a_product)
        self.error[:] = 0
        _relax(self.a, self.a_product, self.u, self.step_size, self.tiny, self.error, False)
        np.matmul(self.u, kernel, out=self.b_product)
        _relax(self.b, self.b_product, self.v, self.step_size, self.tiny, self.error, True)

    def choose_steps(self, gap: int) -> None:
        """Set omega - 1 in each row from how fast its error fell in the last `gap` iterations."""
        _choose_steps(self.error, self.reference, self.step_size, self.largest, gap)
        if gap:
            self.stagnant |= (self.error < self.floor) & (self.error > 0.7 * self.reference)
        lost = ~np.isfinite(self.error)
        if lost.any():  # a step too bold; back to plain ones, which converge from anywhere
            self.v[lost], self.u[lost] = self.b[lost], 1.0
            self.step_size[lost] = self.largest[lost] = 0.0
        self.reference[:] = self.error


@njit(cache=True, nogil=True, error_model="numpy")
def _choose_steps(error: Array, reference: Array, step: Array, largest: Array, gap: int) -> None:
    for i in range(len(error)):
        if gap == 0:
            step[i] = FIRST_STEP
        else:
            step[i], largest[i] = next_step(step[i], largest[i], error[i] / reference[i], gap)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _relax(
    marginal: Array, product: Array, scaling: Array, step: Array, tiny: Any, error: Array, before: bool
) -> None:
    """Move scalings (n, j) to marginal / product and beyond, by a share `step` (n,) = omega - 1 of the way.

    The factor (r^omega) / r is replaced by its Pade approximant ((1 + s) r + 1 - s) / ((1 - s) r + 1 + s),
    which has the same slope at r = 1 and needs no logarithm; it stays between (1 - s) / (1 + s) and its
    inverse, so that a step cannot go wild. To `error` (n,) is added how far the marginal was off before the
    step, or how far it is off after it.
    """
    n, size = marginal.shape
    for i in range(n):
        s = step[i]
        total = error[i]
        if before:
            for j in range(size):
                total += abs(scaling[i, j] * product[i, j] - marginal[i, j])
        for j in range(size):
            plain = marginal[i, j] / product[i, j]
            old = scaling[i, j]
            middle, tilt = plain + old + tiny, s * (plain - old)
            factor = (middle + tilt) / (middle - tilt)
            new = plain * factor
            scaling[i, j] = new
            if not before:
                total += abs(new * product[i, j] - marginal[i, j])
        error[i] = total


def _last_step(a: Floats, b: Floats, kernel: Floats, v: Floats, out: Solution) -> None:
    """Do a plain iteration in double precision; set log u and log v, in place of the duals, and the error."""
    u = np.matmul(v, kernel.T)
    _scale(a, u, out.alpha)
    product = np.matmul(u, kernel)
    _measure(b, v, product, out.residual)
    _scale(b, product, out.beta)
    out.n_iter[:] += 1


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _scale(marginal: Floats, product: Floats, log_scaling: Floats) -> None:
    """Turn products into scalings, in place, and set their logarithms: of 1 / product where p is zero."""
    for i in range(product.shape[0]):
        for j in range(product.shape[1]):
            p, inverse = marginal[i, j], 1.0 / product[i, j]
            product[i, j] = p * inverse
            log_scaling[i, j] = log(p * inverse if p > 0.0 else inverse)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _measure(b: Floats, v: Floats, product: Floats, residual: Floats) -> None:
    """Set the error (n,) of the column sums v * product."""
    for i in range(b.shape[0]):
        total = 0.0
        for j in range(b.shape[1]):
            total += abs(v[i, j] * product[i, j] - b[i, j])
        residual[i] = total


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _finish(a: Floats, b: Floats, epsilon: float, lowest: float, u: Floats, v: Floats, value: Floats) -> None:
    """Turn log u and log v into duals, in place, and set the value <alpha, a> + <beta, b> - epsilon."""
    m, k = a.shape[1], b.shape[1]
    for i in range(a.shape[0]):
        mean = 0.0
        for j in range(k):
            mean += v[i, j]
        mean /= k
        total = 0.0
        for j in range(k):
            v[i, j] = epsilon * (v[i, j] - mean)
            total += v[i, j] * b[i, j]
        for j in range(m):
            u[i, j] = epsilon * (u[i, j] + mean) + lowest
            total += u[i, j] * a[i, j]
        value[i] = total - epsilon
