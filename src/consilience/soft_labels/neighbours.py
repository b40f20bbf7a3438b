"""Soft labels averaged over neighbours: rows that lie close together are likely of one class."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.kernels.linear_model import column_moments
from consilience.kernels.neighbours import NearestRows, Neighbours, nearest_neighbours
from consilience.rows import Rows
from consilience.run import Progress, silent
from consilience.soft_labels.estimate import rows_to_compare
from consilience.soft_labels.solvers import spread_out

# What is used by default, where it was measured to help.
N_NEIGHBORS = 10
# The most that neighbours weigh. The row itself keeps the rest.
MOST_WEIGHT = 0.5
# Neighbours that agree no better than the first (Cohen's kappa) weigh nothing; from the second on, the most.
LEAST_AGREEMENT, FULL_AGREEMENT = 0.2, 0.5
# Rows for choosing the scale of columns, and the weight of neighbours.
CHOICE_ROWS, WEIGHED_ROWS = 2000, 8192
# Draws the cells of the search among many rows. Which ones hardly matters.
SEED = 0
# More numbers than this are compared in single precision.
SINGLE_PRECISION = 100_000


def average_over_neighbours(
    rows: Rows,
    Q: NDArray[Any],
    used: NDArray[np.bool_],
    n_neighbors: int,
    *,
    required: bool,
    progress: Progress = silent,
) -> float:
    """Mix each row of Q with the mean of its nearest rows, (1 - w) q + w mean of q, in place; return w.

    w grows with how well neighbours agree: Cohen's kappa between the most probable class of a row and those
    of its neighbours. Where distances mean nothing, w is 0. They are Euclidean, between rows as they are or
    with all columns on one scale, whichever agrees better.

    Parameters
    ----------
    rows : Rows
        n rows. They are read block by block; a row that is not made of finite numbers is left as it is.
    Q : (n, L) array
        Soft labels, which are changed.
    used : (n,) array of bool
        Which rows take part.
    n_neighbors : int
        Fewer are used if a class of n / L rows has fewer other rows.
    required : bool
        Whether to raise if rows are not made of finite numbers, or to leave Q as it is.
    progress : callable
        Called with ("neighbours", rows done, rows in all).
    """
    places, features = np.flatnonzero(used), as_features(rows.head)
    if features is not None:
        chosen = rows_to_compare(len(places), features.shape[1])
        places = places if chosen is None else places[chosen]
        features = as_features(rows.take(places))
    if features is None or not np.isfinite(features).all():
        if required:
            raise InvalidInputError(
                "{argument} compares rows by distance, and X is not made of finite numbers. Use {remedy}.",
                argument="n_neighbors",
                value=n_neighbors,
                remedy=("n_neighbors", 0),
            )
        return 0.0
    k, labels = min(n_neighbors, len(places) // Q.shape[1] - 1), Q[places]
    if k < 1:
        return 0.0
    scale = _better_scale(features, labels, k)
    near = NearestRows(scale.of(features), SEED)
    some = spread_out(np.arange(len(places)), WEIGHED_ROWS)
    weight = neighbour_weight(labels, near.find(near.X[some], k, some), some)
    if weight == 0.0:
        return 0.0
    position = np.full(len(rows), -1)
    position[places] = np.arange(len(places))
    for block in rows.blocks():
        found = as_features(block.X)
        here = used[block.rows] & (False if found is None else np.isfinite(found).all(axis=1))
        if found is not None and here.any():
            mean = np.zeros((int(here.sum()), Q.shape[1]))
            for column in near.find(scale.of(found[here]), k, position[block.rows][here]).T:
                mean += labels[column]
            part = Q[block.rows]
            part[here] = (1.0 - weight) * part[here] + weight / k * mean
        progress("neighbours", block.rows.stop, len(rows))
    return weight


def as_features(X: Any) -> NDArray[Any] | None:
    """Return rows as numbers (n, d); None if they are texts, words or sparse."""
    if issparse(X):
        return None
    try:
        rows = np.ascontiguousarray(X)  # sums in another order would break ties between distances differently
    except (TypeError, ValueError, RuntimeError):  # ragged lists, tensors on another device
        return None
    if rows.dtype.kind not in "biuf" or rows.ndim < 2 or rows.size == 0:
        return None
    features = rows.reshape(len(rows), -1)
    return features if features.dtype.kind == "f" else features.astype(np.float32)


class Scale(NamedTuple):
    """How columns are centred and divided before rows are compared."""

    mean: Floats  # (d,)
    divisor: Floats  # (d,)
    dtype: type

    @classmethod
    def to(cls, features: NDArray[Any]) -> tuple[Self, Self]:
        """Return the scale of all columns together, and that of each for itself."""
        mean, spread = column_moments(features)
        dtype = np.float32 if features.size > SINGLE_PRECISION else np.float64
        length = float(np.sqrt((spread**2).sum())) or 1.0
        own = np.where(spread > 0, spread, 1.0)
        return cls(mean, np.full(len(spread), length), dtype), cls(mean, own, dtype)

    def of(self, features: NDArray[Any]) -> NDArray[Any]:
        """Return rows (n, d) on this scale."""
        return np.ascontiguousarray((features - self.mean) / self.divisor, self.dtype)


def _better_scale(features: NDArray[Any], Q: NDArray[Any], k: int) -> Scale:
    """Return the scale by which neighbours agree better, judged by some rows."""
    some = spread_out(np.arange(len(features)), CHOICE_ROWS)
    k = min(k, len(some) // Q.shape[1] - 1)
    plain, own = Scale.to(features)
    if k < 1:
        return plain
    kappas = [_agreement(Q[some], nearest_neighbours(s.of(features[some]), k, SEED)) for s in (plain, own)]
    return own if kappas[1] > kappas[0] else plain


def neighbour_weight(Q: NDArray[Any], neighbours: Neighbours, rows: Any = slice(None)) -> float:
    """Return the weight of neighbours (r, k) by how well their decisions agree with those of some `rows`."""
    share = (_agreement(Q, neighbours, rows) - LEAST_AGREEMENT) / (FULL_AGREEMENT - LEAST_AGREEMENT)
    return MOST_WEIGHT * float(np.clip(share, 0.0, 1.0))


def _agreement(Q: NDArray[Any], neighbours: Neighbours, rows: Any = slice(None)) -> float:
    """Return Cohen's kappa between the decisions of rows and those of their neighbours."""
    decisions = Q.argmax(axis=1)
    by_chance = float(((np.bincount(decisions) / len(decisions)) ** 2).sum())
    if by_chance > 1.0 - 1e-9:  # all decide alike: agreement says nothing
        return 0.0
    agree = float((decisions[neighbours] == decisions[rows][:, None]).mean())
    return (agree - by_chance) / (1.0 - by_chance)
