"""Logistic regression as a student that learns soft labels directly, without copies of rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience._progress import Progress
from consilience._validation import as_random_state, take_rows
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.linear_model import LinearFit, fit_softmax_by_blocks, fit_softmax_regression, targets
from consilience.rows.targets import BUFFER_SHARE, SAMPLED, TargetRows, look_at
from consilience.students.expansion import (
    WeightedStudent,
    fit_foreign,
    foreign_errors,
    learnt_columns,
    warn_of_missing,
)

TOLERANCE = 3e-5
MAX_ITER = 1000
MAX_PASSES = 100
"""The most passes over rows that are read block by block."""
CHUNK_ROWS = 1024


def logistic() -> Pipeline:
    """Return an unfitted logistic regression on standardized columns."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=MAX_ITER))


class Logistic(WeightedStudent):
    """Fit `logistic` to soft labels, to the minimum that weighted copies of the rows would give.

    The result is a scikit-learn pipeline like any other.

    Examples
    --------
    >>> Logistic(min_label=0.05)
    Logistic(min_label=0.05)
    """

    def unfitted(self) -> Pipeline:
        """Return the classifier to fit."""
        return logistic()

    def _fit_targets(self, X: Any, T: NDArray[np.float64], random: np.random.RandomState) -> None:
        scaler, model = self._seeded_clone(random)
        fit_foreign(scaler, X)
        columns = learnt_columns(T)
        rows = _scaled(scaler, X, len(T))
        total = float(T.sum())
        labels = np.asarray(T if len(columns) == T.shape[1] else T[:, columns], dtype=np.float32)
        del T  # twice the memory of `labels`
        fit = fit_softmax_regression(
            rows,
            labels,
            len(columns),
            weight_decay=_decay(model, len(columns), total),
            tol=TOLERANCE,
            max_iter=MAX_ITER,
        )
        self._keep_fit(scaler, model, fit, columns)

    def fit_by_passes(
        self, rows: TargetRows, class_weights: NDArray[np.float64], *, progress: Progress, memory: int
    ) -> None:
        """Fit to soft labels that are read block by block: to the same minimum, in at most 100 passes.

        The parameters are those of `fit`, but for `memory`, the bytes that the rows may take. Shannon's
        cross-entropy only.
        """
        self.check_options()
        threshold = self.min_label
        random = as_random_state(self.random_state)
        scaler, model = self._seeded_clone(random)
        occurs, total = np.zeros(rows.n_columns, dtype=bool), 0.0
        for X, T in _weighted_blocks(rows, class_weights, threshold):
            with foreign_errors():
                scaler.partial_fit(X)
            occurs |= T.any(axis=0)
            total += float(T.sum())
        warn_of_missing(occurs, stacklevel=5)
        columns = learnt_columns(occurs[None, :])
        decay = _decay(model, len(columns), total)
        n_sample = max(2, min(SAMPLED, int(BUFFER_SHARE * memory / rows.row_bytes)))
        X, Q, weights = look_at(rows, int(random.randint(2**31 - 1)), fraction=0.0, n_sample=n_sample).sample
        T = _block_targets(Q, weights, class_weights, threshold)[:, columns]
        start = fit_softmax_regression(
            _scaled(scaler, X, len(T)), T.astype(np.float32), len(columns), weight_decay=decay, tol=1e-3
        )

        def blocks() -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
            for X, T in _weighted_blocks(rows, class_weights, threshold):
                yield _scaled(scaler, X, len(T)), T[:, columns].astype(np.float32)

        fit = fit_softmax_by_blocks(
            blocks,
            start.W,
            weight_decay=decay,
            tol=TOLERANCE,
            max_iter=MAX_PASSES,
            progress=lambda passes: progress("training", min(passes, MAX_PASSES), MAX_PASSES),
        )
        self._keep_fit(scaler, model, fit, columns)

    def _keep_fit(self, scaler: Any, model: Any, fit: LinearFit, columns: NDArray[np.intp]) -> None:
        """Put the weights into scikit-learn's model, and warn if they are not the best."""
        if not fit.converged:
            warnings.warn(
                f"The logistic student stopped at a gradient of {fit.gradient:.1e} after {fit.n_iter} steps "
                f"(tolerance {TOLERANCE:g}). Columns with a few huge values make it slow: transform them.",
                ConvergenceWarning,
                stacklevel=7,
            )
        W = fit.W[:, 1:] - fit.W[:, :1] if len(columns) == 2 else fit.W
        model.classes_ = columns
        model.coef_, model.intercept_ = np.ascontiguousarray(W[:-1].T), W[-1].copy()
        model.n_iter_, model.n_features_in_ = np.array([fit.n_iter]), len(W) - 1
        self._keep(make_pipeline(scaler, model), columns)


def _decay(model: LogisticRegression, n_classes: int, total: float) -> float:
    """Return the decay of weights for labels of this total weight, as scikit-learn's C means it."""
    # scikit-learn has one column of weights for two classes: twice the decay gives the same model
    return float((2.0 if n_classes == 2 else 1.0) / (model.C * total))


def _weighted_blocks(
    rows: TargetRows, class_weights: NDArray[np.float64], threshold: float
) -> Iterator[tuple[Any, NDArray[np.float64]]]:
    """Yield rows and the weights (b, L) of their classes, block by block."""
    for X, Q, weights in rows.parts():
        yield X, _block_targets(Q, weights, class_weights, threshold)


def _block_targets(
    Q: NDArray[Any], weights: NDArray[Any] | None, class_weights: NDArray[np.float64], threshold: float
) -> NDArray[np.float64]:
    T = targets(Q.astype(np.float64), class_weights, threshold)
    return T if weights is None else T * weights[:, None]


def _scaled(scaler: StandardScaler, X: Any, n: int) -> NDArray[np.float32]:
    """Return the standardized rows, or raise; a chunk at a time, since the scaler works in X's precision."""
    parts = np.empty((n, scaler.n_features_in_), dtype=np.float32)
    for start in range(0, n, CHUNK_ROWS):
        chunk = slice(start, start + CHUNK_ROWS)
        parts[chunk] = scaler.transform(take_rows(X, chunk))
        if not np.isfinite(parts[chunk]).all():  # the scaler lets NaN pass
            raise InvalidInputError(
                "The student cannot learn from X: it contains NaN, or numbers too large to be squared."
            )
    return parts
