"""Soft labels averaged over neighbours: rows that lie close together are likely of one class."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from consilience._dataset_rows import DatasetRows
from consilience._validation import n_rows
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.kernels.columns import column_moments, flat
from consilience.kernels.neighbours import Neighbours, mean_of_neighbours, near_rows
from consilience.soft_labels.methods import spread_out
from consilience.students.make import is_torch_student

N_NEIGHBORS = 10
# The most that neighbours weigh. The row itself keeps the rest.
MOST_WEIGHT = 0.5
# Neighbours that agree no better than the first (Cohen's kappa) weigh nothing; from the second on, the most.
LEAST_AGREEMENT, FULL_AGREEMENT = 0.2, 0.5
# By default, larger data go without: distances would take longer than training.
MOST_ROWS, MOST_NUMBERS = 100_000, 2**26
# Rows for choosing the scale of columns.
CHOICE_ROWS = 2000
# Draws the cells of the search among many rows. Which ones hardly matters.
SEED = 0


class Averaged(NamedTuple):
    """Soft labels (n, L), and what neighbours weigh in them."""

    soft_labels: Floats
    weight: float


def neighbours_wanted(n_neighbors: int | None, method: Any, student: Any, X: Any) -> int:
    """Return how many neighbours to average over; parameters as in `Unifier`.

    By default, this is done where it was measured to help: for the method ``"auto"``, and for students that
    are linear models or networks. Trees average over near rows themselves. A dataset goes without, because
    distances need all rows in memory.
    """
    if n_neighbors is not None:
        return n_neighbors
    if isinstance(X, DatasetRows):
        return 0
    named = student is None or (isinstance(student, str) and student in ("logistic", "mlp", "torch"))
    network = is_torch_student(student) or (callable(student) and not hasattr(student, "predict_proba"))
    rows = n_rows(X)
    small = rows <= MOST_ROWS and np.prod(getattr(X, "shape", (rows,))) <= MOST_NUMBERS
    return N_NEIGHBORS if method == "auto" and (named or network) and small else 0


def average_over_neighbours(X: Any, Q: Floats, n_neighbors: int, *, required: bool) -> Averaged:
    """Mix the soft labels of each row with the mean of its nearest rows: (1 - w) q + w mean of q.

    w grows with how well neighbours agree: Cohen's kappa between the most probable class of a row and those
    of its neighbours. Where distances mean nothing, w is 0. They are Euclidean, between rows as they are or
    with all columns on one scale, whichever agrees better.

    Parameters
    ----------
    X : array or data frame
        n rows.
    Q : (n, L) array
        Soft labels.
    n_neighbors : int
        Fewer are used if a class of n / L rows has fewer other rows.
    required : bool
        Whether to raise if X is not made of finite numbers, or to leave Q as it is.
    """
    Z = as_features(X)
    if Z is None:
        if required:
            raise InvalidInputError(
                "{argument} compares rows by distance, and X is not made of finite numbers. Use {remedy}.",
                argument="n_neighbors",
                value=n_neighbors,
                remedy=("n_neighbors", 0),
            )
        return Averaged(Q, 0.0)
    neighbours = _nearest_rows(Z, Q, n_neighbors)
    weight = neighbour_weight(Q, neighbours)
    if weight == 0.0:
        return Averaged(Q, 0.0)
    k = neighbours.shape[1]
    # the mean includes the row itself, whose share is 1 / (k + 1)
    others = weight * (k + 1) / k
    return Averaged((1.0 - others) * Q + others * mean_of_neighbours(Q, neighbours), weight)


def as_features(X: Any) -> NDArray[Any] | None:
    """Return rows as scaled numbers (n, d); None if they are texts, words, sparse, or not all finite."""
    if issparse(X):
        return None
    try:
        rows = np.ascontiguousarray(X)  # sums in another order would break ties between distances differently
    except (TypeError, ValueError, RuntimeError):  # ragged lists, tensors on another device
        return None
    if rows.dtype.kind not in "biuf" or rows.ndim < 2 or rows.size == 0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        Z = flat(rows)
    return Z if np.isfinite(Z).all() else None


def neighbour_weight(Q: Floats, neighbours: Neighbours) -> float:
    """Return the weight of neighbours (n, k) by how well their decisions agree."""
    kappa = _agreement(Q, neighbours)
    share = (kappa - LEAST_AGREEMENT) / (FULL_AGREEMENT - LEAST_AGREEMENT)
    return MOST_WEIGHT * float(np.clip(share, 0.0, 1.0))


def _agreement(Q: Floats, neighbours: Neighbours) -> float:
    """Return Cohen's kappa between the decisions of rows and those of their neighbours."""
    if neighbours.size == 0:
        return 0.0
    decisions = Q.argmax(axis=1)
    by_chance = float(((np.bincount(decisions) / len(decisions)) ** 2).sum())
    if by_chance > 1.0 - 1e-9:  # all decide alike: agreement says nothing
        return 0.0
    agree = float((decisions[neighbours] == decisions[:, None]).mean())
    return (agree - by_chance) / (1.0 - by_chance)


def _nearest_rows(Z: NDArray[Any], Q: Floats, n_neighbors: int) -> Neighbours:
    """Return neighbours (n, k) of rows as they are, or with standardised columns: those that agree better."""
    spread = column_moments(Z)[1]
    scales = (Z, Z / np.where(spread > 0, spread, 1.0).astype(Z.dtype))
    some = spread_out(np.arange(len(Z)), CHOICE_ROWS)
    found = [near_rows(scaled[some], n_neighbors, Q.shape[1], SEED) for scaled in scales]
    kappas = [_agreement(Q[some], near) for near in found]
    better = int(kappas[1] > kappas[0])
    if len(some) == len(Z):
        return found[better]
    return near_rows(scales[better], n_neighbors, Q.shape[1], SEED)
