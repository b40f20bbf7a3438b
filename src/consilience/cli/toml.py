"""Write TOML: the few kinds of values that a recipe holds. The standard library only reads it."""

from __future__ import annotations

import math
import re

from consilience._words import visible

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def toml_value(value: object) -> str:
    """Return a text, a number, a truth value, or a list of these as TOML.

    Examples
    --------
    >>> print(toml_value(["a\\\\b.npy", 0.01, True]))
    ["a\\\\b.npy", 0.01, true]
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    raise TypeError(f"a {type(value).__name__} cannot be written as TOML")


def toml_key(name: str) -> str:
    """Return the name of a value, in quotes if TOML needs them.

    Examples
    --------
    >>> toml_key("test-data"), toml_key("two words")
    ('test-data', '"two words"')
    """
    return name if _BARE.fullmatch(name) else _text(name)


def toml_comment(text: str) -> str:
    """Return one line of text as a comment, with control characters written out: TOML forbids them.

    Examples
    --------
    >>> toml_comment("Rows.")
    '# Rows.'
    """
    return f"# {visible(text)}".rstrip()


def _text(value: str) -> str:
    """Return a text in quotes. TOML is UTF-8: a text with bytes that are not raises a UnicodeEncodeError."""
    value.encode()
    return '"' + "".join(map(_character, value)) + '"'


def _character(one: str) -> str:
    if one in _SHORT:
        return _SHORT[one]
    return f"\\u{ord(one):04x}" if one < " " or one == "\x7f" else one
