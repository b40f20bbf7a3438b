"""How alike two class names are spelt."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Any

# What initials count: "MI" and "myocardial infarction".
INITIALS = 0.9


def spelling(first: Any, second: Any) -> float | None:
    """Return how alike two names are spelt, from 0 to 1; None for numbers, which have no spelling.

    Case, punctuation and the borders of words do not count. The initials of a name are nearly that name.
    Names with different numbers in them are not alike: ``"class 7"`` is not ``"class 8"``.

    Examples
    --------
    >>> spelling("Automobile", "auto-mobile"), spelling("MI", "myocardial infarction")
    (1.0, 0.9)
    >>> spelling("class 7", "class 8"), spelling(7, 8)
    (0.0, None)
    """
    if not (isinstance(first, str) and isinstance(second, str)):
        return None
    words, others = _words(first), _words(second)
    if re.findall(r"\d+", first) != re.findall(r"\d+", second) or not words or not others:
        return 0.0
    one, other = "".join(words), "".join(others)
    for short, long in ((one, others), (other, words)):
        if 1 < len(short) == len(long) and short == "".join(word[0] for word in long):
            return INITIALS
    # the matcher depends on the order of its arguments
    return max(SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in ((one, other), (other, one)))


def _words(name: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", apart.casefold())
