"""Starts of the linear model: a sample of many rows, clusters to learn first, and repairs of these."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning as NotConverged

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.collision.entropy import mutual_information
from consilience.kernels.neighbours import Neighbours, diffusion_map, mean_of_neighbours

# A start is this soft, relative to the squared distance of a typical row to its centre...
START_WIDTH = 0.1
# ...and at least this soft relative to the squared length of a typical row. Sharper starts have such large
# weights that the first step is weight decay alone, which leads to a model without clusters.
LEAST_WIDTH = 0.05
# A swap of clusters must lower the value by this much.
_LEAST_FALL = 1e-4
# After a swap, each row takes the commonest cluster of its neighbours, so many times.
_VOTES = 3
# Steps that find the longest direction of a cluster, and steps of Lloyd's algorithm from there.
_POWER_STEPS, _LLOYD_STEPS = 5, 3


def sample(fixed: Ints, size: int, seed: int) -> Ints:
    """Return the rows to train starts on: labelled ones, up to half of the sample, and random others."""
    order = np.random.default_rng(seed).permutation(len(fixed))
    labelled = order[fixed[order] >= 0][: size // 2]
    others = order[~np.isin(order, labelled)]
    return np.sort(np.concatenate([labelled, others[: size - len(labelled)]]))


def choose_centres(Z: NDArray[Any], fixed: Ints, n_clusters: int, seed: int) -> Floats:
    """Return K centres far from each other: means of labelled rows if there are some, and random rows."""
    drawn = np.asarray(kmeans_plusplus(Z, n_clusters, random_state=seed)[0], dtype=np.float64)
    known = np.unique(fixed[fixed >= 0])
    if len(known) == 0:
        return drawn
    means = np.stack([Z[fixed == c].mean(axis=0, dtype=np.float64) for c in known])
    # clusters without labels get those random rows that are farthest from the labelled ones
    distance = ((drawn[:, None] - means) ** 2).sum(axis=2).min(axis=1)
    others = np.setdiff1d(np.arange(n_clusters), known)
    out = np.empty_like(drawn)
    out[known] = means
    out[others] = drawn[np.argsort(-distance)[: len(others)]]
    return out


def weights_from_centres(X: NDArray[Any], centres: Floats) -> Floats:
    r"""Return the model W (d + 1, K) that assigns rows softly to the nearest of K centres (K, d).

    .. math:: z_{ik} = -\|x_i - c_k\|^2 / (2 w) + \|x_i\|^2 / (2 w), \qquad
              w = \max(0.1\, \text{mean}_i \min_k \|x_i - c_k\|^2,\ 0.05\, \text{mean}_i \|x_i\|^2)

    Rows X (n, d) are centred.
    """
    half = 0.5 * np.einsum("ij,ij->i", centres, centres)
    nearest = half - X @ centres.T.astype(X.dtype)
    squares = float(np.einsum("ij,ij->", X, X)) / len(X)
    distance = 2.0 * float(nearest.min(axis=1).mean()) + squares
    width = max(START_WIDTH * distance, LEAST_WIDTH * squares) or 1.0
    return np.vstack([centres.T, -half]) / width


def random_weights(n_features: int, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Return a random model W (d + 1, K): He's uniform initialisation, with zero biases."""
    W = np.zeros((n_features + 1, n_clusters))
    W[:-1] = rng.uniform(-1, 1, size=W[:-1].shape) * np.sqrt(6.0 / n_features)
    return W


def promising_clusters(
    Z: NDArray[Any], neighbours: Neighbours, prior: Floats, seeds: Ints, report: Callable[[int], None]
) -> list[Ints]:
    """Return two ways to start: a cluster for each row (n,), found on the graph and on the rows; best first.

    k-means clusters a diffusion map of the graph of neighbours (n, k), once for each seed, and the rows Z
    (n, d) for every other seed: the graph follows clusters of any shape, and fails where it joins two of
    them. Of each kind, the clusters are kept that tell most about those of their neighbours: the mutual
    information of means over neighbours is greatest. Larger clusters get larger shares of the prior (K,).
    """
    n_clusters = len(prior)
    points = diffusion_map(neighbours, n_clusters + n_clusters // 2, int(seeds[0]))
    best: dict[str, tuple[float, Ints]] = {}
    starts = [*(("graph", points, seed) for seed in seeds), *(("rows", Z, seed) for seed in seeds[::2])]
    for done, (kind, rows, seed) in enumerate(starts, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)  # fewer distinct points than clusters
            found = KMeans(n_clusters, n_init=1, random_state=int(seed)).fit_predict(rows)
        number = np.empty(n_clusters, dtype=np.intp)
        by_size = np.argsort(np.bincount(found, minlength=n_clusters), kind="stable")
        number[by_size] = np.argsort(prior, kind="stable")
        clusters = number[found]
        value = neighbour_information(clusters, neighbours, prior)
        if kind not in best or value < best[kind][0]:
            best[kind] = value, clusters
        report(done)
    return [clusters for _, clusters in sorted(best.values(), key=lambda one: one[0])]


def neighbour_information(clusters: Ints, neighbours: Neighbours, prior: Floats) -> float:
    """Return minus the mutual information of rows' clusters (n,) and their neighbours', plus a constant."""
    return mutual_information(_means(clusters, neighbours, len(prior)), prior, 1.0)[0]


def neighbour_entropy(clusters: Ints, neighbours: Neighbours, n_clusters: int) -> float:
    """Return how mixed the clusters of neighbours are: 0 if they agree, 1 if all are as common."""
    means = _means(clusters, neighbours, n_clusters)
    return float(entr(means).sum() / (len(means) * np.log(max(n_clusters, 2))))


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
            swapped = _means(swapped, neighbours, len(prior)).argmax(axis=1)
        swapped_value = neighbour_information(swapped, neighbours, prior)
        if swapped_value > value - _LEAST_FALL:
            break
        clusters, value = swapped, swapped_value
    return clusters


def _swap(Z: NDArray[Any], clusters: Ints, neighbours: Neighbours, n_clusters: int) -> Ints | None:
    """Return the clusters after the most promising swap, or None if none promises anything."""
    merge = merge_costs(_means(clusters, neighbours, n_clusters))
    members = [np.flatnonzero(clusters == k) for k in range(n_clusters)]
    parts = [rows[_second_half(Z[rows])] if len(rows) > 1 else rows[:0] for rows in members]
    cut = np.array([cut_cost(clusters, k, part, neighbours) for k, part in enumerate(parts)])
    best, found = -_LEAST_FALL, None
    for k in np.argsort(cut, kind="stable"):
        if cut[k] + merge.min() >= best:
            break
        others = merge.copy()
        others[k] = others[:, k] = np.inf
        a, b = divmod(int(others.argmin()), n_clusters)
        if cut[k] + others[a, b] < best:
            best, found = cut[k] + others[a, b], (k, a, b)
    if found is None:
        return None
    k, a, b = found
    out = np.where(clusters == a, b, clusters)
    out[parts[k]] = a
    return out


def cut_cost(clusters: Ints, k: int, part: Ints, neighbours: Neighbours) -> float:
    """Return by how much the value rises if cluster k loses a part of its rows; infinite without one."""
    if len(part) == 0:
        return np.inf
    halves = np.where(clusters == k, 1, 0)
    halves[part] = 2
    return -float(merge_costs(np.ascontiguousarray(_means(halves, neighbours, 3)[:, 1:]))[1, 0])


def merge_costs(means: Floats) -> Floats:
    """Return by how much the value rises if clusters a > b are merged (K, K); infinite elsewhere.

    Only rows with neighbours in both clusters change their entropy, and rows have few neighbours: the time
    grows with the pairs of clusters that meet in a row, not with n K^2.
    """
    n, n_clusters = means.shape
    rows, clusters = np.nonzero(means)
    part = means[rows, clusters]
    rise = np.zeros(n_clusters * n_clusters)
    for step in range(1, n_clusters):
        first = np.flatnonzero(rows[:-step] == rows[step:])
        if not len(first):
            break  # no row has more than `step` clusters
        second = first + step
        pairs = clusters[second] * n_clusters + clusters[first]
        rise += np.bincount(pairs, _change(part[first], part[second]), len(rise))
    share = means.mean(axis=0)
    out: Floats = rise.reshape(n_clusters, n_clusters) / n - _change(share[:, None], share)
    out[np.triu_indices(n_clusters)] = np.inf
    return out


def _change(a: Floats, b: Floats) -> Floats:
    """Return how much entropy grows if two parts become one."""
    return np.asarray(entr(a + b) - entr(a) - entr(b))


def _means(clusters: Ints, neighbours: Neighbours, n_clusters: int) -> Floats:
    """Return the share of each cluster (n, K) among a row and its neighbours."""
    return mean_of_neighbours(np.eye(n_clusters)[clusters], neighbours)


def _second_half(X: NDArray[Any]) -> NDArray[np.bool_]:
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
