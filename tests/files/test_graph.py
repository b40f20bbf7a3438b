"""Parts of moments of time."""

import numpy as np
import pytest

from consilience.files.graph import time_parts


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
