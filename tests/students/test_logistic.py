"""The logistic student finds the minimum that weighted copies of the rows would give."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from tests.students.learning import learnt

from consilience import CoverageWarning, InvalidInputError
from consilience.kernels.linear_model import targets
from consilience.students.logistic import Logistic


def soft_problem(n: int, d: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(3.0, 2.0, size=(n, d)) * np.arange(1, d + 1)
    Q = np.exp(
        X / np.arange(1, d + 1) @ rng.normal(size=(d, n_classes)) / d + rng.normal(size=(n, n_classes))
    )
    return X, Q / Q.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "d", "n_classes"), [(300, 6, 5), (200, 4, 2), (40, 60, 3)])
def test_it_is_scikit_learns_on_weighted_copies(n: int, d: int, n_classes: int, seed: int) -> None:
    X, Q = soft_problem(n, d, n_classes, seed)
    rng = np.random.default_rng(seed)
    class_weights, row_weights = rng.uniform(0.2, 3, size=n_classes), rng.uniform(0.1, 2, size=n)
    student = learnt(Logistic(min_label=0.05), X, Q, class_weights, row_weights)
    scaled = StandardScaler().fit_transform(X)
    T = targets(Q, class_weights, 0.05) * row_weights[:, None]
    rows, labels = np.nonzero(T)
    peer = LogisticRegression(tol=1e-8, max_iter=10_000)
    peer.fit(scaled[rows], labels, sample_weight=T[rows, labels])
    expected = peer.predict_proba(scaled)
    np.testing.assert_allclose(student.predict_all(X, n_classes), expected, atol=5e-3)
    assert student.estimator_[-1].coef_.shape == peer.coef_.shape
    assert student.n_iter_ >= 1


@pytest.mark.parametrize("n_classes", [2, 4])
def test_rows_read_block_by_block_give_the_same_model(n_classes: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=1000)
    X = (rng.normal(size=(1000, 5)) + rng.normal(size=(n_classes, 5))[y]) * [0.01, 1, 1, 10, 100] + 7
    Q = np.hstack([0.2 / n_classes + 0.8 * np.eye(n_classes)[y], np.zeros((1000, 1))])
    weights, by_class = rng.random(1000), np.linspace(0.5, 1.5, n_classes + 1)
    options: dict[str, Any] = {"min_label": 0.01, "random_state": 0}
    with pytest.warns(CoverageWarning):
        inside = learnt(Logistic(**options), X, Q, by_class, weights)
    calls: list[Any] = []
    small: dict[str, Any] = {"block_rows": 64, "memory": 2**13, "progress": lambda *call: calls.append(call)}
    with pytest.warns(CoverageWarning, match="positions 2|positions 4"):
        outside = learnt(Logistic(**options), X, Q, by_class, weights, **small)
    assert outside.columns_.tolist() == inside.columns_.tolist() == list(range(n_classes))
    np.testing.assert_allclose(
        outside.predict_all(X, n_classes + 1), inside.predict_all(X, n_classes + 1), atol=2e-3
    )
    assert calls[-1] == ("training", outside.n_iter_, 100)


@pytest.mark.parametrize("memory", [None, 2**10])
def test_rows_that_cannot_be_learnt_from(memory: int | None) -> None:
    X, Q = soft_problem(40, 3, 3, 0)
    bad = np.where(np.arange(120).reshape(40, 3) == 100, np.nan, X)
    with pytest.raises(InvalidInputError, match=r"cannot learn from X: .*NaN"):
        learnt(Logistic(), bad, Q, memory=memory)
    with (
        pytest.warns(CoverageWarning),
        pytest.raises(InvalidInputError, match="every row has the same class, and one class is too few"),
    ):
        learnt(Logistic(), X, np.eye(3)[np.zeros(40, dtype=int)], memory=memory)
