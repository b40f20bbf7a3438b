"""The mean and spread of columns, in which a constant column is seen to be one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.unify.packed import Floats

# entries that float64 copies of a block of columns may have
_BLOCK = 2**22


def column_moments(X: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the mean (d,) and the standard deviation (d,) of the columns of X (n, d), n at least 1.

    The deviation is 0 where entries differ by no more than their rounding: dividing by it, or by the rounding
    of a mean, would turn a constant column into noise. Means are taken of differences to the first row, so
    that they are exact for constant columns, however many rows there are.
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
    """Return the relative differences of numbers that rounding explains; integers are exact."""
    return 10.0 * float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
