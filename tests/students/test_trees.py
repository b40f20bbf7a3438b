"""Forests and boosted trees learn soft labels as weighted copies of the rows would teach them."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from tests.students.learning import learnt
from tests.students.test_logistic import soft_problem

from consilience import CoverageWarning, InvalidInputError
from consilience.kernels.linear_model import targets
from consilience.students import Boosting, Classifier, Forest
from consilience.students.make import make_student

NAMES = ("logistic", "forest", "boosting")


def weighted_problem(n: int, seed: int) -> tuple[np.ndarray, ...]:
    """Rows, soft labels of four classes, weights of classes and of rows."""
    rng = np.random.default_rng(seed)
    return *soft_problem(n, 3, 4, seed), rng.uniform(0.2, 3, size=4), rng.uniform(0.1, 2, size=n)


@pytest.mark.parametrize("seed", range(3))
def test_a_tree_of_soft_labels_is_scikit_learns_on_weighted_copies(seed: int) -> None:
    X, Q, class_weights, row_weights = weighted_problem(200, seed)
    student = Forest(min_label=0.05)
    student.unfitted = lambda: DecisionTreeRegressor(max_depth=4, random_state=0)  # type: ignore[method-assign]
    learnt(student, X, Q, class_weights, row_weights)
    T = targets(Q, class_weights, 0.05) * row_weights[:, None]
    rows, labels = np.nonzero(T)
    peer = DecisionTreeClassifier(max_depth=4, random_state=0)
    peer.fit(X[rows], labels, sample_weight=T[rows, labels])
    np.testing.assert_allclose(student.predict_all(X, 4), peer.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_boosting_is_a_softmax_of_poisson_regressions(seed: int) -> None:
    X, Q, class_weights, row_weights = weighted_problem(150, seed)
    student = learnt(Boosting(min_label=0.05), X, Q, class_weights, row_weights)
    T = targets(Q, class_weights, 0.05) * row_weights[:, None]
    mass = T.sum(axis=1)
    rates = [
        HistGradientBoostingRegressor(loss="poisson", early_stopping=False)
        .fit(X, share / mass, sample_weight=mass)
        .predict(X)
        for share in T.T
    ]
    np.testing.assert_allclose(
        student.predict_all(X, 4), softmax(np.log(np.column_stack(rates)), axis=1), atol=1e-9
    )
    assert student.n_iter_ == 100


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_classes", [2, 5])
def test_soft_labels_are_learnt_and_exported(name: str, n_classes: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    y = np.arange(300) % n_classes
    X = rng.normal(size=(300, 4)) * 0.3 + np.eye(5, 4)[y] * 4
    Q = 0.7 * np.eye(n_classes)[y] + 0.3 / n_classes
    student = learnt(make_student(name, random_state=0), X, Q)
    proba = student.predict_all(X, n_classes)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert (proba.argmax(axis=1) == y).mean() > 0.98
    assert abs(proba.max(axis=1).mean() - Q.max()) < 0.07  # the soft labels, not the argmax of them
    session = onnxruntime.InferenceSession(student.to_onnx(X[:5]).SerializeToString())
    np.testing.assert_allclose(session.run(None, {"X": X})[0], proba, atol=1e-5)
    again = learnt(make_student(name, random_state=0), X, Q)
    # threads add up a forest's trees in any order
    np.testing.assert_allclose(again.predict_all(X, n_classes), proba, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_weight_zero_and_classes_without_labels(name: str) -> None:
    X, Q = soft_problem(120, 3, 3, 0)
    Q = np.insert(Q, 1, 0.0, axis=1)
    row_weights = np.arange(120) % 2 + 0.0
    X[::2] *= -7
    with pytest.warns(CoverageWarning, match=r"1 of 4 classes \(positions 1\)"):
        whole = learnt(make_student(name, random_state=0), X, Q, np.ones(4), row_weights)
    assert whole.columns_.tolist() == [0, 2, 3]
    proba = whole.predict_all(X, 4)
    np.testing.assert_array_equal(proba[:, 1], 0)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    if name != "logistic":  # it standardizes by all rows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoverageWarning)
            half = learnt(make_student(name, random_state=0), X[1::2], Q[1::2])
        np.testing.assert_allclose(proba, half.predict_all(X, 4))


@pytest.mark.parametrize("rest", [0.0, 0.04])
def test_boosting_learns_nearly_hard_labels_in_one_softmax(rest: float) -> None:
    X, Q = soft_problem(150, 3, 5, 0)
    nearly = (1 - rest) * np.eye(5)[np.arange(150) % 5] + rest * Q
    student = learnt(Boosting(random_state=0), X, nearly)
    copies = learnt(Classifier(HistGradientBoostingClassifier(), random_state=0), X, nearly)
    np.testing.assert_allclose(student.predict_all(X, 5), copies.predict_all(X, 5))
    softer = learnt(Boosting(random_state=0), X, Q).predict_all(X, 5)
    assert np.abs(softer - learnt(copies, X, Q).predict_all(X, 5)).max() > 1e-3


def test_boosting_with_fewer_rows_than_classes_or_one_class() -> None:
    X, Q = soft_problem(4, 2, 6, 0)
    assert learnt(Boosting(min_label=0), X, Q).predict_all(X, 6).shape == (4, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        with pytest.raises(InvalidInputError, match="every row has the same class"):
            learnt(Boosting(), X, np.eye(6)[[2, 2, 2, 2]])
        lonely = learnt(Forest(), X, np.eye(6)[[2, 2, 2, 2]])
    np.testing.assert_allclose(lonely.predict_all(X, 6)[:, 2], 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_the_collision_loss_falls_with_refits(name: str) -> None:
    X, Q = soft_problem(150, 3, 3, 1)
    student = learnt(make_student(name, random_state=0).set_params(loss="collision"), X, Q)
    losses: Any = student.collision_losses_
    assert min(losses[1:]) < losses[0]
