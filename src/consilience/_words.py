"""How values are written in messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def shorten(values: Iterable[Any], most: int = 10) -> str:
    """Join values for a message, at most `most` of them.

    Examples
    --------
    >>> shorten(range(5), 3)
    '0, 1, 2 and 2 more'
    """
    shown = [visible(str(value)) for value in values]
    text = ", ".join(shown[:most])
    return text if len(shown) <= most else f"{text} and {len(shown) - most} more"


def visible(text: str) -> str:
    """Return text with control characters written out, so that a terminal shows them and does not obey them.

    Examples
    --------
    >>> print(visible("cat\x1b[2J"))
    cat\\x1b[2J
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural.

    Examples
    --------
    >>> counted(1, "class"), counted(3, "teacher")
    ('1 class', '3 teachers')
    """
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"
