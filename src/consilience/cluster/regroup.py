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
# Clusters that are cut at once: few enough that memory does not grow with their number.
_AT_ONCE = 16


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
    merge = _merge_costs(means)
    parts = []
    for k in range(n_clusters):
        rows = np.flatnonzero(clusters == k)
        parts.append(rows[_halve(Z[rows])] if len(rows) > 1 else rows[:0])
    cut = _cut_costs(clusters, parts, neighbours)
    best, found = -_LEAST_FALL, None
    cheapest = _cheapest(merge)
    for k in np.argsort(cut, kind="stable"):
        a, b = _cheapest(merge, without=k) if k in cheapest else cheapest
        if k not in (a, b) and cut[k] + merge[a, b] < best:
            best, found = cut[k] + merge[a, b], (k, a, b)
    if found is None:
        return None
    k, a, b = found
    out = np.where(clusters == a, b, clusters)
    out[parts[k]] = a
    return out


def _cut_costs(clusters: Ints, parts: list[Ints], neighbours: Neighbours) -> Floats:
    """Return by how much the value rises if a cluster loses a part of its rows (K,); infinite without one."""
    halves = 2 * clusters
    for part in parts:
        halves[part] += 1
    cut = np.empty(len(parts))
    for start in range(0, len(parts), _AT_ONCE):
        stop = min(start + _AT_ONCE, len(parts))
        rows = np.flatnonzero((start <= clusters) & (clusters < stop))
        member = np.zeros((len(clusters), 2 * (stop - start)))
        member[rows, halves[rows] - 2 * start] = 1.0
        costs = _merge_costs(mean_of_neighbours(member, neighbours))
        cut[start:stop] = -np.diagonal(costs[1::2, ::2])
    cut[[len(part) == 0 for part in parts]] = np.inf
    return cut


def _cheapest(merge: Floats, without: int | None = None) -> tuple[int, int]:
    """Return the two clusters that cost least to merge (K, K), without one of them if asked."""
    if without is not None:
        merge = merge.copy()
        merge[without] = merge[:, without] = np.inf
    a, b = divmod(int(merge.argmin()), len(merge))
    return a, b


def _merge_costs(means: Floats) -> Floats:
    """Return by how much the value rises if clusters a > b are merged (K, K); infinite elsewhere.

    Only rows with neighbours in both clusters change their entropy, and rows have few neighbours: the time
    grows with the pairs of clusters that meet in a row, not with n K^2.
    """
    n, n_clusters = means.shape
    rows, clusters = np.nonzero(means)
    part = means[rows, clusters]
    of_part = _entropy(part)
    rise = np.zeros(n_clusters * n_clusters)
    for step in range(1, n_clusters):
        first = np.flatnonzero(rows[:-step] == rows[step:])
        if not len(first):
            break  # no row has more than `step` clusters
        second = first + step
        change = _entropy(part[first] + part[second]) - of_part[first] - of_part[second]
        rise += np.bincount(clusters[second] * n_clusters + clusters[first], change, len(rise))
    share = means.mean(axis=0)
    of_share = _entropy(share)
    shares = _entropy(share[:, None] + share) - of_share[:, None] - of_share
    out: Floats = rise.reshape(n_clusters, n_clusters) / n - shares
    out[np.triu_indices(n_clusters)] = np.inf
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
