"""The losses of `CollisionClustering`: functions from predictions to what the model minimises next."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience.collision.pseudo_labels import collision_pseudo_labels
from consilience.collision.rounds import Relabel, Round
from consilience.exceptions import ConvergenceWarning
from consilience.kernels.collision.entropy import collision_from_logits, shannon_from_logits
from consilience.kernels.collision.equipartition import fair_assignment
from consilience.kernels.collision.mutual_information import (
    invariant_information,
    mutual_information,
    through_softmax,
)
from consilience.kernels.collision.neighbours import (
    Neighbours,
    mean_of_neighbours,
    mean_of_neighbours_transposed,
)
from consilience.kernels.linear_model import LogitLoss

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# Each round's labels are certified to this much of their optimum; the next round changes them by more.
_LABEL_TOL = 1e-4
# Width of the entropic assignment of SELA and MI-ADM: 1 / 25 as in SELA's code.
_EPSILON = 0.04
_ASSIGNMENT_TOL = 1e-5


class Problem(NamedTuple):
    """What a loss needs to know of the rows and of the options."""

    lam: float
    prior: Floats  # (K,)
    fixed: Ints  # (n,) the class of labelled rows, -1 elsewhere
    neighbours: Neighbours  # (n, k)
    solver: str

    def rows(self, index: Ints) -> Problem:
        """Return the same for some rows, without neighbours."""
        return self._replace(fixed=self.fixed[index], neighbours=np.empty((len(index), 0), np.int32))


def _collision(problem: Problem) -> Relabel:
    """L_CCE+, eq. (11): labels by the exact solver, started from those of the round before."""
    labels: Floats | None = None

    def relabel(S: Floats, A: Floats) -> Round:
        nonlocal labels
        found = collision_pseudo_labels(
            A,
            problem.lam,
            problem.prior,
            problem.solver,  # type: ignore[arg-type]
            init=labels,
            fixed=problem.fixed,
            tol=_LABEL_TOL,
        )
        labels = found.labels
        return Round(_mean_loss(collision_from_logits, labels), found.objective)

    return relabel


def _assigned(problem: Problem, lam: float) -> Relabel:
    """Shannon's cross-entropy with fair labels: eq. (5), and eq. (4) for infinite lam."""
    prices: Floats | None = None
    pinned = problem.fixed >= 0

    def relabel(S: Floats, A: Floats) -> Round:
        nonlocal prices
        with np.errstate(divide="ignore"):
            log_A = np.log(np.maximum(A, 1e-30))
            log_A[pinned] = np.log(np.eye(A.shape[1])[problem.fixed[pinned]])
        labels, prices, error = fair_assignment(
            log_A, problem.prior, lam, _EPSILON, _ASSIGNMENT_TOL, start=prices
        )
        if error > 100 * _ASSIGNMENT_TOL:
            warnings.warn(
                f"The fair assignment stopped with shares off by {error:.1g} (tol {_ASSIGNMENT_TOL:g}). "
                "Give a prior that the labelled rows allow.",
                ConvergenceWarning,
                stacklevel=2,
            )
        value = -float((labels * np.log(np.maximum(A, 1e-30))).sum()) / len(A)
        if np.isfinite(lam):
            share = labels.mean(axis=0)
            value += lam * float((share * np.log(np.maximum(share, 1e-300) / problem.prior)).sum())
        return Round(_mean_loss(shannon_from_logits, labels), value)

    return relabel


def _sela(problem: Problem) -> Relabel:
    return _assigned(problem, np.inf)


def _mi_adm(problem: Problem) -> Relabel:
    return _assigned(problem, problem.lam)


def _mi(problem: Problem) -> Relabel:
    """Mutual information, eq. (1), of predictions averaged over neighbours; no labels in between."""

    def loss(logits: Floats) -> tuple[float, Floats]:
        S = softmax(logits.astype(np.float64), axis=1)
        A = mean_of_neighbours(S, problem.neighbours)
        value, slope = mutual_information(A, problem.prior, problem.lam)
        return value, through_softmax(S, mean_of_neighbours_transposed(slope, problem.neighbours))

    return lambda S, A: Round(loss, mutual_information(A, problem.prior, problem.lam)[0])


def _iic(problem: Problem) -> Relabel:
    """Invariant information between a row and its neighbours."""

    def loss(logits: Floats) -> tuple[float, Floats]:
        S = softmax(logits.astype(np.float64), axis=1)
        A = mean_of_neighbours(S, problem.neighbours)
        value, by_S, by_A = invariant_information(S, A, problem.lam)
        return value, through_softmax(S, by_S + mean_of_neighbours_transposed(by_A, problem.neighbours))

    return lambda S, A: Round(loss, invariant_information(S, A, problem.lam)[0])


class ClusteringLoss(NamedTuple):
    make: Callable[[Problem], Relabel]
    lam: float  # default
    steps: int  # of L-BFGS a round: few where labels are made anew, many where nothing changes in between
    network_lam: float  # default for networks, whose stochastic steps a large weight of shares would drown


LOSSES: dict[str, ClusteringLoss] = {
    "collision": ClusteringLoss(_collision, 100.0, 5, 100.0),
    "mi": ClusteringLoss(_mi, 100.0, 20, 4.0),
    "sela": ClusteringLoss(_sela, np.inf, 5, np.inf),
    "mi-adm": ClusteringLoss(_mi_adm, 100.0, 5, 100.0),
    "iic": ClusteringLoss(_iic, 1.0, 20, 1.0),
}


def _mean_loss(rows_loss: Callable[..., tuple[Floats, Floats]], target: Floats) -> LogitLoss:
    def loss(logits: Floats) -> tuple[float, Floats]:
        losses, gradient = rows_loss(logits, target)
        return float(losses.mean()), gradient / len(target)

    return loss


def with_labels(relabel: Relabel, fixed: Ints, weight: float, n_classes: int) -> Relabel:
    """Add the cross-entropy on labelled rows, with a weight (Appendix E.2)."""
    rows = np.flatnonzero(fixed >= 0)
    if len(rows) == 0:
        return relabel
    known = _mean_loss(shannon_from_logits, np.eye(n_classes)[fixed[rows]])

    def both(S: Floats, A: Floats) -> Round:
        free, value = relabel(S, A)

        def loss(logits: Floats) -> tuple[float, Floats]:
            total, gradient = free(logits)
            extra, slope = known(logits[rows])
            gradient[rows] += weight * slope
            return total + weight * extra, gradient

        right = np.maximum(S[rows, fixed[rows]], 1e-300)
        return Round(loss, value - weight * float(np.log(right).mean()))

    return both
