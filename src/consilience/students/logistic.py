"""Logistic regression as a student that learns soft labels directly, without copies of rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience._validation import take_rows
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.softmax_regression import fit_softmax_regression
from consilience.students.estimator import Loss
from consilience.students.expansion import ExpansionStudent, fit_foreign, learnt_columns

TOLERANCE = 3e-5
MAX_ITER = 1000
CHUNK_ROWS = 1024


def logistic() -> Pipeline:
    """Return an unfitted logistic regression on standardized columns."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=MAX_ITER))


class LogisticStudent(ExpansionStudent):
    """Fit `logistic` to soft labels, to the minimum that weighted copies of the rows would give.

    The result is a scikit-learn pipeline like any other. The parameters are those of `ExpansionStudent`,
    without an estimator.
    """

    def __init__(
        self, *, threshold: float = 0.01, loss: Loss = "cross-entropy", random_state: Any = None
    ) -> None:
        super().__init__(logistic(), threshold=threshold, loss=loss, random_state=random_state)

    def _fit_targets(self, X: Any, T: NDArray[np.float64], random: np.random.RandomState) -> None:
        scaler, model = self._seeded_clone(random)
        fit_foreign(scaler, X)
        columns = learnt_columns(T)
        rows = _scaled(scaler, X, len(T))
        n_classes, total = len(columns), float(T.sum())
        labels = np.asarray(T if n_classes == T.shape[1] else T[:, columns], dtype=np.float32)
        del T  # twice the memory of `labels`
        # scikit-learn has one column of weights for two classes: twice the decay gives the same model
        decay = (2.0 if n_classes == 2 else 1.0) / (model.C * total)
        fit = fit_softmax_regression(
            rows, labels, n_classes, weight_decay=decay, tol=TOLERANCE, max_iter=MAX_ITER, overwrite=True
        )
        if not fit.converged:
            warnings.warn(
                f"The logistic student stopped at a gradient of {fit.gradient:.1e} after {fit.n_iter} steps "
                f"(tolerance {TOLERANCE:g}). Columns with a few huge values make it slow: transform them.",
                ConvergenceWarning,
                stacklevel=6,
            )
        W = fit.W[:, 1:] - fit.W[:, :1] if n_classes == 2 else fit.W
        model.classes_ = columns
        model.coef_, model.intercept_ = np.ascontiguousarray(W[:-1].T), W[-1].copy()
        model.n_iter_, model.n_features_in_ = np.array([fit.n_iter]), len(W) - 1
        self._keep(make_pipeline(scaler, model), columns)


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
