"""Fair pseudo-labels, eq. (11), with the certified gap; those of eq. (5); and those of single rows.

`fair_labels` takes the mean-form loss of the paper. Its three solvers work in the total form of
`first_order`, on the rows whose labels are free.

`fair_assignment` has the labels of least Shannon cross-entropy with a share for every class: SELA's, and
those of eq. (5) (MI-ADM).

Fair pseudo-labels couple rows only through the column means: at the optimum, the label y of a row minimises

    -log(sigma . y) + nu . y    over the simplex,

with prices nu_k = -lam u_k / (mean label of k). So prices that were found from some rows label any others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import lower_bound, total_loss
from consilience.kernels.collision.first_order import (
    expectation_maximisation,
    fairness_loss,
    loss_and_gap,
    projected_gradient,
)
from consilience.kernels.collision.interior_point import interior_point
from consilience.kernels.compiled import kernel
from consilience.kernels.unify.packed import in_turns

# Rounding can change a difference of two losses by this much, relative to their size.
_ROUNDING = 8 * float(np.finfo(np.float64).eps)
# "auto" uses EM, which needs a third of the memory, for more labels than this and a loose tolerance.
_MANY_LABELS = 50_000_000
_LOOSE = 1e-3
# The search for a step size of pgd: the number of trials, and the iterations of each.
_STEP_TRIALS = 20
_TRIAL_ITERATIONS = 20
# Smaller predictions are raised to this in `fair_assignment`: their logarithm must be finite.
_FLOOR = 1e-30
_MAX_STEPS = 50  # of Newton, for each width
_HALVINGS = 40


class Options(NamedTuple):
    """How to solve."""

    solver: str = "auto"
    tol: float = 1e-6  # on the gap, relative to max(1, objective)
    max_iter: int | None = None  # None: the solver's own
    reverse: bool = False  # KL(ybar || u) of eq. (10) instead of KL(u || ybar)
    step_size: float | None = None  # of pgd; None searches for one


class FairLabels(NamedTuple):
    """What `fair_labels` returns."""

    labels: Floats  # (M, K)
    objective: float  # mean form, over all rows
    free_objective: float  # the same without the cross-entropy of pinned rows
    gap: float
    n_iter: int
    converged: bool
    solver: str
    max_iter: int


def fair_labels(
    sigma: Floats,
    lam: float,
    prior: Floats,
    fixed: NDArray[np.integer] | None = None,
    init: Floats | None = None,
    options: Options | None = None,
) -> FairLabels:
    r"""Minimise eq. (11) over the labels of the free rows.

    .. math:: \frac1M \sum_i -\log(\sigma_i \cdot y_i) + \lambda\, KL(u \| \bar y)

    Parameters
    ----------
    sigma : (M, K) array
        Predictions; rows sum to one. Contiguous.
    lam : float
        Weight of fairness.
    prior : (K,) array
        u, up to a factor.
    fixed : (M,) array of int, optional
        The class of each pinned row, -1 for free rows.
    init : (M, K) array, optional
        Labels to start from; a share of uniform labels is mixed in.
    options : Options, optional
    """
    how = options or Options()
    name = choose_solver(how, sigma.size)
    solver = SOLVERS[name]
    max_iter = solver.max_iter if how.max_iter is None else how.max_iter
    n_rows, n_classes = sigma.shape
    free: Any = slice(None) if fixed is None else fixed == -1
    pinned = np.empty(0, dtype=np.intp) if fixed is None else fixed[~free]
    share = 0.5 if init is None else solver.uniform_share
    start = (sigma if init is None else init)[free] * (1.0 - share)
    start += share / n_classes
    start /= start.sum(axis=1, keepdims=True)
    weight = n_rows * lam * (prior / prior.sum())
    offset = np.bincount(pinned, minlength=n_classes).astype(np.float64)
    problem = _Problem(sigma[free], start, weight, offset, how, max_iter)
    solve = _most_probable if lam == 0.0 or len(start) == 0 else solver.solve
    labels, loss, gap, n_iter = solve(problem)
    known = 0.0
    if fixed is not None:
        found, labels = labels, np.zeros(sigma.shape)
        labels[free], labels[~free] = found, np.eye(n_classes)[pinned]
        with np.errstate(divide="ignore"):
            known = -float(np.log(sigma[~free, pinned]).sum()) / n_rows
    objective, gap = loss / n_rows, gap / n_rows
    gap = max(gap, _ROUNDING * (1.0 + lam + abs(objective))) if n_iter else max(gap, 0.0)
    converged = bool(gap <= how.tol * max(1.0, objective) and np.isfinite(gap))
    return FairLabels(labels, objective + known, objective, gap, n_iter, converged, name, max_iter)


def choose_solver(options: Options, n_labels: int) -> str:
    """Return the name of the solver that these options mean for a problem of M K labels."""
    if options.solver != "auto":
        return options.solver
    if options.reverse:
        return "pgd"
    return "em" if n_labels > _MANY_LABELS and options.tol >= _LOOSE else "interior-point"


class _Problem(NamedTuple):
    """The free rows in the total form of `first_order`, and how to solve them."""

    sigma: Floats  # (M, K)
    start: Floats  # (M, K)
    weight: Floats  # (K,)
    offset: Floats  # (K,)
    how: Options
    max_iter: int


# labels (M, K), the total loss and its gap, the number of iterations
_Solution = tuple[Floats, float, float, int]


def _solve_interior_point(p: _Problem) -> _Solution:
    Y, pi, nu, n_iter = interior_point(p.sigma, p.start, p.weight, p.offset, p.how.tol, p.max_iter)
    loss = total_loss(p.sigma, Y, p.weight, p.offset)
    return Y, loss, loss - lower_bound(p.sigma, pi, nu, p.weight, p.offset), n_iter


def _solve_em(p: _Problem) -> _Solution:
    Y, n_iter = expectation_maximisation(p.sigma, p.start, p.weight, p.offset, p.how.tol, p.max_iter)
    return Y, *loss_and_gap(p.sigma, Y, p.weight, p.offset, False), n_iter


def _solve_pgd(p: _Problem) -> _Solution:
    """Descend with the step given, or one over the curvature at fair labels, shortened until it descends."""

    def descend(step: float, max_iter: int) -> _Solution:
        Y, n_iter = projected_gradient(
            p.sigma, p.start, p.weight, p.offset, p.how.reverse, step, p.how.tol, max_iter
        )
        return Y, *loss_and_gap(p.sigma, Y, p.weight, p.offset, p.how.reverse), n_iter

    if p.how.step_size is not None:
        return descend(p.how.step_size, p.max_iter)
    n_rows = len(p.sigma) + p.offset.sum()
    step = float(n_rows / (1.0 + p.weight.sum() / n_rows * len(p.weight)))
    loss, _ = loss_and_gap(p.sigma, p.start, p.weight, p.offset, p.how.reverse)
    for _ in range(_STEP_TRIALS):
        if descend(step, _TRIAL_ITERATIONS)[1] < loss:
            break
        step /= 4.0
    return descend(step, p.max_iter)


def _most_probable(p: _Problem) -> _Solution:
    """Return the solution if there is no fairness term, or if no row is free."""
    Y = np.eye(p.sigma.shape[1])[p.sigma.argmax(axis=1)]
    with np.errstate(divide="ignore"):
        loss = -float(np.log((p.sigma * Y).sum(axis=1)).sum())
    if p.weight.any():  # all rows are pinned
        loss += fairness_loss(p.offset, p.weight, p.how.reverse)
    return Y, loss, 0.0, 0


class Solver(NamedTuple):
    solve: Callable[[_Problem], _Solution]
    max_iter: int  # default
    uniform_share: float  # mixed into `init`, since the method must start in the interior


SOLVERS: dict[str, Solver] = {
    "interior-point": Solver(_solve_interior_point, 100, 0.1),
    "em": Solver(_solve_em, 2000, 1e-3),
    "pgd": Solver(_solve_pgd, 2000, 1e-3),
}


def fair_assignment(
    log_proba: Floats, prior: Floats, lam: float, epsilon: float, tol: float, start: Floats | None = None
) -> tuple[Floats, Floats, float]:
    r"""Return the labels (M, K) of least cross-entropy whose mean is close to the prior.

    With them come the prices beta (K,), and the largest entry of the dual's gradient.

    .. math:: \min_y \frac1M \sum_i \Big( -\sum_k y_{ik} \ln \sigma_{ik} - \epsilon H(y_i) \Big)
              + \lambda\, KL(\bar y \| u), \qquad y_i \in \Delta^K

    This is eq. (5), with a weight, as epsilon goes to 0, and eq. (4), SELA's equipartition, as lambda goes to
    infinity: the entropy makes optimal transport cheap. Labels have the form
    :math:`y_{ik} \propto (\sigma_{ik} e^{\beta_k})^{1 / \epsilon}`, so only K numbers are unknown. Newton's
    method finds them from the dual, at widths that shrink to epsilon. (Sinkhorn's iteration has the same
    fixed point, and is slow at small epsilon.)

    Parameters
    ----------
    log_proba : (M, K) array
        ln sigma; a row of 0 and -inf pins that row's label.
    prior : (K,) array
        u, positive.
    lam : float
        Weight of fairness; infinity for equipartition.
    epsilon : float
        Above 0.
    tol : float
        Largest entry of the dual's gradient, whose entries are differences of shares.
    start : (K,) array, optional
        Prices of a similar problem.
    """
    cost = np.where(np.isneginf(log_proba), -np.inf, np.maximum(log_proba, np.log(_FLOOR)))
    beta = np.zeros(log_proba.shape[1]) if start is None else start
    if lam == 0.0:  # fair shares are not asked for, and prices over lam are undefined
        return _labels(cost, np.zeros_like(beta), epsilon)[1], np.zeros_like(beta), 0.0
    width = max(1.0, epsilon) if start is None else epsilon
    while width > epsilon:
        beta, _ = _newton(cost, prior, lam, width, beta, max(tol, 1e-3))
        width = max(epsilon, width / 4)
    beta, error = _newton(cost, prior, lam, epsilon, beta, tol)
    return _labels(cost, beta, epsilon)[1], beta, error


def _labels(cost: Floats, beta: Floats, epsilon: float) -> tuple[float, Floats]:
    z = (cost + beta) / epsilon
    top = z.max(axis=1, keepdims=True)
    Y = np.exp(z - top)
    total = Y.sum(axis=1, keepdims=True)
    return epsilon * float((top + np.log(total)).mean()), Y / total


def _dual(
    cost: Floats, prior: Floats, lam: float, epsilon: float, beta: Floats
) -> tuple[float, Floats, Floats]:
    """Return the value of the dual, the labels, and the shares that fairness asks for at these prices."""
    value, Y = _labels(cost, beta, epsilon)
    if np.isinf(lam):
        return value - float(prior @ beta), Y, prior
    with np.errstate(over="ignore"):  # too long a step, which the line search then shortens
        asked = prior * np.exp(-beta / lam)
    return value + lam * float((asked - prior).sum()), Y, asked


def _newton(
    cost: Floats, prior: Floats, lam: float, epsilon: float, beta: Floats, tol: float
) -> tuple[Floats, float]:
    value, Y, asked = _dual(cost, prior, lam, epsilon, beta)
    for _ in range(_MAX_STEPS):
        gradient = Y.mean(axis=0) - asked
        if np.abs(gradient).max() <= tol:
            break
        curvature = (np.diag(Y.mean(axis=0)) - Y.T @ Y / len(Y)) / epsilon + np.diag(asked / lam)
        # there is no curvature if all labels are hard, and never along equal prices of all classes
        curvature[np.diag_indices_from(curvature)] += 1e-9 + 1e-3 * np.abs(gradient)
        step = np.linalg.solve(curvature, gradient)
        slope = float(gradient @ step)
        size = min(1.0, 10.0 / max(np.abs(step).max(), 1e-300))
        for _ in range(_HALVINGS):
            trial = _dual(cost, prior, lam, epsilon, beta - size * step)
            if trial[0] <= value - 1e-4 * size * slope + 1e-15 * abs(value):
                break
            size /= 2
        else:
            break
        beta = beta - size * step
        value, Y, asked = trial
    return beta, float(np.abs(Y.mean(axis=0) - asked).max())


def fair_prices(labels: Floats, prior: Floats, lam: float) -> Floats:
    """Return the prices (K,) at which labels (M, K) are fair: those of classes without a share are 0."""
    mean = labels.mean(axis=0)
    return np.asarray(-lam * np.divide(prior, mean, out=np.zeros_like(mean), where=mean > 0))


def labels_at_prices(sigma: Floats, prices: Floats) -> Floats:
    """Return the labels (n, K) of rows with predictions sigma (n, K) at prices (K,).

    With s = 1 / (sigma . y), the dual of a row is max over s of min_k (nu_k - s sigma_k) + log s. It is found
    by cutting planes: of all lines, only the two that meet at the optimum matter, and these are the support.
    """
    labels = np.zeros(sigma.shape)
    in_turns(lambda rows: _label_rows(sigma[rows], prices, labels[rows]), len(sigma))
    return labels


@kernel()
def _label_rows(sigma, prices, labels):  # type: ignore[no-untyped-def]
    """Fill labels (n, K), which are zero, as in `labels_at_prices`."""
    n, K = sigma.shape
    for row in range(n):
        b = 0  # the line that is lowest for large s
        for k in range(1, K):
            if sigma[row, k] > sigma[row, b] or (sigma[row, k] == sigma[row, b] and prices[k] < prices[b]):
                b = k
        if sigma[row, b] <= 0.0:  # no class has mass: the cheapest
            labels[row, np.argmin(prices)] = 1.0
            continue
        s = 1.0 / sigma[row, b]
        a, share = b, 1.0  # the support is a and b, and b has this share
        for _ in range(K + 1):
            lowest, value = b, prices[b] - s * sigma[row, b]
            for k in range(K):
                if prices[k] - s * sigma[row, k] < value - 1e-12 * (1.0 + abs(value)):
                    lowest, value = k, prices[k] - s * sigma[row, k]
            if lowest in (a, b):
                break
            if sigma[row, lowest] * s < 1.0:
                a = lowest
            else:
                b = lowest
            if a == b:
                s, share = 1.0 / sigma[row, b], 1.0
                continue
            meet = (prices[b] - prices[a]) / (sigma[row, b] - sigma[row, a])  # below it, a is lower than b
            if sigma[row, b] * meet <= 1.0:
                s, share = 1.0 / sigma[row, b], 1.0
            elif sigma[row, a] * meet >= 1.0:
                s, share = 1.0 / sigma[row, a], 0.0
            else:
                s = meet
                share = (1.0 / meet - sigma[row, a]) / (sigma[row, b] - sigma[row, a])
        labels[row, a] += 1.0 - share
        labels[row, b] += share
