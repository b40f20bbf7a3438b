"""What labels tell about held-out rows, alone or with a teacher: a softmax regression on the other folds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.special import log_softmax

from consilience.kernels.arrays import Floats
from consilience.kernels.columns import column_moments, rounding_of
from consilience.kernels.linear_model import LinearFit, linear_logits
from consilience.kernels.softmax_regression import fit_softmax_regression

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
    codes: NDArray[np.intp],
    n_classes: int,
    folds: NDArray[np.intp],
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
    dense = sums.toarray() if issparse(sums) else sums
    return np.asarray(dense - mean @ groups, dtype=np.float32)


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
