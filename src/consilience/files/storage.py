"""Folders and their files, on this machine or behind a URL such as ``s3://bucket/scores``.

`storage_path` turns what users give into a `StoragePath`. What lies on this machine is a `LocalPath`. A URL
is a `RemotePath`, which fsspec reaches: see `consilience.files.remote`. Both list, read, write whole files or
none, and delete. Links, pipes and devices count as nothing: they are not listed, read, written to or deleted.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from consilience.exceptions import InvalidInputError, shown
from consilience.files.atomic import replacing

# never follow a link, and never wait for the other end of a pipe (not on Windows)
_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(::.+)?://")
_SHORTENED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")


@dataclass(frozen=True)
class Entry:
    """A regular file.

    Attributes
    ----------
    path : StoragePath
    size : int
        Bytes.
    used : float
        Seconds since 1970: when it was last used on this machine, where `touch` notes it, or when it was
        written behind a URL. 0 if nobody knows.
    """

    path: StoragePath
    size: int
    used: float


class StoragePath(ABC):
    """A file or a folder, which need not exist. ``path / name`` is a path in it; ``str(path)`` shows it."""

    can_rename: bool
    """Whether `rename` is one step. If not, write the file again and delete the old one."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part."""

    @abstractmethod
    def __truediv__(self, name: str) -> Self:
        """Return the path of a name in this folder; a name with a separator in it raises."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the regular files in a folder, in order; none if there is no folder."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Return the names of the folders in a folder, in order; none if there is no folder."""

    @abstractmethod
    def all_names(self) -> list[str]:
        """Return the names of everything in a folder, in order."""

    @abstractmethod
    def entry(self) -> Entry | None:
        """Return what is known of a regular file; None if there is none."""

    @abstractmethod
    def entries(self) -> list[Entry]:
        """Return what is known of the regular files in a folder, in the order of their names."""

    @abstractmethod
    def is_root(self) -> bool | None:
        """Tell whether it is a folder, perhaps by a link; None if nothing is there."""

    @abstractmethod
    def is_folder(self) -> bool:
        """Tell whether it is a folder, and no link to one. A bucket has none: always so there."""

    @abstractmethod
    def may_exist(self) -> bool:
        """Tell whether to look for a file: False only if a listing of some seconds ago has no such name."""

    @abstractmethod
    def reading(self, *, parts: bool = False) -> AbstractContextManager[BinaryIO]:
        """Open a regular file to read. All else raises a FileNotFoundError, as if nothing were there.

        Parameters
        ----------
        parts : bool
            Whether only parts of it will be read. Behind a URL, a file is fetched at once if not.
        """

    @abstractmethod
    def writing(self, *, durable: bool = False) -> AbstractContextManager[BinaryIO]:
        """Write a file whole or not at all: it is there when the block has ended without an error.

        Parameters
        ----------
        durable : bool
            Whether to wait until the file is on disk. If not, a power cut may lose or damage it. Storage
            behind a URL decides for itself.
        """

    @abstractmethod
    def touch(self) -> None:
        """Note that a file was used, where files keep such a note."""

    @abstractmethod
    def rename(self, other: Self) -> None:
        """Give a file another name; an existing file of that name is replaced."""

    @abstractmethod
    def delete(self) -> None:
        """Delete a regular file, if it is there and may be deleted."""

    @abstractmethod
    def make_root(self) -> None:
        """Make a folder, and those above it. It may be a link to a folder: that is the user's."""

    @abstractmethod
    def make_folder(self) -> None:
        """Make a folder in one that is there; raise if there is a link or a file in its place."""

    @abstractmethod
    def delete_folder(self) -> None:
        """Delete a folder if it is empty: no file of others and no process at work is in it."""

    @abstractmethod
    def absolute(self) -> Self:
        """Return a path that means the same in other working folders."""

    def is_file(self) -> bool:
        """Tell whether it is a regular file."""
        return self.entry() is not None


def is_url(where: str | os.PathLike[str]) -> bool:
    """Tell whether text is a URL, which fsspec reaches.

    Examples
    --------
    >>> is_url("s3://bucket/scores"), is_url("scores"), is_url("C:/scores")
    (True, False, False)
    """
    return isinstance(where, str) and _URL.match(where) is not None


def storage_path(where: str | os.PathLike[str]) -> StoragePath:
    """Return the path of a folder or a file that a user names.

    Parameters
    ----------
    where : path or str
        Text with ``://`` in it is a URL, and all else a path on this machine.

    Examples
    --------
    >>> str(storage_path("scores") / "about.json")
    'scores/about.json'
    """
    if is_url(where):
        from consilience.files.remote import remote_path

        return remote_path(str(where))
    return LocalPath(local_path(where))


def local_path(where: str | os.PathLike[str]) -> Path:
    """Return a path on this machine, or raise if the text can be none: too long, or with a zero byte."""
    if isinstance(where, os.PathLike) and _SHORTENED.match(os.fspath(where)):
        raise InvalidInputError(
            f"{os.fspath(where)!r} was a URL before it became a Path. Give the URL as text."
        )
    path = Path(where)
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(f"{shown(os.fspath(where))} cannot be a path: {reason}.") from None
    return path


def check_name(name: str) -> str:
    """Return a name of a file or a folder, or raise if it would lead out of its folder."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise InvalidInputError(f"{name!r} is no name of a file; give one without / and \\.")
    return name


@dataclass(frozen=True, repr=False)
class LocalPath(StoragePath):
    """A file or a folder on this machine.

    Attributes
    ----------
    path : Path
    """

    path: Path
    can_rename = True

    @property
    def name(self) -> str:
        return self.path.name

    def __truediv__(self, name: str) -> Self:
        return type(self)(self.path / check_name(name))

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"LocalPath({str(self.path)!r})"

    def names(self) -> list[str]:
        return self._listed(lambda entry: entry.is_file(follow_symlinks=False))

    def folders(self) -> list[str]:
        return self._listed(lambda entry: entry.is_dir(follow_symlinks=False))

    def all_names(self) -> list[str]:
        return self._listed(lambda entry: True)

    def _listed(self, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        with contextlib.suppress(OSError), os.scandir(self.path) as found:  # another process may delete it
            return sorted(entry.name for entry in found if wanted(entry))
        return []

    def entry(self) -> Entry | None:
        with contextlib.suppress(OSError):
            found = self.path.lstat()
            if stat.S_ISREG(found.st_mode):
                return Entry(self, found.st_size, found.st_mtime)
        return None

    def entries(self) -> list[Entry]:
        found = ((self / name).entry() for name in self.names())
        return [entry for entry in found if entry is not None]

    def is_root(self) -> bool | None:
        return self.path.is_dir() if self.path.exists() else None

    def is_file(self) -> bool:
        return stat.S_ISREG(self._mode())

    def is_folder(self) -> bool:
        return stat.S_ISDIR(self._mode())

    def _mode(self) -> int:
        try:
            return self.path.lstat().st_mode
        except OSError:
            return 0

    def may_exist(self) -> bool:
        return True  # to open it is as quick as to ask

    @contextmanager
    def reading(self, *, parts: bool = False) -> Iterator[BinaryIO]:
        try:
            handle = os.open(self.path, _FLAGS)
        except OSError:
            if self._mode() and not self.is_file():
                raise FileNotFoundError(f"{self.path} is no regular file") from None
            raise
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise FileNotFoundError(f"{self.path} is no regular file")
        with os.fdopen(handle, "rb") as file:
            yield file

    def writing(self, *, durable: bool = False) -> AbstractContextManager[BinaryIO]:
        return replacing(self.path, durable=durable)

    def touch(self) -> None:
        with contextlib.suppress(OSError):  # someone else's file, or it was deleted in between
            if self.is_file():
                links = os.utime not in os.supports_follow_symlinks
                os.utime(self.path) if links else os.utime(self.path, follow_symlinks=False)

    def rename(self, other: Self) -> None:
        os.replace(self.path, other.path)

    def delete(self) -> None:
        with contextlib.suppress(OSError):
            if self.is_file():
                self.path.unlink(missing_ok=True)

    def make_root(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def make_folder(self) -> None:
        self.path.mkdir(exist_ok=True)
        if not self.is_folder():
            raise OSError(f"{self.path} is a link")

    def delete_folder(self) -> None:
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def absolute(self) -> Self:
        return type(self)(self.path.absolute())
