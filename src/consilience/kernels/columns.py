"""Columns of numbers: mean and spread, rows on one scale, class weights, parts of moments of time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats

# the largest number of entries in a float64 copy of a block of columns
_BLOCK = 2**22
# more numbers than this are scaled in single precision: half the time in training, and no label changes
_SINGLE_PRECISION = 100_000


def column_moments(X: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the mean (d,) and the standard deviation (d,) of the columns of X (n, d), n at least 1.

    The deviation is 0 if the entries differ by no more than rounding. Dividing by that rounding would turn a
    constant column into noise. Means are taken over differences from the first row, which makes them exact
    for constant columns, for any number of rows.
    """
    n, d = X.shape
    mean, spread = np.empty(d), np.empty(d)
    width = max(1, _BLOCK // n)
    for start in range(0, d, width):
        columns = slice(start, start + width)
        first = X[0, columns].astype(np.float64)
        differences = X[:, columns] - first
        shift = differences.mean(axis=0)
        differences -= shift
        mean[columns] = first + shift
        spread[columns] = np.sqrt(np.einsum("ij,ij->j", differences, differences) / n)
    spread[spread <= rounding_of(X.dtype) * np.abs(mean)] = 0.0
    return mean, spread


def rounding_of(dtype: np.dtype[Any]) -> float:
    """Return the largest relative difference that rounding explains; integers are exact."""
    return 10.0 * float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0


def scaled(rows: NDArray[Any]) -> tuple[NDArray[Any], Floats, float]:
    """Return rows centred and of root-mean-square length 1, their mean, and the length they had.

    Rows that are all alike, up to rounding, are only centred.
    """
    mean, spread = column_moments(rows)
    Z = rows - mean
    if Z.size > _SINGLE_PRECISION:
        Z = Z.astype(np.float32)
    scale = float(np.sqrt(np.einsum("ij,ij->", Z, Z, dtype=np.float64) / len(Z)))
    scale = scale if spread.any() else 1.0
    Z /= scale
    return np.ascontiguousarray(Z), mean, scale


def flat(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows of any shape (n, ...) as scaled features (n, d)."""
    features = rows.reshape(len(rows), -1)
    return scaled(features if features.dtype.kind == "f" else features.astype(np.float32))[0]


DAY = 86400.0
YEAR = 365.2425
"""Days of a mean year of the Gregorian calendar."""
FIRST_WEEKDAY = 3.0
"""1 January 1970 was a Thursday; Monday is 0."""


def time_parts(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return parts (n, 5) of moments in seconds since 1970 (UTC); NaN for NaN.

    They are days since 1970, the sine and cosine of the season, the weekday from 0 (Monday) and the hour.
    `consilience.files.graph` has the same as ONNX.

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


def inverse_mean(Q: Floats) -> Floats:
    """Return 1 / mean of q(l) over the rows of Q (n, L), or 0 for a class without mass to speak of."""
    return inverse(Q.mean(axis=0) if len(Q) else np.zeros(Q.shape[1]))


def inverse(mean: Floats) -> Floats:
    """Return 1 / mean (L,), or 0 for a class without mass to speak of."""
    return np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > 1e-300)
