"""Moments of columns, and parts of moments of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.kernels import columns
from consilience.kernels.columns import column_moments, time_parts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_are_those_of_numpy(dtype: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(columns, "_BLOCK", 150)  # three columns a block
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


def test_parts_are_those_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    moments = pandas.Series(pandas.date_range("1905-03-01 05:30", "2101-12-31", periods=997))
    seconds = moments.to_numpy("datetime64[us]").astype(np.int64) / 1e6
    days, sine, cosine, weekday, hour = time_parts(seconds).T
    np.testing.assert_array_equal(weekday, moments.dt.day_of_week)
    clock = moments.dt.hour + moments.dt.minute / 60 + moments.dt.second / 3600
    np.testing.assert_allclose(hour, clock, atol=1e-3)
    np.testing.assert_allclose(days, (moments - pandas.Timestamp(0)) / pandas.Timedelta(days=1))
    # two days of drift: the calendar's year is 365 or 366 days
    season = np.arctan2(sine, cosine) / (2 * np.pi) % 1 * 365.2425
    apart = (season - (moments.dt.day_of_year - 1 + hour / 24)) % 365.2425
    assert np.minimum(apart, 365.2425 - apart).max() < 2.5


def test_a_missing_moment_has_missing_parts() -> None:
    assert np.isnan(time_parts(np.array([np.nan]))).all()
