"""exp and log that compile to vector instructions. Numba's versions call the C library for each number.

Both are accurate to about the last bit. They are four times as fast in loops along lanes or columns.
"""

from __future__ import annotations

from math import factorial

import numpy as np

from consilience.kernels.compiled import part

# Products and sums may fuse into one instruction (rounded once): faster, and no result depends on more.
FUSE = {"contract"}
_LOG2_E = 1.4426950408889634
# log 2 in two parts: the first ends in zeros, so whole multiples of it are exact
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
# 1.5 * 2^52: added to a small number, it leaves that number, rounded, in the last bits
_ROUND = 6755399441055744.0
_ROUND_BITS = np.int64(0x4338000000000000)
_EXPONENT = np.int64(52)  # the bit where a float's exponent begins
_ONE = np.int64(1023 << 52)  # the bits of 1.0
_ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)  # the bits of sqrt(1/2)
_SMALLEST = -708.0  # below this, exp loses accuracy
_EXP_SERIES = tuple(1.0 / factorial(n) for n in range(13, -1, -1))
_LOG_SERIES = tuple(1.0 / n for n in range(21, 1, -2))


@part(fastmath=FUSE)
def _polynomial(x, coefficients):  # type: ignore[no-untyped-def]
    """Return the polynomial with these coefficients, the highest power first."""
    total = coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


@part(fastmath=FUSE)
def exp(x):  # type: ignore[no-untyped-def]
    """Return e^x for x below 700, as 2^k times the Taylor series of the rest. 0 below -708, NaN for NaN."""
    rounded = x * _LOG2_E + _ROUND
    k = rounded - _ROUND
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    power = np.int64((np.float64(rounded).view(np.int64) << _EXPONENT) + _ONE).view(np.float64)
    return 0.0 if x < _SMALLEST else _polynomial(r, _EXP_SERIES) * power


@part(fastmath=FUSE)
def log(x):  # type: ignore[no-untyped-def]
    """Return the logarithm of a positive normal number, from the series of 2 artanh((m - 1) / (m + 1))."""
    bits = np.float64(x).view(np.int64)
    exponent = (bits - _ROOT_HALF) >> _EXPONENT
    m = np.int64(bits - (exponent << _EXPONENT)).view(np.float64)  # between sqrt(1/2) and sqrt(2)
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    k = np.int64(exponent + _ROUND_BITS).view(np.float64) - _ROUND
    return k * _LN2_HIGH + (2.0 * f + (2.0 * f * (_polynomial(s, _LOG_SERIES) * s) + k * _LN2_LOW))
