"""The M step of EM, and the projection against plain numpy."""

from fractions import Fraction

import numpy as np
import pytest

from consilience.kernels.collision.first_order import m_step, project_row
from consilience.kernels.compiled import kernel

compiled = kernel()(m_step)


def solve(sigma: np.ndarray, w: np.ndarray, guess: float = 0.0) -> np.ndarray:
    y = np.empty(len(w))
    compiled(np.asarray(sigma, dtype=float), np.asarray(w, dtype=float), guess, y)
    return y


def exact(sigma: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Solve eq. (16) and Appendix B with fractions, where nothing cancels."""
    s, v = [Fraction(float(x)) for x in sigma], [Fraction(float(x)) for x in w]
    top, A = max(s), 1 + sum(v)

    def labels(x: Fraction) -> list[Fraction]:
        return [b / (A - a / x) if b else Fraction(0) for a, b in zip(s, v, strict=True)]

    low, high = top / A, top  # the sum falls from left to right
    if not any(b for a, b in zip(s, v, strict=True) if a == top) and sum(labels(low)) <= 1:
        y = labels(low)
        y[s.index(top)] = 1 - sum(y)
        return np.array([float(value) for value in y])
    for _ in range(400):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(labels(middle)) > 1 else (low, middle)
    return np.array([float(value) for value in labels(high)])


@pytest.mark.parametrize("seed", range(60))
def test_the_m_step_is_exact(seed: int) -> None:
    draw = np.random.default_rng(seed)
    K = int(draw.integers(2, 6))
    sigma = draw.dirichlet(np.full(K, draw.choice([0.1, 1.0])))
    w = draw.exponential(size=K) * 10.0 ** draw.uniform(-30, 4, size=K)
    if seed % 3 == 0:  # Appendix B
        w[draw.integers(K)] = 0.0
    if seed % 5 == 0:
        w[sigma.argmax()] = 0.0
    np.testing.assert_allclose(solve(sigma, w), exact(sigma, w), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("seed", range(20))
def test_the_projection_is_the_sorted_one(seed: int) -> None:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=draw.integers(1, 12)) * 10.0 ** draw.integers(-3, 4)
    falling = np.sort(x)[::-1]
    thresholds = (np.cumsum(falling) - 1) / np.arange(1, len(x) + 1)
    last = np.flatnonzero(falling > thresholds)[-1]
    y = np.empty(len(x))
    kernel()(project_row)(x, y)
    np.testing.assert_allclose(y, np.maximum(x - thresholds[last], 0), atol=1e-12 * max(1, abs(x).max()))


@pytest.mark.parametrize("size", [1e9, 1e17, 1e150])
def test_the_projection_of_huge_entries_lies_on_the_simplex(size: float) -> None:
    for x, expected in (
        (size * np.array([1.0, 0.5, -1.0]), [1.0, 0.0, 0.0]),
        (np.full(3, size), [1 / 3] * 3),
        (np.array([0.3, 0.1, -size]), [0.6, 0.4, 0.0]),
    ):
        y = np.empty(3)
        kernel()(project_row)(x, y)
        np.testing.assert_allclose(y, expected, atol=1e-12)
