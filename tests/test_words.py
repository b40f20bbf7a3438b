from __future__ import annotations

from consilience._words import shorten


def test_shorten() -> None:
    assert shorten([]) == ""
    assert shorten("abc", 3) == "a, b, c"
    assert shorten("abcd", 3) == "a, b, c and 1 more"
