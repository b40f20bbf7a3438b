"""Folders and files behind URLs such as ``s3://bucket/scores``, which fsspec reaches.

A bucket has no folders, no renaming, no locks and no time of last use. It has whole files: one upload puts a
file there or changes nothing. Other storage (``sftp://``, ``file://``) can rename: there, a file is written
under another name first. Listings are never kept by fsspec, since other processes write, too.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import io
import re
import secrets
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self, cast
from urllib.parse import urlsplit

from consilience._optional import require
from consilience.exceptions import (
    ConsilienceError,
    InvalidInputError,
    MissingDependencyError,
    StorageError,
)
from consilience.files.storage import Entry, StoragePath, check_name

LISTING_AGE = 10.0
"""Seconds for which `may_exist` believes a listing, at the least."""
_LISTING_SHARE = 20  # a listing is believed this many times as long as it took
_AT_ONCE = 2**26  # bytes that are sent from memory
_RANGE = 2**18  # bytes that are fetched at the least, where parts of a file are read
_MOST_TEXT = 200  # characters of a message of others
_BLOCK = 2**22  # bytes of a file that are in memory at a time
_DEEPEST = 20  # folders in folders
_TAGS = ("ETag", "etag", "md5Hash", "generation", "content_md5", "ino")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
# what may be in messages of others: addresses with signatures, and keys
_SECRET = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://\S+|\b[A-Za-z0-9/+_-]{20,}={0,2}")
_REMEDIES = (
    ("credentials|forbidden|accessdenied|permission|unauthorized|access denied|signature|401|403",
     "Check that the credentials are set where its package looks for them (environment or configuration), "
     "and that they allow to list, read, write and delete."),
    ("timeout|timed out", "It did not answer in time. Check the network, and try again."),
    ("connect|gaierror|resolve|unreachable|network", "Check the network and the address, and try again."),
    ("notimplemented|readonly|read-only", "This storage cannot be written. Give another one."),
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What a listing says of a regular file.

    Attributes
    ----------
    size : int
    used : float
        Seconds since 1970: when it was written; 0 if nobody knows.
    stamp : tuple of int
        Changes when the file does, as far as the storage says.
    """

    size: int
    used: float
    stamp: tuple[int, ...]


@dataclass
class _Listing:
    """The names in a folder, as of some time."""

    names: set[str]
    until: float


@dataclass(frozen=True)
class _Connection:
    """A file system of fsspec."""

    system: Any
    can_rename: bool
    listings: dict[str, _Listing] = field(default_factory=dict)


def remote_path(url: str) -> RemotePath:
    """Return the path of a URL.

    Parameters
    ----------
    url : str
        Without a password: packages of fsspec find theirs in the environment or in a configuration file.
    """
    parts = urlsplit(url)
    if "::" in url:
        raise InvalidInputError(f"{url.partition('://')[0]}:// is a chain of URLs. Give a plain one.")
    if parts.password or parts.query:
        raise InvalidInputError(
            f"The URL {parts.scheme}:// has a password or a query in it, which could end up in a message. "
            "Give it without, and set credentials in the environment."
        )
    require("fsspec", extra="buckets", purpose=f"A URL such as {parts.scheme}://")
    from fsspec.core import get_filesystem_class, url_to_fs
    from fsspec.spec import AbstractFileSystem

    shown = url.rstrip("/") if url.rstrip("/").partition("://")[2] else url
    try:
        get_filesystem_class(parts.scheme)
    except ImportError as error:
        raise MissingDependencyError(
            f"{parts.scheme}:// needs a package that is not installed. {str(error).rstrip('.')}."
        ) from error
    except ValueError:
        raise InvalidInputError(
            f"{shown!r} is no URL that fsspec knows: there is no {parts.scheme}://. Give a folder of this "
            "machine, or a URL such as s3://bucket/folder."
        ) from None
    with _told(shown, "opened"):
        system, path = url_to_fs(url, skip_instance_cache=True)
        if hasattr(system, "dircache"):  # what others write must be seen
            system.dircache.use_listings_cache = False
    renames = type(system).mv is not AbstractFileSystem.mv
    return RemotePath(shown, path.rstrip("/") or path, _Connection(system, renames))


@dataclass(frozen=True, repr=False)
class RemotePath(StoragePath):
    """A file or a folder behind a URL.

    Attributes
    ----------
    url : str
        For people.
    path : str
        For fsspec.
    """

    url: str
    path: str
    _at: _Connection = field(compare=False)

    @property
    def can_rename(self) -> bool:  # type: ignore[override]
        return self._at.can_rename

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def __truediv__(self, name: str) -> Self:
        check_name(name)
        url, path = (f"{part.rstrip('/')}/{name}" for part in (self.url, self.path))
        if self.url.endswith("://"):
            url = self.url + name
        return type(self)(url, path, self._at)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"RemotePath({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return remote_path, (self.url,)

    def names(self) -> list[str]:
        return [name for name, info in self._listed() if _is_regular(info)]

    def folders(self) -> list[str]:
        return [name for name, info in self._listed() if _is_real_folder(info)]

    def all_names(self) -> list[str]:
        return [name for name, _ in self._listed()]

    def entries(self) -> list[Entry]:
        return [_entry(self / name, info) for name, info in self._listed() if _is_regular(info)]

    def _listed(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the names in a folder with what is known of each, in order."""
        start = time.monotonic()
        with _told(self.url, "listed"):
            try:
                found = self._at.system.ls(self.path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                found = []
        base = self.path.rstrip("/")
        named = {}
        for info in found:
            whole = str(info["name"]).rstrip("/")
            # a bucket may list the folder itself as an empty file, and a file as what is in it
            if whole.lstrip("/") != base.lstrip("/"):
                named[whole.rpartition("/")[2]] = info
        now = time.monotonic()
        until = now + max(LISTING_AGE, _LISTING_SHARE * (now - start))
        self._at.listings[self.path] = _Listing(set(named), until)
        return sorted(named.items())

    def tree(self) -> dict[str, Found]:
        """Return every regular file below a folder, by its path from there; a bucket lists all at once."""
        if self.can_rename:
            return dict(self._walk("", 0))
        with _told(self.url, "listed"):
            try:
                found = self._at.system.find(self.path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return {}
        base = self.path.strip("/") + "/"
        below = ((str(name).lstrip("/"), info) for name, info in found.items() if _is_regular(info))
        return {name.removeprefix(base): _found(info) for name, info in below if name.startswith(base)}

    def _walk(self, above: str, depth: int) -> Iterator[tuple[str, Found]]:
        """Yield the files below a folder, without those behind links."""
        for name, info in self._listed():
            if _is_regular(info):
                yield above + name, _found(info)
            elif _is_real_folder(info) and depth < _DEEPEST:
                yield from (self / name)._walk(f"{above}{name}/", depth + 1)

    def found(self) -> Found | None:
        """Return what is known of a regular file; None if there is none."""
        info = self._info()
        return _found(info) if info is not None and _is_regular(info) else None

    def _info(self) -> dict[str, Any] | None:
        with _told(self.url, "read"):
            try:
                found: dict[str, Any] = self._at.system.info(self.path)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return found

    def entry(self) -> Entry | None:
        with contextlib.suppress(StorageError):
            info = self._info()
            return _entry(self, info) if info is not None and _is_regular(info) else None
        return None

    def is_root(self) -> bool | None:
        info = self._info()
        return None if info is None else info.get("type") == "directory"

    def is_folder(self) -> bool:
        if not self.can_rename:
            return True
        with contextlib.suppress(StorageError):
            info = self._info()
            return info is not None and _is_real_folder(info)
        return False

    def may_exist(self) -> bool:
        folder = self.path.rpartition("/")[0]
        known = self._at.listings.get(folder)
        if known is None or time.monotonic() > known.until:
            with contextlib.suppress(StorageError):
                type(self)(self.url.rpartition("/")[0], folder, self._at)._listed()
            known = self._at.listings.get(folder)
        return known is None or self.name in known.names

    @contextmanager
    def reading(self, *, parts: bool = False) -> Iterator[BinaryIO]:
        size = None
        if parts or self.can_rename:  # where files may be links or pipes
            info = self._info()
            if info is None or not _is_regular(info):
                raise FileNotFoundError(errno.ENOENT, "no regular file", self.url)
            size = info.get("size")
        if parts and size is not None:
            raw = _Ranges(self, int(size))
            with io.BufferedReader(raw, _RANGE) as file:
                yield cast(BinaryIO, file)
        else:
            with io.BytesIO(self.fetch()) as whole:
                yield whole

    def fetch(self, start: int | None = None, stop: int | None = None) -> bytes:
        """Return the bytes of a file from `start` to `stop`, by default all."""
        with _told(self.url, "read"):
            return bytes(self._at.system.cat_file(self.path, start=start, end=stop))

    def blocks(self) -> Iterator[bytes]:
        """Yield the content of a file in pieces, so that a large one need not fit in memory."""
        if self.can_rename and self.found() is None:  # where files may be links or pipes
            raise FileNotFoundError(errno.ENOENT, "no regular file", self.url)
        with _told(self.url, "read"), self._at.system.open(self.path, "rb", block_size=_BLOCK) as file:
            while block := file.read(_BLOCK):
                yield block

    def create(self, data: bytes) -> bool:
        """Write a file that is not there yet; False if there is one.

        Where the storage can write on that condition, and fsspec knows how, only one of several writers gets
        True. Elsewhere two that write at the same moment may both get it.
        """
        with _told(self.url, "written"):
            try:
                with self._at.system.open(self.path, "xb") as file:
                    file.write(data)
            except FileExistsError:
                return False
            except (NotImplementedError, ValueError):  # no such mode
                if self.is_file():
                    return False
                self._at.system.pipe_file(self.path, data)
        self._note(there=True)
        return self.fetch() == data

    def upload(self, content: Path) -> None:
        """Put a file of this machine there, whole or not at all."""
        with _told(self.url, "written"):
            self._send(content)
        self._note(there=True)

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[BinaryIO]:
        with tempfile.TemporaryDirectory(prefix="consilience-") as folder:
            content = Path(folder) / "content"
            with content.open("xb") as file:
                yield file
            self.upload(content)

    def _send(self, content: Path) -> None:
        """Put a file of this machine there."""
        system = self._at.system
        if self.can_rename:
            folder, _, name = self.path.rpartition("/")
            temporary = f"{folder}/.{name}.{secrets.token_hex(8)}.tmp"
            try:
                system.put_file(str(content), temporary)
                system.mv(temporary, self.path)
            except BaseException:
                with contextlib.suppress(Exception):
                    system.rm_file(temporary)
                raise
        elif content.stat().st_size <= _AT_ONCE:
            system.pipe_file(self.path, content.read_bytes())
        else:
            system.put_file(str(content), self.path)

    def touch(self) -> None:
        """Do nothing: buckets have no time of last use."""

    def rename(self, other: Self) -> None:
        with _told(self.url, "renamed"):
            self._at.system.mv(self.path, other.path)
        self._note(there=False)
        other._note(there=True)

    def delete(self) -> None:
        with contextlib.suppress(OSError), _told(self.url, "deleted"):
            if not self.can_rename or self.is_file():
                self._at.system.rm_file(self.path)
        self._note(there=False)

    def _note(self, *, there: bool) -> None:
        """Keep the last listing right about our own doings."""
        known = self._at.listings.get(self.path.rpartition("/")[0])
        if known is not None:
            (known.names.add if there else known.names.discard)(self.name)

    def make_root(self) -> None:
        if self.can_rename:  # elsewhere, folders need not be made, and buckets are the user's to make
            with _told(self.url, "made"):
                self._at.system.makedirs(self.path, exist_ok=True)

    def make_folder(self) -> None:
        self.make_root()
        if not self.is_folder():
            raise StorageError(f"{self.url} is a link or a file. Delete it, or give another folder.")

    def delete_folder(self) -> None:
        if self.can_rename:
            with contextlib.suppress(OSError), _told(self.url, "deleted"):
                if not self.all_names():
                    self._at.system.rmdir(self.path)

    def absolute(self) -> Self:
        return self


class _Ranges(io.RawIOBase):
    """A file behind a URL of which parts are fetched when they are read."""

    def __init__(self, path: RemotePath, size: int) -> None:
        self._path, self._size, self._place = path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, start + offset)
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        stop = min(self._place + len(buffer), self._size)
        if stop <= self._place:
            return 0
        found = self._path.fetch(self._place, stop)[: len(buffer)]
        buffer[: len(found)] = found
        self._place += len(found)
        return len(found)


@contextmanager
def _told(url: str, done: str) -> Iterator[None]:
    """Turn whatever packages of fsspec raise into a StorageError with a remedy; a missing file stays one."""
    try:
        yield
    except ConsilienceError:
        raise
    except ImportError as error:
        raise MissingDependencyError(f"{url} needs a package: {_plain(error)}.") from None
    except Exception as error:
        if isinstance(error, FileNotFoundError) and (done == "read" or error.errno == errno.ENOENT):
            raise
        raise StorageError(_sentence(url, done, error)) from None  # a cause may show secrets


def _sentence(url: str, done: str, error: Exception) -> str:
    kind = type(error).__name__
    told = f"{kind} {error}".lower()
    remedy = "Check the URL, and that the bucket or folder exists."
    if not isinstance(error, FileNotFoundError):
        remedy = next((remedy for words, remedy in _REMEDIES if re.search(words, told)), remedy)
    text = _plain(error)
    return f"{url} cannot be {done} ({f'{kind}: {text}' if text else kind}). {remedy}"


def _plain(error: Exception) -> str:
    """Return the message of others in one line, without addresses and what looks like a key."""
    text = _SECRET.sub("...", " ".join(str(error).split()))
    return text[:_MOST_TEXT].rstrip(". ")


def _is_regular(info: dict[str, Any]) -> bool:
    return info.get("type") == "file" and not info.get("islink")


def _is_real_folder(info: dict[str, Any]) -> bool:
    return info.get("type") == "directory" and not info.get("islink")


def _found(info: dict[str, Any]) -> Found:
    size, used = int(info.get("size") or 0), _time(info)
    tag = next((str(info[key]) for key in _TAGS if info.get(key)), "")
    return Found(size, used, (int(used * 1e6), size, zlib.crc32(tag.encode())))


def _entry(path: RemotePath, info: dict[str, Any]) -> Entry:
    return Entry(path, int(info.get("size") or 0), _time(info))


def _time(info: dict[str, Any]) -> float:
    """Return when a file was written, in seconds since 1970: each kind of storage names it differently."""
    for key in _TIMES:
        found = info.get(key)
        if isinstance(found, str):
            with contextlib.suppress(ValueError):
                found = datetime.datetime.fromisoformat(found)
        if isinstance(found, datetime.datetime):
            # without a zone it is UTC, as all of these say
            return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()
        if isinstance(found, int | float):
            return float(found)
    return 0.0
