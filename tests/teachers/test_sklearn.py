"""Scikit-learn-style classifiers."""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from consilience.exceptions import TeacherError
from consilience.teachers import Sklearn, as_teacher

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))


def labels(k: int) -> np.ndarray:
    return np.arange(40) % k


@pytest.mark.parametrize(
    "model", [LogisticRegression(), make_pipeline(StandardScaler(), SVC()), LinearSVC(), "lightgbm"]
)
def test_an_unfitted_model(model: Any) -> None:
    if model == "lightgbm":
        model = pytest.importorskip(model).LGBMClassifier()
    with pytest.raises(TeacherError, match=r"is not fitted\. Call fit before"):
        as_teacher(model, classes=[0, 1])


def test_a_search_is_its_best_model() -> None:
    search = GridSearchCV(LogisticRegression(), {"C": [0.01, 10.0]}, cv=2).fit(X, labels(3))
    teacher = as_teacher(search)
    assert (teacher.name, teacher.classes.tolist()) == ("GridSearchCV", [0, 1, 2])
    found = softmax(teacher.predict_logits(X), axis=1)
    np.testing.assert_allclose(found, search.best_estimator_.predict_proba(X))
    np.testing.assert_allclose(teacher.class_weights, search.best_estimator_.coef_)
    search = GridSearchCV(SVC(), {"decision_function_shape": ["ovo"]}, cv=2).fit(X, labels(3))
    with pytest.raises(TeacherError, match="'GridSearchCV' gives a margin per pair"):
        as_teacher(search)


@pytest.mark.parametrize("k", [3, 4])
def test_one_vs_one_margins_are_refused(k: int) -> None:
    model = SVC(decision_function_shape="ovo").fit(X, labels(k))
    for wrapped in (model, make_pipeline(StandardScaler(), model).fit(X, labels(k))):
        with pytest.raises(TeacherError, match="decision_function_shape='ovr'"):
            as_teacher(wrapped)
    assert as_teacher(SVC().fit(X, labels(k))).predict_logits(X).shape == (40, k)


def test_one_vs_one_margins_of_two_classes_are_one_margin() -> None:
    model = SVC(decision_function_shape="ovo").fit(X, labels(2))
    np.testing.assert_allclose(as_teacher(model).predict_logits(X)[:, 1], model.decision_function(X))


def test_a_forest_with_zeros_gets_the_floor() -> None:
    model = DecisionTreeClassifier().fit(X, labels(3))
    logits = Sklearn(model, floor=1e-3).predict_logits(X)
    np.testing.assert_allclose(np.unique(logits), [np.log(1e-3), 0])


class Duck:
    """A model without fit, which is taken at its word."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.full((len(X), 2), 0.5)


class Deflated(LogisticRegression):
    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(0.85 * super().predict_proba(X))


SEVERAL = RandomForestClassifier(2).fit(X, np.column_stack([labels(2), labels(3)]))
REGRESSOR = LinearRegression().fit(X, labels(2))
THREE = LogisticRegression().fit(X, labels(3))


@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        (SEVERAL, {}, "predicts several outputs at once"),
        (REGRESSOR, {}, r"without classes_|neither predict_proba"),
        (REGRESSOR, {"classes": [0, 1]}, "neither predict_proba nor decision_function"),
        (Duck(), {}, "without classes_"),
        (Deflated().fit(X, labels(3)), {}, r"sum to 0\.85 in row 0 \(40 such rows\)"),
        (RandomForestClassifier(2).fit(X, labels(2)), {"output": "logits"}, "has no decision_function"),
        (LinearSVC().fit(X, labels(2)), {"output": "probabilities"}, "has no predict_proba"),
        (THREE, {"classes": ["a", "b"]}, r"has 3 classes \(0, 1, 2\) and classes= names 2"),
        (THREE, {"classes": [2, 1, 0]}, "in another order"),
    ],
)
def test_what_is_no_teacher(model: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(TeacherError, match=says):
        as_teacher(model, **options).predict_logits(X)


def test_models_are_taken_at_their_word() -> None:
    assert as_teacher(Duck(), ["a", "b"]).predict_logits(X).shape == (40, 2)
    assert as_teacher(THREE, ["a", "b", "c"]).classes.tolist() == ["a", "b", "c"]
    logits = as_teacher(THREE, output="logits").predict_logits(X)
    np.testing.assert_array_equal(logits, THREE.decision_function(X))


def test_a_wrong_number_of_features_keeps_its_cause() -> None:
    teacher = as_teacher(LogisticRegression().fit(X, labels(2)))
    with pytest.raises(
        TeacherError, match=r"failed on X of shape \(40, 2\).*ValueError: X has 2 features"
    ) as caught:
        teacher.predict_logits(X[:, :2])
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("seed", range(3))
def test_sums_that_single_precision_spoils(seed: int) -> None:
    """GaussianNB subtracts large logarithms: with float32 its probabilities sum to 1.006 and the like."""
    usual = np.random.default_rng(seed).normal(size=(1000, 128)).astype(np.float32)
    y = np.arange(1000) % 5
    model = GaussianNB().fit(np.vstack([usual, usual]), np.concatenate([y, y + 5]))  # each class has a twin
    rows = 100 * usual  # far away: the logarithms reach 1e6
    proba = model.predict_proba(rows).astype(np.float64)
    assert np.abs(proba.sum(axis=1) - 1).max() > 0.004  # or this tests nothing
    p = np.exp(as_teacher(model).predict_logits(rows))
    expected = np.maximum(proba / proba.sum(axis=1, keepdims=True), 1e-6)
    np.testing.assert_allclose(p, expected, rtol=1e-9)
