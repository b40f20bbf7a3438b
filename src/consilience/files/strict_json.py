"""JSON without the two things that Python's reader lets pass: keys given twice, and NaN."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn


class RepeatedKeyError(ValueError):
    """An object has a key twice. Python's reader would silently keep one of the values."""


def parse_json(text: str) -> Any:
    """Return what a JSON text holds, or raise a ValueError or RecursionError.

    Examples
    --------
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    consilience.files.strict_json.RepeatedKeyError: the key 'a' is given twice
    """
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RepeatedKeyError(f"the key {key!r} is given twice")
        found[key] = value
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
