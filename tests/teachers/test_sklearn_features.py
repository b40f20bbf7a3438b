"""Embeddings and class weights of scikit-learn models."""

import warnings
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from consilience import CollisionClassifier
from consilience.exceptions import TeacherError
from consilience.teachers import Sklearn, as_teacher

RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
X = RNG.normal(size=(60, 4)) + 2 * np.eye(4)[Y]


def centred(values: np.ndarray) -> np.ndarray:
    """Remove a bias per class and a constant per row."""
    rest = values - values.mean(axis=1, keepdims=True)
    return rest - rest.mean(axis=0)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(C=0.1),
        RidgeClassifier(),
        SGDClassifier(random_state=0),
        CollisionClassifier(),
        make_pipeline(StandardScaler(), PCA(3), LogisticRegression(C=0.1)),
        GridSearchCV(
            make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": [0.1]}, cv=2
        ),
        *(
            MLPClassifier((6, 5), activation=name, solver="lbfgs", max_iter=5, random_state=0)
            for name in ("identity", "logistic", "tanh", "relu")
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_last_layer_is_found(model: Any, n_classes: int) -> None:
    rows = n_classes > Y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networks that stop early
        model.fit(X[rows], Y[rows])
    teacher = Sklearn(model, floor=1e-250)  # no probability is so small
    seen = teacher.observe(X)
    logits = seen.embeddings @ teacher.class_weights.T
    np.testing.assert_allclose(centred(seen.logits - logits), 0, atol=1e-6)
    np.testing.assert_allclose(seen.logits, teacher.predict_logits(X), atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(3, random_state=0),
        SVC(kernel="linear"),  # three classes have three pairs: coef_ has the shape of a row per class
        CalibratedClassifierCV(LogisticRegression(), cv=2),
        make_pipeline(StandardScaler(), RandomForestClassifier(3, random_state=0)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_without_a_last_layer(model: Any) -> None:
    teacher = as_teacher(model.fit(X, Y))
    assert teacher.embed(X) is teacher.class_weights is teacher.observe(X).embeddings is None


def test_the_transformers_run_once_for_both() -> None:
    watch = Mock(side_effect=np.copy)
    teacher = as_teacher(make_pipeline(FunctionTransformer(watch), LogisticRegression()).fit(X, Y))
    watch.reset_mock()
    teacher.observe(X)
    watch.assert_called_once()


def test_a_step_of_a_pipeline_can_be_named() -> None:
    model = make_pipeline(StandardScaler(), PCA(2), RandomForestClassifier(3, random_state=0)).fit(X, Y)
    teacher = as_teacher(model, embed="pca")
    np.testing.assert_allclose(teacher.embed(X), model[:2].transform(X))
    np.testing.assert_allclose(teacher.observe(X).logits, teacher.predict_logits(X))
    with pytest.raises(TeacherError, match="no step 'pcb'; it has, for example, 'pca'"):
        as_teacher(model, embed="pcb")
    linear = make_pipeline(StandardScaler(), PCA(2), LogisticRegression()).fit(X, Y)
    assert as_teacher(linear, embed="pca").class_weights.shape == (3, 2)
    assert as_teacher(linear, embed="standardscaler").class_weights is None


def test_sparse_rows_are_made_dense_unless_they_are_very_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LogisticRegression().fit(sp.csr_array(X), Y)
    teacher = as_teacher(model)
    np.testing.assert_allclose(teacher.observe(sp.csr_array(X)).embeddings, X)
    monkeypatch.setattr("consilience.teachers.sklearn.MAX_SPARSE_COLUMNS", 3)
    assert teacher.observe(sp.csr_array(X)).embeddings is None
    network = MLPClassifier(3, solver="lbfgs", random_state=0, max_iter=500).fit(sp.csr_array(X), Y)
    found = as_teacher(network).observe(sp.csr_array(X)).embeddings
    expected = np.maximum(X @ network.coefs_[0] + network.intercepts_[0], 0)
    np.testing.assert_allclose(found, expected)


def test_a_binary_model_has_a_row_per_class() -> None:
    model = LogisticRegression().fit(X[Y < 2], Y[Y < 2])
    np.testing.assert_allclose(as_teacher(model).class_weights, np.vstack([-model.coef_, model.coef_]) / 2)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        SVC(),
        GaussianNB(),
        RandomForestClassifier(3, random_state=0),
        HistGradientBoostingClassifier(max_iter=2, random_state=0),
        MLPClassifier(3, solver="lbfgs", random_state=0, max_iter=500),
        make_pipeline(StandardScaler(), LogisticRegression()),
        CalibratedClassifierCV(SVC(), cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_fingerprint_changes_with_the_fit(model: Any) -> None:
    teacher, again = as_teacher(model.fit(X, Y)), as_teacher(clone(model).fit(X, Y))
    first, before = teacher.fingerprint, teacher.predict_logits(X)
    assert first == again.fingerprint is not None
    model.fit(X + 0.1 * Y[:, None] ** 2, np.roll(Y, 1))
    assert not np.array_equal(teacher.predict_logits(X), before)  # or this tests nothing
    assert teacher.fingerprint not in (None, first)


def test_a_fingerprint_changes_with_a_setting() -> None:
    assert len({None, *(as_teacher(LogisticRegression(C=C).fit(X, Y)).fingerprint for C in (1, 2))}) == 3


def test_a_model_that_cannot_be_hashed_has_no_fingerprint() -> None:
    model = LogisticRegression().fit(X, Y)
    model.log_ = (row for row in X)
    assert as_teacher(model).fingerprint is None
    assert Sklearn(model, fingerprint="v1").fingerprint is not None


class Resampler(BaseEstimator):  # type: ignore[misc]
    """Like those of imbalanced-learn: fits, and is passed over in prediction."""


class Lenient(Pipeline):  # type: ignore[misc]
    def predict_proba(self, X: Any) -> Any:
        return self.steps[-1][1].predict_proba(X)


def test_a_step_that_does_not_transform_leaves_no_embedding() -> None:
    model = Lenient([("resample", Resampler()), ("last", LogisticRegression().fit(X, Y))])
    teacher = as_teacher(model)
    seen = teacher.observe(X)
    assert teacher.embed(X) is teacher.class_weights is seen.embeddings is None
    np.testing.assert_array_equal(seen.logits, as_teacher(model.steps[-1][1]).predict_logits(X))
