"""Parts of a moment that a model can learn from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DAY = 86400.0
YEAR = 365.2425
"""Days of a mean year of the Gregorian calendar."""
FIRST_WEEKDAY = 3.0
"""1 January 1970 was a Thursday; Monday is 0."""


def time_parts(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return parts (n, 5) of moments in seconds since 1970 (UTC); NaN for NaN.

    They are days since 1970, the sine and cosine of the season, the weekday from 0 (Monday) and the hour.
    `consilience.files.table_graph` has the same as ONNX.

    Examples
    --------
    >>> time_parts(np.array([0.0, 90000.0])).round(2).tolist()
    [[0.0, 0.0, 1.0, 3.0, 0.0], [1.04, 0.02, 1.0, 4.0, 1.0]]
    """
    days = seconds / DAY
    whole = np.floor(days)
    phase = days * (2 * np.pi / YEAR)
    shifted = whole + FIRST_WEEKDAY
    weekday = shifted - 7.0 * np.floor(shifted / 7.0)
    return np.column_stack([days, np.sin(phase), np.cos(phase), weekday, (days - whole) * 24.0])
