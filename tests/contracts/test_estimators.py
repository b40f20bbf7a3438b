"""scikit-learn's own checks for every estimator, with a reason for each that cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from consilience import CollisionClassifier, Unifier, as_teacher


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
    "check_complex_data": _PASSED_ON,
    "check_estimator_sparse_tag": _PASSED_ON,
    "check_estimator_sparse_array": _PASSED_ON,
    "check_estimator_sparse_matrix": _PASSED_ON,
    "check_classifier_data_not_an_array": _PASSED_ON,
    "check_dtype_object": _FOREIGN_Y,
    "check_classifiers_classes": _FOREIGN_Y,
    "check_classifiers_regression_target": _FOREIGN_Y,
    "check_supervised_y_2d": _FOREIGN_Y,
    "check_classifiers_train": "the accuracy is that of teachers who know nothing of the check's data",
    "check_supervised_y_no_nan": "NaN in y stands for an unknown label",
}


# the checks label every row, with two of the three classes
@pytest.mark.filterwarnings("ignore:No row has a soft label:consilience.CoverageWarning")
@parametrize_with_checks(
    [
        Unifier(TEACHERS, "logistic", random_state=0),
        CollisionClassifier(),
        CollisionClassifier("generalised-collision", noise_rate=0.1),
    ],
    expected_failed_checks=lambda estimator: EXPECTED if isinstance(estimator, Unifier) else {},
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
