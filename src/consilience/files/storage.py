"""Folders and their files, on this machine or behind a URL such as ``s3://bucket/scores``, through fsspec.

`storage_path` turns what users give into a `StoragePath`. Files are written whole or not at all. On this
machine, links, pipes and devices count as nothing: they are not read, written to or deleted. A bucket has no
folders, no renaming, no locks and no time of last use, but one upload puts a file there or changes nothing.
Other storage (``sftp://``) has folders and can rename: there, a file is written under another name first.
Listings are never kept by fsspec, since other processes write, too.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self
from urllib.parse import urlsplit

from fsspec.core import get_filesystem_class, url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

from consilience.exceptions import (
    ConsilienceError,
    InvalidInputError,
    MissingDependencyError,
    StorageError,
    WriteError,
    shown,
)
from consilience.files.disk import opened, read_bytes, replacing

BLOCK = 2**22
"""Bytes of a file that are in memory at a time."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(::.+)?://")
_SHORTENED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
_DEEPEST = 20  # folders in folders
_AT_ONCE = 2**26  # bytes that are sent from memory
_MOST_TEXT = 200  # characters of a message of others
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
# what may be in messages of others: addresses with signatures, and keys
_SECRET = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://\S+|\b[A-Za-z0-9/+_-]{20,}={0,2}")
_REMEDIES = (
    ("filenotfounderror", "Check the URL, and that the bucket or folder exists."),
    ("credentials|forbidden|accessdenied|permission|unauthorized|access denied|signature|401|403",
     "Check that the credentials are set where its package looks for them (environment or configuration), "
     "and that they allow to list, read, write and delete."),
    ("timeout|timed out", "It did not answer in time. Check the network, and try again."),
    ("connect|gaierror|resolve|unreachable|network", "Check the network and the address, and try again."),
    ("notimplemented|readonly|read-only", "This storage cannot be written. Give another one."),
    ("", "Check the URL, and that the bucket or folder exists."),
)  # fmt: skip
Kind = Literal["file", "folder", "other"]
_KINDS: dict[object, Kind] = {"file": "file", "directory": "folder"}


class _Disk(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The folders of this machine. A link is neither a file nor a folder here, and is not followed."""

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        status = os.lstat(path)
        kind = {stat.S_IFREG: "file", stat.S_IFDIR: "directory"}.get(stat.S_IFMT(status.st_mode), "other")
        return {"name": path, "type": kind, "size": status.st_size, "mtime": status.st_mtime}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        found = []
        with os.scandir(path) as inside:
            for one in inside:
                with contextlib.suppress(OSError):  # another process may delete it
                    found.append(self.info(one.path))
        return found

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return read_bytes(path, most=end or 0)


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
    """A file or a folder, which need not exist. ``path / "a/b"`` is below it; ``str(path)`` shows it.

    Attributes
    ----------
    path : str
        For fsspec; on this machine it is absolute.
    where : str
        For people: as they gave it.
    """

    path: str
    where: str = field(compare=False)
    _system: Any = field(compare=False)

    @property
    def local(self) -> Path | None:
        """The same on this machine; None behind a URL."""
        return Path(self.path) if isinstance(self._system, _Disk) else None

    @property
    def name(self) -> str:
        """The last part."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Self:
        """The folder that it lies in."""
        return type(self)(self.path.rpartition("/")[0], self.where.rpartition("/")[0], self._system)

    @property
    def _has_folders(self) -> bool:
        """Whether this is no bucket, but storage with folders that can rename in one step."""
        return type(self._system).mv is not AbstractFileSystem.mv

    def __truediv__(self, path: str) -> Self:
        """Return the path of something below this folder; one that would lead out of it raises."""
        if {"", ".", ".."} & {*path.split("/")} or "\\" in path or "\0" in path:
            raise InvalidInputError(
                f"{path!r} is no path below a folder; give names without \\, with / between."
            )
        return self._below(path)

    def _below(self, path: str) -> Self:
        above = self.where if self.where.endswith("/") else f"{self.where}/"
        return type(self)(f"{self.path.rstrip('/')}/{path}", f"{above}{path}", self._system)

    def __str__(self) -> str:
        return self.where

    def __reduce__(self) -> tuple[Any, ...]:
        return storage_path, (self.where if self.local is None else self.path,)

    def listing(self) -> list[Entry]:
        """Return what is in a folder, in the order of names; nothing if there is no folder."""
        found = self._asked("listed", lambda: self._system.ls(self.path, detail=True)) or []
        whole = {str(info["name"]).rstrip("/"): info for info in found}
        # a bucket may list the folder itself as an empty file, and a file as what is in it
        inside = [text for text in whole if text.lstrip("/") != self.path.strip("/")]
        return [self._below(text.rpartition("/")[2])._entry(whole[text]) for text in sorted(inside)]

    def tree(self) -> dict[str, Entry]:
        """Return everything below a folder but folders, by its path from there; links are not followed."""
        depth = {"maxdepth": _DEEPEST} if self._has_folders else {}  # a bucket lists a thousand files at once
        found = self._asked("listed", lambda: self._system.find(self.path, detail=True, **depth)) or {}
        base = self.path.strip("/") + "/"
        below = {str(name).lstrip("/").removeprefix(base): info for name, info in found.items()}
        files = {path: info for path, info in below.items() if info.get("type") != "directory"}
        return {path: self._below(path)._entry(info) for path, info in files.items()}

    def about(self) -> Entry | None:
        """Return what is known of what is there; None if nothing is."""
        info = self._asked("read", lambda: self._system.info(self.path))
        return None if info is None else self._entry(info)

    def _entry(self, info: dict[str, Any]) -> Entry:
        return Entry(self, _KINDS.get(info.get("type"), "other"), int(info.get("size") or 0), _time(info))

    def _asked(self, done: str, ask: Callable[[], Any]) -> Any:
        """Return what fsspec answers; None if nothing is there, or nobody may look on this machine."""
        none = (FileNotFoundError, NotADirectoryError) if self.local is None else (OSError,)
        with _told(self.where, done), contextlib.suppress(*none):
            return ask()
        return None

    def is_root(self) -> bool | None:
        """Tell whether it is a folder, perhaps by a link; None if nothing is there."""
        found = self.about()
        return None if found is None else found.kind == "folder" or bool(self._system.isdir(self.path))

    def is_file(self) -> bool:
        """Tell whether it is a regular file."""
        found = self.about()
        return found is not None and found.kind == "file"

    def is_folder(self) -> bool:
        """Tell whether it is a folder, and no link to one; a bucket has any."""
        found = self.about() if self._has_folders else None
        return not self._has_folders or (found is not None and found.kind == "folder")

    def entries(self) -> list[Entry]:
        """Return what is known of the regular files in a folder, in the order of their names."""
        return [entry for entry in self.listing() if entry.kind == "file"]

    def folders(self) -> list[str]:
        """Return the names of the folders in a folder, in order."""
        return [entry.path.name for entry in self.listing() if entry.kind == "folder"]

    def names(self) -> list[str]:
        """Return the names of everything in a folder, in order."""
        return [entry.path.name for entry in self.listing()]

    @contextmanager
    def reading(self) -> Iterator[BufferedReader]:
        """Open a regular file to read. All else raises a FileNotFoundError, as if nothing were there."""
        with contextlib.ExitStack() as stack:
            try:
                if self.local is not None:
                    file: Any = stack.enter_context(opened(self.path))
                elif self._has_folders and not self.is_file():  # where files may be links or pipes
                    raise InvalidInputError("no regular file")
                else:
                    stack.enter_context(_told(self.where, "read"))
                    file = stack.enter_context(self._system.open(self.path, "rb", block_size=BLOCK))
            except InvalidInputError as error:
                raise FileNotFoundError(errno.ENOENT, str(error), self.where) from None
            yield file

    def read(self, most: int) -> bytes | None:
        """Return the content of a file; None if there is none, or it has more than so many bytes."""
        entry = self.about()
        return None if entry is None else self.read_all([entry], most)[0]

    def read_all(self, files: Sequence[Entry], most: int) -> list[bytes | None]:
        """Return the content of files below this folder, as `read` does; behind a URL, many at a time."""
        found: list[bytes | None] = [
            b"" if entry.kind == "file" and not entry.size else None for entry in files
        ]
        wanted = [i for i, entry in enumerate(files) if entry.kind == "file" and 0 < entry.size <= most]
        paths, sizes = [files[i].path.path for i in wanted], [files[i].size for i in wanted]
        with _told(self.where, "read"):
            answers = self._system.cat_ranges(paths, [0] * len(wanted), sizes) if wanted else []
            for i, answer in zip(wanted, answers, strict=True):
                if isinstance(answer, bytes | bytearray):
                    found[i] = bytes(answer)
                elif not isinstance(answer, FileNotFoundError | InvalidInputError):  # it was there before
                    raise answer
        return found

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[BinaryIO]:
        """Write a file whole or not at all: it is there when the block has ended without an error.

        Parameters
        ----------
        durable : bool
            Whether to wait until the file is on disk. If not, a power cut may lose or damage it. Storage
            behind a URL decides for itself.
        """
        if self.local is not None:
            with replacing(self.local, durable=durable) as file:
                yield file
            return
        with tempfile.TemporaryDirectory(prefix="consilience-") as folder:
            content = Path(folder) / "content"
            with content.open("xb") as file:
                yield file
            self.upload(content)

    def upload(self, content: Path) -> None:
        """Put a file of this machine behind the URL, whole or not at all."""
        with _told(self.where, "written"):
            if self._has_folders:
                folder, _, name = self.path.rpartition("/")
                temporary = f"{folder}/.{name}.{secrets.token_hex(8)}.tmp"
                try:
                    self._system.put_file(str(content), temporary)
                    self._system.mv(temporary, self.path)
                except BaseException:
                    with contextlib.suppress(Exception):
                        self._system.rm_file(temporary)
                    raise
            elif content.stat().st_size <= _AT_ONCE:
                self._system.pipe_file(self.path, content.read_bytes())
            else:
                self._system.put_file(str(content), self.path)

    def create(self, data: bytes) -> bool:
        """Write a file that is not there yet, whole or not at all; False if there is one.

        On this machine, and where the storage can write on that condition and fsspec knows how, only one of
        several writers gets True. Elsewhere two that write at the same moment may both get it.
        """
        if self.local is not None:
            try:
                with replacing(self.local, exclusive=True) as file:
                    file.write(data)
            except WriteError as error:
                if error.errno != errno.EEXIST:
                    raise
                return False
            return True
        with _told(self.where, "written"):
            try:
                with self._system.open(self.path, "xb") as file:
                    file.write(data)
            except FileExistsError:
                return False
            except (NotImplementedError, ValueError):  # no such mode
                if self.is_file():
                    return False
                self._system.pipe_file(self.path, data)
        return self.read(len(data)) == data

    def touch(self) -> None:
        """Note that a file was used, where files keep such a note: on this machine."""
        with contextlib.suppress(OSError):  # someone else's file, or it was deleted in between
            if self.local is not None and self.is_file():
                os.utime(self.path, follow_symlinks=os.utime not in os.supports_follow_symlinks)

    def delete(self) -> None:
        """Delete a regular file, if it is there and may be deleted."""
        with contextlib.suppress(OSError), _told(self.where, "deleted"):
            if not self._has_folders or self.is_file():
                self._system.rm_file(self.path)

    def make_root(self) -> None:
        """Make a folder, and those above it. It may be a link to a folder: that is the user's."""
        if self._has_folders:  # elsewhere, folders need not be made, and buckets are the user's to make
            with _told(self.where, "made"):
                self._system.makedirs(self.path, exist_ok=True)

    def make_folder(self) -> None:
        """Make a folder in one that is there; raise if there is a link or a file in its place."""
        self.make_root()
        if not self.is_folder():
            raise WriteError(None, "it is a link or a file", str(self))

    def delete_folder(self) -> None:
        """Delete a folder if it is empty: no file of others and no process at work is in it."""
        with contextlib.suppress(OSError), _told(self.where, "deleted"):
            if self._has_folders and not self.listing():
                self._system.rmdir(self.path)


def is_url(where: str | os.PathLike[str]) -> bool:
    """Tell whether text is a URL, and no path on this machine.

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
        path = local_path(where)
        return StoragePath(str(path.absolute()), str(path), _Disk())
    url = str(where)
    parts = urlsplit(url)
    if "::" in url:
        raise InvalidInputError(f"{url.partition('://')[0]}:// is a chain of URLs. Give a plain one.")
    if parts.password or parts.query:
        raise InvalidInputError(
            f"The URL {parts.scheme}:// has a password or a query in it, which could end up in a message. "
            "Give it without, and set credentials in the environment."
        )
    name = url.rstrip("/") if url.rstrip("/").partition("://")[2] else url
    try:
        get_filesystem_class(parts.scheme)
    except ImportError as error:
        raise MissingDependencyError(
            f"{parts.scheme}:// needs a package that is not installed. {str(error).rstrip('.')}."
        ) from error
    except ValueError:
        raise InvalidInputError(
            f"{name!r} is no URL that fsspec knows: there is no {parts.scheme}://. Give a folder of this "
            "machine, or a URL such as s3://bucket/folder."
        ) from None
    with _told(name, "opened"):
        system, path = url_to_fs(url, skip_instance_cache=True)
        if hasattr(system, "dircache"):  # what others write must be seen
            system.dircache.use_listings_cache = False
    return StoragePath(
        path.rstrip("/") or path, name, _Disk() if isinstance(system, LocalFileSystem) else system
    )


def local_path(where: str | os.PathLike[str]) -> Path:
    """Return a path on this machine, or raise if the text can be none: too long, or with a zero byte."""
    if not isinstance(where, str | os.PathLike):
        raise InvalidInputError(f"{shown(where)} is no path. Give one as text.")
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


@contextmanager
def _told(where: str, done: str) -> Iterator[None]:
    """Turn whatever packages of fsspec raise into a StorageError with a remedy; a missing file stays one.

    Their message is shown in one line, without addresses and what looks like a key.
    """
    try:
        yield
    except ConsilienceError:
        raise
    except Exception as error:
        if isinstance(error, FileNotFoundError) and (done == "read" or error.errno == errno.ENOENT):
            raise
        if isinstance(error, OSError) and not is_url(where):
            raise WriteError(error.errno, error.strerror or str(error), where) from error
        text = _SECRET.sub("...", " ".join(str(error).split()))[:_MOST_TEXT].rstrip(". ")
        if isinstance(error, ImportError):
            raise MissingDependencyError(f"{where} needs a package: {text}.") from None
        kind = type(error).__name__
        remedy = next(remedy for words, remedy in _REMEDIES if re.search(words, f"{kind} {error}".lower()))
        said = f"{kind}: {text}" if text else kind
        raise StorageError(
            f"{where} cannot be {done} ({said}). {remedy}"
        ) from None  # a cause may show secrets


def _time(info: dict[str, Any]) -> float:
    """Return when a file was written, in seconds since 1970: each kind of storage names it differently."""
    found = next((info[key] for key in _TIMES if info.get(key) is not None), 0.0)
    if isinstance(found, str):
        with contextlib.suppress(ValueError):
            found = datetime.datetime.fromisoformat(found)
    if isinstance(found, datetime.datetime):
        # without a zone it is UTC, as all of these say
        found = (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()
    return float(found) if isinstance(found, int | float) else 0.0
