"""The losses of `CollisionClustering`, in one table: `MAKERS`.

A loss turns the predictions of a round into a `Round`: the function of the logits that the model minimises
until the next round. Losses of one kind make pseudo-labels, keep them for the round and train the model on
them. Losses of the other kind, such as mutual information and those that users bring, need no labels: they
are functions of the predictions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from consilience.cluster.options import IIC, MI, MIADM, SELA, Collision, Loss, Own
from consilience.exceptions import ConvergenceWarning, InvalidInputError, warn
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.collision.entropy import (
    collision_from_logits,
    invariant_information,
    mutual_information,
    shannon_from_logits,
    softmax_rows,
    through_softmax,
)
from consilience.kernels.collision.fair_labels import Options, fair_assignment, fair_labels
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


class Problem(NamedTuple):
    """What a loss needs to know about the rows."""

    loss: Loss
    prior: Floats  # (K,)
    fixed: Ints  # (n,) the class of labelled rows, -1 elsewhere
    neighbours: Neighbours  # (n, k)

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
# The same -> value, gradient by sigma, gradient by the means
LossOfPredictions = Callable[[Floats, Floats], tuple[float, Any, Any]]


def clustering_loss(problem: Problem) -> ClusteringLoss:
    """Return the loss of a problem. It may keep the solution of one round to start the next from it."""
    loss = MAKERS[type(problem.loss)](problem, problem.loss)
    return _with_labels(problem, loss) if (problem.fixed >= 0).any() else loss


def cross_entropy(labels: Floats) -> LogitLoss:
    """Return Shannon's cross-entropy towards labels (n, K)."""
    return mean_loss(shannon_from_logits, labels)


def mean_loss(rows_loss: Callable[..., tuple[Floats, Floats]], *target: Any) -> LogitLoss:
    """Return the mean of a loss of rows, as a function of their logits."""

    def loss(logits: Floats) -> tuple[float, Floats]:
        losses, gradient = rows_loss(logits, *target)
        return float(losses.mean()), gradient / len(logits)

    return loss


def _collision(problem: Problem, loss: Collision) -> ClusteringLoss:
    """L_CCE+, eq. (11): exact labels, started from those of the round before."""
    labels: Floats | None = None

    def of_round(S: Floats, A: Floats) -> Round:
        nonlocal labels
        options = Options(loss.solver, _LABEL_TOL)
        found = fair_labels(A, float(loss.lam), problem.prior, problem.fixed, labels, options)
        if not found.converged:
            remedy = "L" if found.solver == "interior-point" else "Use solver='interior-point', or l"
            warn(
                ConvergenceWarning(
                    f"The pseudo-labels of a round are off by up to {found.gap:.1e} (tol {_LABEL_TOL:g}) "
                    f"after {found.n_iter} iterations of {found.solver}. {remedy}ower lam."
                )
            )
        labels = found.labels
        return Round(mean_loss(collision_from_logits, labels), found.objective)

    return of_round


def _assignment(problem: Problem, loss: SELA | MIADM) -> ClusteringLoss:
    """Shannon's cross-entropy with fair labels: eq. (5), and eq. (4) for infinite lam."""
    lam = float(getattr(loss, "lam", np.inf))
    pinned = problem.fixed >= 0
    prices: Floats | None = None

    def of_round(S: Floats, A: Floats) -> Round:
        nonlocal prices
        log_A = np.log(np.maximum(A, _LEAST))
        cost = log_A.copy()
        with np.errstate(divide="ignore"):
            cost[pinned] = np.log(np.eye(A.shape[1])[problem.fixed[pinned]])
        labels, prices, error = fair_assignment(
            cost, problem.prior, lam, _EPSILON, _ASSIGNMENT_TOL, start=prices
        )
        if error > 100 * _ASSIGNMENT_TOL:
            warn(
                ConvergenceWarning(
                    f"The fair assignment stopped with shares off by {error:.1g} (tol {_ASSIGNMENT_TOL:g}). "
                    "Give a prior that the labelled rows allow."
                )
            )
        value = -float((labels * log_A).sum()) / len(A)
        if np.isfinite(lam):
            share = labels.mean(axis=0)
            value += lam * float((share * np.log(np.maximum(share, 1e-300) / problem.prior)).sum())
        return Round(cross_entropy(labels), value)

    return of_round


def _of_predictions(problem: Problem, of: LossOfPredictions) -> ClusteringLoss:
    """Return a loss of predictions and their means over neighbours, without labels in between."""

    def of_logits(logits: Floats) -> tuple[float, Floats]:
        S = softmax_rows(logits)
        value, by_S, by_A = of(S, mean_of_neighbours(S, problem.neighbours))
        return value, through_softmax(S, by_S + mean_of_neighbours_transposed(by_A, problem.neighbours))

    return lambda S, A: Round(of_logits, of(S, A)[0])


def _mutual_information(problem: Problem, loss: MI) -> ClusteringLoss:
    """Mutual information, eq. (1), of predictions averaged over neighbours."""

    def of(S: Floats, A: Floats) -> tuple[float, float, Floats]:
        value, slope = mutual_information(A, problem.prior, 100.0 if loss.lam is None else loss.lam)
        return value, 0.0, slope

    return _of_predictions(problem, of)


def _invariant_information(problem: Problem, loss: IIC) -> ClusteringLoss:
    """Invariant information between a row and its neighbours."""
    return _of_predictions(problem, lambda S, A: invariant_information(S, A, loss.lam))


def _own(problem: Problem, loss: Own) -> ClusteringLoss:
    """A user's loss with its output checked: a finite value and gradients of the right shape."""

    def of(S: Floats, A: Floats) -> tuple[float, Floats, Floats]:
        out = loss.function(S, A)
        try:
            value, by_S, by_A = out
            value = float(value)
            slopes = [np.broadcast_to(np.asarray(part, dtype=np.float64), S.shape) for part in (by_S, by_A)]
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"The loss returned a {type(out).__name__}; expected three: the value, its gradient by proba "
                f"and its gradient by mean_proba, each {S.shape}, or 0.0 if it depends not on one ({error})."
            ) from error
        if not (np.isfinite(value) and np.isfinite(slopes).all()):
            raise InvalidInputError(
                f"The loss returned the value {value}, or gradients, that are not finite. Keep logarithms "
                "and divisions away from zero: predictions can be 0."
            )
        return value, slopes[0], slopes[1].copy()  # a copy that compiled loops may take

    return _of_predictions(problem, of)


MAKERS: Mapping[type[Loss], Callable[[Problem, Any], ClusteringLoss]] = {
    Collision: _collision,
    MI: _mutual_information,
    SELA: _assignment,
    MIADM: _assignment,
    IIC: _invariant_information,
    Own: _own,
}


def _with_labels(problem: Problem, loss: ClusteringLoss) -> ClusteringLoss:
    """Add the weighted cross-entropy of the labelled rows (Appendix E.2)."""
    rows, weight = np.flatnonzero(problem.fixed >= 0), float(problem.loss.label_weight)
    classes = problem.fixed[rows]
    known = cross_entropy(np.eye(len(problem.prior))[classes])

    def of_round(S: Floats, A: Floats) -> Round:
        free, value = loss(S, A)

        def of_logits(logits: Floats) -> tuple[float, Floats]:
            total, gradient = free(logits)
            extra, slope = known(logits[rows])
            gradient[rows] += weight * slope
            return total + weight * extra, gradient

        right = np.maximum(S[rows, classes], 1e-300)
        return Round(of_logits, value - weight * float(np.log(right).mean()))

    return of_round
