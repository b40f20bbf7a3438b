"""Folders and files behind URLs such as ``s3://bucket/scores``, which fsspec reaches.

A bucket has no folders, no renaming, no locks and no time of last use. It has whole files: one upload puts a
file there or changes nothing. Other storage (``sftp://``, ``file://``) can rename: there, a file is written
under another name first. Listings are never kept by fsspec, since other processes write, too.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import urlsplit

from consilience._optional import require
from consilience.exceptions import ConsilienceError, InvalidInputError, MissingDependencyError, StorageError
from consilience.files.storage import BLOCK, KINDS, Entry, StoragePath, check_name

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


@dataclass(frozen=True, repr=False)
class RemotePath(StoragePath):
    """A file or a folder behind a URL.

    Attributes
    ----------
    path : str
        For fsspec.
    url : str
        For people.
    """

    url: str
    _system: Any = field(compare=False)

    @property
    def _renames(self) -> bool:
        """Whether this is no bucket, but storage with folders that can rename in one step."""
        from fsspec.spec import AbstractFileSystem

        return type(self._system).mv is not AbstractFileSystem.mv

    def __truediv__(self, name: str) -> Self:
        return self._below(check_name(name))

    def _below(self, path: str) -> Self:
        above = self.url if self.url.endswith("://") else f"{self.url.rstrip('/')}/"
        return type(self)(f"{self.path.rstrip('/')}/{path}", f"{above}{path}", self._system)

    def __str__(self) -> str:
        return self.url

    def __reduce__(self) -> tuple[Any, ...]:
        return remote_path, (self.url,)

    def listing(self) -> list[Entry]:
        found = self._asked("listed", lambda: self._system.ls(self.path, detail=True)) or []
        whole = {str(info["name"]).rstrip("/"): info for info in found}
        # a bucket may list the folder itself as an empty file, and a file as what is in it
        inside = [text for text in whole if text.lstrip("/") != self.path.strip("/")]
        return [(self / text.rpartition("/")[2])._entry(whole[text]) for text in sorted(inside)]

    def about(self) -> Entry | None:
        info = self._asked("read", lambda: self._system.info(self.path))
        return None if info is None else self._entry(info)

    def _entry(self, info: dict[str, Any]) -> Entry:
        kind = "other" if info.get("islink") else KINDS.get(info.get("type"), "other")
        return Entry(self, kind, int(info.get("size") or 0), _time(info))

    def _asked(self, done: str, ask: Callable[[], Any]) -> Any:
        """Return what fsspec answers; None if nothing is there."""
        with _told(self.url, done), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return ask()
        return None

    def is_root(self) -> bool | None:
        info = self._asked("read", lambda: self._system.info(self.path))
        return None if info is None else info.get("type") == "directory"

    def is_folder(self) -> bool:
        return not self._renames or super().is_folder()

    def tree(self, above: str = "", depth: int = 0) -> dict[str, Entry]:
        if self._renames:
            return super().tree(above, depth)
        # one request for each thousand files
        found = self._asked("listed", lambda: self._system.find(self.path, detail=True)) or {}
        base = self.path.strip("/") + "/"
        below = {str(name).lstrip("/").removeprefix(base): info for name, info in found.items()}
        files = {path: info for path, info in below.items() if info["type"] != "directory"}
        return {path: self._below(path)._entry(info) for path, info in files.items()}

    @contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        if self._renames and not self.is_file():  # where files may be links or pipes
            raise FileNotFoundError(errno.ENOENT, "no regular file", self.url)
        with _told(self.url, "read"), self._system.open(self.path, "rb", block_size=BLOCK) as file:
            yield file

    def read_all(self, files: Sequence[Entry], most: int) -> list[bytes | None]:
        found: list[bytes | None] = [b"" if entry.size == 0 else None for entry in files]
        wanted = [i for i, entry in enumerate(files) if 0 < entry.size <= most]
        paths, sizes = [files[i].path.path for i in wanted], [files[i].size for i in wanted]
        with _told(self.url, "read"):
            answers = self._system.cat_ranges(paths, [0] * len(wanted), sizes) if wanted else []
            for i, answer in zip(wanted, answers, strict=True):
                if isinstance(answer, Exception) and not isinstance(answer, FileNotFoundError):
                    raise answer
                found[i] = None if isinstance(answer, Exception) else bytes(answer)
        return found

    def create(self, data: bytes) -> bool:
        """Write a file that is not there yet; False if there is one.

        Where the storage can write on that condition, and fsspec knows how, only one of several writers gets
        True. Elsewhere two that write at the same moment may both get it.
        """
        with _told(self.url, "written"):
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

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[BinaryIO]:
        with tempfile.TemporaryDirectory(prefix="consilience-") as folder:
            content = Path(folder) / "content"
            with content.open("xb") as file:
                yield file
            self.upload(content)

    def upload(self, content: Path) -> None:
        """Put a file of this machine there, whole or not at all."""
        with _told(self.url, "written"):
            if self._renames:
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

    def touch(self) -> None:
        """Do nothing: buckets have no time of last use."""

    def delete(self) -> None:
        with contextlib.suppress(OSError), _told(self.url, "deleted"):
            if not self._renames or self.is_file():
                self._system.rm_file(self.path)

    def make_root(self) -> None:
        if self._renames:  # elsewhere, folders need not be made, and buckets are the user's to make
            with _told(self.url, "made"):
                self._system.makedirs(self.path, exist_ok=True)

    def delete_folder(self) -> None:
        with contextlib.suppress(OSError), _told(self.url, "deleted"):
            if self._renames and not self.listing():
                self._system.rmdir(self.path)

    def absolute(self) -> Self:
        return self


def remote_path(url: str) -> RemotePath:
    """Return the path of a URL without a password: packages of fsspec look for theirs in the environment."""
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
    return RemotePath(path.rstrip("/") or path, name, system)


@contextmanager
def _told(url: str, done: str) -> Iterator[None]:
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
        text = _SECRET.sub("...", " ".join(str(error).split()))[:_MOST_TEXT].rstrip(". ")
        if isinstance(error, ImportError):
            raise MissingDependencyError(f"{url} needs a package: {text}.") from None
        kind = type(error).__name__
        remedy = next(remedy for words, remedy in _REMEDIES if re.search(words, f"{kind} {error}".lower()))
        said = f"{kind}: {text}" if text else kind
        raise StorageError(f"{url} cannot be {done} ({said}). {remedy}") from None  # a cause may show secrets


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
