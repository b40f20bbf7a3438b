"""The one opener and the one writer of files: regular ones, read with their size known, written whole."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from consilience.exceptions import ConsilienceError, InvalidInputError, UnsafeFileError, WriteError

# never wait for the other end of a pipe; Windows has none of these but the last
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_LONGEST_NAME = 230  # file systems take 255 bytes, and a temporary file has more of them
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def as_path(path: Any, argument: str = "path") -> Path:
    """Return the path that a user gave, or raise unless it may name a file.

    Examples
    --------
    >>> as_path("birds.onnx").name
    'birds.onnx'
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    named = isinstance(text, str) and text and "\0" not in text
    with suppress(UnicodeEncodeError):  # half a character
        if named and max(map(len, os.fsencode(text).split(b"/"))) <= _LONGEST_NAME:
            return Path(text)
    raise InvalidInputError(
        "{argument} must be the path of a file, a text or a pathlib.Path.", argument=argument, value=path
    )


@contextmanager
def opened(
    path: str | os.PathLike[str], what: str = "", *, most: int | None = None, links: bool = False
) -> Iterator[BufferedReader]:
    """Open a regular file to read.

    Parameters
    ----------
    path : path
    what : str
        What to call it in a message; by default its path.
    most : int, optional
        The most bytes that it may have.
    links : bool
        Whether it may be a link to a file: what users name may be one, what files name may not.
    """
    what = what or os.fspath(path)
    try:
        if not links and stat.S_ISLNK(os.lstat(path).st_mode):
            raise UnsafeFileError(f"{what} is a link, not a regular file. Put the file itself there.")
        handle = os.open(path, _FLAGS if links else _FLAGS | _NO_LINK)
    except UnsafeFileError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(f"{what} cannot be read: {reason}.") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)  # os.fdopen would leave the handle of a folder open
        raise UnsafeFileError(f"{what} is not a regular file. Put the file itself there.")
    with os.fdopen(handle, "rb") as file:
        if most is not None and status.st_size > most:
            raise InvalidInputError(f"{what} has {status.st_size} bytes; at most {most} are read.")
        yield file


def read_bytes(path: str | os.PathLike[str], what: str = "", *, most: int, links: bool = False) -> bytes:
    """Return the content of a regular file of at most so many bytes."""
    with opened(path, what, most=most, links=links) as file:
        data = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)  # it may grow meanwhile
    if len(data) > most:
        raise InvalidInputError(f"{what or path} has more than {most} bytes, the most that are read.")
    return data


def file_sha256(path: str | os.PathLike[str], *, links: bool = True) -> str:
    """Return the checksum of a regular file, read in pieces.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> file_sha256(path)[:8]
    'e3b0c442'
    """
    with opened(path, links=links) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def replacing(target: Path, *, durable: bool = True, exclusive: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file next to `target` that takes its place when the block ends without an error.

    A reader sees the old file or the new one, never half of one. A link is replaced, not followed.

    Parameters
    ----------
    target : path
        The file; its folder must exist. A folder, a pipe or a device is refused.
    durable : bool
        Whether to wait until the file is on disk. If not, a power cut may lose it or damage it.
    exclusive : bool
        Whether to raise where there is a file already.
    """
    # not tempfile: only their owner may read its files, and os.replace would keep it that way
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        if os.path.lexists(target) and not (target.is_symlink() or target.is_file()):
            raise InvalidInputError(f"{target} is a folder, a pipe or a device. Give the name of a file.")
        with temporary.open("xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        (os.link if exclusive else os.replace)(temporary, target)
        if durable and os.name == "posix":  # Windows cannot open folders
            folder = os.open(target.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
    except ConsilienceError:  # ours, or of what gave the content
        raise
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), str(target)) from error
    finally:
        with suppress(OSError):  # such as a name that is too long to exist
            temporary.unlink(missing_ok=True)
