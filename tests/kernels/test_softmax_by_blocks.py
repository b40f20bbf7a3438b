"""Logistic regression in passes over blocks finds what the fit in memory finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from consilience.kernels.softmax_by_blocks import fit_softmax_by_blocks
from consilience.kernels.softmax_regression import fit_softmax_regression


def problem(n: int, d: int, K: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) / np.sqrt(d) + 0.3).astype(np.float32)
    labels = rng.dirichlet(np.full(K, 0.3), n) * rng.random((n, 1))
    return X, labels.astype(np.float32)


@pytest.mark.parametrize(("n", "d", "K"), [(2000, 6, 4), (2000, 3, 2), (3000, 1, 3)])
@pytest.mark.parametrize("decay", [1e-3, 1e-1])
def test_the_minimum_is_that_of_the_fit_in_memory(n: int, d: int, K: int, decay: float) -> None:
    X, labels = problem(n, d, K)
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


def test_a_good_start_saves_passes() -> None:
    X, labels = problem(2000, 8, 5)
    options: dict[str, Any] = {"weight_decay": 1e-3, "tol": 3e-5, "max_iter": 100}
    near = fit_softmax_regression(X[:500], labels[:500], 5, weight_decay=1e-3).W
    far = fit_softmax_by_blocks(lambda: [(X, labels)], 3 * np.ones((9, 5)) * np.arange(5), **options)
    close = fit_softmax_by_blocks(lambda: [(X, labels)], near, **options)
    assert close.n_iter < far.n_iter


@pytest.mark.parametrize("seed", range(3))
def test_rounding_does_not_keep_it_from_a_small_tolerance(seed: int) -> None:
    """Single precision stalls above this; passes in double precision go on from there."""
    X, labels = problem(2000, 6, 4, seed)
    found = fit_softmax_by_blocks(
        lambda: [(X, labels)], np.zeros((7, 4)), weight_decay=1e-3, tol=1e-7, max_iter=100
    )
    assert found.converged
    assert found.gradient <= 1e-7


def test_too_few_passes_are_told() -> None:
    X, labels = problem(500, 6, 4)
    found = fit_softmax_by_blocks(
        lambda: [(X, labels)], np.zeros((7, 4)), weight_decay=1e-4, tol=1e-6, max_iter=2
    )
    assert not found.converged
    assert found.gradient > 1e-6
