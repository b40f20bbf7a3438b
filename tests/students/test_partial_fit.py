"""scikit-learn classifiers with partial_fit that learn from rows read block by block."""

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.rows.rows import target_rows

from consilience.exceptions import InvalidInputError
from consilience.rows import targets
from consilience.run import Run
from consilience.students import Classifier
from consilience.students.make import make_student

L, D = 4, 6
CENTRES = np.random.default_rng(5).normal(size=(L, D))


def problem(n: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(L, size=n)
    return rng.normal(size=(n, D)) + CENTRES[y], 0.2 / L + 0.8 * np.eye(L)[y], y


def learn(estimator: Any, rows: Any, loss: Any = "cross-entropy", **options: Any) -> Any:
    student = make_student(estimator, random_state=options.pop("seed", 0)).set_params(loss=loss)
    weights = options.pop("class_weights", np.ones(rows.n_columns))
    return student.learn(rows, weights, run=Run(**{"memory": 2**24, **options}))


def sgd() -> SGDClassifier:
    return make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", alpha=1e-3))


@pytest.mark.parametrize(
    ("make", "loss"),
    [
        (sgd, "cross-entropy"),
        (sgd, "collision"),
        (GaussianNB, "cross-entropy"),
        (lambda: "mlp", "cross-entropy"),
    ],
)
def test_as_good_as_from_all_rows_at_once(make: Any, loss: Any) -> None:
    X, Q, _ = problem(800)
    Xt, _, yt = problem(4000, seed=1)
    peers = LogisticRegression().fit(X, Q.argmax(axis=1)).predict(Xt)
    found = [
        learn(make(), target_rows(X, Q, block_rows=64), loss, seed=seed).predict_all(Xt, L) for seed in (0, 1)
    ]
    accuracy = np.mean([(proba.argmax(axis=1) == yt).mean() for proba in found])
    assert accuracy > (peers == yt).mean() - 0.03
    assert found[0].shape == (4000, L)


class Counter(ClassifierMixin, BaseEstimator):
    """Adds up the weights of each class, and remembers the sizes of its lessons."""

    max_iter = 2

    def fit(self, X: Any, y: Any) -> Any:
        raise NotImplementedError

    def partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> Any:
        if not hasattr(self, "mass_"):
            self.classes_, self.mass_, self.sizes_ = classes, np.zeros(len(classes)), []
        self.mass_ += np.bincount(y, sample_weight, len(classes))
        self.sizes_.append(len(X))
        return self

    def predict_proba(self, X: Any) -> Any:
        return np.tile(self.mass_ / self.mass_.sum(), (len(X), 1))


class Unweighted(Counter):
    def partial_fit(self, X: Any, y: Any, classes: Any) -> Any:  # type: ignore[override]
        return super().partial_fit(X, y, classes, np.ones(len(y)))


@pytest.mark.parametrize("kind", [Counter, Unweighted])
def test_soft_labels_become_weights_with_at_most_two_copies(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consilience.students.partial_fit.SMALL", 1)
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(1000, 2)), rng.dirichlet(np.ones(20), 1000)
    by_class, by_row = np.linspace(0.5, 1.5, 20), rng.random(1000)
    student = learn(kind(), target_rows(X, Q, by_row, block_rows=128), class_weights=by_class)
    expected = (Q * by_class * by_row[:, None]).sum(axis=0)
    found = student.estimator_.mass_
    np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), atol=0.012)
    assert sum(student.estimator_.sizes_) <= 2 * 2 * 1000
    assert student.columns_.tolist() == list(range(20))


def test_a_class_that_never_occurs_is_known_all_the_same() -> None:
    X, Q, y = problem(300)
    Q = np.hstack([Q, np.zeros((300, 1))])
    proba = learn(sgd(), target_rows(X, Q, block_rows=32)).predict_all(X, L + 1)
    assert (proba.argmax(axis=1) == y).mean() > 0.7


def test_training_stops_when_the_held_out_loss_stalls() -> None:
    X, Q, _ = problem(500)
    calls: list[Any] = []
    classifier = SGDClassifier(loss="log_loss", n_iter_no_change=2)
    student = learn(classifier, target_rows(X, Q), progress=lambda *call: calls.append(call))
    assert 3 <= student.n_iter_ < 100
    assert calls[-1] == ("training", student.n_iter_, 1000)


def test_long_passes_are_measured_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "EPOCH_ROWS", 100)
    monkeypatch.setattr(targets, "ROW_VISITS", 500)
    monkeypatch.setattr("consilience.students.partial_fit.CHUNK_ROWS", 50)
    X, Q, _ = problem(400)
    calls: list[Any] = []
    learn(GaussianNB(), target_rows(X, Q), progress=lambda *call: calls.append(call))
    assert calls[0] == ("training", 1, 5)  # a pass has four parts, and 500 visits are five
    assert len(calls) <= 5


def test_sparse_rows_and_texts() -> None:
    X, Q, y = problem(400)
    texts = [f"{['ant', 'bee', 'cat', 'dog'][k]} {'x' * (i % 5)} and" for i, k in enumerate(y)]
    pipeline = make_pipeline(TfidfVectorizer(), SGDClassifier(loss="log_loss"))
    counts = csr_array(np.rint(np.exp(X)))
    for rows, estimator, accuracy in ((texts, pipeline, 0.95), (counts, MultinomialNB(), 0.6)):
        student = learn(estimator, target_rows(rows, Q, block_rows=64))
        assert (student.predict_all(rows, L).argmax(axis=1) == y).mean() > accuracy


@pytest.mark.parametrize(
    ("estimator", "learns"),
    [
        (sgd(), True),
        (MLPClassifier(), True),
        (MLPClassifier(early_stopping=True), False),
        (MLPClassifier(solver="lbfgs"), False),
        (SGDClassifier(loss="log_loss", class_weight="balanced"), False),
        (RandomForestClassifier(), False),
    ],
)
def test_who_learns_by_parts(estimator: Any, learns: bool) -> None:
    assert Classifier(estimator).learns_by_parts is learns


def test_an_interrupt_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    # scikit-learn turns this into a warning
    monkeypatch.setattr(MLPClassifier, "_backprop", Mock(side_effect=KeyboardInterrupt))
    X, Q, _ = problem(100)
    with pytest.raises(KeyboardInterrupt):
        learn("mlp", target_rows(X, Q))


def test_bad_rows_are_our_error() -> None:
    X, Q, _ = problem(100)
    with pytest.raises(InvalidInputError, match="cannot learn from X"):
        learn(GaussianNB(), target_rows(np.where(X[50] == X, np.nan, X), Q))
