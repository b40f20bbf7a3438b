"""Fair pseudo-labels, eq. (11): one call for the three solvers, with the certified gap of the result.

The call takes the mean-form loss of the paper. The solvers work in the total form of `simplex`, on the rows
whose labels are free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.collision.first_order import (
    expectation_maximisation,
    fairness_loss,
    loss_and_gap,
    projected_gradient,
)
from consilience.kernels.collision.interior_point import interior_point
from consilience.kernels.collision.simplex import lower_bound, total_loss

# Rounding can change a difference of two losses by this much, relative to their size.
_ROUNDING = 8 * float(np.finfo(np.float64).eps)
# "auto" uses EM, which needs a third of the memory, for more labels than this and a loose tolerance.
_MANY_LABELS = 50_000_000
_LOOSE = 1e-3
# The search for a step size of pgd: the number of trials, and the iterations of each.
_STEP_TRIALS = 20
_TRIAL_ITERATIONS = 20


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
    n_rows, n_classes = sigma.shape
    free = None if fixed is None else fixed == -1
    pinned = np.empty(0, dtype=np.intp) if fixed is None else fixed[fixed != -1]
    problem = _Problem(
        sigma=sigma if free is None else sigma[free],
        start=_start(sigma, init, solver.uniform_share, free),
        weight=n_rows * lam * (prior / prior.sum()),
        offset=np.bincount(pinned, minlength=n_classes).astype(np.float64),
        reverse=how.reverse,
        step_size=how.step_size,
        tol=how.tol,
        max_iter=solver.max_iter if how.max_iter is None else how.max_iter,
    )
    trivial = lam == 0.0 or len(problem.sigma) == 0
    Y, loss, gap, n_iter = _most_probable(problem) if trivial else solver.solve(problem)
    labels, known = Y, 0.0
    if free is not None:
        labels = np.zeros(sigma.shape)
        labels[free], labels[~free] = Y, np.eye(n_classes)[pinned]
        with np.errstate(divide="ignore"):
            known = -float(np.log(sigma[~free, pinned]).sum()) / n_rows
    objective, gap = loss / n_rows, gap / n_rows
    gap = max(gap, _ROUNDING * (1.0 + lam + abs(objective))) if n_iter else max(gap, 0.0)
    converged = bool(gap <= how.tol * max(1.0, objective) and np.isfinite(gap))
    return FairLabels(labels, objective + known, objective, gap, n_iter, converged, name, problem.max_iter)


def choose_solver(options: Options, n_labels: int) -> str:
    """Return the name of the solver that these options mean for a problem of M K labels."""
    if options.solver != "auto":
        return options.solver
    if options.reverse:
        return "pgd"
    return "em" if n_labels > _MANY_LABELS and options.tol >= _LOOSE else "interior-point"


class _Problem(NamedTuple):
    """The free rows in the total form of `simplex`, and how to solve them."""

    sigma: Floats  # (M, K) of the free rows
    start: Floats  # (M, K)
    weight: Floats  # (K,)
    offset: Floats  # (K,)
    reverse: bool
    step_size: float | None
    tol: float
    max_iter: int


class _Solution(NamedTuple):
    Y: Floats  # (M, K)
    loss: float  # total
    gap: float  # total
    n_iter: int


def _solve_interior_point(p: _Problem) -> _Solution:
    Y, pi, nu, n_iter = interior_point(p.sigma, p.start, p.weight, p.offset, p.tol, p.max_iter)
    loss = total_loss(p.sigma, Y, p.weight, p.offset)
    return _Solution(Y, loss, loss - lower_bound(p.sigma, pi, nu, p.weight, p.offset), n_iter)


def _solve_em(p: _Problem) -> _Solution:
    Y, n_iter = expectation_maximisation(p.sigma, p.start, p.weight, p.offset, p.tol, p.max_iter)
    loss, gap = loss_and_gap(p.sigma, Y, p.weight, p.offset, False)
    return _Solution(Y, loss, gap, n_iter)


def _solve_pgd(p: _Problem) -> _Solution:
    step = _step_that_descends(p) if p.step_size is None else p.step_size
    Y, n_iter = projected_gradient(p.sigma, p.start, p.weight, p.offset, p.reverse, step, p.tol, p.max_iter)
    loss, gap = loss_and_gap(p.sigma, Y, p.weight, p.offset, p.reverse)
    return _Solution(Y, loss, gap, n_iter)


def _step_that_descends(p: _Problem) -> float:
    """Return one over the curvature at fair labels, or a smaller step if that one does not lower the loss."""
    n_rows = len(p.sigma) + p.offset.sum()
    step = float(n_rows / (1.0 + p.weight.sum() / n_rows * len(p.weight)))
    loss, _ = loss_and_gap(p.sigma, p.start, p.weight, p.offset, p.reverse)
    for _ in range(_STEP_TRIALS):
        Y, _ = projected_gradient(
            p.sigma, p.start, p.weight, p.offset, p.reverse, step, p.tol, _TRIAL_ITERATIONS
        )
        if loss_and_gap(p.sigma, Y, p.weight, p.offset, p.reverse)[0] < loss:
            break
        step /= 4.0
    return step


class Solver(NamedTuple):
    solve: Callable[[_Problem], _Solution]
    max_iter: int  # default
    uniform_share: float  # mixed into `init`, since the method must start in the interior


SOLVERS: dict[str, Solver] = {
    "interior-point": Solver(_solve_interior_point, 100, 0.1),
    "em": Solver(_solve_em, 2000, 1e-3),
    "pgd": Solver(_solve_pgd, 2000, 1e-3),
}


def _most_probable(p: _Problem) -> _Solution:
    """Return the solution if there is no fairness term, or if no row is free."""
    Y = np.eye(p.sigma.shape[1])[p.sigma.argmax(axis=1)]
    loss = _collision_loss(p.sigma, Y)
    if p.weight.any():  # all rows are pinned
        loss += fairness_loss(p.offset, p.weight, p.reverse)
    return _Solution(Y, loss, 0.0, 0)


def _start(
    sigma: Floats, init: Floats | None, uniform_share: float, free: NDArray[np.bool_] | None
) -> Floats:
    """Return positive labels (M, K) of the free rows to start from."""
    share = 0.5 if init is None else uniform_share
    given = sigma if init is None else init
    Y = (given if free is None else given[free]) * (1.0 - share)
    Y += share / sigma.shape[1]
    Y /= Y.sum(axis=1, keepdims=True)
    return Y


def _collision_loss(sigma: Floats, labels: Floats) -> float:
    """Return the sum of the collision cross-entropies of the rows."""
    with np.errstate(divide="ignore"):
        return -float(np.log((sigma * labels).sum(axis=1)).sum())
