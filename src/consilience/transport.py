"""Optimal transport between the predictions of two classifiers whose classes differ.

Equation numbers are those of "Selective Cross-Task Distillation".
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._validation import check_choice, check_count, check_distributions, check_number
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels import sinkhorn as kernels

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SinkhornResult:
    """The transport of each row; see `sinkhorn`."""

    value: Floats
    beta: Floats
    residual: Floats
    n_iter: NDArray[np.int64]
    converged: NDArray[np.bool_]
    epsilon: float
    regulariser: str
    alpha: Floats
    source: Floats
    target: Floats
    cost_matrix: Floats

    def plan(self, row: int) -> Floats:
        """Return the plan T (m, k) of one row, eq. (18)."""
        log_plan = (self.alpha[row][:, None] + self.beta[row] - self.cost_matrix) / self.epsilon
        moved = (self.source[row] > 0)[:, None] & (self.target[row] > 0)
        return np.exp(np.where(moved, log_plan, -np.inf))

    @cached_property
    def cost(self) -> Floats:
        """The plain cost <T, M> of each row (n,), without the regulariser."""
        return np.array([np.vdot(self.plan(i), self.cost_matrix) for i in range(len(self.value))])


def sinkhorn(
    source: ArrayLike,
    target: ArrayLike,
    cost: ArrayLike,
    epsilon: float | str = "auto",
    *,
    regulariser: str = "entropy",
    tol: float = 1e-6,
    max_iter: int = 10_000,
    init: ArrayLike | None = None,
) -> SinkhornResult:
    """Return the Sinkhorn distance between each row of `source` and `target`, eq. (5)."""
    a, b = check_distributions("source", source), check_distributions("target", target)
    M = np.asarray(cost, dtype=np.float64)
    check_choice("regulariser", regulariser, kernels.REGULARISERS)
    tol, max_iter = check_number("tol", tol, above=0), check_count("max_iter", max_iter)
    if a.ndim != 2 or b.ndim != 2 or len(a) != len(b) or M.shape != (a.shape[1], b.shape[1]):
        raise InvalidInputError(
            f"source has shape {a.shape}, target {b.shape} and cost {M.shape}; "
            "expected (n, m), (n, k) and (m, k)."
        )
    if not np.isfinite(M).all():
        raise InvalidInputError("cost has entries that are not finite.")
    eps = kernels.automatic_epsilon(M) if epsilon == "auto" else check_number("epsilon", epsilon, above=0)
    a, b = a / a.sum(axis=1, keepdims=True), b / b.sum(axis=1, keepdims=True)
    start = None if init is None else np.asarray(init, dtype=np.float64)
    solved = kernels.solve(a, b, M, eps, tol, max_iter, start)
    converged = solved.residual <= tol
    message = kernels.shortfall(solved.residual, tol, max_iter)
    if message:
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    value = solved.value
    if regulariser == "kl":
        log_a, log_b = np.log(np.where(a > 0, a, 1.0)), np.log(np.where(b > 0, b, 1.0))
        value = value + eps * (1.0 - (a * log_a).sum(axis=1) - (b * log_b).sum(axis=1))
    return SinkhornResult(
        value, solved.beta, solved.residual, solved.n_iter, converged, eps, regulariser, solved.alpha, a, b, M
    )
