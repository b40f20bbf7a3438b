"""Rows that are held out or drawn: folds, regressions on the other folds, losses there; weighted draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array, issparse
from scipy.special import log_softmax

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.linear_model import (
    LinearFit,
    column_moments,
    fit_softmax_regression,
    linear_logits,
    rounding_of,
)


def stratified_folds(codes: Ints, n_folds: int, rng: np.random.RandomState) -> Ints:
    """Return the fold (n,) of each row; the shuffled rows of each class are dealt out in turn.

    Parameters
    ----------
    codes : (n,) array of int
        The class of each row, from 0.
    n_folds : int
    rng : RandomState

    Examples
    --------
    >>> codes = np.array([0, 0, 0, 0, 1, 1])
    >>> folds = stratified_folds(codes, 2, np.random.RandomState(0))
    >>> np.bincount(folds[codes == 0]).tolist(), np.bincount(folds[codes == 1]).tolist()
    ([2, 2], [1, 1])
    """
    folds, shuffled = np.empty(len(codes), dtype=np.intp), rng.permutation(len(codes))
    # a class goes on at the fold where the class before it ended
    folds[shuffled[np.argsort(codes[shuffled], kind="stable")]] = np.arange(len(codes)) % n_folds
    return folds


def held_out_folds(
    codes: Ints, n_folds: int, rng: np.random.RandomState, max_rows: int | None = None
) -> Ints:
    """Return the fold (n,) in which each row is held out; -1 for rows that never are.

    The only row of a class is never held out: nothing else would tell about that class. With `max_rows`, at
    most so many rows are held out, a random choice. The rest is as in `stratified_folds`.
    """
    folds = np.full(len(codes), -1, dtype=np.intp)
    several = np.bincount(codes)[codes] > 1
    folds[several] = stratified_folds(codes[several], n_folds, rng)
    if max_rows is not None:
        folds[rng.permutation(np.flatnonzero(several))[max_rows:]] = -1
    return folds


# Weight decay of the regression, times the number of rows it learns from, and the gradient where it may stop.
DECAY, TOLERANCE = 5.0, 1e-3


class HeldOut(NamedTuple):
    """Log-probabilities (n, K) of held-out rows, and the fit that ended farthest from its minimum.

    The rows that are never held out are zeros. `worst` is None where there are no folds.
    """

    log_proba: Floats
    worst: LinearFit | None


def held_out_log_proba(
    rows: NDArray[np.float32],
    codes: Ints,
    n_classes: int,
    folds: Ints,
    soft_labels: Callable[[int], Floats] | None = None,
) -> HeldOut:
    """Predict the rows of each fold by a softmax regression on all other rows.

    Parameters
    ----------
    rows : (n, d) array
    codes : (n,) array of int
        The class of each row. Not used with `soft_labels`.
    n_classes : int
        K.
    folds : (n,) array of int
        The fold in which a row is held out; -1 for rows that are only learnt from.
    soft_labels : callable, optional
        ``soft_labels(fold)`` returns the labels (n, K) that the other rows have while this fold is held out.
        The weight of a row is their sum.
    """
    log_proba, worst = np.zeros((len(codes), n_classes)), None
    for fold in np.unique(folds[folds >= 0]):
        held_out = folds == fold
        labels = codes if soft_labels is None else soft_labels(int(fold))
        learnt = ~held_out if labels.ndim == 1 else ~held_out & (labels.sum(axis=1) > 0)
        others, labels = rows[learnt], labels[learnt]
        mean, scale = standard_units(*column_moments(others))
        fit = fit_softmax_regression(
            ((others - mean) / scale).astype(np.float32),
            labels,
            n_classes,
            weight_decay=DECAY / (len(others) if labels.ndim == 1 else float(labels.sum())),
            tol=TOLERANCE,
        )
        standard = ((rows[held_out] - mean) / scale).astype(np.float32)
        log_proba[held_out] = log_softmax(linear_logits(standard, fit.W), axis=1)
        if worst is None or fit.gradient > worst.gradient:
            worst = fit
    return HeldOut(log_proba, worst)


def sketch_columns(rows: Any, n_columns: int) -> NDArray[np.float32]:
    """Sum standardised columns, with random signs, in `n_columns` random groups.

    This keeps the inner products of rows, which are all a regression depends on, up to an error of
    1 / sqrt(n_columns) of their lengths. It takes no longer than reading the rows, and never makes sparse
    rows dense.

    Parameters
    ----------
    rows : (n, d) array or sparse matrix
    n_columns : int
    """
    d = rows.shape[1]
    mean, spread = _sparse_moments(rows) if issparse(rows) else column_moments(rows)
    mean, scale = standard_units(mean, spread)
    random = np.random.RandomState(0)
    # a constant column would only add its rounding
    signs = random.choice([-1.0, 1.0], d) * (spread > 0) / scale
    groups = csr_array((signs, (np.arange(d), random.randint(n_columns, size=d))), shape=(d, n_columns))
    sums = rows @ groups.astype(np.float32)
    return np.asarray((sums.toarray() if issparse(sums) else sums) - mean @ groups, dtype=np.float32)


def standard_units(mean: Any, spread: Any) -> tuple[Any, Any]:
    """Return what to subtract from columns (d,) and what to divide them by.

    A tenth of the mean spread is added to each: a column that hardly varies in few rows would count for far
    too much in other rows.
    """
    return mean, spread + 0.1 * max(float(spread.mean()), 1e-12)


def _sparse_moments(rows: Any) -> tuple[Floats, Floats]:
    """Do for compressed sparse rows what `column_moments` does, without writing zeros out."""
    n, d = rows.shape
    mean = np.bincount(rows.indices, rows.data, minlength=d) / n
    squares = np.bincount(rows.indices, (rows.data - mean[rows.indices]) ** 2, minlength=d)
    zeros = n - np.bincount(rows.indices, minlength=d)
    spread = np.sqrt((squares + zeros * mean**2) / n)
    spread[spread <= max(rounding_of(rows.dtype), n * rounding_of(mean.dtype)) * np.abs(mean)] = 0.0
    return mean, spread


# The most that predictions are sharpened.
MAX_POWER = 10.0


def calibrated_losses(log_proba: Floats, codes: Ints) -> Floats:
    """Return the log-loss (n,) of labels under p^a, renormalised, for the a that gives the least mean.

    So predictions that are too sure or not sure enough lose nothing by that, and two predictions are compared
    by what they know.

    Parameters
    ----------
    log_proba : (n, K) array
        Log-probabilities; they need not be normalised.
    codes : (n,) array of int
        The labels.

    Examples
    --------
    >>> unsure = np.log([[0.6, 0.4], [0.4, 0.6]])
    >>> calibrated_losses(unsure, np.array([0, 1])).round(2).tolist()
    [0.02, 0.02]
    >>> calibrated_losses(unsure, np.array([1, 0])).round(2).tolist()
    [0.69, 0.69]
    """
    rows = np.arange(len(codes))

    def losses(a: float) -> Floats:
        return np.asarray(-log_softmax(a * log_proba, axis=1)[rows, codes])

    # convex in a: the search finds an optimum inside, but only comes near one at an end
    inside = minimize_scalar(lambda a: losses(a).mean(), bounds=(0.0, MAX_POWER), method="bounded").x
    return min((losses(a) for a in (0.0, float(inside), MAX_POWER)), key=lambda loss: float(loss.mean()))


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
    return np.asarray(np.minimum(np.searchsorted(borders, points, side="right"), len(weights) - 1))


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
