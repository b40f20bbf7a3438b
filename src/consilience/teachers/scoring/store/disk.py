"""All that a store asks of the file system. Another kind of storage would need another file like this one.

Links, pipes and devices count as nothing: they are not listed, read, written to or deleted.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from consilience.files.atomic import replacing

# never follow a link, and never wait for the other end of a pipe (not on Windows)
_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)


@dataclass(frozen=True)
class Entry:
    """A regular file.

    Attributes
    ----------
    path : Path
    size : int
        Bytes.
    used : float
        When it was last used, in seconds since 1970: its time of change, which `touch` sets.
    """

    path: Path
    size: int
    used: float


def names(folder: Path) -> list[str]:
    """Return the names of the regular files in a folder, in order; none if there is no folder.

    The folder itself may be a link: ask `is_folder` where it must not be.
    """
    return _listed(folder, lambda entry: entry.is_file(follow_symlinks=False))


def folders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, in order; none if there is no folder."""
    return _listed(folder, lambda entry: entry.is_dir(follow_symlinks=False))


def all_names(folder: Path) -> list[str]:
    """Return the names of everything in a folder."""
    return _listed(folder, lambda entry: True)


def _listed(folder: Path, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:  # another process may delete it
        return sorted(entry.name for entry in found if wanted(entry))
    return []


def entry(path: Path) -> Entry | None:
    """Return what is known of a regular file; None if there is none."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            return Entry(path, found.st_size, found.st_mtime)
    return None


def is_root(path: Path) -> bool | None:
    """Tell whether a path is a folder, perhaps by a link; None if nothing is there."""
    return path.is_dir() if path.exists() else None


def is_file(path: Path) -> bool:
    """Tell whether a path is a regular file."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder, and no link to one."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file to read. Links and all else raise a FileNotFoundError, as if nothing were there."""
    try:
        handle = os.open(path, _FLAGS)
    except OSError:
        if _mode(path) and not is_file(path):
            raise FileNotFoundError(f"{path} is no regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(f"{path} is no regular file")
    with os.fdopen(handle, "rb") as file:
        yield file


def writing(path: Path) -> AbstractContextManager[BinaryIO]:
    """Write a file whole or not at all.

    The disk may be late: after a power cut a file may be damaged, and its checksum tells. A killed process
    loses nothing that was written.
    """
    return replacing(path, durable=False)


def touch(path: Path) -> None:
    """Note that a file was used."""
    with contextlib.suppress(OSError):  # someone else's file, or it was deleted in between
        if is_file(path):
            os.utime(path, follow_symlinks=False) if os.utime in os.supports_follow_symlinks else os.utime(
                path
            )


def rename(path: Path, other: Path) -> None:
    """Give a file another name, in one step; an existing file of that name is replaced."""
    os.replace(path, other)


def delete(path: Path) -> None:
    """Delete a regular file, if it is there and may be deleted."""
    with contextlib.suppress(OSError):
        if is_file(path):
            path.unlink(missing_ok=True)


def make_root(path: Path) -> None:
    """Make the folder of a store, and those above it. It may be a link to a folder: that is the user's."""
    path.mkdir(parents=True, exist_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder in a store; raise if there is a link or a file in its place."""
    path.mkdir(exist_ok=True)
    if not is_folder(path):
        raise OSError(f"{path} is a link")


def delete_folder(path: Path) -> None:
    """Delete a folder if it is empty: neither someone else's file nor another process at work is in it."""
    with contextlib.suppress(OSError):
        path.rmdir()
