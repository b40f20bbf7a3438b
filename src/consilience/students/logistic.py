"""Logistic regression as a student that learns soft labels directly, without copies of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience._validation import as_random_state, take_rows
from consilience.exceptions import ConvergenceWarning, InvalidInputError, warn
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.linear_model import LinearFit, fit_softmax_by_blocks, fit_softmax_regression
from consilience.rows import Rows, memory_budget
from consilience.rows.targets import SAMPLED, TargetRows, look_at
from consilience.run import Run
from consilience.students.student import (
    WeightedStudent,
    fit_foreign,
    foreign_errors,
    learnt_columns,
    warn_of_missing,
)

TOLERANCE = 3e-5
MAX_ITER = 1000
MAX_PASSES = 100
"""The most passes over rows that do not fit in memory."""
CHUNK_ROWS = 1024


class Logistic(WeightedStudent):
    """Fit logistic regression on standardized columns to soft labels.

    It finds the minimum that weighted copies of the rows would give: at once where the rows fit in memory,
    else in at most 100 passes over their blocks. The result is a scikit-learn pipeline like any other.

    Examples
    --------
    >>> Logistic(min_label=0.05)
    Logistic(min_label=0.05)
    """

    most_copies = (2.5, 3.5)

    def unfitted(self) -> Pipeline:
        """Return the classifier to fit."""
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=MAX_ITER))

    def check_memory(self, rows: Rows, n_classes: int, run: Run) -> None:
        """Raise unless the student can learn from so many rows; of a collision loss it needs all at once."""
        if self.loss == "collision":
            super().check_memory(rows, n_classes, run)

    def learn_rows(self, rows: TargetRows, class_weights: Floats, run: Run, key: str) -> None:
        """Learn at once if the rows fit in memory, which saves some tens of passes."""
        needed = self.bytes_in_memory(rows.n_rows, rows.n_bytes, rows.n_columns)
        if self.loss == "collision" or needed <= memory_budget(run):
            super().learn_rows(rows, class_weights, run, key)
        else:
            self._learn_by_blocks(rows, class_weights, run)

    def _fit_weights(self, X: Any, T: Floats, random: np.random.RandomState) -> None:
        scaler, model = self.seeded_clone(random)
        fit_foreign(scaler, X)
        columns = learnt_columns(T)
        Z, total = _scaled(scaler, X, len(T)), float(T.sum())
        labels = np.asarray(T if len(columns) == T.shape[1] else T[:, columns], dtype=np.float32)
        del T  # twice the memory of `labels`
        decay = _decay(model, len(columns), total)
        fit = fit_softmax_regression(
            Z, labels, len(columns), weight_decay=decay, tol=TOLERANCE, max_iter=MAX_ITER
        )
        self._keep_fit(scaler, model, fit, columns)

    def _learn_by_blocks(self, rows: TargetRows, class_weights: Floats, run: Run) -> None:
        random = as_random_state(self.random_state)
        scaler, model = self.seeded_clone(random)

        def weighted() -> Iterator[tuple[Any, Floats]]:
            for X, Q, by_row in rows.parts():
                yield X, self._weights(Q, class_weights, by_row)

        occurs, total = np.zeros(rows.n_columns, dtype=bool), 0.0
        for X, T in weighted():
            with foreign_errors():
                scaler.partial_fit(X)
            occurs |= T.any(axis=0)
            total += float(T.sum())
        warn_of_missing(occurs)
        columns = learnt_columns(occurs[None, :])
        decay = _decay(model, len(columns), total)
        X, Q, by_row = look_at(rows, int(random.randint(2**31 - 1)), fraction=0.0, n_sample=SAMPLED).sample
        T = self._weights(Q, class_weights, by_row)[:, columns].astype(np.float32)
        start = fit_softmax_regression(
            _scaled(scaler, X, len(T)), T, len(columns), weight_decay=decay, tol=1e-3
        )
        fit = fit_softmax_by_blocks(
            lambda: ((_scaled(scaler, X, len(T)), T[:, columns].astype(np.float32)) for X, T in weighted()),
            start.W,
            weight_decay=decay,
            tol=TOLERANCE,
            max_iter=MAX_PASSES,
            progress=lambda passes: run.report("training", min(passes, MAX_PASSES), MAX_PASSES),
        )
        self._keep_fit(scaler, model, fit, columns)

    def _keep_fit(self, scaler: Any, model: Any, fit: LinearFit, columns: Ints) -> None:
        """Put the weights into scikit-learn's model, and warn if they are not the best."""
        if not fit.converged:
            warn(
                ConvergenceWarning(
                    f"The logistic student stopped at a gradient of {fit.gradient:.1e} after {fit.n_iter} "
                    f"steps (tolerance {TOLERANCE:g}). Columns with a few huge values make it slow: "
                    "transform them."
                )
            )
        W = fit.W[:, 1:] - fit.W[:, :1] if len(columns) == 2 else fit.W
        model.classes_ = columns
        model.coef_, model.intercept_ = np.ascontiguousarray(W[:-1].T), W[-1].copy()
        model.n_iter_, model.n_features_in_ = np.array([fit.n_iter]), len(W) - 1
        self.keep(make_pipeline(scaler, model), columns)


def _decay(model: LogisticRegression, n_classes: int, total: float) -> float:
    """Return the decay of weights for labels of this total weight, as scikit-learn's C means it."""
    # scikit-learn has one column of weights for two classes: twice the decay gives the same model
    return float((2.0 if n_classes == 2 else 1.0) / (model.C * total))


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
