"""CollisionClassifier(noise="auto"): the estimate, what is chosen with it, and what it gains."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris

from consilience import CollisionClassifier, InvalidInputError
from consilience.cluster import Softmax
from consilience.cluster.classifier import Choice
from consilience.kernels.collision.entropy import NoiseEstimate

Trial = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
LOSS = "generalised-collision"


def auto(loss: Any = LOSS, **options: Any) -> CollisionClassifier:
    return CollisionClassifier(loss, noise="auto", **{"random_state": 0} | options)


def corrupted(y: np.ndarray, rate: float, seed: int) -> np.ndarray:
    random = np.random.RandomState(seed)
    drawn = random.randint(y.max() + 1, size=len(y))
    return np.where(random.uniform(size=len(y)) < rate, drawn, y)


def digits(rate: float, seed: int) -> Trial:
    """Return rows, noisy labels, test rows and clean test labels."""
    X, y = load_digits(return_X_y=True)
    order = np.random.RandomState(seed).permutation(len(X))
    train, test = order[:1300], order[1300:]
    return X[train], corrupted(y[train], rate, seed), X[test], y[test]


X, Y = load_iris(return_X_y=True)


@pytest.mark.parametrize("loss", ["collision", LOSS])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.8])
def test_the_estimate_is_near_the_truth(rate: float, loss: str) -> None:
    for seed in range(20, 22):
        X, noisy, _, _ = digits(rate, seed)
        assert auto(loss).fit(X, noisy).noise_rate_ == pytest.approx(rate, abs=0.07), seed


@pytest.mark.parametrize(("rate", "least"), [(0.0, -0.005), (0.5, 0.01), (0.8, 0.05)])
def test_it_gains_where_labels_are_wrong_and_loses_nothing_where_they_are_right(
    rate: float, least: float
) -> None:
    X, noisy, X_test, y_test = digits(rate, 40)
    plain = CollisionClassifier(LOSS).fit(X, noisy).score(X_test, y_test)
    assert auto().fit(X, noisy).score(X_test, y_test) > plain + least


def test_the_last_fit_uses_what_was_chosen() -> None:
    model = auto().fit(X, corrupted(Y, 0.3, 0))
    same = CollisionClassifier(
        LOSS,
        Softmax(weight_decay=model.weight_decay_, standardize=model.standardize_),
        noise=model.noise_rate_,
    ).fit(X, corrupted(Y, 0.3, 0))
    np.testing.assert_array_equal(same.coef_, model.coef_)
    np.testing.assert_array_equal(same.transition_, model.transition_)
    assert same.noise_rate_ == model.noise_rate_


def test_what_you_give_is_not_chosen() -> None:
    model = auto(model=Softmax(weight_decay=0.2, standardize=False)).fit(X, Y)
    assert (model.weight_decay_, model.standardize_) == (0.2, False)
    default = CollisionClassifier().fit(X, Y)
    assert (default.noise_rate_, default.weight_decay_, default.standardize_) == (None, 0.01, True)
    assert CollisionClassifier(noise=0.1).fit(X, Y).noise_rate_ == 0.1


def test_seeds_reproduce_and_parameters_stay_as_given() -> None:
    X, noisy, _, _ = digits(0.5, 50)
    model = auto()
    first = clone(model).fit(X[:300], noisy[:300])
    np.testing.assert_array_equal(first.coef_, model.fit(X[:300], noisy[:300]).coef_)
    assert model.get_params()["noise"] == "auto"
    assert model.get_params()["model"] == "linear"


def test_soft_labels_that_admit_their_doubt_need_no_rate() -> None:
    model = auto().fit(X, 0.7 * np.eye(3)[Y] + 0.1)
    assert model.noise_rate_ < 0.02
    assert model.score(X, Y) > 0.95


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[0.0], [1.0]], [0, 1]),  # no row can be held out
        ([[0.0], [1.0], [2.0]], [0, 0, 0]),
        (np.eye(4), [0, 1, 0, 1]),
        (np.ones((12, 2)), [0, 1] * 6),
        ([[0.0], [0.1], [1.0], [0.9], [5.0]], ["a", "a", "b", "b", "c"]),
    ],
)
def test_tiny_data_are_taken_at_their_word(X: Any, y: Any) -> None:
    model = auto().fit(X, y)
    assert 0.0 <= model.noise_rate_ < 0.7
    assert np.isfinite(model.predict_proba(X)).all()


def test_rows_without_a_label_and_classes_without_a_row() -> None:
    known = np.arange(len(Y)) % 3 > 0
    expected = auto().fit(X[known], Y[known])
    np.testing.assert_array_equal(auto().fit(X, np.where(known, Y, -1)).coef_, expected.coef_)
    wide = auto(classes=[0, 1, 2, 3]).fit(X, Y)
    assert wide.noise_rate_ < 0.05
    assert wide.score(X, Y) > 0.9


def test_a_common_scale_keeps_the_proportions_of_columns() -> None:
    centred = X - X.mean(axis=0)
    unit = centred / np.sqrt(centred.var(axis=0).mean())
    common = CollisionClassifier(model=Softmax(standardize="common")).fit(X, Y)
    plain = CollisionClassifier(model=Softmax(standardize=False)).fit(unit, Y)
    np.testing.assert_allclose(common.predict_proba(X), plain.predict_proba(unit), atol=1e-6)


def test_networks_are_told_what_to_do_instead() -> None:
    torch = pytest.importorskip("torch")
    model = CollisionClassifier(model=torch.nn.Linear(4, 3), noise="auto")
    with pytest.raises(InvalidInputError, match=r"noise='auto' needs model='linear'\. Estimate"):
        model.fit(X, Y)


@pytest.mark.parametrize(("estimated", "assumed"), [(0.55, 0.55), (0.8, 0.5)])
def test_a_fit_assumes_no_rate_that_was_never_tried(estimated: float, assumed: float) -> None:
    choice = Choice(True, 0.01, 0.5, NoiseEstimate(rate=estimated, sharpness=1.0, loss=1.0))
    assert choice.rate == assumed
