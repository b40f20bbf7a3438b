"""CollisionClassifier: hard and soft labels, noise, linear models and networks, and what is refused."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler

from consilience import (
    CollisionClassifier,
    ConsilienceWarning,
    ConvergenceWarning,
    InvalidInputError,
    students,
)
from consilience.cluster import GCE, Softmax
from consilience.cluster.options import NOISY_LOSSES
from consilience.collision.entropy import collision_cross_entropy, transition_matrix

LOSSES = tuple(NOISY_LOSSES)


X, Y = load_iris(return_X_y=True)


def corrupt(y: np.ndarray, transition: np.ndarray, seed: int = 0) -> np.ndarray:
    """Draw an observed label for each true one."""
    random = np.random.RandomState(seed)
    borders = np.cumsum(transition, axis=0)
    return np.array([np.searchsorted(borders[:, k], random.uniform()) for k in y])


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(X))
    train, test = order[:1200], order[1200:]
    return X[train] / 16, y[train], X[test] / 16, y[test]


@pytest.mark.parametrize("loss", LOSSES)
def test_clean_labels_are_learnt(loss: Any) -> None:
    names = np.array(["setosa", "versicolor", "virginica"])[Y]
    model = CollisionClassifier(loss, Softmax(weight_decay=1e-3)).fit(X, names)
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert model.score(X, names) > 0.95
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("loss", ["collision", "cross-entropy"])
def test_with_hard_labels_it_is_logistic_regression(loss: Any) -> None:
    ours = CollisionClassifier(loss, Softmax(weight_decay=0.01, tol=1e-7)).fit(X, Y)
    theirs = LogisticRegression(C=1 / (0.01 * len(X)), tol=1e-9, max_iter=2000)
    scaler = StandardScaler().fit(X)
    theirs.fit(scaler.transform(X), Y)
    expected = theirs.predict_proba(scaler.transform(X))
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-4)


def test_coefficients_are_for_x_as_it_comes() -> None:
    model = CollisionClassifier().fit(X, Y)
    logits = X @ model.coef_.T + model.intercept_
    np.testing.assert_array_equal(logits.argmax(axis=1), model.predict(X))
    shifted = CollisionClassifier().fit(100 * X - 7, Y)
    np.testing.assert_allclose(shifted.predict_proba(100 * X - 7), model.predict_proba(X), atol=1e-6)
    plain = CollisionClassifier(model=Softmax(standardize=False)).fit(X, Y)
    assert np.abs(plain.predict_proba(X) - model.predict_proba(X)).max() > 1e-3


def test_the_objective_is_the_mean_loss_and_the_decay() -> None:
    soft = transition_matrix(3, 0.3)[Y]
    model = CollisionClassifier(model=Softmax(standardize=False, weight_decay=0.02)).fit(X, soft)
    expected = collision_cross_entropy(model.predict_proba(X), soft).mean() + 0.01 * (model.coef_**2).sum()
    assert model.objective_ == pytest.approx(expected)


def test_a_noise_rate_is_a_uniform_transition_is_a_soft_label() -> None:
    Q = transition_matrix(3, 0.3)
    by_rate = CollisionClassifier(noise=0.3).fit(X, Y)
    np.testing.assert_array_equal(by_rate.transition_, Q)
    for other in (
        CollisionClassifier(noise=Q).fit(X, Y),
        CollisionClassifier().fit(X, Q[Y]),
        CollisionClassifier(noise=0.3).fit(X, np.eye(3)[Y]),
    ):
        np.testing.assert_allclose(other.coef_, by_rate.coef_, atol=1e-12)


def test_collision_and_its_generalised_form_withstand_noise() -> None:
    X, y, X_test, y_test = digits()
    observed = corrupt(y, transition_matrix(10, 0.7))
    score = {
        loss: CollisionClassifier(loss, noise=0.7).fit(X, observed).score(X_test, y_test) for loss in LOSSES
    }
    assert score["collision"] > score["cross-entropy"] + 0.04, score
    assert score["generalised-collision"] > score["cross-entropy"] + 0.07, score


def test_the_transition_corrects_noise_that_has_a_direction() -> None:
    """Six of ten labels of each class k are seen as k + 1: only the transition tells who is who."""
    X, y, X_test, y_test = digits()
    Q = 0.4 * np.eye(10) + 0.6 * np.roll(np.eye(10), 1, axis=0)
    observed = corrupt(y, Q)
    blind = CollisionClassifier().fit(X, observed).score(X_test, y_test)
    corrected = CollisionClassifier(noise=Q).fit(X, observed).score(X_test, y_test)
    assert blind < 0.4
    assert corrected > 0.85, corrected


def test_soft_labels_may_have_names() -> None:
    model = CollisionClassifier(classes=["a", "b", "c"]).fit(X, np.eye(3)[Y])
    assert set(model.predict(X)) == {"a", "b", "c"}
    assert CollisionClassifier().fit(X, np.eye(3)[Y]).classes_.tolist() == [0, 1, 2]


def test_hard_labels_need_not_name_every_class() -> None:
    Q = transition_matrix(3, 0.2)
    part = Y < 2
    model = CollisionClassifier(noise=Q, classes=[0, 1, 2]).fit(X[part], Y[part])
    assert model.predict_proba(X).shape == (len(X), 3)
    assert model.score(X[part], Y[part]) > 0.95
    words = np.array(["a", "b", "c"])
    assert CollisionClassifier(classes=["c", "b", "a"]).fit(X, words[Y]).classes_.tolist() == ["c", "b", "a"]


def test_stopping_early_warns_with_figures() -> None:
    with pytest.warns(ConvergenceWarning, match=r"after 2 steps with a gradient of up to .* \(tol 1.0e-04\)"):
        CollisionClassifier(model=Softmax(max_iter=2)).fit(X, Y)


def test_it_works_with_scikit_learns_tools() -> None:
    model = CollisionClassifier("gce", noise=0.1)
    assert clone(model).get_params() == model.get_params()
    assert cross_val_score(model, X, Y).mean() > 0.8


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"loss": "colision"}, "Did you mean 'collision'"),
        ({"model": "linar"}, "Did you mean 'linear'"),
        ({"model": 3}, "model=3 is unknown; use 'linear'"),
        ({"loss": GCE(q=0)}, "q=0 must be"),
        ({"noise": 1.5}, "at most 1"),
        ({"noise": np.eye(2)}, r"expected \(3, 3\)"),
        ({"classes": ["a"]}, "The labels are numbers and the classes are text"),
        ({"model": Softmax(weight_decay=-1)}, "weight_decay=-1"),
        ({"model": Softmax(standardize=1)}, "standardize=1"),
        ({"model": Softmax(standardize="comon")}, "Did you mean 'common'"),
        ({"noise": [[0, 0, 0], [0.5, 1, 0], [0.5, 0, 1]]}, "label .*0.* in row 0, which noise says is never"),
        ({"noise": "atuo"}, "Did you mean 'auto'"),
        ({"noise": "auto", "random_state": "x"}, "random_state='x' must be"),
    ],
)
def test_wrong_options_are_refused(options: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        CollisionClassifier(**options).fit(X, Y)


def test_wrong_labels_are_refused() -> None:
    for classes, labels, problem in (
        (None, 2 * np.eye(3)[Y], "y sums to 2 in row 0"),
        (None, np.eye(3)[Y][1:], "149 rows and X has 150"),
        ([0, 1], Y, r"y has 2 in row 100 \(50 such rows\), which is none of the classes 0, 1"),
        (["a", "b"], np.eye(3)[Y], "2 classes for 3 columns"),
        (["a", "b", "a"], np.eye(3)[Y], "names a more than once"),
        (None, ["a", "a\0", *["b"] * 148], "with a NUL character"),
        (None, [[0.5, 0.5], [1.0]], "y cannot be read as an array"),
    ):
        with pytest.raises(InvalidInputError, match=problem):
            CollisionClassifier(classes=classes).fit(X, labels)
    with pytest.warns(ConsilienceWarning, match="y has only the labels -1 and 1, and -1 means no label"):
        CollisionClassifier().fit(X, np.where(Y == 0, -1, 1))


def test_rows_without_a_label_are_left_out() -> None:
    known = np.arange(len(Y)) % 3 > 0
    expected = CollisionClassifier(noise=0.1).fit(X[known], Y[known])
    for labels in (np.where(known, Y, -1), np.where(known, Y, np.nan), np.ma.array(Y, mask=~known)):
        model = CollisionClassifier(noise=0.1).fit(X, labels)
        assert model.classes_.tolist() == [0, 1, 2]
        np.testing.assert_array_equal(model.coef_, expected.coef_)


def on_networks(loss: Any, noise: float) -> CollisionClassifier:
    """Return a classifier that trains a torch module."""
    pytest.importorskip("torch")
    return CollisionClassifier(loss, students.Network(max_iter=30, lr=0.01), noise=noise, random_state=1)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains_a_network(loss: Any) -> None:
    model = on_networks(loss, 0.1).fit(X, Y)
    assert model.score(X, Y) > 0.9
    assert model.n_iter_ == model.student_.n_iter_ <= 30
    np.testing.assert_array_equal(on_networks(loss, 0.1).fit(X, Y).predict_proba(X), model.predict_proba(X))


def test_losses_of_networks_differ() -> None:
    proba = [on_networks(loss, 0.5).fit(X, Y).predict_proba(X) for loss in LOSSES]
    assert min(np.abs(one - other).max() for one, other in combinations(proba, 2)) > 1e-3


def test_factories_and_images() -> None:
    nn = pytest.importorskip("torch").nn
    *train, X_test, y_test = digits()

    def make(n_classes: int) -> Any:
        return nn.Sequential(
            nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, n_classes)
        )

    images, test = (rows.reshape(-1, 8, 8).astype(np.float32) for rows in (train[0], X_test))
    assert CollisionClassifier(model=make, random_state=0).fit(images, train[1]).score(test, y_test) > 0.9
