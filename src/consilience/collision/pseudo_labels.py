"""Pseudo-labels: the labels that agree best with predictions while every class gets its fair share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._validation import (
    as_numbers,
    check_choice,
    check_count,
    check_distributions,
    check_number,
)
from consilience.exceptions import ConvergenceWarning, InvalidInputError, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.collision import fair_labels as kernel

Solver = Literal["auto", "interior-point", "em", "pgd"]
Divergence = Literal["forward", "reverse"]

SOLVERS: tuple[str, ...] = ("auto", *kernel.SOLVERS)
# With a larger weight of fairness, the other part of the objective is lost to rounding.
LARGEST_LAM = 1e15
_LARGEST_SHARE = 1e100  # larger ones may have no finite sum
# Row sums of proba and of init may differ from one by this much. Those of a half-precision softmax do.
_SUM_ERROR = 1e-2
_REMEDIES = {
    "interior-point": "Raise max_iter or tol.",
    "em": "Raise max_iter or tol, or use {remedy}.",
    "pgd": "Raise max_iter or tol, try another step_size, or use {remedy}.",
}


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
    r"""Find the labels that best agree with the predictions and use every class fairly.

    Minimises eq. (11) of the paper over all y_i on the simplex,

    .. math:: \frac1M \sum_i -\log(\sigma_i \cdot y_i) + \lambda\, KL(u \| \bar y),
        \qquad \bar y = \frac1M \sum_i y_i.

    Parameters
    ----------
    proba : (M, K) array
        Predictions sigma; rows are non-negative and sum to one.
    lam : float
        Weight of fairness in the mean-form loss above. At 0 each row gets its most probable class (the first
        of equals). As it grows, the mean of the labels approaches `prior`.
    prior : (K,) array, optional
        u, how often each class should occur, as shares or as counts; uniform by default. A class of prior 0
        may stay without labels.
    solver : {"auto", "interior-point", "em", "pgd"}
        ``"interior-point"`` is exact: some 5 to 40 Newton steps for any `lam`, O(M K^2 + K^3) each. ``"em"``
        is the paper's algorithm: O(M K) per iteration, and thousands of them if `lam` is large. ``"pgd"`` is
        projected gradient descent, the paper's baseline. ``"auto"`` is interior-point, but EM for more than
        5e7 labels with a `tol` of 1e-3 or more, and pgd if the divergence is reversed.
    init : (M, K) array, optional
        Labels to start from, such as those of a similar problem. A little of uniform labels is mixed in.
    fixed : (M,) array of int, optional
        The class of each labelled row, -1 for rows whose labels are sought (Appendix E.2).
    tol : float
        Stop when the certified gap is below ``tol * max(1, objective)``.
    max_iter : int, optional
        Most iterations; 100 for ``"interior-point"``, 2000 for the others.
    divergence : {"forward", "reverse"}
        ``"forward"`` is KL(u || ybar) as above, ``"reverse"`` is KL(ybar || u) of eq. (10), with pgd only.
    step_size : float, optional
        For ``"pgd"``: multiplies the gradient of the loss above. By default it is ``M / (1 + lam K)``, about
        one over the curvature at fair labels, quartered until it descends.
    paper_scaling : bool
        Take `lam` as the paper's Algorithm 1 does, whose M step lacks a factor M. The problem solved and the
        objective returned then have the weight ``lam / M``.

    Returns
    -------
    PseudoLabels

    Warns
    -----
    ConvergenceWarning
        If the gap is above `tol`; it says by how much.

    Examples
    --------
    >>> result = collision_pseudo_labels([[0.9, 0.1], [0.6, 0.4]], lam=10.0)
    >>> result.labels.round(2)
    array([[1.  , 0.  ],
           [0.02, 0.98]])
    """
    sigma = _check_rows("proba", proba)
    n_rows, n_classes = sigma.shape
    check_choice("paper_scaling", paper_scaling, (True, False))
    lam = check_number("lam", lam, at_least=0, at_most=LARGEST_LAM) / (n_rows if paper_scaling else 1)
    u = read_prior(prior, n_classes)
    _check_solver(solver, divergence, u)
    start = None if init is None else _check_rows("init", init, like=sigma)
    options = kernel.Options(
        solver=solver,
        tol=check_number("tol", tol, above=0),
        max_iter=None if max_iter is None else check_count("max_iter", max_iter),
        reverse=divergence == "reverse",
        step_size=None if step_size is None else check_number("step_size", step_size, above=0, at_most=1e100),
    )
    name = kernel.choose_solver(options, sigma.size)
    if step_size is not None and name != "pgd":
        raise InvalidInputError(
            f"{{argument}} is for {{remedy}}; {name!r} has none.",
            argument="step_size",
            value=step_size,
            remedy=("solver", "pgd"),
        )
    found = kernel.fair_labels(sigma, lam, u, _check_fixed(fixed, sigma), start, options)
    if not found.converged:
        remedy = _REMEDIES[name] if found.n_iter >= found.max_iter else "Rounding allows no less; raise tol."
        warn(
            ConvergenceWarning(
                f"{name} stopped after {found.n_iter} iterations ({{argument}}) with a gap of up to "
                f"{found.gap:.1e} at an objective of {found.free_objective:.6g} (tol {options.tol:.1e}). "
                f"{remedy}",
                argument="max_iter",
                value=found.max_iter,
                remedy=("solver", "interior-point"),
            )
        )
    return PseudoLabels(found.labels, found.objective, found.gap, found.n_iter, found.converged)


def read_prior(prior: ArrayLike | None, size: int, each: str = "class", *, positive: bool = False) -> Floats:
    """Return the share of each class (size,), scaled to sum to one, or say what is wrong with it.

    Parameters
    ----------
    prior : (size,) array or None
        Shares on any scale, such as counts; None for equal shares.
    size : int
        Number of classes.
    each : str
        What to call a class in an error.
    positive : bool
        Whether a share of zero is an error.

    Examples
    --------
    >>> read_prior([3, 1], 2).tolist(), read_prior(None, 2).tolist()
    ([0.75, 0.25], [0.5, 0.5])
    """
    if prior is None:
        return np.full(size, 1.0 / size)
    expected = f"expected numbers ({size},), a share for each {each}"
    shares = np.asarray(as_numbers("prior", prior, expected), dtype=np.float64)
    if shares.shape != (size,):
        raise InvalidInputError(f"prior has shape {shares.shape}; {expected}.")
    largest = shares.max()
    # the negation catches NaN too
    if not ((shares >= 0).all() and 0 < largest <= _LARGEST_SHARE and (not positive or shares.min() > 0)):
        wanted = (
            f"a positive share for each {each}" if positive else f"a share from 0 for each {each}, not all 0"
        )
        raise InvalidInputError(f"prior is {np.asarray(prior).tolist()}; expected {wanted}.")
    shares = shares / largest  # first, so that tiny shares have a sum to divide by
    return np.asarray(shares / shares.sum())


def _check_solver(solver: str, divergence: str, u: Floats) -> None:
    """Raise unless the solver can be used."""
    check_choice("solver", solver, SOLVERS)
    check_choice("divergence", divergence, ["forward", "reverse"])
    if divergence == "reverse" and solver not in ("auto", "pgd"):
        raise InvalidInputError(
            "{argument} cannot take divergence='reverse'; use {remedy}.",
            argument="solver",
            value=solver,
            remedy=("solver", "pgd"),
        )
    if divergence == "reverse" and u.min() == 0.0:
        raise InvalidInputError(
            "prior has a zero, where KL(ybar || u) is infinite; give a positive one or {remedy}.",
            remedy=("divergence", "forward"),
        )


def _check_rows(name: str, values: ArrayLike, like: Floats | None = None) -> Floats:
    """Return rows of probabilities as a contiguous float64 array (M, K), or say what is wrong with them."""
    rows = check_distributions(name, values, tol=_SUM_ERROR)
    if rows.ndim != 2 or rows.size == 0 or (like is not None and rows.shape != like.shape):
        expected = "(M, K)" if like is None else like.shape
        raise InvalidInputError(
            f"{name} has shape {rows.shape}; expected {expected}, a row of K probabilities for each of M "
            "samples."
        )
    return np.ascontiguousarray(rows)


def _check_fixed(fixed: ArrayLike | None, sigma: Floats) -> NDArray[np.integer] | None:
    """Return the class of each pinned row (M,), -1 for free rows."""
    if fixed is None:
        return None
    n_rows, n_classes = sigma.shape
    expected = f"expected ({n_rows},) whole numbers: the class of each labelled row, -1 for the others"
    classes = as_numbers("fixed", fixed, expected)
    if classes.shape != (n_rows,) or not np.issubdtype(classes.dtype, np.integer):
        raise InvalidInputError(f"fixed has shape {classes.shape} and type {classes.dtype}; {expected}.")
    if classes.min() < -1 or classes.max() >= n_classes:
        raise InvalidInputError(
            f"fixed has values from {classes.min()} to {classes.max()}; expected -1 (free) or a class "
            f"from 0 to {n_classes - 1}."
        )
    return classes
