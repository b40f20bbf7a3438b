"""Repair a start: where one cluster holds two groups and two clusters share one group, swap them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.collision.mutual_information import mutual_information
from consilience.kernels.neighbours import Neighbours, mean_of_neighbours

# A swap must lower the value by this much.
_LEAST_FALL = 1e-4
# After a swap, each row takes the commonest cluster of its neighbours, so many times.
_VOTES = 3
# Steps that find the longest direction of a cluster, and steps of Lloyd's algorithm from there.
_POWER_STEPS, _LLOYD_STEPS = 5, 3


def neighbour_information(clusters: Ints, neighbours: Neighbours, prior: Floats) -> float:
    """Return minus the mutual information of rows' clusters (n,) and their neighbours', plus a constant."""
    means = mean_of_neighbours(np.eye(len(prior))[clusters], neighbours)
    return mutual_information(means, prior, 1.0)[0]


def neighbour_entropy(clusters: Ints, neighbours: Neighbours, n_clusters: int) -> float:
    """Return how mixed the clusters of neighbours are: 0 if they agree, 1 if all are as common."""
    means = mean_of_neighbours(np.eye(n_clusters)[clusters], neighbours)
    return float(_entropy(means).sum() / (len(means) * np.log(max(n_clusters, 2))))


def regroup(Z: NDArray[Any], clusters: Ints, neighbours: Neighbours, prior: Floats) -> Ints:
    """Return clusters (n,) of rows Z (n, d) with greater mutual information between neighbours.

    A swap merges two clusters and cuts a third one. The swap that promises most is made, up to K times, as
    long as the information grows. k-means makes such mistakes, and no step of its own repairs them.
    """
    value = neighbour_information(clusters, neighbours, prior)
    for _ in range(len(prior)):
        swapped = _swap(Z, clusters, neighbours, len(prior))
        if swapped is None:
            break
        for _ in range(_VOTES):
            swapped = mean_of_neighbours(np.eye(len(prior))[swapped], neighbours).argmax(axis=1)
        swapped_value = neighbour_information(swapped, neighbours, prior)
        if swapped_value > value - _LEAST_FALL:
            break
        clusters, value = swapped, swapped_value
    return clusters


def _swap(Z: NDArray[Any], clusters: Ints, neighbours: Neighbours, n_clusters: int) -> Ints | None:
    """Return the clusters after the most promising swap, or None if none promises anything."""
    means = mean_of_neighbours(np.eye(n_clusters)[clusters], neighbours)
    merge, cut = _merge_costs(means), np.full(n_clusters, np.inf)
    parts = [np.empty(0, np.intp)] * n_clusters
    for k in range(n_clusters):
        rows = np.flatnonzero(clusters == k)
        parts[k] = rows[_halve(Z[rows])] if len(rows) > 1 else rows[:0]
        if len(parts[k]):
            halves = np.zeros((len(Z), 2))
            halves[rows, 0] = 1.0
            halves[parts[k]] = 0.0, 1.0
            cut[k] = -_merge_costs(mean_of_neighbours(halves, neighbours))[1, 0]
    best, found = -_LEAST_FALL, None
    for k in np.argsort(cut, kind="stable"):
        others = merge.copy()
        others[k] = others[:, k] = np.inf
        a, b = np.unravel_index(others.argmin(), others.shape)
        if cut[k] + others[a, b] < best:
            best, found = cut[k] + others[a, b], (k, a, b)
    if found is None:
        return None
    k, a, b = found
    out = np.where(clusters == a, b, clusters)
    out[parts[k]] = a
    return out


def _merge_costs(means: Floats) -> Floats:
    """Return by how much the value rises if clusters a > b are merged (K, K); infinite elsewhere."""
    n_clusters = means.shape[1]
    share, by_row = means.mean(axis=0), _entropy(means).mean(axis=0)
    of_share = _entropy(share)
    out = np.full((n_clusters, n_clusters), np.inf)
    for a in range(1, n_clusters):
        together = _entropy(means[:, a, None] + means[:, :a]).mean(axis=0)
        shares = _entropy(share[a] + share[:a])
        out[a, :a] = (together - by_row[a] - by_row[:a]) - (shares - of_share[a] - of_share[:a])
    return out


def _halve(X: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows (n,) are in the second half: cut across the longest direction, then Lloyd."""
    X = X - X.mean(axis=0)
    way = X[np.einsum("ij,ij->i", X, X).argmax()]
    for _ in range(_POWER_STEPS):
        way = X.T @ (X @ way)
        way = way / (np.linalg.norm(way) or 1.0)
    second: NDArray[np.bool_] = X @ way > 0.0
    for _ in range(_LLOYD_STEPS):
        if second.all() or not second.any():
            break
        first_centre, second_centre = X[~second].mean(axis=0), X[second].mean(axis=0)
        second = (X - 0.5 * (first_centre + second_centre)) @ (second_centre - first_centre) > 0.0
    return second


def _entropy(x: Floats) -> Floats:
    """Return -x ln x, 0 at 0."""
    return np.asarray(-x * np.log(np.maximum(x, 1e-300)))
