"""The one reader of records from files and servers: JSON, and what each value in it may be.

`parse_json` reads text; a *reader* such as ``mapping(number())`` then takes one value and returns it as it is
used. Both raise a `RecordError` that says where the value stands and what was expected.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from consilience.exceptions import InvalidInputError, shown

LARGEST = 2**53
"""The largest number that is read: above it, floats and other languages skip some."""
Reader = Callable[[Any], Any]


class RepeatedKeyError(InvalidInputError):
    """An object has a key twice: Python's reader would silently keep one of the values."""


class RecordError(InvalidInputError):
    """A value that is not what it must be.

    Attributes
    ----------
    place : str
        Where it stands in the record: ``.metrics['accuracy']``.
    expected : str
    """

    def __init__(self, expected: str, value: object, place: str = "") -> None:
        super().__init__(f"{place.lstrip('.') or 'It'} must be {expected}; it is {shown(value)}.")
        self.expected, self.given, self.place = expected, value, place


def parse_json(text: str | bytes, where: str = "The text", *, foreign: bool = False) -> Any:
    """Return what JSON holds. Refuse keys given twice, NaN, halves of characters, and numbers beyond 2^53.

    Parameters
    ----------
    text : str or bytes
    where : str
        What to call it in a message.
    foreign : bool
        Whether another program defines the file, so that large numbers may stand in parts that we do not use.

    Examples
    --------
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    consilience.files.strict_json.RepeatedKeyError: The text cannot be used: the key 'a' is given twice. \
Keep one of the two.
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        found = (_FOREIGN if foreign else _STRICT).decode(text)
        if "\\u" in text:  # only an escape can make half a character
            json.dumps(found, ensure_ascii=False).encode()
    except RepeatedKeyError as error:
        raise RepeatedKeyError(f"{where} cannot be used: {error} Keep one of the two.") from None
    except (ValueError, RecursionError) as error:
        reason = "a text in it has half a character" if isinstance(error, UnicodeEncodeError) else str(error)
        raise InvalidInputError(f"{where} is not JSON: {reason.rstrip('.')}.") from None
    return found


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise RepeatedKeyError(f"the key {twice!r} is given twice.")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _whole(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > LARGEST:
        raise ValueError(f"the number {text[:20]} is beyond 2^53")
    return int(text)


def _float(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"the number {text[:20]} is too large")
    return found


_FOREIGN = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse)
_STRICT = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse, parse_int=_whole, parse_float=_float
)


def reader(expected: str, good: Callable[[Any], bool], make: Reader = lambda value: value) -> Reader:
    """Return a reader of what is good."""

    def read(value: Any) -> Any:
        if not good(value):
            raise RecordError(expected, value)
        return make(value)

    return read


def text(most: int = 1000, *, least: int = 0, like: str = "", says: str = "") -> Reader:
    """A text of so many characters, whole ones, and like a regular expression if one is given."""
    pattern = re.compile(like) if like else None

    def good(value: Any) -> bool:
        return (
            isinstance(value, str)
            and least <= len(value) <= most
            and (pattern is None or pattern.fullmatch(value) is not None)
            and (value.isascii() or plain_text(value) == value)
        )

    return reader(says or f"a text of {f'{least} to' if least else 'at most'} {most} characters", good, str)


def plain_text(value: str) -> str:
    """Return a text with ``?`` for what UTF-8 cannot hold: halves of characters, bytes of a file's name."""
    return value.encode("utf-8", "replace").decode()


def whole(most: int = LARGEST) -> Reader:
    """A whole number from 0."""
    return reader(f"a whole number from 0 to {most}", lambda value: type(value) is int and 0 <= value <= most)


def truth() -> Reader:
    """True or false."""
    return reader("true or false", lambda value: type(value) is bool)


def number() -> Reader:
    """A number of at most 2^53 either way, as a float."""
    return reader(
        "a number up to 2^53", lambda value: type(value) in (int, float) and abs(value) <= LARGEST, float
    )


def maybe(one: Reader) -> Reader:
    """None, or what another reader takes."""
    return lambda value: None if value is None else one(value)


def listing(one: Reader, most: int, *, least: int = 0) -> Reader:
    """A list of so many values, as a tuple."""
    return reader(
        f"a list of {least} to {most} values",
        lambda value: isinstance(value, list | tuple) and least <= len(value) <= most,
        lambda value: tuple(_at(f"[{i}]", one, entry) for i, entry in enumerate(value)),
    )


def row(*readers: Reader) -> Reader:
    """A list with a reader for each value, as a tuple."""
    return reader(
        f"a list of {len(readers)} values",
        lambda value: isinstance(value, list | tuple) and len(value) == len(readers),
        lambda value: tuple(_at(f"[{i}]", *both) for i, both in enumerate(zip(readers, value, strict=True))),
    )


def mapping(one: Reader, most: int = 1000, *, keys: Reader | None = None, least: int = 0) -> Reader:
    """An object of so many values, each by a text."""
    key_of = keys or text(200)
    return reader(
        f"an object with {least} to {most} entries",
        lambda value: isinstance(value, Mapping) and least <= len(value) <= most,
        lambda value: {key_of(key): _at(f"[{shown(key)}]", one, entry) for key, entry in value.items()},
    )


def record(fields: Mapping[str, Reader], *, needs: Iterable[str] = (), others: bool = False) -> Reader:
    """An object with these entries; those that it `needs`, and `others` only if that is said.

    Entries that are not there are left out.

    Examples
    --------
    >>> size = record({"width": whole(4096), "unit": text(2)}, needs=["width"])
    >>> size({"width": 10**400})
    Traceback (most recent call last):
    consilience.files.strict_json.RecordError: width must be a whole number from 0 to 4096; it is ...
    """

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise RecordError("an object", value)
        lacking = [key for key in needs if key not in value]
        unknown = [key for key in value if key not in fields and not others]
        if lacking or unknown:
            what = f"lacks {lacking[0]!r}" if lacking else f"has the unknown key {shown(unknown[0])}"
            raise RecordError(f"an object with {', '.join(fields)} (this one {what})", value)
        return {key: _at(f".{key}", reader, value[key]) for key, reader in fields.items() if key in value}

    return read


def checked(name: str, value: Any, reader: Reader) -> Any:
    """Return an argument of a call as a reader reads it, or raise an error that names it."""
    try:
        return reader(value)
    except RecordError as error:
        if not error.place:
            raise InvalidInputError(
                f"{{argument}} must be {error.expected}.", argument=name, value=error.given
            ) from None
        found = f"has {shown(error.given)} at {error.place.lstrip('.')}"
        raise InvalidInputError(f"{{argument}} {found}; expected {error.expected}.", argument=name) from None


def _at(place: str, reader: Reader, value: Any) -> Any:
    """Return what a reader makes of a value that stands somewhere in a record."""
    try:
        return reader(value)
    except RecordError as error:
        raise RecordError(error.expected, error.given, place + error.place) from None
