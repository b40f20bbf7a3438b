"""The losses of `CollisionClustering`, in one table: `LOSSES`.

A loss turns the predictions of a round into a `Round`: the function of the logits that the model minimises
until the next round. Losses of one kind make pseudo-labels, keep them for the round and train the model on
them. Losses of the other kind, such as mutual information and those that users bring, need no labels: they
are functions of the predictions alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.collision.entropy import collision_from_logits, shannon_from_logits
from consilience.kernels.collision.equipartition import fair_assignment
from consilience.kernels.collision.fair_labels import FairLabels, Options, fair_labels
from consilience.kernels.collision.mutual_information import (
    invariant_information,
    mutual_information,
    softmax_rows,
    through_softmax,
)
from consilience.kernels.linear_model import LogitLoss
from consilience.kernels.neighbours import (
    Neighbours,
    mean_of_neighbours,
    mean_of_neighbours_transposed,
)

# The labels of a round are certified to this much of their optimum; the next round changes them by more.
_LABEL_TOL = 1e-3
# Width of the entropic assignment of SELA and MI-ADM: 1 / 25, as in SELA's code.
_EPSILON = 0.04
_ASSIGNMENT_TOL = 1e-5
# The smallest probability whose logarithm is taken.
_LEAST = 1e-30

# (proba (n, K), mean_proba (n, K)) -> (value, gradient by proba, gradient by mean_proba)
OwnLoss = Callable[[Floats, Floats], tuple[float, Any, Any]]


class Problem(NamedTuple):
    """What a loss needs to know about the rows and the options."""

    loss: str | OwnLoss
    lam: float
    prior: Floats  # (K,)
    fixed: Ints  # (n,) the class of labelled rows, -1 elsewhere
    neighbours: Neighbours  # (n, k)
    solver: str
    label_weight: float

    def rows(self, index: Ints, neighbours: Neighbours | None = None) -> Problem:
        """Return the problem of some rows, with these neighbours among them or none."""
        if neighbours is None:
            neighbours = np.empty((len(index), 0), np.int32)
        return self._replace(fixed=self.fixed[index], neighbours=neighbours)


class Round(NamedTuple):
    """What a clustering loss makes of predictions."""

    loss: LogitLoss  # what the model minimises until the next round
    value: float  # the loss at the predictions


# (sigma (n, K), their means over neighbours (n, K)) -> Round
ClusteringLoss = Callable[[Floats, Floats], Round]


def clustering_loss(problem: Problem) -> ClusteringLoss:
    """Return the loss of a problem. It may keep the solution of one round to start the next from it."""
    if callable(problem.loss):
        loss: ClusteringLoss = _OfPredictions(problem, _checked(problem.loss))
    else:
        loss = LOSSES[problem.loss].make(problem)
    return _WithLabels(problem, loss) if (problem.fixed >= 0).any() else loss


def cross_entropy(labels: Floats) -> LogitLoss:
    """Return Shannon's cross-entropy towards labels (n, K)."""
    return _mean_loss(shannon_from_logits, labels)


class _Collision:
    """L_CCE+, eq. (11): exact labels, started from those of the round before."""

    labels: Floats | None

    def __init__(self, problem: Problem) -> None:
        self.problem, self.labels = problem, None
        self.options = Options(problem.solver, _LABEL_TOL)

    def __call__(self, S: Floats, A: Floats) -> Round:
        p = self.problem
        found = fair_labels(A, p.lam, p.prior, p.fixed, self.labels, self.options)
        if not found.converged:
            _warn_of_labels(found)
        self.labels = found.labels
        return Round(_mean_loss(collision_from_logits, found.labels), found.objective)


class _Assignment:
    """Shannon's cross-entropy with fair labels: eq. (5), and eq. (4) for infinite lam."""

    prices: Floats | None

    def __init__(self, problem: Problem) -> None:
        self.problem, self.prices = problem, None
        self.pinned = problem.fixed >= 0

    def __call__(self, S: Floats, A: Floats) -> Round:
        p = self.problem
        log_A = np.log(np.maximum(A, _LEAST))
        cost = log_A.copy()
        with np.errstate(divide="ignore"):
            cost[self.pinned] = np.log(np.eye(A.shape[1])[p.fixed[self.pinned]])
        labels, self.prices, error = fair_assignment(
            cost, p.prior, p.lam, _EPSILON, _ASSIGNMENT_TOL, start=self.prices
        )
        if error > 100 * _ASSIGNMENT_TOL:
            warnings.warn(
                f"The fair assignment stopped with shares off by {error:.1g} (tol {_ASSIGNMENT_TOL:g}). "
                "Give a prior that the labelled rows allow.",
                ConvergenceWarning,
                stacklevel=2,
            )
        value = -float((labels * log_A).sum()) / len(A)
        if np.isfinite(p.lam):
            share = labels.mean(axis=0)
            value += p.lam * float((share * np.log(np.maximum(share, 1e-300) / p.prior)).sum())
        return Round(cross_entropy(labels), value)


class _OfPredictions:
    """A loss of predictions and their means over neighbours, without labels in between."""

    def __init__(self, problem: Problem, of: OwnLoss) -> None:
        self.neighbours, self.of = problem.neighbours, of

    def __call__(self, S: Floats, A: Floats) -> Round:
        return Round(self.of_logits, self.of(S, A)[0])

    def of_logits(self, logits: Floats) -> tuple[float, Floats]:
        S = softmax_rows(logits)
        value, by_S, by_A = self.of(S, mean_of_neighbours(S, self.neighbours))
        return value, through_softmax(S, by_S + mean_of_neighbours_transposed(by_A, self.neighbours))


def _mutual_information(problem: Problem) -> ClusteringLoss:
    """Mutual information, eq. (1), of predictions averaged over neighbours."""

    def of(S: Floats, A: Floats) -> tuple[float, float, Floats]:
        value, slope = mutual_information(A, problem.prior, problem.lam)
        return value, 0.0, slope

    return _OfPredictions(problem, of)


def _invariant_information(problem: Problem) -> ClusteringLoss:
    """Invariant information between a row and its neighbours."""
    return _OfPredictions(problem, lambda S, A: invariant_information(S, A, problem.lam))


class Entry(NamedTuple):
    """A line of the table."""

    make: Callable[[Problem], ClusteringLoss]
    lam: float  # default
    steps: int  # of L-BFGS a round: few if labels are made anew each round, many if nothing changes
    network_lam: float  # default for networks, where a large weight of shares drowns the stochastic steps


LOSSES: dict[str, Entry] = {
    "collision": Entry(_Collision, 100.0, 5, 100.0),
    "mi": Entry(_mutual_information, 100.0, 20, 4.0),
    "sela": Entry(_Assignment, np.inf, 5, np.inf),
    "mi-adm": Entry(_Assignment, 100.0, 5, 100.0),
    "iic": Entry(_invariant_information, 1.0, 20, 1.0),
}
OWN_STEPS = 20  # of L-BFGS a round, for a loss that is a function


class _WithLabels:
    """A loss plus the weighted cross-entropy of the labelled rows (Appendix E.2)."""

    def __init__(self, problem: Problem, loss: ClusteringLoss) -> None:
        self.loss, self.weight = loss, problem.label_weight
        self.rows = np.flatnonzero(problem.fixed >= 0)
        self.classes = problem.fixed[self.rows]
        self.known = cross_entropy(np.eye(len(problem.prior))[self.classes])

    def __call__(self, S: Floats, A: Floats) -> Round:
        free, value = self.loss(S, A)

        def of_logits(logits: Floats) -> tuple[float, Floats]:
            total, gradient = free(logits)
            extra, slope = self.known(logits[self.rows])
            gradient[self.rows] += self.weight * slope
            return total + self.weight * extra, gradient

        right = np.maximum(S[self.rows, self.classes], 1e-300)
        return Round(of_logits, value - self.weight * float(np.log(right).mean()))


def _mean_loss(rows_loss: Callable[..., tuple[Floats, Floats]], target: Floats) -> LogitLoss:
    def loss(logits: Floats) -> tuple[float, Floats]:
        losses, gradient = rows_loss(logits, target)
        return float(losses.mean()), gradient / len(target)

    return loss


def _checked(own: OwnLoss) -> OwnLoss:
    """Return a user's loss with its output checked: a finite value and gradients of the right shape."""

    def of(S: Floats, A: Floats) -> tuple[float, Floats, Floats]:
        out = own(S, A)
        if not isinstance(out, tuple) or len(out) != 3:
            raise InvalidInputError(
                f"The loss returned a {type(out).__name__}; expected three: the value, its gradient by proba "
                "and its gradient by mean_proba (0.0 if it does not depend on one)."
            )
        try:
            value = float(out[0])
            slopes = [np.broadcast_to(np.asarray(part, dtype=np.float64), S.shape) for part in out[1:]]
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"The loss returned what cannot be read as a number and two gradients {S.shape}: {error}."
            ) from error
        if not np.isfinite(value) or not all(np.isfinite(slope).all() for slope in slopes):
            raise InvalidInputError(
                f"The loss returned the value {value}, or gradients, that are not finite. Keep logarithms "
                "and divisions away from zero: predictions can be 0."
            )
        return value, slopes[0], slopes[1].copy()  # a copy that compiled loops may take

    return of


def _warn_of_labels(found: FairLabels) -> None:
    exact = found.solver == "interior-point"
    warnings.warn(
        f"The pseudo-labels of a round are off by up to {found.gap:.1e} (tol {_LABEL_TOL:g}) after "
        f"{found.n_iter} iterations of {found.solver}. "
        + ("Lower lam." if exact else "Use solver='interior-point', or lower lam."),
        ConvergenceWarning,
        stacklevel=2,
    )
