"""Sizes in bytes, as people write them."""

from __future__ import annotations

import math
import numbers
import re

from consilience.exceptions import InvalidInputError

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]{1,3})?|\.[0-9]+) *([a-z]*)", re.ASCII | re.IGNORECASE)
_LONGEST = 100  # characters of a text; the pattern and float() are quick then
_MOST = 2**63 - 1


def parse_size(name: str, value: object) -> int:
    """Return a number of bytes, or raise unless `value` is a size of at least one byte.

    Parameters
    ----------
    name : str
        The argument, for the message.
    value : int, float or str
        Bytes, or a text with a unit: KB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB of 1024.
        Small letters and a space are fine.

    Examples
    --------
    >>> parse_size("memory", "2GB"), parse_size("memory", "1.5 KiB"), parse_size("memory", 1e6)
    (2000000000, 1536, 1000000)
    >>> parse_size("memory", "2 cups")
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: memory='2 cups' must be a size such as '500 MB', '2GB' or a \
number of bytes.
    """
    size = math.nan
    if isinstance(value, str):
        found = _TEXT.fullmatch(value.strip()) if len(value) <= _LONGEST else None
        if found is not None and found[2].lower() in _UNITS:
            size = float(found[1]) * _UNITS[found[2].lower()]
    elif isinstance(value, bool):
        pass  # a number to Python, and a slip here
    elif isinstance(value, numbers.Real):
        # a whole number may be too large for a float
        size = (
            float(value) if not isinstance(value, numbers.Integral) or abs(int(value)) <= _MOST else math.inf
        )
    if not 1 <= size <= _MOST:
        bound = ", from 1 byte to 8 million TB" if math.isfinite(size) or math.isinf(size) else ""
        raise InvalidInputError(
            f"{{argument}} must be a size such as '500 MB', '2GB' or a number of bytes{bound}.",
            argument=name,
            value=value,
        )
    return int(value) if isinstance(value, numbers.Integral) else round(size)


def size_text(count: float) -> str:
    """Return a number of bytes in words.

    Examples
    --------
    >>> size_text(7), size_text(1234), size_text(2e9), size_text(3e13)
    ('7 bytes', '1.23 kB', '2 GB', '30 TB')
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if round(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"
