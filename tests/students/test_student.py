"""Students that wrap a classifier: expansion, its threshold, students without sample weights, seeds."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.students.learning import learnt

from consilience import CoverageWarning, InvalidInputError
from consilience.students import Classifier
from consilience.students.make import make_student, named_student


def blobs(random_state: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three blobs with soft labels that are right but never sure."""
    random = np.random.default_rng(random_state)
    y = np.repeat([0, 1, 2], 40)
    X = random.normal(size=(120, 2)) + np.array([[0, 0], [6, 0], [0, 6]])[y]
    return X, 0.7 * np.eye(3)[y] + 0.1


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        RandomForestClassifier(20),
        GradientBoostingClassifier(n_estimators=10),
        make_pipeline(StandardScaler(), LogisticRegression()),
        KNeighborsClassifier(5),  # takes no sample weights
        make_pipeline(StandardScaler(), KNeighborsClassifier(5)),
    ],
    ids=lambda e: type(e).__name__,
)
def test_any_classifier_learns_soft_labels(estimator: Any) -> None:
    X, soft = blobs()
    student = learnt(Classifier(estimator, random_state=0), X, soft)
    proba = student.predict_scores(X)
    assert (proba.argmax(axis=1) == soft.argmax(axis=1)).mean() > 0.97
    # it learnt the soft labels, not the argmax of them
    assert 0.55 < proba.max(axis=1).mean() < 0.85
    again = learnt(Classifier(estimator, random_state=0), X, soft)
    np.testing.assert_array_equal(proba, again.predict_scores(X))


def test_a_class_without_soft_labels_is_named() -> None:
    X, soft = blobs()
    with pytest.warns(CoverageWarning, match=r"1 of 4 classes \(positions 3\)"):
        student = learnt(Classifier(LogisticRegression()), X, np.pad(soft, ((0, 0), (0, 1))))
    assert student.columns_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["torch", "mlp", "logistic", "boosting"])
def test_sparse_rows_are_refused_before_teachers_are_asked(name: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"the student '{name}' needs dense rows.*student='forest'"):
        make_student(name, X=csr_array(np.eye(3)), random_state=0)
    assert make_student("forest", X=csr_array(np.eye(3)), random_state=0) is not None


def test_a_student_for_hard_labels_has_a_name() -> None:
    assert isinstance(named_student("forest"), RandomForestClassifier)
    with pytest.raises(InvalidInputError, match="Did you mean 'forest'"):
        named_student("forrest")


def test_iterations_are_the_estimators_own() -> None:
    X, soft = blobs()
    assert learnt(Classifier(LogisticRegression()), X, soft).n_iter_ > 0
    assert learnt(Classifier(KNeighborsClassifier()), X, soft).n_iter_ is None


class Positive(ClassifierMixin, BaseEstimator):
    """Remembers what it was given."""

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_, self.counts_ = np.unique(y, return_counts=True)
        return self

    def predict_proba(self, X: Any) -> Any:
        return np.tile(self.counts_ / self.counts_.sum(), (len(X), 1))


def test_without_sample_weights_rows_are_drawn_in_proportion() -> None:
    X, soft = blobs()
    student = learnt(Classifier(Positive(), random_state=0), X, soft, np.array([1.0, 1.0, 4.0]))
    np.testing.assert_allclose(student.predict_scores(X[:1]), [[1 / 6, 1 / 6, 4 / 6]], atol=0.02)


def ambiguous(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Three groups of points; soft labels that are sure of a third of them."""
    random = np.random.default_rng(0)
    group = np.arange(n) % 3
    X = random.normal(size=(n, 2)) * 0.5 + np.array([[0, 0], [3, 0], [0, 3]])[group]
    soft = np.where(random.random((n, 1)) < 0.3, np.eye(3)[group], random.dirichlet(np.ones(3), n))
    return X, soft


def collision(student: Classifier, X: np.ndarray, Y: np.ndarray) -> float:
    return float(-np.log((student.predict_scores(X) * Y).sum(axis=1)).mean())


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), RandomForestClassifier(20, min_samples_leaf=5), KNeighborsClassifier(15)],
    ids=lambda e: type(e).__name__,
)
def test_refitting_lowers_the_collision_cross_entropy(estimator: Any) -> None:
    X, Y = ambiguous()
    plain = learnt(Classifier(estimator, random_state=0), X, Y)
    ours = learnt(Classifier(estimator, loss="collision", random_state=0), X, Y)
    losses = ours.collision_losses_
    assert 2 <= len(losses) <= 5
    before, after = (collision(one, X, Y) for one in (plain, ours))
    assert (losses[0], min(losses)) == pytest.approx((before, after), abs=1e-6)
    assert after < before - 0.02


def test_refitting_weights_rows_by_their_label() -> None:
    """With one-hot labels the collision is Shannon's cross-entropy: weights do the same, refits nothing."""
    X, Y = ambiguous()
    hot, weights = np.eye(3)[Y.argmax(axis=1)], np.array([0.2, 1.0, 3.0])
    plain = learnt(Classifier(LogisticRegression()), X, hot, weights)
    ours = learnt(Classifier(LogisticRegression(), loss="collision"), X, hot, weights)
    np.testing.assert_allclose(ours.predict_scores(X), plain.predict_scores(X), atol=1e-6)


def test_a_worse_refit_is_not_kept() -> None:
    """The first fit is good; every refit predicts the classes in reverse."""
    number = itertools.count(1)

    class Tired(LogisticRegression):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            self.number_ = next(number)
            return super().fit(X, y, sample_weight)

        def predict_proba(self, X: Any) -> Any:
            return super().predict_proba(X)[:, :: 1 if self.number_ == 1 else -1]

    X, Y = ambiguous()
    plain = learnt(Classifier(LogisticRegression()), X, Y)
    student = learnt(Classifier(Tired(), loss="collision"), X, Y)
    assert next(number) == 3  # one refit, and no further after a worse one
    assert student.collision_losses_[1] > student.collision_losses_[0] + 0.1
    assert student.estimator_.number_ == 1
    np.testing.assert_array_equal(student.predict_scores(X), plain.predict_scores(X))


@pytest.mark.parametrize("loss", ["cross-entropy", "collision"])
def test_a_row_of_weight_zero_is_as_good_as_left_out(loss: Any) -> None:
    X, Y = ambiguous()
    weights = np.where(np.arange(len(X)) % 2, 2.0, 0.0)
    whole = learnt(Classifier(LogisticRegression(tol=1e-8), loss=loss), X, Y, np.ones(3), weights)
    half = learnt(Classifier(LogisticRegression(C=2.0, tol=1e-8), loss=loss), X[1::2], Y[1::2])
    np.testing.assert_allclose(whole.predict_scores(X), half.predict_scores(X), atol=1e-3)
