"""Linear softmax models: any loss, and softmax regression against scikit-learn."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from consilience.kernels import linear_model
from consilience.kernels.linear_model import (
    column_moments,
    fit_softmax_by_blocks,
    fit_softmax_regression,
    linear_logits,
    minimise_linear,
    sharpen,
    targets,
)


def _cross_entropy(labels):
    target = np.eye(labels.max() + 1)[labels]

    def loss(logits):
        logits = logits.astype(float)
        value = -(target * log_softmax(logits, axis=1)).sum() / len(target)
        return value, (softmax(logits, axis=1) - target) / len(target)

    return loss


def test_the_optimum_is_that_of_logistic_regression():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    X = rng.normal(size=(200, 5)) + np.eye(3, 5)[y]
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


def problem(n: int, d: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return features with unequal spreads, far from zero, and their classes."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n_classes, d))[codes] + 2.0 * rng.normal(size=(n, d)) + 5.0
    return (X / np.arange(1, d + 1)).astype(np.float32), codes


def unlike(kind: str, n: int, d: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features that make a regression hard in one way, and their classes."""
    X, codes = problem(n, d, n_classes, seed)
    X *= np.arange(1, d + 1, dtype=np.float32)
    rng = np.random.default_rng(seed)
    if kind == "spreads from 1e-3 to 1e3":
        X *= np.logspace(-3, 3, d, dtype=np.float32)
    elif kind == "far from zero":
        X += np.float32(1000)
    elif kind == "separable":
        X += 30 * np.eye(n_classes, d, dtype=np.float32)[codes]
    elif kind == "columns twice":
        X[:, d // 2 :] = X[:, : d - d // 2] + 1e-4 * rng.normal(size=(n, d - d // 2))
    elif kind == "mostly zero":
        X *= rng.random((n, d)) < 0.03
    return X, codes


def largest_gradient(W: np.ndarray, X: np.ndarray, Y: np.ndarray, weight_decay: float) -> float:
    """Return the largest entry of the gradient by the weights of centred columns, in float64.

    Y are classes, or soft labels whose rows weigh differently.
    """
    Z = X.astype(np.float64)
    mean = Z.mean(axis=0)
    Z -= mean
    if Y.ndim == 1:
        Y = np.eye(W.shape[1])[Y]
    proba = softmax(Z @ W[:-1] + W[-1] + mean @ W[:-1], axis=1)
    slope = (proba * Y.sum(axis=1, keepdims=True) - Y) / Y.sum()
    return float(max(np.abs(Z.T @ slope + weight_decay * W[:-1]).max(), np.abs(slope.sum(axis=0)).max()))


def objective(W: np.ndarray, X: np.ndarray, codes: np.ndarray, weight_decay: float) -> float:
    log_proba = log_softmax(linear_logits(X.astype(np.float64), W), axis=1)
    return float(-log_proba[np.arange(len(X)), codes].mean() + 0.5 * weight_decay * (W[:-1] ** 2).sum())


KINDS = ("plain", "spreads from 1e-3 to 1e3", "far from zero", "separable", "columns twice", "mostly zero")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d", "n_classes"), [(400, 20, 5), (60, 100, 3), (300, 8, 2), (12, 4, 4)])
def test_it_reaches_every_tolerance(kind: str, n: int, d: int, n_classes: int) -> None:
    # with columns of a spread of 1e3 the smallest tolerance is 1e-6
    tolerances = (1e-4, 1e-6) if kind.startswith("spreads") else (1e-3, 1e-5, 1e-6, 1e-8)
    for seed, weight_decay in enumerate((0.1, 1e-3)):
        X, codes = unlike(kind, n, d, n_classes, seed)
        for tol in tolerances:
            fit = fit_softmax_regression(
                X, codes, n_classes, weight_decay=weight_decay, tol=tol, max_iter=1000
            )
            case = f"seed {seed}, decay {weight_decay}, tol {tol}: {fit.n_iter} steps to {fit.gradient:.2e}"
            assert fit.converged, case
            assert largest_gradient(fit.W, X, codes, weight_decay) <= 1.2 * tol, case
            assert fit.objective == pytest.approx(objective(fit.W, X, codes, weight_decay), abs=1e-5), case


def test_without_decay_it_reaches_the_tolerance_on_separable_rows() -> None:
    X, codes = unlike("separable", 200, 6, 3, 0)
    fit = fit_softmax_regression(X, codes, 3, weight_decay=0.0, tol=1e-8)
    assert fit.converged
    assert largest_gradient(fit.W, X, codes, 0.0) <= 1e-8


def test_a_tolerance_below_rounding_is_not_said_to_be_reached() -> None:
    X, codes = problem(300, 8, 3)
    fit = fit_softmax_regression(X, codes, 3, weight_decay=1e-3, tol=1e-25)
    assert not fit.converged
    assert fit.n_iter < 300  # it stops where only rounding is left
    assert largest_gradient(fit.W, X, codes, 1e-3) <= 1e-8


def test_large_means_do_not_shift_the_intercept() -> None:
    X, codes = problem(200, 4, 3)
    shifted = X + np.float32(2**20)
    exact = shifted - np.float32(2**20)  # what is left of the digits
    fits = [fit_softmax_regression(F, codes, 3, weight_decay=1e-2, tol=1e-6).W for F in (exact, shifted)]
    logits = [linear_logits(F.astype(np.float64), W) for F, W in zip((exact, shifted), fits, strict=True)]
    np.testing.assert_allclose(*(softmax(z, axis=1) for z in logits), atol=1e-4)


def test_digits_take_few_steps() -> None:
    X, y = load_digits(return_X_y=True)
    fit = fit_softmax_regression((X / 16).astype(np.float32), y, 10, weight_decay=1 / len(X))
    assert fit.converged
    assert fit.n_iter < 30  # scikit-learn: 70


def test_columns_that_say_nothing_and_classes_that_do_not_occur_are_no_harm() -> None:
    X, codes = problem(150, 4, 3)
    X = np.hstack([X, np.full((150, 2), 7.0, dtype=np.float32), X[:, :1]])
    fit = fit_softmax_regression(X, codes, 5, weight_decay=1e-2)
    assert np.isfinite(fit.W).all()
    proba = np.exp(log_softmax(linear_logits(X, fit.W), axis=1))
    assert proba[:, 3:].max() < 0.02


@pytest.mark.parametrize("kind", ["plain", "spreads from 1e-3 to 1e3", "separable", "columns twice"])
@pytest.mark.parametrize(("n", "d", "n_classes"), [(400, 20, 5), (60, 100, 3)])
def test_soft_labels_reach_every_tolerance(kind: str, n: int, d: int, n_classes: int) -> None:
    X, codes = unlike(kind, n, d, n_classes, 0)
    rng = np.random.default_rng(1)
    soft = rng.dirichlet(np.full(n_classes, 0.5), size=n) * rng.uniform(0.1, 5.0, size=(n, 1))
    Y = 0.7 * np.eye(n_classes)[codes] + 0.3 * soft
    for tol in (1e-4, 1e-5 if kind.startswith("spreads") else 1e-7):
        fit = fit_softmax_regression(X, Y, n_classes, weight_decay=1e-2, tol=tol, max_iter=1000)
        assert fit.converged
        assert largest_gradient(fit.W, X, Y, 1e-2) <= 1.2 * tol


def soft_problem(n: int, d: int, K: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) / np.sqrt(d) + 0.3).astype(np.float32)
    labels = rng.dirichlet(np.full(K, 0.3), n) * rng.random((n, 1))
    return X, labels.astype(np.float32)


@pytest.mark.parametrize(("n", "d", "K"), [(2000, 6, 4), (2000, 3, 2), (3000, 1, 3)])
@pytest.mark.parametrize("decay", [1e-3, 1e-1])
def test_the_minimum_is_that_of_the_fit_in_memory(n: int, d: int, K: int, decay: float) -> None:
    X, labels = soft_problem(n, d, K)
    calls: list[int] = []

    def blocks() -> Iterator[tuple[Any, Any]]:
        calls.append(0)
        for start in range(0, n, 700):
            yield X[start : start + 700], labels[start : start + 700]

    told: list[int] = []
    start = np.zeros((d + 1, K))
    found = fit_softmax_by_blocks(
        blocks, start, weight_decay=decay, tol=3e-5, max_iter=100, progress=told.append
    )
    exact = fit_softmax_regression(X, labels, K, weight_decay=decay, tol=1e-8)
    assert found.converged
    assert found.n_iter == len(calls) == told[-1]
    assert found.n_iter < 40
    shift = found.W - exact.W
    shift[-1] -= shift[-1].mean()  # intercepts have no decay, so a shift of all is free
    np.testing.assert_allclose(shift, 0.0, atol=2e-3)
    np.testing.assert_allclose(found.objective, exact.objective, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_rounding_does_not_keep_it_from_a_small_tolerance(seed: int) -> None:
    """Single precision stalls above this; passes in double precision go on from there."""
    X, labels = soft_problem(2000, 6, 4, seed)
    found = fit_softmax_by_blocks(
        lambda: [(X, labels)], np.zeros((7, 4)), weight_decay=1e-3, tol=1e-7, max_iter=100
    )
    assert found.converged
    assert found.gradient <= 1e-7


def test_too_few_passes_are_told() -> None:
    X, labels = soft_problem(500, 6, 4)
    found = fit_softmax_by_blocks(
        lambda: [(X, labels)], np.zeros((7, 4)), weight_decay=1e-4, tol=1e-6, max_iter=2
    )
    assert not found.converged
    assert found.gradient > 1e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_are_those_of_numpy(dtype: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(linear_model, "_BLOCK", 150)  # three columns a block
    X = np.random.default_rng(0).normal(3.0, [1.0, 1e-3, 1e3, 2.0, 5.0], size=(50, 5)).astype(dtype)
    mean, spread = column_moments(X)
    np.testing.assert_allclose(mean, X.astype(np.float64).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(spread, X.astype(np.float64).std(axis=0), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1, 1e-9, -0.3, 0.0])
@pytest.mark.parametrize("n", [1, 2, 3, 150, 999, 10_000])
def test_a_constant_column_is_seen_to_be_one(n: int, value: float, dtype: Any) -> None:
    X = np.full((n, 2), value, dtype=dtype)
    X[n // 2 :, 1] = np.nextafter(X[0, 1], dtype(2e6))  # the same, rounded in another way
    mean, spread = column_moments(X)
    assert mean[0] == X[0, 0]
    if value == 0.0:  # numbers next to zero are not roundings of it
        spread = spread[:1]
    np.testing.assert_array_equal(spread, 0.0)


@pytest.mark.parametrize(("dtype", "share"), [(np.float32, 1e-5), (np.float64, 1e-13)])
def test_a_small_spread_is_kept(dtype: Any, share: float) -> None:
    X = (1e6 * (1.0 + share * np.random.default_rng(0).normal(size=(10_000, 1)))).astype(dtype)
    assert column_moments(X)[1][0] == pytest.approx(1e6 * share, rel=0.05)


def test_soft_labels_become_weights_of_classes() -> None:
    Q = np.array([[0.7, 0.295, 0.005], [0.2, 0.2, 0.6], [0.0, 1.0, 0.0]])
    T, weights = targets(Q, np.ones(3), 0.01), np.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(T, [[0.7 / 0.995, 0.295 / 0.995, 0], [0.2, 0.2, 0.6], [0, 1, 0]])
    np.testing.assert_allclose(targets(Q, np.ones(3), 0.9), np.eye(3)[[0, 2, 1]])  # the most probable stays
    np.testing.assert_allclose(targets(Q, weights, 0.0), targets(Q, np.ones(3), 0.0) * weights)


def test_sharpening_undoes_a_temperature() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 4)) * 200
    softened = np.exp(logits / 3 - (logits / 3).max(axis=1, keepdims=True))
    softened /= softened.sum(axis=1, keepdims=True)
    expected = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        sharpen(softened, 3.0), expected / expected.sum(axis=1, keepdims=True), atol=1e-12
    )
    np.testing.assert_allclose(sharpen(np.array([[1e-200, 3e-200]]), 3.0).sum(), 1.0)
