"""Pseudo-labels: the labels that collide best with predictions while every class gets its fair share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._validation import check_choice, check_count, check_distributions, check_number
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.collision.expectation_maximisation import expectation_maximisation
from consilience.kernels.collision.interior_point import interior_point
from consilience.kernels.collision.projected_gradient import fairness_loss, loss_and_gap, projected_gradient
from consilience.kernels.collision.simplex import Floats, lower_bound, total_loss

Solver = Literal["auto", "interior-point", "em", "pgd"]
Divergence = Literal["forward", "reverse"]
# What rounding may do to a difference of two losses, relative to their size.
_ROUNDING = 8 * float(np.finfo(np.float64).eps)
# Rows of proba and of init may miss a sum of one by this much: half-precision softmax does.
_SUM_ERROR = 1e-2
# "auto" turns to EM, which needs a tenth of the memory, beyond this many labels if the tolerance is loose.
_MANY_LABELS = 50_000_000
_LOOSE = 1e-3
# To find a step size for pgd: how many are tried, and for how long.
_STEP_TRIALS = 20
_TRIAL_ITERATIONS = 20


@dataclass(frozen=True)
class PseudoLabels:
    """Pseudo-labels and how good they are.

    Attributes
    ----------
    labels : (M, K) array
        Rows on the simplex.
    objective : float
        Mean collision cross-entropy plus ``lam`` times the divergence, over all M rows, pinned ones included;
        infinite if a pinned label has a predicted probability of zero, or if all rows are pinned and a class
        of the prior has none.
    gap : float
        The objective is at most this far above its minimum: a certificate, not an estimate.
    n_iter : int
    converged : bool
        Whether ``gap <= tol * max(1, objective)``, the objective taken over the free rows.
    """

    labels: NDArray[np.float64]
    objective: float
    gap: float
    n_iter: int
    converged: bool


@dataclass(frozen=True)
class _Problem:
    """The free rows in the total form of `kernels.simplex`, and how to solve them."""

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
    """Return one over the curvature where labels are fair, or less if that does not lower the loss."""
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


class _Method(NamedTuple):
    solve: Callable[[_Problem], _Solution]
    max_iter: int  # unless the caller says otherwise
    blur: float  # the share of uniform labels mixed into `init`: the interior is where the method must start
    remedy: str


_SOLVERS = {
    "interior-point": _Method(_solve_interior_point, 100, 0.1, "Raise max_iter or tol."),
    "em": _Method(_solve_em, 2000, 1e-3, "Raise max_iter or tol, or use solver='interior-point'."),
    "pgd": _Method(
        _solve_pgd, 2000, 1e-3, "Raise max_iter or tol, try another step_size, or use 'interior-point'."
    ),
}
SOLVERS: tuple[str, ...] = ("auto", *_SOLVERS)


def collision_pseudo_labels(
    proba: ArrayLike,
    lam: float,
    prior: ArrayLike | None = None,
    solver: Solver = "auto",
    *,
    init: ArrayLike | None = None,
    fixed: ArrayLike | None = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    divergence: Divergence = "forward",
    step_size: float | None = None,
    paper_scaling: bool = False,
) -> PseudoLabels:
    r"""Find the labels that agree with the predictions, with every class fairly used.

    Minimises eq. (11) of the paper over all y_i on the simplex,

    .. math:: \frac1M \sum_i -\log(\sigma_i \cdot y_i) + \lambda\, KL(u \| \bar y),
        \qquad \bar y = \frac1M \sum_i y_i.

    Parameters
    ----------
    proba : (M, K) array
        Predictions sigma; rows are non-negative and sum to one.
    lam : float
        Weight of fairness in the mean-form loss above. At 0 each row takes its most probable class (the first
        of equals); as it grows the mean of the labels approaches `prior`.
    prior : (K,) array, optional
        u, how often each class should occur; uniform if not given. A class of prior 0 is no longer asked for.
    solver : {"auto", "interior-point", "em", "pgd"}
        ``"interior-point"`` is exact: some 5 to 30 Newton steps for any `lam`, O(M K^2 + K^3) each. ``"em"``:
        the paper's algorithm, O(M K) an iteration, and thousands of them where `lam` is large. ``"pgd"``:
        projected gradient descent, the paper's baseline. ``"auto"``: interior-point, but EM for more than
        5e7 labels and a `tol` of 1e-3 or more, and pgd if the divergence is reversed.
    init : (M, K) array, optional
        Labels to start from, such as those of a similar problem; mixed with a little of the uniform ones.
    fixed : (M,) array of int, optional
        The class of each labelled row, -1 for rows whose labels are to be found (Appendix E.2).
    tol : float
        Stop when the certified gap is below ``tol * max(1, objective)``.
    max_iter : int, optional
        Most iterations; 100 for ``"interior-point"``, 2000 for the others.
    divergence : {"forward", "reverse"}
        ``"forward"``: KL(u || ybar) as above. ``"reverse"``: KL(ybar || u) of eq. (10), only with ``"pgd"``.
    step_size : float, optional
        Of ``"pgd"``: multiplies the gradient of the loss above; if not given, ``M / (1 + lam K)``, about one
        over its curvature where labels are fair, or the first quarter of a quarter of it that descends.
    paper_scaling : bool
        Take `lam` as the paper's Algorithm 1 does, whose M step lacks a factor M: the problem solved, and the
        objective returned, then have the weight ``lam / M``.

    Returns
    -------
    PseudoLabels

    Warns
    -----
    ConvergenceWarning
        If `tol` was not reached, with the gap that was.

    Examples
    --------
    >>> result = collision_pseudo_labels([[0.9, 0.1], [0.6, 0.4]], lam=10.0)
    >>> result.labels.round(2)
    array([[1.  , 0.  ],
           [0.02, 0.98]])
    """
    sigma = _check_rows("proba", proba)
    n_rows, n_classes = sigma.shape
    lam = check_number("lam", lam, at_least=0) / (n_rows if paper_scaling else 1)
    u = _check_prior(prior, n_classes)
    tol = check_number("tol", tol, above=0)
    name = _check_solver(solver, divergence, sigma.size, tol, u)
    method = _SOLVERS[name]
    free, labels = _check_fixed(fixed, sigma)
    problem = _Problem(
        sigma=sigma[free],
        start=_start(sigma, init, method.blur)[free],
        weight=n_rows * lam * u,
        offset=labels[~free].sum(axis=0),
        reverse=divergence == "reverse",
        step_size=None if step_size is None else check_number("step_size", step_size, above=0),
        tol=tol,
        max_iter=method.max_iter if max_iter is None else check_count("max_iter", max_iter),
    )
    if step_size is not None and name != "pgd":
        raise InvalidInputError(f"step_size is for solver='pgd'; {name!r} has none.")
    Y, loss, gap, n_iter = _most_probable(problem) if lam == 0.0 or not free.any() else method.solve(problem)
    labels[free] = Y
    objective, gap = loss / n_rows, gap / n_rows
    gap = max(gap, _ROUNDING * (1.0 + lam + abs(objective))) if n_iter else max(gap, 0.0)
    converged = bool(gap <= tol * max(1.0, objective) and np.isfinite(gap))
    if not converged:
        warnings.warn(
            f"{name} stopped after {n_iter} iterations (max_iter={problem.max_iter}) with a gap of up to "
            f"{gap:.1e} at an objective of {objective:.6g} (tol {tol:.1e}). "
            + (method.remedy if n_iter >= problem.max_iter else "Rounding allows no less; raise tol."),
            ConvergenceWarning,
            stacklevel=2,
        )
    pinned = _collision_loss(sigma[~free], labels[~free]) / n_rows
    return PseudoLabels(labels, objective + pinned, gap, n_iter, converged)


def _check_solver(solver: str, divergence: str, n_labels: int, tol: float, u: Floats) -> str:
    """Return the solver to use, or say why the one that is asked for cannot be."""
    check_choice("solver", solver, SOLVERS)
    check_choice("divergence", divergence, ["forward", "reverse"])
    if divergence == "forward":
        if solver != "auto":
            return solver
        return "em" if n_labels > _MANY_LABELS and tol >= _LOOSE else "interior-point"
    if solver not in ("auto", "pgd"):
        raise InvalidInputError(f"solver={solver!r} cannot take divergence='reverse'; use solver='pgd'.")
    if u.min() == 0.0:
        raise InvalidInputError(
            "prior has a zero, where KL(ybar || u) is infinite; give a positive one or divergence='forward'."
        )
    return "pgd"


def _most_probable(p: _Problem) -> _Solution:
    """Return the solution without a fairness term, or without free rows."""
    Y = np.eye(p.sigma.shape[1])[p.sigma.argmax(axis=1)]
    loss = _collision_loss(p.sigma, Y)
    if p.weight.any():  # all rows are pinned
        loss += fairness_loss(p.offset, p.weight, p.reverse)
    return _Solution(Y, loss, 0.0, 0)


def _check_rows(name: str, values: ArrayLike) -> Floats:
    """Return rows of probabilities as a contiguous float64 array (M, K), or say what is wrong with them."""
    rows = np.asarray(values)
    if rows.ndim != 2 or rows.size == 0:
        raise InvalidInputError(
            f"{name} has shape {rows.shape}; expected (M, K), a row of K probabilities for each of M samples."
        )
    return np.ascontiguousarray(check_distributions(name, rows, tol=_SUM_ERROR))


def _check_prior(prior: ArrayLike | None, n_classes: int) -> Floats:
    """Return u (K,), which sums to one."""
    if prior is None:
        return np.full(n_classes, 1.0 / n_classes)
    u = np.asarray(prior)
    if u.shape != (n_classes,):
        raise InvalidInputError(f"prior has shape {u.shape}; expected ({n_classes},), a share per class.")
    u = _check_rows("prior", u[None])[0]
    total: Floats = u / u.sum()
    return total


def _check_fixed(fixed: ArrayLike | None, sigma: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Return which rows are free (M,), and labels (M, K) with the pinned rows filled in."""
    n_rows, n_classes = sigma.shape
    labels = np.zeros(sigma.shape)
    if fixed is None:
        return np.ones(n_rows, dtype=bool), labels
    classes = np.asarray(fixed)
    if classes.shape != (n_rows,) or not np.issubdtype(classes.dtype, np.integer):
        raise InvalidInputError(
            f"fixed has shape {classes.shape} and type {classes.dtype}; expected ({n_rows},) whole numbers: "
            "the class of each labelled row, -1 for the others."
        )
    if classes.min() < -1 or classes.max() >= n_classes:
        raise InvalidInputError(
            f"fixed has values from {classes.min()} to {classes.max()}; expected -1 (free) or a class "
            f"from 0 to {n_classes - 1}."
        )
    free = classes == -1
    labels[~free] = np.eye(n_classes)[classes[~free]]
    return free, labels


def _start(sigma: Floats, init: ArrayLike | None, blur: float) -> Floats:
    """Return positive labels (M, K) to start from."""
    if init is None:
        Y: Floats = 0.5 * sigma + 0.5 / sigma.shape[1]
    else:
        rows = _check_rows("init", init)
        if rows.shape != sigma.shape:
            raise InvalidInputError(f"init has shape {rows.shape}; expected that of proba, {sigma.shape}.")
        Y = (1.0 - blur) * rows + blur / sigma.shape[1]
    Y /= Y.sum(axis=1, keepdims=True)
    return Y


def _collision_loss(sigma: Floats, labels: Floats) -> float:
    """Return the sum of the collision cross-entropies of the rows."""
    with np.errstate(divide="ignore"):
        return -float(np.log((sigma * labels).sum(axis=1)).sum())
