"""Entropic optimal transport between rows of distributions with one cost matrix, in scaling form.

Letters, after "Selective Cross-Task Distillation": a = p_T (n, m) and b = p_S (n, k) are the
distributions of the teacher and of the student, M (m, k) the cost, K = exp(-M / epsilon), alpha and beta the
duals of eq. (13), u = exp(alpha / epsilon) and v = exp(beta / epsilon) the scalings of eq. (19). One
iteration is eq. (20),

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

from typing import Any, NamedTuple, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from consilience.kernels.elementary import log
from consilience.kernels.relaxation import FIRST_STEP, LARGEST_STEP, next_step
from consilience.kernels.sinkhorn_log import solve_in_log_domain

Floats = NDArray[np.float64]
Array = NDArray[Any]

REGULARISERS = ("entropy", "kl")
SPREADS = 0.5  # epsilon="auto", in standard deviations of the cost
PAPER_EPSILON = 0.1
_CONSTANT = 1e-9  # a cost that varies by less than this share of its size is constant

# The largest range of M / epsilon. Scalings and products reach the square of its exponential, times the
# number of classes, on their way; exp(88) and exp(709) fit.
RANGE = {"float32": 36.0, "float64": 340.0}
# below this error rounding rules, and a row that improves no more is left to the next stage
_FLOOR = {"float32": 1e-5, "float64": 1e-11}
_STALLED = 0.7  # an error of which this much is left after a check has stalled
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

    def take(self, rows: slice | NDArray[np.intp]) -> Solution:
        """Return some rows: views for a slice, copies for indices."""
        return Solution(*(cast(Any, part)[rows] for part in self))

    def put(self, rows: NDArray[np.intp], solution: Solution) -> None:
        """Replace some rows."""
        for part, values in zip(self, solution, strict=True):
            cast(Any, part)[rows] = values


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
    if -log_k.min() > RANGE["float64"]:
        out.residual[:] = np.nan
    else:
        kernel = np.exp(log_k)
        size = max(1, _BLOCK // max(cost.shape))
        for low in range(0, len(a), size):
            rows = slice(low, low + size)
            begin = _log_start(b[rows], epsilon, None if start is None else start[rows])
            _solve_block(a[rows], b[rows], kernel, tol, max_iter, begin, out.take(rows))
    lost = np.flatnonzero(~np.isfinite(out.residual))
    if len(lost):  # what scaling form cannot hold
        begin = _log_start(b[lost], epsilon, None if start is None else start[lost])
        for array, values in zip(
            out, _solve_in_logs(a[lost], b[lost], log_k, tol, max_iter, begin), strict=True
        ):
            array[lost] = values
    _finish(a, b, epsilon, lowest, out.alpha, out.beta, out.value)
    return out


def shortfall(residual: Floats, tol: float, max_iter: int) -> str:
    """Return a sentence about the rows that did not converge, empty where all did."""
    off = ~(residual <= tol)
    if not off.any():
        return ""
    return (
        f"Sinkhorn stopped at max_iter={max_iter} with marginal error {residual.max():.1e} (tol {tol:g}) "
        f"in {int(off.sum())} of {len(off)} rows. Raise max_iter, epsilon or tol."
    )


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
    if -np.log(kernel.min()) <= RANGE["float32"]:
        a32, b32, k32, v32 = (array.astype(np.float32) for array in (a, b, kernel, v))
        v[:] = _iterate(a32, b32, k32, v32, max(tol, _TOL_SINGLE), max_iter - 1, out.n_iter)
    _last_step(a, b, kernel, v, out)
    left = np.flatnonzero((out.residual > tol) & (out.n_iter < max_iter))
    if len(left):
        part = out.take(left)
        v_left = _iterate(a[left], b[left], kernel, v[left], tol, max_iter - 1, part.n_iter)
        _last_step(a[left], b[left], kernel, v_left, part)
        out.put(left, part)


def _iterate(
    a: Array, b: Array, kernel: Array, v: Array, tol: float, max_iter: int, n_iter: NDArray[np.int64]
) -> Array:
    """Return v (n, k) after over-relaxed iterations, until each row has met `tol` or improves no more.

    `n_iter` (n,) counts them, and a row stops where it reaches `max_iter`.
    """
    floor, tiny = _FLOOR[kernel.dtype.name], kernel.dtype.type(_TINY)
    to_teacher = np.ascontiguousarray(kernel.T)
    result, live, v, u = v.copy(), np.arange(len(a)), v.copy(), np.ones_like(a)
    a_product, b_product = np.empty_like(a), np.empty_like(b)
    error, control = np.full(len(a), np.inf, dtype=v.dtype), StepControl(len(a))
    while True:
        stopped = (error <= tol) | (n_iter[live] >= max_iter) | (control.stalled & (error <= floor))
        if 4 * np.count_nonzero(stopped) >= len(live):
            result[live] = v
            working = ~stopped
            if not working.any():
                return result
            live, a, b, u, v, error = (part[working] for part in (live, a, b, u, v, error))
            a_product, b_product = a_product[: len(a)], b_product[: len(a)]
            control.keep(working)
            stopped = stopped[working]
        step = control.step.astype(v.dtype)
        np.matmul(v, to_teacher, out=a_product)
        error[:] = 0
        _relax(a, a_product, u, step, tiny, error, False)
        np.matmul(u, kernel, out=b_product)
        _relax(b, b_product, v, step, tiny, error, True)
        n_iter[live[~stopped]] += 1
        control.update(error)


class StepControl:
    """How far each row is over-relaxed: `step` (n,) is omega - 1, looked at again from time to time."""

    def __init__(self, n: int) -> None:
        self.step, self.stalled = np.zeros(n), np.zeros(n, dtype=np.bool_)
        self._largest, self._reference = np.full(n, LARGEST_STEP), np.full(n, np.inf)
        self._iteration, self._check, self._gap = 0, 2, 0

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Drop the other rows."""
        self.step, self.stalled = self.step[rows], self.stalled[rows]
        self._largest, self._reference = self._largest[rows], self._reference[rows]

    def update(self, error: Array) -> None:
        """Take the errors (n,) after an iteration into account."""
        self._iteration += 1
        if self._iteration < self._check:
            return
        if self._gap:
            self.stalled |= error > _STALLED * self._reference
        _choose_steps(error, self._reference, self.step, self._largest, self._gap)
        self._reference = error.astype(np.float64)
        self._gap = 4 + self._iteration // 4
        self._check += self._gap


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
