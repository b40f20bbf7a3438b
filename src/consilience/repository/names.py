"""Names of models: what may be one, and the folder that it gives."""

from __future__ import annotations

import re
import unicodedata

from consilience.exceptions import InvalidInputError

MOST_CHARACTERS = 80
_MOST_BYTES = 200  # of a folder's name: file systems take 255, and endings come on top
_NAME = re.compile(r"[^\W_][\w .+-]*")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)")
_BAD = frozenset('\\:*?"<>|')


def check_name(name: object) -> str:
    """Return the name of a model, or raise unless it can be that of a folder on every system.

    Examples
    --------
    >>> check_name("birds-v1.2")
    'birds-v1.2'
    >>> check_name("../birds")
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: name='../birds' must begin with a letter or a digit, and have \
only letters, digits, spaces and . _ + - after it.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInputError(
            "{argument} must begin with a letter or a digit, and have only letters, digits, spaces and "
            ". _ + - after it.",
            argument="name",
            value=name,
        )
    folder = folder_of(name)
    if len(name) > MOST_CHARACTERS or len(folder.encode()) > _MOST_BYTES:
        raise InvalidInputError(
            f"{{argument}} must have at most {MOST_CHARACTERS} characters, and {_MOST_BYTES} bytes.",
            argument="name",
            value=name,
        )
    # Windows drops these at the end, and has devices called con or nul in every folder
    if folder[-1] in ". " or _RESERVED.match(folder):
        raise InvalidInputError(
            "{argument} cannot be the name of a folder on every system. Give another.",
            argument="name",
            value=name,
        )
    return name


def folder_of(name: str) -> str:
    """Return the folder of a model: two names that differ only in case have one folder, on every system.

    Examples
    --------
    >>> folder_of("Birds"), folder_of("STRASSE") == folder_of("straße")
    ('birds', True)
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def is_folder(text: str) -> bool:
    """Tell whether a folder can be that of a model."""
    try:
        return folder_of(check_name(text)) == text
    except InvalidInputError:
        return False


def is_inside(path: object) -> bool:
    """Tell whether a text names a file below a folder: a plain relative path, with ``/`` between its parts.

    Examples
    --------
    >>> [is_inside(path) for path in ("model.onnx", "a/b.txt", "../x", "/x", "a//b", "c:x")]
    [True, True, False, False, False, False]
    """
    if not isinstance(path, str) or not path or len(path) > 1000 or not path.isprintable():
        return False
    return not _BAD & set(path) and all(part not in ("", ".", "..") for part in path.split("/"))
