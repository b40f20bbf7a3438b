"""Folders and their files, on this machine or behind a URL such as ``s3://bucket/scores``.

`storage_path` turns what users give into a `StoragePath`, or into the kind of it that fsspec reaches. Files
are written whole or not at all. Links, pipes and devices count as nothing: they are not read, written to or
deleted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

from consilience.exceptions import (
    InvalidInputError,
    WriteError,
    shown,
)
from consilience.files.disk import opened, read_bytes, replacing

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(::.+)?://")
_SHORTENED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
_DEEPEST = 20  # folders in folders
BLOCK = 2**22
"""Bytes of a file that are in memory at a time."""
Kind = Literal["file", "folder", "other"]
KINDS: dict[object, Kind] = {
    stat.S_IFREG: "file", stat.S_IFDIR: "folder", "file": "file", "directory": "folder",
}  # fmt: skip
"""What a status of a file, or fsspec, calls a file and a folder."""


@dataclass(frozen=True)
class Entry:
    """What a listing says of something in a folder.

    Attributes
    ----------
    path : StoragePath
    kind : {"file", "folder", "other"}
        A link is neither a file nor a folder.
    size : int
        Bytes.
    used : float
        Seconds since 1970: when it was last used on this machine, where `touch` notes it, or when it was
        written behind a URL. 0 if nobody knows.
    """

    path: StoragePath
    kind: Kind
    size: int
    used: float


@dataclass(frozen=True, repr=False)
class StoragePath:
    """A file or a folder, which need not exist. ``path / name`` is a path in it; ``str(path)`` shows it.

    Attributes
    ----------
    path : Path
        On this machine.
    """

    path: Any

    @property
    def name(self) -> str:
        """The last part."""
        return str(self).rpartition("/")[2]

    def __truediv__(self, name: str) -> Self:
        """Return the path of a name in this folder; a name with a separator in it raises."""
        return type(self)(self.path / check_name(name))

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def listing(self) -> list[Entry]:
        """Return what is in a folder, in the order of names; nothing if there is no folder."""
        with contextlib.suppress(OSError):  # another process may delete it
            found = (type(self)(inside).about() for inside in sorted(self.path.iterdir()))
            return [entry for entry in found if entry is not None]
        return []

    def about(self) -> Entry | None:
        """Return what is known of what is there; None if nothing is."""
        with contextlib.suppress(OSError):
            status = self.path.lstat()
            return Entry(
                self, KINDS.get(stat.S_IFMT(status.st_mode), "other"), status.st_size, status.st_mtime
            )
        return None

    def is_root(self) -> bool | None:
        """Tell whether it is a folder, perhaps by a link; None if nothing is there."""
        return self.path.is_dir() if self.path.exists() else None

    @contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        """Open a regular file to read. All else raises a FileNotFoundError, as if nothing were there."""
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(opened(self.path))
            except InvalidInputError as error:
                raise FileNotFoundError(str(error)) from None
            yield file

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[BinaryIO]:
        """Write a file whole or not at all: it is there when the block has ended without an error.

        Parameters
        ----------
        durable : bool
            Whether to wait until the file is on disk. If not, a power cut may lose or damage it. Storage
            behind a URL decides for itself.
        """
        with replacing(self.path, durable=durable) as file:
            yield file

    def create(self, data: bytes) -> bool:
        """Write a file that is not there yet, whole or not at all; False if there is one."""
        try:
            with replacing(self.path, exclusive=True) as file:
                file.write(data)
        except WriteError as error:
            if error.errno != errno.EEXIST:
                raise
            return False
        return True

    def touch(self) -> None:
        """Note that a file was used, where files keep such a note."""
        with contextlib.suppress(OSError):  # someone else's file, or it was deleted in between
            if self.is_file():
                os.utime(self.path, follow_symlinks=os.utime not in os.supports_follow_symlinks)

    def delete(self) -> None:
        """Delete a regular file, if it is there and may be deleted."""
        with contextlib.suppress(OSError):
            if self.is_file():
                self.path.unlink(missing_ok=True)

    def make_root(self) -> None:
        """Make a folder, and those above it. It may be a link to a folder: that is the user's."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(error.errno, error.strerror or str(error), str(self.path)) from error

    def make_folder(self) -> None:
        """Make a folder in one that is there; raise if there is a link or a file in its place."""
        self.make_root()
        if not self.is_folder():
            raise WriteError(None, "it is a link or a file", str(self))

    def delete_folder(self) -> None:
        """Delete a folder if it is empty: no file of others and no process at work is in it."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def absolute(self) -> Self:
        """Return a path that means the same in other working folders."""
        return type(self)(self.path.absolute())

    def entries(self) -> list[Entry]:
        """Return what is known of the regular files in a folder, in the order of their names."""
        return [entry for entry in self.listing() if entry.kind == "file"]

    def folders(self) -> list[str]:
        """Return the names of the folders in a folder, in order."""
        return [entry.path.name for entry in self.listing() if entry.kind == "folder"]

    def names(self) -> list[str]:
        """Return the names of everything in a folder, in order."""
        return [entry.path.name for entry in self.listing()]

    def is_file(self) -> bool:
        """Tell whether it is a regular file."""
        found = self.about()
        return found is not None and found.kind == "file"

    def is_folder(self) -> bool:
        """Tell whether it is a folder, and no link to one."""
        found = self.about()
        return found is not None and found.kind == "folder"

    def tree(self, above: str = "", depth: int = 0) -> dict[str, Entry]:
        """Return everything below a folder but folders, by its path from there; links are not followed."""
        found: dict[str, Entry] = {}
        for entry in self.listing():
            if entry.kind != "folder":
                found[above + entry.path.name] = entry
            elif depth < _DEEPEST:
                found |= entry.path.tree(f"{above}{entry.path.name}/", depth + 1)
        return found

    def at(self, path: str) -> Self:
        """Return the path of something below this folder, such as ``"a/b"``; an empty text is the folder."""
        found = self
        for part in path.split("/") if path else ():
            found = found / part
        return found

    def blocks(self) -> Iterator[bytes]:
        """Yield the content of a file in pieces, so that a large one need not fit in memory."""
        with self.reading() as file:
            while block := file.read(BLOCK):
                yield block

    def read(self, most: int) -> bytes | None:
        """Return the content of a file; None if there is none, or it has more than so many bytes."""
        entry = self.about()
        return None if entry is None or entry.kind != "file" else self.read_all([entry], most)[0]

    def read_all(self, files: Sequence[Entry], most: int) -> list[bytes | None]:
        """Return the content of files below this folder, as `read` does; behind a URL, many at a time."""
        found: list[bytes | None] = []
        for entry in files:
            try:
                found.append(read_bytes(entry.path.path, most=most))
            except InvalidInputError:
                found.append(None)
        return found


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
        Text with ``://`` in it is a URL, and all else a path on this machine. A URL has no password: packages
        of fsspec find theirs in the environment or in a configuration file.

    Examples
    --------
    >>> str(storage_path("scores") / "about.json")
    'scores/about.json'
    """
    if not is_url(where):
        return StoragePath(local_path(where))
    from consilience.files.remote import remote_path

    return remote_path(str(where))


def local_path(where: str | os.PathLike[str]) -> Path:
    """Return a path on this machine, or raise if the text can be none: too long, or with a zero byte."""
    if isinstance(where, os.PathLike) and _SHORTENED.match(os.fspath(where)):
        raise InvalidInputError(
            f"{os.fspath(where)!r} was a URL before it became a Path. Give the URL as text."
        )
    path = Path(where)
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(f"{shown(os.fspath(where))} cannot be a path: {reason}.") from None
    return path


def check_name(name: str) -> str:
    """Return a name of a file or a folder, or raise if it would lead out of its folder."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise InvalidInputError(f"{name!r} is no name of a file; give one without / and \\.")
    return name
