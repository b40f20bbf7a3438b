"""Entropic optimal transport in the log domain, for costs far larger than epsilon; over-relaxation.

Letters as in `sinkhorn.py`. Here exp(-M / epsilon) exceeds the range of a float, so sums are over
exp(x - max x), row by row; an iteration takes as many exponentials as the plan has entries. Potentials are
in units of epsilon, with T = a b exp(f + g - M / epsilon). In this form zeros in a and b need no extra care.

The cost is first divided by a temperature that falls to one. If the plan is nearly a vertex, starting from
smoother plans takes fewer iterations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel, part
from consilience.kernels.elementary import exp

FIRST_STEP = 0.2  # omega - 1 before any error has been measured
LARGEST_STEP = 0.95
GAP = 5  # iterations from the first measurement of the error to the second
_STALLED = 0.999  # a rate above this counts as no progress


@part()
def next_step(step: float, largest: float, ratio: float, gap: int) -> tuple[float, float]:
    """Return omega - 1 and its bound for the next iterations.

    If the error of a plain iteration falls by a factor eta, over-relaxation is fastest at
    omega = 2 / (1 + sqrt(1 - eta)). At a smaller omega, the rate lam satisfies
    (lam + omega - 1)^2 = omega^2 eta lam (Young's theory of successive over-relaxation), which we solve for
    eta. At a larger omega, the rate is omega - 1 and carries no information. If the error did not fall, the
    step is halved and bounded. The bound rises again while the error falls.

    Parameters
    ----------
    step, largest : float
        The present omega - 1, and its bound.
    ratio : float
        The error divided by the error `gap` iterations ago.
    gap : int
    """
    lam = ratio ** (1.0 / gap)
    if not lam < _STALLED:
        return 0.5 * step, max(step, 0.1)
    largest = min(LARGEST_STEP, 0.5 + 0.5 * largest)
    if lam > step:
        eta = min((lam + step) ** 2 / ((1.0 + step) ** 2 * lam), 1.0)
        step = max(step, 2.0 / (1.0 + np.sqrt(1.0 - eta)) - 1.0)
    return min(step, largest), largest


SMOOTH = 30.0  # the range of the cost divided by the first temperature
COOLING = 0.25
ROUGH = 1e-2  # tolerance of the plans at higher temperatures
ROUGH_ITERATIONS = 100
# Error of the marginals per unit of the largest M / epsilon. Potentials are that large. The absolute error
# of a potential is the relative error of its exponential.
ROUNDING = 4 * float(np.finfo(np.float64).eps)


@kernel()
def solve_in_log_domain(
    a: Floats, b: Floats, log_k: Floats, tol: float, max_iter: int,
    g: Floats, f: Floats, n_iter: NDArray[np.int64],
) -> Floats:  # fmt: skip
    """Set the potentials f (n, m) and g (n, k), starting from the g given, and return the errors (n,).

    Rows sum to one; entries may be zero. `log_k` (m, k) is -M / epsilon, and finite. `n_iter` (n,) is below
    `max_iter` and is counted up. The error includes rounding; iterations stop if rounding exceeds `tol`.
    """
    n = len(a)
    cost, transposed = -log_k, -np.ascontiguousarray(log_k.T)
    error = np.empty(n)
    rounding = ROUNDING * cost.max()
    for i in range(n):
        temperature = max(cost.max() / SMOOTH, 1.0)
        while temperature > 1.0 and n_iter[i] + 1 < max_iter:
            limit = min(max_iter - 1, n_iter[i] + ROUGH_ITERATIONS)
            _, n_iter[i] = _descend(
                a[i], b[i], cost, transposed, temperature, f[i], g[i], ROUGH, n_iter[i], limit
            )
            temperature = max(temperature * COOLING, 1.0)
        goal = max(tol - rounding, rounding)
        error[i], n_iter[i] = _descend(
            a[i], b[i], cost, transposed, 1.0, f[i], g[i], goal, n_iter[i], max_iter
        )
        error[i] += rounding
    return error


@part()
def _descend(a, b, cost, transposed, temperature, f, g, tol, n_iter, limit):  # type: ignore[no-untyped-def]
    """Iterate one row until its marginals are right to `tol`; the last iteration is plain. Sets f and g."""
    step, largest, reference, error = 0.0, LARGEST_STEP, np.inf, np.inf
    iteration, check, gap = 0, 2, 0
    new_f, new_g = np.empty_like(f), np.empty_like(g)
    while True:
        last = n_iter + 1 >= limit or not error > tol  # the negation catches NaN too
        omega = 0.0 if last else step
        _transform(cost, b, g, temperature, new_f)
        off = 0.0
        for j in range(len(f)):
            change = omega * (new_f[j] - f[j])
            f[j] = new_f[j] + change
            off += a[j] * abs(exp(min(change / temperature, 50.0)) - 1.0)
        _transform(transposed, a, f, temperature, new_g)
        for j in range(len(g)):
            change = new_g[j] - g[j]
            off += b[j] * abs(exp(min(-change / temperature, 50.0)) - 1.0)
            g[j] = new_g[j] + omega * change
        error = off
        n_iter += 1
        iteration += 1
        if last:
            return error, n_iter
        if iteration == check:
            if gap == 0:
                step = FIRST_STEP
            else:
                step, largest = next_step(step, largest, error / reference, gap)
            reference, gap = error, GAP + iteration // 4
            check += gap


@part(fastmath={"reassoc", "contract"})
def _transform(cost, weight, potential, temperature, result):  # type: ignore[no-untyped-def]
    """Set the soft c-transform -t log sum_j w_j exp((p_j - c_ij) / t) for each i."""
    size = len(weight)
    for i in range(len(result)):
        top = -np.inf
        for j in range(size):
            if weight[j] > 0.0:
                top = max(top, potential[j] - cost[i, j])
        total = 0.0
        for j in range(size):
            total += weight[j] * exp(min((potential[j] - cost[i, j] - top) / temperature, 0.0))
        result[i] = -(top + temperature * np.log(total))
