"""exp and log that compile to vector instructions. Numba's versions call the C library for each number.

Both are accurate to about the last bit. They are four times as fast in loops along lanes or columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

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


@intrinsic
def _bits(typing_context: Any, x: Any) -> Any:
    """Return the bits of a float as an integer."""
    return types.int64(types.float64), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.IntType(64)
    )


@intrinsic
def _float(typing_context: Any, x: Any) -> Any:
    """Return the float that has the bits of an integer."""
    return types.float64(types.int64), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.DoubleType()
    )


@part(fastmath=FUSE)
def exp(x):  # type: ignore[no-untyped-def]
    """Return e^x for x below 700, as 2^k times the Taylor series of the rest. 0 below -708, NaN for NaN."""
    rounded = x * _LOG2_E + _ROUND
    k = rounded - _ROUND
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = p * _float((_bits(rounded) << _EXPONENT) + _ONE)
    return 0.0 if x < _SMALLEST else power


@part(fastmath=FUSE)
def log(x):  # type: ignore[no-untyped-def]
    """Return the logarithm of a positive normal number, from the series of 2 artanh((m - 1) / (m + 1))."""
    bits = _bits(x)
    exponent = (bits - _ROOT_HALF) >> _EXPONENT
    m = _float(bits - (exponent << _EXPONENT))  # between sqrt(1/2) and sqrt(2)
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    p = 1.0 / 21.0
    p = p * s + 1.0 / 19.0
    p = p * s + 1.0 / 17.0
    p = p * s + 1.0 / 15.0
    p = p * s + 1.0 / 13.0
    p = p * s + 1.0 / 11.0
    p = p * s + 1.0 / 9.0
    p = p * s + 1.0 / 7.0
    p = p * s + 1.0 / 5.0
    p = p * s + 1.0 / 3.0
    k = _float(exponent + _ROUND_BITS) - _ROUND
    return k * _LN2_HIGH + (2.0 * f + (2.0 * f * (p * s) + k * _LN2_LOW))
