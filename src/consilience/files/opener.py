"""The one opener of files: regular ones, whose size is known first."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader

from consilience.exceptions import InvalidInputError, UnsafeFileError

# never wait for the other end of a pipe; Windows has none of these but the last
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


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
    except (OSError, ValueError) as error:
        if isinstance(error, UnsafeFileError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(f"{what} cannot be read: {reason}.") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or (most is not None and status.st_size > most):
        os.close(handle)
        if stat.S_ISREG(status.st_mode):
            raise InvalidInputError(f"{what} has {status.st_size} bytes; at most {most} are read.")
        raise UnsafeFileError(f"{what} is not a regular file. Put the file itself there.")
    with os.fdopen(handle, "rb") as file:
        yield file


def read_bytes(path: str | os.PathLike[str], what: str = "", *, most: int, links: bool = False) -> bytes:
    """Return the content of a regular file of at most so many bytes."""
    with opened(path, what, most=most, links=links) as file:
        data = file.read(most + 1)  # it may grow meanwhile
    if len(data) > most:
        raise InvalidInputError(f"{what or path} has more than {most} bytes, the most that are read.")
    return data


def file_sha256(path: str | os.PathLike[str], *, links: bool = True) -> str:
    """Return the checksum of a regular file, read in pieces.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> file_sha256(path)[:8]
    'e3b0c442'
    """
    with opened(path, links=links) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
