"""The linear model: its optimum against a dense solver's, and its derivative."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from consilience.kernels.linear_model import linear_logits, minimise_linear


def _cross_entropy(labels):
    target = np.eye(labels.max() + 1)[labels]

    def loss(logits):
        logits = logits.astype(float)
        value = -(target * log_softmax(logits, axis=1)).sum() / len(target)
        return value, (softmax(logits, axis=1) - target) / len(target)

    return loss


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    return rng.normal(size=(200, 5)) + np.eye(3, 5)[y], y


def test_the_optimum_is_that_of_logistic_regression(problem):
    X, y = problem
    fit = minimise_linear(X, np.zeros((6, 3)), _cross_entropy(y), weight_decay=0.1, max_iter=500, tol=1e-9)
    # scikit-learn minimises C times the sum and half the squared norm
    peer = LogisticRegression(C=1 / (0.1 * len(X)), tol=1e-9, max_iter=1000).fit(X, y)
    assert fit.converged
    assert fit.gradient < 1e-8
    np.testing.assert_allclose(softmax(linear_logits(X, fit.W), axis=1), peer.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(fit.W[:-1].T, peer.coef_, atol=1e-5)


def test_the_bias_is_not_decayed():
    X = np.zeros((30, 2))
    y = np.repeat([0, 1, 1], 10)
    fit = minimise_linear(X, np.zeros((3, 2)), _cross_entropy(y), weight_decay=10.0, max_iter=200, tol=1e-9)
    np.testing.assert_allclose(softmax(linear_logits(X[:1], fit.W)), [[1 / 3, 2 / 3]], atol=1e-6)


def test_single_precision_comes_close_and_stays_single(problem):
    X, y = problem
    options = {"weight_decay": 0.01, "max_iter": 100, "tol": 1e-6}
    exact = minimise_linear(X, np.zeros((6, 3)), _cross_entropy(y), **options)
    single = minimise_linear(X.astype(np.float32), np.zeros((6, 3)), _cross_entropy(y), **options)
    assert linear_logits(X.astype(np.float32), exact.W).dtype == np.float32
    assert single.objective == pytest.approx(exact.objective, rel=1e-5)


def test_a_few_steps_only_go_down(problem):
    X, y = problem
    values = [
        minimise_linear(
            X, np.zeros((6, 3)), _cross_entropy(y), weight_decay=0.0, max_iter=steps, tol=0.0
        ).objective
        for steps in (1, 2, 4, 8)
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] < np.log(3)
