"""Prepare soft labels for a student, pick or draw weighted rows, and sharpen probabilities."""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats, Ints


def targets(Q: Floats, class_weights: Floats, threshold: float) -> Floats:
    """Return what a student learns from soft labels: (n, L) weights, not negative.

    Parameters
    ----------
    Q : (n, L) array
        Soft labels.
    class_weights : (L,) array
    threshold : float
        Leave out classes less probable than this, but never the most probable class of a row. The others
        are renormalised, then multiplied by the class weights.
    """
    kept = np.where(threshold <= Q, Q, 0.0)
    rows, best = np.arange(len(Q)), Q.argmax(axis=1)
    kept[rows, best] = Q[rows, best]
    kept /= kept.sum(axis=1, keepdims=True)
    kept *= class_weights
    return kept


def resample(weights: Floats, jitter: Floats) -> Ints:
    """Draw indices in proportion to `weights`: one random point in each of k equal parts of their sum.

    Evenly spaced points would vary even less, but they can resonate with a periodic pattern in the rows.

    Parameters
    ----------
    weights : (m,) array
    jitter : (k,) array
        The position of each point within its part, in [0, 1).

    Returns
    -------
    (k,) array of int
    """
    borders = np.cumsum(weights)
    points = (np.arange(len(jitter)) + jitter) / len(jitter) * borders[-1]
    drawn: Ints = np.minimum(np.searchsorted(borders, points, side="right"), len(weights) - 1)
    return drawn


def thin(weights: Floats, size: int, jitter: Floats) -> tuple[Ints, Floats]:
    """Pick at most `size` of m weights so that every sum of weights stays the same on average.

    Weights above some c are kept as they are. The others are drawn in proportion, and count c each time. This
    c makes the variance of the sums as small as independent draws allow (threshold sampling).

    Parameters
    ----------
    weights : (m,) array
        Not negative. Zeros are never picked.
    size : int
        At least 1.
    jitter : (size,) array
        Random numbers in [0, 1).

    Returns
    -------
    indices : (k,) array of int, ascending, k <= size
    picked : (k,) array
        The new weights.
    """
    falling = np.sort(weights)[::-1]
    below = np.cumsum(falling[::-1])[::-1]  # the sum of each weight and those after it
    # keeping the j largest leaves draws of below[j] / (size - j) each, which no weight left may exceed
    most = min(size, len(falling))
    large = int(np.argmax(np.append(falling[:most] * (size - np.arange(most)) <= below[:most], True)))
    if large == len(falling) or below[large] == 0.0:
        kept = np.flatnonzero(weights)
        return kept, weights[kept]
    cut = falling[large]
    rest = np.where(weights <= cut, weights, 0.0)
    n_draws = size - int(np.count_nonzero(weights > cut))
    times = np.bincount(resample(rest, jitter[:n_draws]), minlength=len(weights))
    share = float(rest.sum()) / n_draws
    picked = np.where(weights > cut, weights, share * times)
    kept = np.flatnonzero(picked)
    return kept, picked[kept]


def sharpen(proba: Floats, power: float) -> Floats:
    """Return p^T / sum p^T for each row. If p is softmax(z / T), this is softmax(z).

    Parameters
    ----------
    proba : (n, k) array
    power : float
        T.
    """
    if power == 1.0:
        return proba
    # divide by the largest first: powers of small numbers could underflow and leave a row of zeros
    scaled = (proba / proba.max(axis=1, keepdims=True, initial=np.finfo(float).tiny)) ** power
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))
