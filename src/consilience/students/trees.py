"""Forests and boosted trees as students that learn soft labels directly, without copies of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)

from consilience._validation import check_fitted, take_rows
from consilience.students.student import WeightedStudent, fit_foreign, learnt_columns

# Labels are nearly hard if the two largest weights of the rows hold at least this share of all. Classes that
# compete in one softmax then learn better than separate regressions; below, separate regressions are as good.
NEARLY_HARD = 0.95


class Forest(WeightedStudent):
    """Fit a forest of 200 extremely randomised trees to soft labels.

    Each tree splits where the variance of the soft labels falls most, in all classes together. This is the
    fall of Gini's impurity that weighted copies of the rows would give. A leaf holds the mean soft label of
    its rows. Copies of a row fall into most bootstrap samples, so there is no bootstrap here either.
    `estimator_` is a regressor of the probabilities.

    Examples
    --------
    >>> Forest(self_label=True)
    Forest(self_label=True)
    """

    takes_missing = takes_sparse = True
    most_copies = (2.5, 3.5)

    def unfitted(self) -> ExtraTreesRegressor:
        """Return the regressor to fit."""
        return ExtraTreesRegressor(n_estimators=200, max_features="sqrt", n_jobs=-1)

    def for_labels(self) -> RandomForestClassifier:
        """Return an unfitted forest for hard labels."""
        return RandomForestClassifier(n_estimators=200, min_samples_leaf=2, n_jobs=-1)

    def predict_scores(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, k) of the classes in `columns_`."""
        check_fitted(self, "estimator_")
        scores = np.asarray(self.estimator_.predict(X), dtype=np.float64)
        return scores.reshape(len(scores), len(self.columns_))

    def _fit_weights(self, X: Any, T: NDArray[np.float64], random: np.random.RandomState) -> None:
        estimator = self.seeded_clone(random)
        columns = np.flatnonzero(T.any(axis=0))
        X, shares, mass = _shares(X, T, columns)
        fit_foreign(estimator, X, shares[:, 0] if len(columns) == 1 else shares, sample_weight=mass)
        self.keep(estimator, columns)


class Boosting(WeightedStudent):
    r"""Fit boosted trees to soft labels: one Poisson regression of each class's probability.

    For a class with soft labels q, scikit-learn's trees f minimise the Poisson deviance

    .. math:: \sum_i e^{f(x_i)} - q_i f(x_i)

    Over all classes this is the cross-entropy of the rates e^f plus their sum, which holds them at 1. Divided
    by their sum they are the softmax of f. So the trees of all classes together make up a classifier as
    scikit-learn fits it to hard labels, with as many trees.

    Where few copies are enough, they are made as for any classifier: for labels that are nearly hard, two
    classes, or fewer rows than classes.

    Examples
    --------
    >>> Boosting(min_label=0)
    Boosting(min_label=0)
    """

    takes_missing = True
    most_copies = (2.5, 3.5)

    def unfitted(self) -> HistGradientBoostingClassifier:
        """Return the classifier to fit."""
        return HistGradientBoostingClassifier()

    def _fit_weights(self, X: Any, T: NDArray[np.float64], random: np.random.RandomState) -> None:
        columns = learnt_columns(T)
        if len(columns) == 2 or len(columns) > len(T) or _two_largest(T) >= NEARLY_HARD:
            super()._fit_weights(X, T, random)
            return
        X, shares, mass = _shares(X, T, columns)
        classifier = self.seeded_clone(random)
        # The classifier is fitted to anything that has all classes, then gets the trees of the regressions.
        classifier.set_params(max_iter=1, max_leaf_nodes=2, early_stopping=False)
        fit_foreign(classifier, X, columns[np.arange(len(shares)) % len(columns)])
        classifier.set_params(**self.unfitted().get_params())
        seed = int(random.randint(2**31 - 1))
        regressions = []
        for share in shares.T:
            regression = HistGradientBoostingRegressor(
                loss="poisson", early_stopping=False, random_state=seed
            )
            fit_foreign(regression, X, share, sample_weight=mass)
            regressions.append(regression)
        _take_trees(classifier, regressions)
        self.keep(classifier, columns)


def _two_largest(T: NDArray[np.float64]) -> float:
    """Return the share of all weights (n, L) that the two largest of each row hold."""
    return float(np.partition(T, -2, axis=1)[:, -2:].sum() / T.sum())


def _shares(
    X: Any, T: NDArray[np.float64], columns: NDArray[np.intp]
) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows that count, their distributions over the columns, and their weights."""
    mass = T.sum(axis=1)
    counts = mass > 0
    if not counts.all():
        X, T, mass = take_rows(X, counts), T[counts], mass[counts]
    return X, T[:, columns] / mass[:, None], mass


def _take_trees(
    classifier: HistGradientBoostingClassifier, regressions: list[HistGradientBoostingRegressor]
) -> None:
    """Make the raw score of class k that of regression k."""
    # scikit-learn has no public name for the trees; skl2onnx reads them by these names too
    classifier._predictors = [
        [trees[0] for trees in step] for step in zip(*(r._predictors for r in regressions), strict=True)
    ]
    classifier._baseline_prediction = np.hstack(
        [np.reshape(r._baseline_prediction, (1, 1)) for r in regressions]
    )
