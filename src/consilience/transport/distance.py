"""Optimal transport between the predictions of two classifiers whose classes differ.

Equation numbers are those of "Selective Cross-Task Distillation".
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._validation import (
    as_numbers,
    check_choice,
    check_cost,
    check_count,
    check_distributions,
    check_number,
    check_sharpness,
)
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.transport import sinkhorn as kernels

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SinkhornResult:
    """The transport of each row of two sets of predictions; see `sinkhorn`.

    Attributes
    ----------
    value : (n,) array
        The Sinkhorn distance with its regularizer, eq. (5).
    beta : (n, k) array
        The dual of the target, eq. (13), whose entries sum to zero: the gradient of an "entropy" `value`
        within the simplex (Prop. 4.2). Where the target has a zero that gradient is minus infinity, and the
        entry is the soft c-transform -epsilon log((K^T u)_n) instead: what the dual is without the zero's
        own epsilon log p.
    residual : (n,) array
        An upper bound of the L1 error of the plan's marginals, up to rounding of 1e-12.
    n_iter : (n,) array of int
    converged : (n,) array of bool
        Whether `residual` is at most the tolerance.
    epsilon : float
        As used; what "auto" came to.
    regularizer : {"entropy", "kl"}
    reduced_alpha : (n, m) array
        `alpha` less the smallest cost, which may be so large that a sum with it rounds the plan away.
    source, target : (n, m) and (n, k) arrays
        The distributions, each row divided by its sum.
    cost_matrix : (m, k) array
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
        """Return the plan T (m, k) of one row, eq. (18): how much moves from each class to each class."""
        n = len(self.value)
        if isinstance(row, bool) or not isinstance(row, int | np.integer) or not -n <= row < n:
            raise InvalidInputError(f"row={row!r} is not one of the {n} rows; give a whole number below {n}.")
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
        """The gradient of `value` with respect to the target (n, k), whose entries sum to zero.

        It is `beta` for the "entropy" regularizer, and beta - epsilon log p_S, less its mean, for "kl".
        """
        if self.regularizer == "entropy":
            return self.beta
        gradient = self.beta - self.epsilon * _log(self.target)
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

    Eq. (5): the least cost of moving the teacher's distribution over its classes to the student's over other
    classes, smoothed. One cost matrix serves all rows, so that an iteration is two matrix products.

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
        where costs are nearly equal, a fixed epsilon makes every plan p_T p_S^T and all rows look alike.
        At least 1e-12 of the range of the cost.
    regularizer : {"entropy", "kl"}
        "entropy" is eq. (5). "kl" has epsilon KL(T || p_T p_S^T) in place of -epsilon H(T): the plan is the
        same, the value lacks the entropies of p_T and p_S, and its gradient does not pull p_S towards the
        uniform distribution.
    tol : float
        The L1 error of the plan's marginals at which a row has converged.
    max_iter : int
        Iterations after which a row is given up, with a `ConvergenceWarning` that says how far it came.
    init : (n, k) array, optional
        Duals `beta` to start from, of a problem that differs little. A row with NaN starts anew.

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
    eps = _check_epsilon(epsilon, M)
    check_choice("regularizer", regularizer, kernels.REGULARISERS)
    tol, max_iter = check_number("tol", tol, above=0), check_count("max_iter", max_iter)
    solved = kernels.solve(a, b, M, eps, tol, max_iter, _check_init(init, b))
    message = kernels.shortfall(solved.residual, solved.n_iter, tol, max_iter)
    if message:
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    value, converged = solved.value, solved.residual <= tol
    if regularizer == "kl":
        value = value + eps * (1.0 - (a * _log(a)).sum(axis=1) - (b * _log(b)).sum(axis=1))
    return SinkhornResult(
        value, solved.beta, solved.residual, solved.n_iter, converged, eps, regularizer,
        solved.alpha, a, b, M,
    )  # fmt: skip


@dataclass(frozen=True)
class ConvergenceRate:
    """How fast plain Sinkhorn iterations converge at least, whatever the distributions (Prop. 4.3).

    Attributes
    ----------
    kappa : float
        kappa(K) of Theorem B.2, from 0 to 1.
    rate : float
        kappa squared: by what the error of the gradient shrinks in an iteration, in variation seminorm (the
        largest less the smallest entry).
    log_rate : float
        Its logarithm, which is not zero where `rate` rounds to one.
    start : float
        A bound of the error before the first iteration, when it starts from v = p_S: the largest range of a
        row of M.
    """

    kappa: float
    rate: float
    log_rate: float
    start: float

    def iterations(self, delta: float, start: float | None = None) -> float:
        """Return after how many iterations the gradient's error is surely at most `delta`, eq. (23).

        Parameters
        ----------
        delta : float
        start : float, optional
            The error before the first iteration; by default the bound that holds for all distributions.

        Returns
        -------
        float
            A whole number, infinite where it exceeds what a float can hold.
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

    of Theorem B.2 (where the root is over psi alone, as in Birkhoff's theorem), which is tanh(log(psi) / 4).
    It is a bound for the worst distributions: `sinkhorn`, over-relaxed, needs far fewer iterations.

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
    x = kernels.log_psi(M, _check_epsilon(epsilon, M)) / 4.0
    # log tanh x without the cancellation of tanh x close to one
    log_kappa = math.log1p(-2.0 / (math.exp(2.0 * x) + 1.0)) if 0 < x < 300 else -2.0 * math.exp(-2.0 * x)
    log_rate = -math.inf if x == 0 else 2.0 * log_kappa
    return ConvergenceRate(math.tanh(x), math.tanh(x) ** 2, log_rate, float(np.ptp(M, axis=1).max()))


@dataclass(frozen=True, eq=False)
class ConvergenceCurves:
    """How the gradients of plain iterations converge, averaged over rows: Fig. 3 of the paper.

    Each is a (T + 1,) array, from before the first iteration: `variation` and `euclidean` are norms of the
    gradient's error, `bound` is what Prop. 4.3 allows in variation seminorm.
    """

    variation: Floats
    bound: Floats
    euclidean: Floats
    epsilon: float
    n_rows: int


def convergence_curves(
    source: ArrayLike, target: ArrayLike, cost: ArrayLike, epsilon: float | str = "auto", *, n_iter: int = 100
) -> ConvergenceCurves:
    """Return the convergence curves of Fig. 3: gradients after each of `n_iter` iterations against the limit.

    Parameters
    ----------
    source, target, cost, epsilon
        As in `sinkhorn`; no probability may be zero.
    n_iter : int
    """
    a, b, M = _check_problem(source, target, cost)
    if not ((a > 0).all() and (b > 0).all() and len(a)):
        raise InvalidInputError(
            "Give at least one row, and no probability of zero, whose gradient is infinite."
        )
    eps = _check_epsilon(epsilon, M)
    limit = kernels.solve(a, b, M, eps, 1e-13, 100_000).beta
    variation, euclidean = [], []
    for beta in kernels.plain_iterates(a, b, M, eps, check_count("n_iter", n_iter)):
        error = beta - limit
        variation.append(np.ptp(error, axis=1).mean())
        # gradients are known up to a constant: the one that brings them nearest
        euclidean.append(np.linalg.norm(error - error.mean(axis=1, keepdims=True), axis=1).mean())
    rate = convergence_rate(M, eps).rate
    bound = variation[0] * rate ** np.arange(len(variation))
    return ConvergenceCurves(np.array(variation), bound, np.array(euclidean), eps, len(a))


def _check_problem(source: ArrayLike, target: ArrayLike, cost: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return distributions (n, m), (n, k), whose rows sum to exactly one, and the cost (m, k), or raise."""
    M = check_cost(cost)
    rows = []
    for name, values, columns in (("source", source, M.shape[0]), ("target", target, M.shape[1])):
        p = check_distributions(name, values)
        if p.ndim != 2 or p.shape[1] != columns:
            raise InvalidInputError(
                f"{name} has shape {p.shape} and cost {M.shape}; expected (n, {columns}): a row of "
                "probabilities for each sample, and a cost from each column of source to each of target."
            )
        rows.append(np.ascontiguousarray(p / p.sum(axis=1, keepdims=True)))
    if len(rows[0]) != len(rows[1]):
        raise InvalidInputError(
            f"source has {len(rows[0])} rows and target {len(rows[1])}; give a row of each for every sample."
        )
    return rows[0], rows[1], M


def _check_epsilon(epsilon: float | str, M: Floats) -> float:
    if isinstance(epsilon, str):
        check_choice("epsilon", epsilon, ("auto",))
        return check_sharpness(kernels.automatic_epsilon(M), M)
    return check_sharpness(check_number("epsilon", epsilon, above=0), M)


def _check_init(init: ArrayLike | None, b: Floats) -> Floats | None:
    if init is None:
        return None
    expected = f"expected {b.shape}: the beta of each row"
    start = as_numbers("init", init, expected)
    if start.shape != b.shape:
        raise InvalidInputError(f"init has shape {start.shape}; {expected}.")
    return np.asarray(start, dtype=np.float64)


def _log(p: Floats) -> Floats:
    """Return log p, and 0 where p is zero."""
    return np.asarray(np.log(np.where(p > 0, p, 1.0)))
