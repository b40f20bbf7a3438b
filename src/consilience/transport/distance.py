"""Optimal transport between the predictions of two classifiers whose classes differ; transported labels.

Equation numbers are those of "Selective Cross-Task Distillation".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr, softmax

from consilience._validation import (
    as_numbers,
    check_choice,
    check_cost,
    check_count,
    check_distributions,
    check_epsilon,
    check_number,
)
from consilience.exceptions import ConvergenceWarning, InvalidInputError, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.transport import sinkhorn as kernels

SHARE_TOL, SHARE_MAX_ITER = 1e-6, 100_000  # of the transport problem behind `class_share_shift`


@dataclass(frozen=True, eq=False)
class SinkhornResult:
    """The transport between two sets of predictions, row by row; see `sinkhorn`.

    Attributes
    ----------
    value : (n,) array
        The Sinkhorn distance, including its regularizer, eq. (5).
    beta : (n, k) array
        The dual of the target, eq. (13). Its entries sum to zero. With the "entropy" regularizer it is the
        gradient of `value` within the simplex (Prop. 4.2). Where the target is zero, that gradient is minus
        infinity; the entry is then the soft c-transform -epsilon log((K^T u)_n), which is the dual without
        the zero's own epsilon log p.
    residual : (n,) array
        An upper bound on the L1 error of the plan's marginals, up to rounding of 1e-12.
    n_iter : (n,) array of int
    converged : (n,) array of bool
        Whether `residual` is at most the tolerance.
    epsilon : float
        The value used, also when "auto" chose it.
    regularizer : {"entropy", "kl"}
    reduced_alpha : (n, m) array
        `alpha` minus the smallest cost. That cost may be so large that adding it rounds the plan away.
    source, target : (n, m) and (n, k) arrays
        The distributions, each row divided by its sum.
    cost_matrix : (m, k) array

    Examples
    --------
    >>> found = sinkhorn([[0.9, 0.1]], [[0.2, 0.8]], [[0, 1], [1, 0]], epsilon=0.1)
    >>> found.plan(0).sum(axis=0).round(3).tolist(), bool(found.converged[0])
    ([0.2, 0.8], True)
    """

    value: Floats
    beta: Floats
    residual: Floats
    n_iter: NDArray[np.int64]
    converged: NDArray[np.bool_]
    epsilon: float
    regularizer: str
    reduced_alpha: Floats = field(repr=False)
    source: Floats = field(repr=False)
    target: Floats = field(repr=False)
    cost_matrix: Floats = field(repr=False)

    def plan(self, row: int) -> Floats:
        """Return the plan T (m, k) of one row, eq. (18): the mass moved from each class to each class."""
        n = len(self.value)
        if isinstance(row, bool) or not isinstance(row, int | np.integer) or not -n <= row < n:
            raise InvalidInputError(
                f"{{argument}} is not one of the {n} rows; give a whole number below {n}.",
                argument="row",
                value=row,
            )
        a, b, alpha, beta = (part[row] for part in (self.source, self.target, self.reduced_alpha, self.beta))
        return kernels.plan(a, b, self.cost_matrix, self.epsilon, alpha, beta)

    @cached_property
    def alpha(self) -> Floats:
        """The dual of the source (n, m), eq. (13); zeros as in `beta`."""
        return np.asarray(self.reduced_alpha + self.cost_matrix.min())

    @cached_property
    def cost(self) -> Floats:
        """The cost <T, M> of each row (n,), without the regularizer."""
        return kernels.transport_cost(
            self.source, self.target, self.cost_matrix, self.epsilon, self.reduced_alpha, self.beta
        )

    @cached_property
    def gradient(self) -> Floats:
        """The gradient of `value` with respect to the target (n, k). Its entries sum to zero.

        For "entropy" it is `beta`; for "kl" it is beta - epsilon log p_S, minus its mean.
        """
        if self.regularizer == "entropy":
            return self.beta
        gradient = self.beta - self.epsilon * np.log(np.where(self.target > 0, self.target, 1.0))
        return np.asarray(gradient - gradient.mean(axis=1, keepdims=True))

    def __repr__(self) -> str:
        n, done = len(self.value), int(self.converged.sum())
        return (
            f"SinkhornResult({n} rows, mean value {self.value.mean() if n else math.nan:.4g}, "
            f"epsilon={self.epsilon:.4g}, {done} converged, at most {self.n_iter.max(initial=0)} iterations)"
        )


def sinkhorn(
    source: ArrayLike,
    target: ArrayLike,
    cost: ArrayLike,
    epsilon: float | str = "auto",
    *,
    regularizer: str = "entropy",
    tol: float = 1e-6,
    max_iter: int = 10_000,
    init: ArrayLike | None = None,
) -> SinkhornResult:
    r"""Return the Sinkhorn distance between each row of `source` and the same row of `target`.

    .. math:: S_\epsilon(p_T, p_S) = \min_{T \in \Pi(p_T, p_S)} \langle T, M \rangle - \epsilon H(T),
              \quad H(T) = -\sum_{mn} T_{mn} (\log T_{mn} - 1)

    Eq. (5) is the smoothed least cost of moving the teacher's distribution over its classes to the student's
    distribution over other classes. All rows share one cost matrix, so an iteration is two matrix products.

    Parameters
    ----------
    source : (n, m) array
        p_T, a distribution over the teacher's classes in each row.
    target : (n, k) array
        p_S, a distribution over the student's classes in each row.
    cost : (m, k) array
        M, the cost of moving mass from each class of the teacher to each of the student.
    epsilon : float or "auto"
        How smooth the plan is, in units of the cost. "auto" is half the standard deviation of the cost:
        if costs are nearly equal, a fixed epsilon makes every plan p_T p_S^T, and all rows look alike.
        Must be at least 1e-12 of the range of the cost.
    regularizer : {"entropy", "kl"}
        "entropy" is eq. (5). "kl" replaces -epsilon H(T) by epsilon KL(T || p_T p_S^T). The plan is the
        same, but the value lacks the entropies of p_T and p_S, and its gradient does not pull p_S towards
        the uniform distribution.
    tol : float
        A row has converged when the L1 error of its plan's marginals is at most this.
    max_iter : int
        Give up on a row after this many iterations. A `ConvergenceWarning` then reports its error.
    init : (n, k) array, optional
        Start from the duals `beta` of a similar problem. A row with NaN starts from scratch.

    Returns
    -------
    SinkhornResult

    Examples
    --------
    >>> cat_dog, tiger_dog = [[0.8, 0.2]], [[0.5, 0.5]]
    >>> result = sinkhorn(cat_dog, tiger_dog, [[0.2, 1.0], [1.0, 0.0]], epsilon=0.1)
    >>> result.plan(0).round(2)
    array([[0.5, 0.3],
           [0. , 0.2]])
    >>> result.cost.round(2)
    array([0.4])
    """
    a, b, M = _check_problem(source, target, cost)
    eps = check_epsilon(epsilon, M)
    check_choice("regularizer", regularizer, kernels.REGULARISERS)
    tol, max_iter = check_number("tol", tol, above=0), check_count("max_iter", max_iter)
    solved = kernels.solve(a, b, M, eps, tol, max_iter, _check_init(init, b))
    message = kernels.shortfall(solved.residual, solved.n_iter, tol, max_iter)
    if message:
        warn(ConvergenceWarning(message))
    value, converged = solved.value, solved.residual <= tol
    if regularizer == "kl":
        value = value + eps * (1.0 + entr(a).sum(axis=1) + entr(b).sum(axis=1))
    return SinkhornResult(
        value, solved.beta, solved.residual, solved.n_iter, converged, eps, regularizer,
        solved.alpha, a, b, M,
    )  # fmt: skip


@dataclass(frozen=True)
class ConvergenceRate:
    """A guaranteed speed of plain Sinkhorn iterations for any distributions (Prop. 4.3).

    Attributes
    ----------
    kappa : float
        kappa(K) of Theorem B.2, from 0 to 1.
    rate : float
        kappa squared: the factor by which each iteration shrinks the error of the gradient, measured in the
        variation seminorm (largest minus smallest entry).
    log_rate : float
        The logarithm of `rate`. It stays below zero even when `rate` rounds to one.
    start : float
        A bound on the error before the first iteration from v = p_S: the largest range of a row of M.
    """

    kappa: float
    rate: float
    log_rate: float
    start: float

    def iterations(self, delta: float, start: float | None = None) -> float:
        """Return a number of iterations that brings the gradient's error down to `delta`, eq. (23).

        Parameters
        ----------
        delta : float
        start : float, optional
            The error before the first iteration. Default: the bound that holds for all distributions.

        Returns
        -------
        float
            A whole number, or infinity if it exceeds the range of a float.
        """
        delta = check_number("delta", delta, above=0)
        error = self.start if start is None else check_number("start", start, at_least=0)
        if error <= delta:
            return 0.0
        if self.log_rate == 0.0:
            return math.inf
        return float(max(1, math.ceil(math.log(delta / error) / self.log_rate)))


def convergence_rate(cost: ArrayLike, epsilon: float | str = "auto") -> ConvergenceRate:
    r"""Return the rate of Prop. 4.3 at which Sinkhorn's gradients converge for this cost.

    .. math:: \kappa(K) = \frac{\sqrt{\psi} - 1}{\sqrt{\psi} + 1},
              \quad \psi = \max_{ijkl} \frac{K_{ik} K_{jl}}{K_{jk} K_{il}}

    This is Theorem B.2, with the root over psi alone as in Birkhoff's theorem; kappa is tanh(log(psi) / 4).
    The rate is a bound for the worst distributions. `sinkhorn` over-relaxes and needs far fewer iterations.

    Parameters
    ----------
    cost : (m, k) array
    epsilon : float or "auto"
        As in `sinkhorn`.

    Examples
    --------
    >>> rate = convergence_rate([[0.2, 1.0], [1.0, 0.0]], epsilon=0.5)
    >>> round(rate.kappa, 4), rate.iterations(1e-6)
    (0.7163, 21.0)
    """
    M = check_cost(cost)
    x = kernels.log_psi(M, check_epsilon(epsilon, M)) / 4.0
    if x > 1:  # log tanh x, without the cancellation that tanh x close to one would cause
        shrunk = math.exp(-2.0 * x)
        log_kappa = math.log1p(-2.0 * shrunk / (1.0 + shrunk))
    else:
        log_kappa = math.log(math.tanh(x)) if x > 0 else -math.inf
    log_rate = 2.0 * log_kappa
    return ConvergenceRate(math.tanh(x), math.tanh(x) ** 2, log_rate, float(np.ptp(M, axis=1).max()))


@dataclass(frozen=True, eq=False)
class ConvergenceCurves:
    """Convergence of the gradients of plain iterations, averaged over rows: Fig. 3 of the paper.

    Each curve is a (T + 1,) array that starts before the first iteration. `variation` and `euclidean` are
    norms of the gradient's error. `bound` is the limit of Prop. 4.3 on the variation seminorm.
    """

    variation: Floats
    bound: Floats
    euclidean: Floats
    epsilon: float
    n_rows: int


def convergence_curves(
    source: ArrayLike, target: ArrayLike, cost: ArrayLike, epsilon: float | str = "auto", *, n_iter: int = 100
) -> ConvergenceCurves:
    """Return the curves of Fig. 3: the error of the gradient after each of `n_iter` iterations.

    Parameters
    ----------
    source, target, cost, epsilon
        As in `sinkhorn`, but no probability may be zero.
    n_iter : int

    Examples
    --------
    >>> curves = convergence_curves([[0.9, 0.1]], [[0.2, 0.8]], [[0, 1], [1, 0]], epsilon=0.5, n_iter=20)
    >>> len(curves.variation), bool((curves.variation <= curves.bound + 1e-12).all())
    (21, True)
    """
    a, b, M = _check_problem(source, target, cost)
    if not ((a > 0).all() and (b > 0).all() and len(a)):
        raise InvalidInputError(
            "Give at least one row, and no probabilities of zero: their gradient is infinite."
        )
    eps = check_epsilon(epsilon, M)
    limit = kernels.solve(a, b, M, eps, 1e-13, 100_000).beta
    variation, euclidean = [], []
    for beta in kernels.plain_iterates(a, b, M, eps, check_count("n_iter", n_iter)):
        error = beta - limit
        variation.append(np.ptp(error, axis=1).mean())
        # gradients are defined up to a constant: take the one that brings them closest
        euclidean.append(np.linalg.norm(error - error.mean(axis=1, keepdims=True), axis=1).mean())
    rate = convergence_rate(M, eps).rate
    bound = variation[0] * rate ** np.arange(len(variation))
    return ConvergenceCurves(np.array(variation), bound, np.array(euclidean), eps, len(a))


def conditional_plan(cost: Floats, epsilon: float, shift: Floats | None = None) -> Floats:
    """Return P (m, K): the share of each class of the teacher that goes to each class of the student.

    The p_S that minimises the Sinkhorn distance of SCTD, eq. (5), is p_T P, with P[m, n] proportional to
    exp((shift_n - M_mn) / epsilon) and shift = 0. The distance pulls the student towards this transported
    label.

    Parameters
    ----------
    cost : (m, K) array
        M.
    epsilon : float
    shift : (K,) array, optional
        How much more each class of the student attracts; see `class_share_shift`.
    """
    return np.asarray(softmax(((0.0 if shift is None else shift) - cost) / epsilon, axis=1))


def class_share_shift(proba: Floats, shares: Floats, cost: Floats, epsilon: float) -> Floats:
    """Return the shift (K,) with which transported labels have the class shares of a task, on average.

    It is the dual of one transport problem, from the mean of `proba` to `shares`. Without it, a class of the
    student that is nearest to no class of the teacher gets no transported labels, and its rows are pulled
    towards other classes.

    Parameters
    ----------
    proba : (n, m) array
        The teacher's predictions.
    shares : (K,) array
        The share of each class among the labels.
    cost : (m, K) array
    epsilon : float
    """
    source, target = proba.mean(axis=0, keepdims=True), shares[None]
    solved = kernels.solve(
        source / source.sum(),
        target / target.sum(),
        np.ascontiguousarray(cost),
        epsilon,
        SHARE_TOL,
        SHARE_MAX_ITER,
    )
    if not solved.residual[0] <= SHARE_TOL:
        warn(
            ConvergenceWarning(
                f"Matching the class shares stopped after {int(solved.n_iter[0])} iterations with an error "
                f"of {solved.residual[0]:.1e} (above {SHARE_TOL:g}). Raise epsilon, or set {{remedy}}.",
                remedy=("match_shares", False),
            )
        )
    return np.asarray(solved.beta[0])


def _check_problem(source: ArrayLike, target: ArrayLike, cost: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return distributions (n, m) and (n, k) with rows that sum to exactly one, and the cost (m, k)."""
    M = check_cost(cost)
    rows = []
    for name, values, columns in (("source", source, M.shape[0]), ("target", target, M.shape[1])):
        p = check_distributions(name, values)
        if p.ndim != 2 or p.shape[1] != columns:
            raise InvalidInputError(
                f"{name} has shape {p.shape} and cost {M.shape}; expected (n, {columns}): one row of "
                "probabilities for each sample, and a cost from each column of source to each of target."
            )
        rows.append(np.ascontiguousarray(p / p.sum(axis=1, keepdims=True)))
    if len(rows[0]) != len(rows[1]):
        raise InvalidInputError(
            f"source has {len(rows[0])} rows and target {len(rows[1])}; give both one row for each sample."
        )
    return rows[0], rows[1], M


def _check_init(init: ArrayLike | None, b: Floats) -> Floats | None:
    if init is None:
        return None
    expected = f"expected {b.shape}: the beta of each row"
    start = as_numbers("init", init, expected)
    if start.shape != b.shape:
        raise InvalidInputError(f"init has shape {start.shape}; {expected}.")
    return np.asarray(start, dtype=np.float64)
