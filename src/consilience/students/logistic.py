"""Logistic regression as a student that learns soft labels directly, without copies of rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.softmax_regression import fit_softmax_regression
from consilience.students.estimator import Loss
from consilience.students.expansion import ExpansionStudent, fit_foreign

TOLERANCE = 1e-4
MAX_ITER = 1000


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
        rows = np.asarray(scaler.transform(X), dtype=np.float32)
        if not np.isfinite(rows).all():  # the scaler lets NaN pass
            raise InvalidInputError("The student cannot learn from X: it contains NaN.")
        columns = np.flatnonzero(T.any(axis=0))
        if len(columns) < 2:
            raise InvalidInputError("The student cannot learn from X: every row has the same one class.")
        T = T[:, columns]
        n_classes, total = len(columns), float(T.sum())
        # scikit-learn has one column of weights for two classes: twice the decay gives the same model
        decay = (2.0 if n_classes == 2 else 1.0) / (model.C * total)
        fit = fit_softmax_regression(
            rows,
            T,
            n_classes,
            weight_decay=decay,
            tol=TOLERANCE,
            max_iter=MAX_ITER,
        )
        if not fit.converged:
            warnings.warn(
                f"The logistic student stopped at a gradient of {fit.gradient:.1e} after {fit.n_iter} steps.",
                ConvergenceWarning,
                stacklevel=6,
            )
        W = fit.W[:, 1:] - fit.W[:, :1] if n_classes == 2 else fit.W
        model.classes_ = columns
        model.coef_, model.intercept_ = np.ascontiguousarray(W[:-1].T), W[-1].copy()
        model.n_iter_, model.n_features_in_ = np.array([fit.n_iter]), len(W) - 1
        self._keep(make_pipeline(scaler, model), columns)
