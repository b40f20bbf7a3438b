"""How scores are resampled, and weights of kernel regression."""

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from consilience.kernels.rank.probe import (
    gaussian_kernel,
    kernel_width,
    mean_discrepancies,
    neighbour_weights,
    resampled_means,
    ridge_weights,
)


def test_rows_without_a_number_do_not_count_in_a_resample() -> None:
    rows = np.where(np.arange(40) % 4 == 0, np.nan, 5.0)
    np.testing.assert_allclose(resampled_means(rows, 50, 0), 5.0)
    means = resampled_means(np.array([np.nan, 5.0]), 50, 0)
    assert np.isnan(means).any()  # neither row of such a resample has a number
    np.testing.assert_allclose(means[~np.isnan(means)], 5.0)


def test_the_same_seed_draws_the_same_rows() -> None:
    rows = np.random.default_rng(0).normal(size=30)
    first = resampled_means(rows, 100, 3)
    np.testing.assert_allclose(resampled_means(rows + 1.0, 100, 3), first + 1.0)
    assert not np.array_equal(resampled_means(rows, 100, 4), first)


RNG = np.random.RandomState(0)
A, B = RNG.randn(12, 3), RNG.randn(5, 3)


def test_the_width_is_the_median_squared_distance() -> None:
    pairs = [((A[i] - A[j]) ** 2).sum() for i in range(12) for j in range(i)]
    assert np.isclose(kernel_width(A), np.median(pairs))
    assert kernel_width(A[:1]) == 1.0
    assert kernel_width(np.zeros((3, 2))) > 0


def test_the_kernel_is_that_of_scikit_learn() -> None:
    np.testing.assert_allclose(gaussian_kernel(A, B, 2.0), rbf_kernel(A, B, gamma=0.5))


def test_a_small_ridge_repeats_known_values_and_a_large_one_forgets_them() -> None:
    values = RNG.randn(12, 2)
    np.testing.assert_allclose(ridge_weights(A, A, 1.0, 1e-10) @ values, values, atol=1e-6)
    assert np.abs(ridge_weights(A, A, 1.0, 1e6) @ values).max() < 1e-5


def test_neighbours_share_their_weight() -> None:
    W = neighbour_weights(A, B, 3)
    for row, weights in zip(B, W, strict=True):
        nearest = np.argsort(((A - row) ** 2).sum(axis=1))[:3]
        expected = np.zeros(12)
        expected[nearest] = 1 / 3
        np.testing.assert_allclose(weights, expected)


def test_discrepancies_are_squared_distances_of_kernel_means() -> None:
    weights = RNG.dirichlet(np.ones(12), size=4)
    K, t = gaussian_kernel(A, A, 2.0), gaussian_kernel(A, B, 2.0).mean(axis=1)
    found = mean_discrepancies(K, weights, t) + gaussian_kernel(B, B, 2.0).mean()
    for value, beta in zip(found, weights, strict=True):
        points, signed = np.concatenate([A, B]), np.concatenate([beta, np.full(5, -0.2)])
        brute = sum(
            a * b * np.exp(-((p - q) ** 2).sum() / 2)
            for a, p in zip(signed, points, strict=True)
            for b, q in zip(signed, points, strict=True)
        )
        assert np.isclose(value, brute)
