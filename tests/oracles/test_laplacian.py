"""The Laplacian solver against numpy and against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest

from consilience.kernels.compiled import kernel
from consilience.kernels.elementary import FUSE
from consilience.kernels.unify.linear_systems import fill_in, solve_laplacian

compiled = kernel(fastmath=FUSE)(solve_laplacian)


def solve(weights: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Solve the system in three lanes, scaled; compare these and return the first."""
    scales = np.array([1.0, 2.0, 0.25])  # powers of two: no rounding
    upper, s = np.triu(weights, 1)[:, :, None] * scales, rhs[:, None] * np.ones(3)
    compiled(upper, s, fill_in(weights > 0))
    np.testing.assert_array_equal(s * scales, s[:, :1] * np.ones(3))
    return s[:, 0]


def random_weights(rng: np.random.Generator, size: int, decades: float) -> np.ndarray:
    upper = np.triu(10.0 ** -rng.uniform(0, decades, size=(size, size)), 1)
    return upper + upper.T


def laplacian(weights: np.ndarray) -> np.ndarray:
    return np.diag(weights.sum(axis=1)) - weights


@pytest.mark.parametrize("size", [1, 2, 3, 9, 20])
def test_agrees_with_the_pseudo_inverse(size: int) -> None:
    rng = np.random.default_rng(size)
    weights = random_weights(rng, size, 2)
    rhs = rng.normal(size=size)
    rhs -= rhs.mean()
    s = solve(weights, rhs)
    theirs = np.linalg.pinv(laplacian(weights), hermitian=True) @ rhs
    np.testing.assert_allclose(s, theirs - theirs[-1], atol=1e-11 * max(1.0, abs(s).max()))


def exact_solution(weights: np.ndarray, rhs: np.ndarray) -> list[Fraction]:
    """Eliminate in rational arithmetic, with s = 0 at the last node."""
    size = len(rhs) - 1
    w = [[Fraction(float(x)) for x in row] for row in weights]
    rows = [
        [sum(w[i], Fraction(0)) if i == j else -w[i][j] for j in range(size)] + [Fraction(float(rhs[i]))]
        for i in range(size)
    ]
    for k in range(size):
        for i in range(size):
            if i != k:
                factor = rows[i][k] / rows[k][k]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [rows[k][-1] / rows[k][k] for k in range(size)] + [Fraction(0)]


@pytest.mark.parametrize("seed", range(6))
def test_weak_links_keep_their_relative_accuracy(seed: int) -> None:
    """Weights from 1e-200 to 1 would be nothing but cancellation in a Cholesky factor."""
    rng = np.random.default_rng(seed)
    weights = random_weights(rng, 7, 200)
    # positive at every node but the last, so that the exact solution is well conditioned entry by entry
    rhs = rng.uniform(0.5, 1.0, size=7)
    rhs[-1] = -rhs[:-1].sum()
    s = solve(weights, rhs)
    for ours, exact in zip(s, exact_solution(weights, rhs), strict=True):
        assert abs(Fraction(float(ours)) - exact) <= Fraction(1, 10**13) * abs(exact)
