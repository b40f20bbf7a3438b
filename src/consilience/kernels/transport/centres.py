"""Class centres, the costs that are the distances between them (SCTD, Sec. 4.1.2), and their scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from consilience.kernels.arrays import Floats, Ints

_CHUNK = 1 << 16
SPREADS = 0.5  # epsilon="auto", in standard deviations of the cost
PAPER_EPSILON = 0.1
_CONSTANT = 1e-9  # a cost counts as constant if it varies by less than this share of its size


def class_sums(values: NDArray[Any], codes: Ints, n_classes: int) -> tuple[Floats, Floats]:
    """Return the sum of the rows of each class (C, d), and their number (C,).

    Rows with NaN or with a negative code are left out.

    Parameters
    ----------
    values : (n, d) array
    codes : (n,) array of int
        The class of each row, from 0 to C - 1.
    n_classes : int
        C.
    """
    sums, counts = np.zeros((n_classes, values.shape[1])), np.zeros(n_classes)
    # the product below needs float64: convert chunk by chunk, because a copy of all rows may not fit
    for start in range(0, len(values), _CHUNK):
        part, labels = values[start : start + _CHUNK], codes[start : start + _CHUNK]
        kept = (labels >= 0) & ~np.isnan(part).any(axis=1)
        if not kept.all():
            part, labels = part[kept], labels[kept]
        ones, rows = np.ones(len(part)), np.arange(len(part) + 1)
        members = csr_array((ones, labels, rows), shape=(len(part), n_classes))
        sums += members.T @ part.astype(np.float64, copy=False)
        counts += np.bincount(labels, minlength=n_classes)
    return sums, counts


def class_means(embeddings: NDArray[Any], codes: Ints, n_classes: int) -> Floats:
    """Return the mean embedding (C, d) of each class: SCTD, eq. (6). A class without rows gets NaN.

    The parameters are those of `class_sums`.
    """
    sums, counts = class_sums(embeddings, codes, n_classes)
    with np.errstate(invalid="ignore"):  # a class without rows has no mean
        return np.asarray(sums / counts[:, None])


def unit_rows(vectors: NDArray[Any]) -> Floats:
    """Return each row of (n, d) divided by its length; rows of zeros stay zero."""
    rows = np.asarray(vectors, dtype=np.float64)
    # divide by the largest entry first: the squares of huge or tiny entries would over- or underflow
    scale = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows = rows / np.where(scale > 0, scale, 1.0)
    length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return np.asarray(rows / np.where(length > 0, length, 1.0))


def centre_distances(source: NDArray[Any], target: NDArray[Any], normalize: bool) -> Floats:
    """Return M (m, n), M[i, j] = ||source[i] - target[j]||_2: SCTD, eq. (7).

    Parameters
    ----------
    source : (m, d) array
        The centres of the teacher's classes.
    target : (n, d) array
        The centres of the student's classes.
    normalize : bool
        Whether to scale both to unit length first. Costs then lie in [0, 2].
    """
    if normalize:
        source, target = unit_rows(source), unit_rows(target)
    return np.asarray(cdist(source, target))


def nearest_other_mean(embeddings: Floats, codes: Ints, n_classes: int, normalize: bool) -> Ints:
    """Return for each row the class (n,) with the nearest mean; a row does not count in its own class's mean.

    If it did, small classes would be nearest to their own rows in any embedding. By SCTD, eq. (9), the
    nearest class has the largest 2 e x - e e, where e is the class's mean. A row that is alone in its class
    gets another class, or -1 if there is no other.

    Parameters
    ----------
    embeddings : (n, d) array
    codes : (n,) array of int
        The class of each row, from 0 to C - 1. Classes without rows are never the nearest.
    n_classes : int
        C.
    normalize : bool
        Whether to scale rows and means to unit length.
    """
    means = class_means(embeddings, codes, n_classes)
    counts = np.bincount(codes, minlength=n_classes)[codes][:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        own = (counts * means[codes] - embeddings) / (counts - 1)
    own[counts[:, 0] == 1] = np.nan
    points = embeddings
    if normalize:
        points, means, own = unit_rows(embeddings), unit_rows(means), unit_rows(own)
    scores = 2 * points @ np.nan_to_num(means).T - (means**2).sum(axis=1)
    scores[np.arange(len(codes)), codes] = 2 * (points * own).sum(axis=1) - (own**2).sum(axis=1)
    unknown = np.isnan(scores)
    nearest = np.where(unknown, -np.inf, scores).argmax(axis=1)
    return np.asarray(np.where(unknown.all(axis=1), -1, nearest))


def automatic_epsilon(cost: Floats) -> float:
    """Return the epsilon that "auto" stands for: half the standard deviation of the cost.

    The plan depends on the cost only through M / epsilon, up to constants along rows or columns. An epsilon
    in units of the spread therefore gives equally sharp plans at every scale of M. If the cost is constant,
    every epsilon gives the same plan, p_T p_S^T. We then return the paper's 0.1, or more if 0.1 is below the
    rounding of the cost.
    """
    scale = float(np.abs(cost).max())
    share = float(np.std(cost / scale)) if scale > 0 else 0.0  # the squares of large costs would overflow
    epsilon = SPREADS * share * scale
    return epsilon if share > _CONSTANT and epsilon > 0 else max(PAPER_EPSILON, _CONSTANT * scale)
