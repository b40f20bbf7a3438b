"""How scores are resampled."""

from __future__ import annotations

import numpy as np

from consilience.kernels.rank.probe import resampled_means


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
