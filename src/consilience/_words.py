"""How values are written in messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
