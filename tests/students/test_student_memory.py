"""Students do not copy rows for every class: at most two copies, and none for students with a name."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler
from tests.students.learning import learnt

from consilience.exceptions import InvalidInputError
from consilience.kernels.linear_model import targets
from consilience.run import Run
from consilience.students import Classifier, Logistic, Ngrams
from consilience.students import student as expansion
from consilience.students.make import make_student

N, D, L = 2000, 100, 25


def problem() -> tuple[np.ndarray, np.ndarray]:
    """Soft labels that keep nearly every class above the threshold."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    Q = np.exp(rng.normal(size=(N, L)) / 3)
    Q /= Q.sum(axis=1, keepdims=True)
    assert (targets(Q, np.ones(L), 0.01) > 0).sum() > 22 * N
    return X, Q


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("logistic", StandardScaler),
        ("forest", ExtraTreesRegressor),
        ("boosting", HistGradientBoostingRegressor),
    ],
)
def test_named_students_get_each_row_once(name: str, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = kind.fit

    def fit(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        seen.append(len(X))
        return plain(self, X, *args, **options)

    monkeypatch.setattr(kind, "fit", fit)
    X, Q = problem()
    learnt(make_student(name, random_state=0), X[:200, :5], Q[:200])
    assert set(seen) == {200}


def check_peak(student: Any, X: np.ndarray, Q: np.ndarray) -> None:
    """Let a student learn with at most twice the memory of the data, and some."""
    tracemalloc.start()
    learnt(student, X, Q)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.25 * (X.nbytes + Q.nbytes)


def test_logistic_regression_takes_at_most_twice_the_memory_of_the_data() -> None:
    check_peak(make_student("logistic", random_state=0), *problem())


class Counter(ClassifierMixin, BaseEstimator):
    """Remembers what it was given."""

    def fit(self, X: Any, y: Any, sample_weight: Any) -> Any:
        self.classes_ = np.unique(y)
        self.rows_, self.mass_ = len(X), np.bincount(y, sample_weight)
        self.by_row_ = np.bincount(X[:, 0].astype(int), sample_weight)
        return self

    def predict_proba(self, X: Any) -> Any:
        return np.tile(self.mass_ / self.mass_.sum(), (len(X), 1))


class Unweighted(Counter):
    def fit(self, X: Any, y: Any) -> Any:  # type: ignore[override]
        return super().fit(X, y, np.ones(len(y)))


@pytest.mark.parametrize("kind", [Counter, Unweighted])
def test_a_large_transfer_set_is_copied_at_most_twice(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Q = problem()
    X[:, 0] = np.arange(N)
    small = learnt(Classifier(kind(), random_state=0), X, Q).estimator_
    assert small.rows_ > 9 * N  # this set is small, so every copy is there
    monkeypatch.setattr(expansion, "SMALL", 1)
    large = learnt(Classifier(kind(), random_state=0), X, Q).estimator_
    assert 2 * N <= large.rows_ <= 2 * N + L
    np.testing.assert_allclose(large.mass_ / large.mass_.sum(), small.mass_ / small.mass_.sum(), atol=0.01)
    off = np.abs(large.by_row_ / large.by_row_.mean() - 1)
    assert off.max() < 1.1  # no row has lost all its weight, or got twice its share and more
    assert off.mean() < 0.3


def test_copies_take_at_most_twice_the_memory_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Q = problem()
    X = np.column_stack([np.arange(N), X[:, :39]])  # soft labels are large as well
    monkeypatch.setattr(expansion, "SMALL", 1)
    monkeypatch.setattr(expansion, "THINNED_ROWS", 256)
    student = Classifier(Counter(), random_state=0)
    check_peak(student, X, Q)
    assert 2 * N - 8 <= student.estimator_.rows_ <= 2 * N + L
    np.testing.assert_allclose(student.estimator_.mass_.sum(), N)


def test_a_rare_class_survives_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Q = problem()
    X[:, 0] = np.arange(N)
    Q[:, 0] = 0.0
    Q[7, 0] = 0.02
    monkeypatch.setattr(expansion, "SMALL", 1)
    for seed in range(5):
        student = learnt(Classifier(Counter(), random_state=seed), X, Q)
        assert student.columns_.tolist() == list(range(L))


class Claimed:
    """Rows that say how many they are, and how large."""

    held = False

    def __init__(self, n: int) -> None:
        self.n, self.n_bytes = n, 400 * n

    def __len__(self) -> int:
        return self.n


def check(student: Any, n: int) -> None:
    make_student(student, random_state=0).check_memory(Claimed(n), 30, Run(memory=2**32))


@pytest.mark.parametrize("student", ["mlp", "logistic", GaussianNB(), Ngrams(), "torch"])
def test_these_learn_from_any_number_of_rows(student: Any) -> None:
    if student == "torch":
        pytest.importorskip("torch")
    check(student, 10**8)


@pytest.mark.parametrize("student", ["forest", "boosting", LogisticRegression(), Logistic(loss="collision")])
def test_the_others_say_how_many_rows_they_take(student: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"student='torch'.* or 'mlp'") as raised:
        check(student, 10**7)
    most = int(str(raised.value).split("it can learn from about ")[1].split(".")[0].replace(",", ""))
    assert 10**4 < most < 10**7
    check(student, most)
    with pytest.raises(InvalidInputError):
        check(student, most + most // 100)


@pytest.mark.parametrize("student", ["forest", "boosting", LogisticRegression()])
def test_blocks_are_joined_for_who_needs_all_rows(student: Any) -> None:
    X, Q = problem()
    X, Q, by_row = X[:200, :5], Q[:200], np.linspace(0.5, 1.5, 200)
    one, many = (
        learnt(make_student(student, random_state=0), X, Q, None, by_row, block_rows=rows).predict_all(X, L)
        for rows in (2**14, 64)
    )
    np.testing.assert_allclose(one, many, rtol=1e-12)
