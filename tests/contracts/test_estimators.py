"""scikit-learn's own checks for every estimator, with a reason for each that cannot hold."""

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from consilience import (
    CollisionClassifier,
    CollisionClustering,
    CrossTaskDistiller,
    SoftLabelClassifier,
    Unifier,
    as_teacher,
)


def halves(X: Any) -> np.ndarray:
    """Score any number of features: the checks bring many."""
    total = np.tanh(np.asarray(X, dtype=float).reshape(len(X), -1).sum(axis=1))
    return np.column_stack([total, -total])


TEACHERS = [
    as_teacher(halves, [0, 1], "low", output="logits"),
    as_teacher(halves, [1, 2], "high", output="logits"),
]

_FOREIGN_Y = "y names classes that the teachers do not know, which is an error here"
_PASSED_ON = "X goes to the teachers as it is; what they cannot take, they refuse in their own words"
EXPECTED = {
    "check_dtype_object": _FOREIGN_Y,
    "check_classifiers_classes": _FOREIGN_Y,
    "check_classifiers_regression_target": _FOREIGN_Y,
    "check_classifiers_train": "the accuracy is that of teachers who know nothing of the check's data",
    "check_supervised_y_no_nan": "NaN in y stands for an unknown label",
}

_MINUS_ONE = {"check_classifiers_classes": "-1 in y stands for an unknown label"}
_TOO_MANY = "y has labels beyond n_clusters - 1, since the check sets n_clusters to 1 or 2: an error here"
EXPECTED_OF_CLUSTERING = dict.fromkeys(
    (
        "check_dont_overwrite_parameters",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_fit2d_1sample",
        "check_fit2d_1feature",
        "check_fit2d_predict1d",
    ),
    _TOO_MANY,
)


class Unlabelled(CollisionClustering):
    """The same without labels: here every check must pass."""

    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(X)


def expected(estimator: Any) -> dict[str, str]:
    if isinstance(estimator, CollisionClustering):
        return {} if isinstance(estimator, Unlabelled) else EXPECTED_OF_CLUSTERING
    if isinstance(estimator, CrossTaskDistiller):
        return {**_MINUS_ONE, "check_dtype_object": _PASSED_ON}
    return EXPECTED if isinstance(estimator, Unifier) else _MINUS_ONE


# a teacher that knows nothing of the checks' data is dropped
@pytest.mark.filterwarnings("ignore:Teacher .* was dropped:consilience.ConsilienceWarning")
# the checks label every row, with two of the three classes
@pytest.mark.filterwarnings("ignore:No row has a soft label:consilience.CoverageWarning")
# some give few or random rows to the default of eight clusters
@pytest.mark.filterwarnings("ignore:Only .* clusters have rows:consilience.CoverageWarning")
@parametrize_with_checks(
    [
        Unifier(TEACHERS, "logistic", random_state=0),
        CrossTaskDistiller(TEACHERS[0], "logistic", random_state=0),
        SoftLabelClassifier("logistic", random_state=0),
        CollisionClassifier(),
        CollisionClassifier("generalised-collision", noise=0.1),
        CollisionClassifier(noise="auto"),
        CollisionClustering(n_init=2),
        Unlabelled(n_init=2),
        Unlabelled(loss="sela", n_init=2),
        Unlabelled(loss="mi", protocol="paper"),
    ],
    expected_failed_checks=expected,
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
