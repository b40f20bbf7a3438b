"""How values are written in messages, and sizes by people."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Sequence
from typing import Any

from consilience.exceptions import InvalidInputError, safe_text, visible

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]{1,3})?|\.[0-9]+) *([a-z]*)", re.ASCII | re.IGNORECASE)
_LONGEST = 100  # characters of a text; the pattern and float() are quick then
_LARGEST = 2**63 - 1


def shorten(values: Iterable[Any], most: int = 10) -> str:
    """Join values for a message, at most `most` of them.

    Examples
    --------
    >>> shorten(range(5), 3)
    '0, 1, 2 and 2 more'
    """
    found = list(values)
    text = ", ".join(safe_text(str(value)) for value in found[:most])
    return text if len(found) <= most else f"{text} and {len(found) - most} more"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural.

    Examples
    --------
    >>> counted(1, "class"), counted(3, "teacher")
    ('1 class', '3 teachers')
    """
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


def percent(share: float | None) -> str:
    """Return a share as a percentage; "" for None and NaN, which are no share.

    Examples
    --------
    >>> percent(0.1234), percent(float("nan"))
    ('12.3%', '')
    """
    return "" if share is None or share != share else f"{100 * share:.1f}%"


def aligned(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in plain text. Columns whose header begins with ">" are right-aligned.

    Examples
    --------
    >>> print("\\n".join(aligned(["class", ">rows"], [["cat", "12"], ["dog", "3"]])))
    class  rows
    cat      12
    dog       3
    """
    titles = [header.removeprefix(">") for header in headers]
    lines = [titles, *([visible(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
    sides = [">" if header.startswith(">") else "<" for header in headers]
    return [
        "  ".join(f"{cell:{s}{w}}" for cell, s, w in zip(line, sides, widths, strict=True)).rstrip()
        for line in lines
    ]


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
    """
    size: Any = math.nan
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip()) if len(value) <= _LONGEST else None
        if found is not None and found[2].lower() in _UNITS:
            size = float(found[1]) * _UNITS[found[2].lower()]
    elif type(value) is not bool and isinstance(value, numbers.Real):  # to Python, True is a number
        size = value
    if not 1 <= size <= _LARGEST:
        bound = ", from 1 byte to 8 million TB" if size == size else ""
        raise InvalidInputError(
            f"{{argument}} must be a size such as '500 MB', '2GB' or a number of bytes{bound}.",
            argument=name,
            value=value,
        )
    # not by way of a float, which would round large whole numbers
    return int(size) if isinstance(size, numbers.Integral) else round(float(size))


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
