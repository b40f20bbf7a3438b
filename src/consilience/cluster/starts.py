"""Before the first round: features on one scale, a sample of many rows, and starts of the linear model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning as NotConverged

from consilience.cluster.regroup import neighbour_information
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.collision.diffusion import diffusion_map
from consilience.kernels.columns import column_moments
from consilience.kernels.neighbours import Neighbours

# More numbers than this are trained on in single precision: half the time, and no label changes.
_SINGLE_PRECISION = 100_000
# A start is this soft, relative to the squared distance of a typical row to its centre...
START_WIDTH = 0.1
# ...and at least this soft relative to the squared length of a typical row. Sharper starts have such large
# weights that the first step is weight decay alone, which leads to a model without clusters.
LEAST_WIDTH = 0.05


def scaled(rows: NDArray[Any]) -> tuple[NDArray[Any], Floats, float]:
    """Return rows centred and of root-mean-square length 1, their mean, and the length they had.

    Rows that are all alike, up to rounding, are only centred.
    """
    mean, spread = column_moments(rows)
    Z = rows - mean
    if Z.size > _SINGLE_PRECISION:
        Z = Z.astype(np.float32)
    scale = float(np.sqrt(np.einsum("ij,ij->", Z, Z, dtype=np.float64) / len(Z)))
    scale = scale if spread.any() else 1.0
    Z /= scale
    return np.ascontiguousarray(Z), mean, scale


def flat(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows of any shape (n, ...) as scaled features (n, d)."""
    features = rows.reshape(len(rows), -1)
    features = features if features.dtype.kind == "f" else features.astype(np.float32)
    return scaled(features)[0]


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


def promising_clusters(
    Z: NDArray[Any],
    neighbours: Neighbours,
    prior: Floats,
    seeds: Ints,
    report: Callable[[], None] = lambda: None,
) -> list[Ints]:
    """Return two ways to start: a cluster for each row (n,), found on the graph and on the rows; best first.

    k-means clusters a diffusion map of the graph of neighbours (n, k), once for each seed, and the rows Z
    (n, d) for every other seed: the graph follows clusters of any shape, and fails where it joins two of
    them. Of each kind, the clusters are kept that tell most about those of their neighbours: the mutual
    information of means over neighbours is greatest. Larger clusters get larger shares of the prior (K,).
    """
    n_clusters = len(prior)
    points = diffusion_map(neighbours, n_clusters + n_clusters // 2, int(seeds[0]))
    best: dict[bool, tuple[float, Ints]] = {}  # by kind
    for rows, seed in [*((points, seed) for seed in seeds), *((Z, seed) for seed in seeds[::2])]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)  # fewer distinct points than clusters
            found = KMeans(n_clusters, n_init=1, random_state=int(seed)).fit_predict(rows)
        by_size = np.argsort(np.bincount(found, minlength=n_clusters), kind="stable")
        number = np.empty(n_clusters, dtype=np.intp)
        number[by_size] = np.argsort(prior, kind="stable")
        clusters = number[found]
        value = neighbour_information(clusters, neighbours, prior)
        kind = rows is Z
        if kind not in best or value < best[kind][0]:
            best[kind] = value, clusters
        report()
    return [clusters for _, clusters in sorted(best.values(), key=lambda one: one[0])]


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
