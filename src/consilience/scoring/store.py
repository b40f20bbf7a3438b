"""The cache: what teachers said about rows, on disk, so that no teacher is asked twice about the same row.

A cache is a folder, with a folder for each model, named by the model's fingerprint. In it are append-only
files of records: the digest of a row, what the model says about it, and a checksum. Each process writes files
of its own. A changed model has another fingerprint and a changed row another digest, so nothing goes out of
date. A damaged record costs that record, and files are deleted as a whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b, shake_128
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._words import parse_size, size_text
from consilience.exceptions import ConsilienceWarning, InvalidInputError, warn
from consilience.files.storage import Entry, StoragePath, is_url, storage_path
from consilience.teachers.outputs import Observed

README = "README.txt"
NAME = "name.txt"  # a file in the folder of a model with its name, for people
MOST_NAME = 200  # bytes of it
_MOST_README = 2**16  # a longer one is not ours
FILE_BYTES = 2**26
"""A file that would grow beyond this is followed by another: files are deleted as a whole."""
UPLOAD_BYTES = 2**22  # behind a URL, a file is sent again whenever it has grown: it ends here
UPLOAD_SECONDS = 1.0  # behind a URL, batches that come more quickly are sent together
INDEX_BYTES = 2**30
"""Memory for looking up the rows of a model, at 16 bytes a row."""
REFRESH_SECONDS = 10.0
"""What other processes write is noticed after this time."""

_MOST_TWINS = 8  # records of one row, or of rows that share half of their digest, that are looked at
_ROW = np.uint64(2**32 - 1)  # of a place: its record; the upper half is the file
_SHELF = re.compile(r"model-[0-9a-f]{32}")
_TRAINING = re.compile(r"training-[0-9a-f]+(-own)?")  # own: on labels that a student made itself
_CHECKPOINT = re.compile(r"training\.pt|\.training\.pt\.[0-9a-f]{16}\.tmp")
_FILE = re.compile(r"([1-9][0-9]{0,6})(?:-([0-9]{1,6}))?-[0-9a-f]{16}\.rows")
# a folder that begins with this text is a cache, whatever else is in it
_TEXT = """Scores and embeddings that consilience computed: a folder per model, files of rows inside.
Nothing here is needed: delete the folder, or parts of it, whenever you like; it is computed again.
"""


class Kind(NamedTuple):
    """What the records of a file hold, which its name says: ``3-<random>.rows``, ``3-<width>-<random>.rows``.

    A record is two words of digest, the values in single precision, and a word of checksum.
    """

    n_classes: int
    width: int | None
    """Of the embeddings. None: they were not asked for. 0: the teacher has none."""

    @property
    def n_words(self) -> int:
        """The words of a record, of eight bytes each."""
        return 3 + (self.n_classes + (self.width or 0) + 1) // 2

    def sums(self, key: str, records: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the checksum (n,) of each record of a model: its words times odd numbers."""
        about = blake2b(f"{key} {self.n_classes} {self.width}".encode(), digest_size=8).digest()
        return np.frombuffer(about, np.uint64) + records[:, :-1] @ _odd_numbers(self.n_words - 1)

    def read(self, file: BinaryIO, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the records at some positions, in order; zeros beyond the end."""
        first, last = int(rows[0]), int(rows[-1])
        found = np.zeros((last + 1 - first, self.n_words), np.uint64)
        file.seek(8 * self.n_words * first)
        file.readinto(found.view(np.uint8))  # type: ignore[attr-defined]
        return np.asarray(found[rows - first])


@cache
def _odd_numbers(count: int) -> NDArray[np.uint64]:
    return np.frombuffer(shake_128(b"consilience").digest(8 * count), np.uint64) | np.uint64(1)


def _files(folder: StoragePath) -> list[tuple[Entry, Kind]]:
    """Return the files of records in a folder, which is no link, and what they hold."""
    found = []
    for entry in folder.entries() if folder.is_folder() else ():
        if name := _FILE.fullmatch(entry.path.name):
            kind = Kind(int(name[1]), None if name[2] is None else int(name[2]))
            if entry.size <= max(FILE_BYTES, 8 * kind.n_words):
                found.append((entry, kind))
    return found


class ScoreStore:
    """A folder that keeps what teachers say about rows, by the content of teacher and row.

    Parameters
    ----------
    folder : path
        Created if it is missing. An existing one must be empty or a cache. A URL such as
        ``"s3://bucket/scores"`` is reached through fsspec.
    limit : int, float, str or None
        Most bytes on disk, such as ``"20GB"``. Beyond it, the files that were not used for longest are
        deleted; behind a URL, those that were written first. What a run itself has used stays: if it needs
        more than the limit, the rest is not kept.

    Examples
    --------
    >>> import tempfile
    >>> ScoreStore(tempfile.mkdtemp(), limit="20GB").size
    0
    """

    def __init__(
        self, folder: str | os.PathLike[str], limit: float | str | None = None, *, argument: str = "limit"
    ) -> None:
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            raise InvalidInputError(f"The cache {folder!r} must be a folder, a ScoreStore or None.")
        self.folder: Any = folder if is_url(folder) else Path(folder).absolute()
        self.root = storage_path(self.folder)
        self.limit = None if limit is None else parse_size(argument, limit)
        if self.root.is_root() is False:
            raise InvalidInputError(f"The cache {str(self.root)!r} is a file; give a folder.")
        names = [name for name in self.root.names() if README not in name]
        ours = any(_SHELF.fullmatch(name) or _TRAINING.fullmatch(name) for name in names)
        marked = ours or ((self.root / README).read(_MOST_README) or b"").startswith(_TEXT.encode())
        if names and not marked:
            raise InvalidInputError(
                f"The folder {str(self.root)!r} holds other files and is no cache. "
                "Give a new or an empty folder."
            )
        self._shelves = weakref.WeakValueDictionary[tuple[str, int], Shelf]()
        self.used = set[StoragePath]()  # the files that this run has read or written
        self._room, self._full = 0, False  # bytes that may be written before the size is counted again
        self._warned = set[str]()

    @property
    def size(self) -> int:
        """Bytes of all files of scores."""
        return sum(entry.size for entry in self._entries())

    def shelf(self, fingerprint: str, n_classes: int, teacher: str = "") -> Shelf:
        """Return the part of the cache that belongs to one teacher."""
        key = blake2b(fingerprint.encode(), digest_size=16).hexdigest()
        made = self._shelves.get((key, n_classes))
        if made is None:  # while someone has it, its index is not read again
            made = self._shelves[key, n_classes] = Shelf(self, f"model-{key}", n_classes, teacher)
        return made

    def prepare(self) -> None:
        """Make the folder and its README."""
        self.root.make_root()
        with contextlib.suppress(InvalidInputError):  # a folder or a pipe there is as good
            (self.root / README).create(_TEXT.encode())

    def contents(self) -> dict[str, Any]:
        """Return what is there, for people and as JSON: bytes and rows in all and by model."""
        models = [_of_model(folder) for folder in self._folders(_SHELF)]
        trainings = [entry.size for entry in self._checkpoints()]
        return {
            "folder": str(self.root),
            "n_bytes": sum(model["n_bytes"] for model in models),
            "n_rows": sum(model["n_rows"] for model in models),
            "n_trainings": len(trainings),
            "n_bytes_trainings": sum(trainings),
            "models": sorted(models, key=lambda model: (-model["n_bytes"], model["key"])),
        }

    def clear(self) -> None:
        """Delete all that is kept here and checkpoints of stopped trainings, but no other files.

        A process that is writing at this moment starts a new file.
        """
        for entry in (*self._entries(), *self._checkpoints()):
            entry.path.delete()
        for folder in self._folders(_SHELF):
            (folder / NAME).delete()
        for folder in (*self._folders(_SHELF), *self._folders(_TRAINING)):
            folder.delete_folder()  # if it is empty

    def trim(self, limit: float | str) -> None:
        """Delete the files that were not used for longest, until at most `limit` bytes are left."""
        _delete_oldest(self._entries(), self.size - parse_size("limit", limit))

    def room_for(self, n_bytes: int) -> bool:
        """Tell whether so much more may be written; if need be, delete what this run has not used."""
        if self.limit is None:
            return True
        self._room -= n_bytes
        if self._room < 0 and not self._full:
            entries, some = self._entries(), self.limit // 16  # to have room for a while
            left = self.limit - n_bytes - sum(entry.size for entry in entries)
            left += _delete_oldest([entry for entry in entries if entry.path not in self.used], some - left)
            self._room, self._full = min(left, some), left < 0
        if self._full:
            self.warn(
                "limit",
                f"This run needs more than the {size_text(self.limit)} that the cache {str(self.root)!r} may "
                "take. A part of its scores is not kept, and will be computed again.",
            )
        return not self._full

    def warn(self, what: str, message: str) -> None:
        """Warn once of one thing."""
        if what not in self._warned:
            self._warned.add(what)
            warn(ConsilienceWarning(message))

    def _folders(self, pattern: re.Pattern[str]) -> list[StoragePath]:
        return [self.root / name for name in self.root.folders() if pattern.fullmatch(name)]

    def _entries(self) -> list[Entry]:
        return [entry for folder in self._folders(_SHELF) for entry, _ in _files(folder)]

    def _checkpoints(self) -> list[Entry]:
        found = (entry for folder in self._folders(_TRAINING) for entry in folder.entries())
        return [entry for entry in found if _CHECKPOINT.fullmatch(entry.path.name)]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self.limit)  # copies count for themselves


class Shelf:
    """The part of a cache that belongs to one teacher, its folder `key`: look rows up, and add them."""

    def __init__(self, store: ScoreStore, key: str, n_classes: int, teacher: str) -> None:
        self._store, self._key, self._n_classes, self._teacher = store, key, n_classes, teacher
        self._home = self._folder = store.root / key
        self._remote = is_url(store.folder)
        self._file_bytes = UPLOAD_BYTES if self._remote else FILE_BYTES
        if store.limit is not None:
            self._file_bytes = min(self._file_bytes, store.limit // 16)
        if self._remote:  # files are copied here once, and read and written as if they were here
            copies = tempfile.TemporaryDirectory(prefix="consilience-")
            weakref.finalize(self, copies.cleanup)
            self._folder = storage_path(copies.name)
        self._files = dict[str, Kind]()  # what is in the index
        self._counts = dict[str, int]()  # how many rows of each
        self._runs = list[tuple[NDArray[np.uint64], NDArray[np.uint64]]]()  # sorted halves, and places
        self._writers = dict[Kind, tuple[BinaryIO, str]]()
        self._unsent, self._sent, self._refreshed = set[str](), -np.inf, -np.inf

    def find(self, digests: NDArray[np.uint64], *, embeddings: bool) -> tuple[NDArray[np.bool_], Observed]:
        """Return which rows are known, and what the teacher said about these; anything for the others.

        Parameters
        ----------
        digests : (n, 2) uint64 array
            Of the rows, in any order.
        embeddings : bool
            Whether embeddings are wanted. Then rows that were kept without them are unknown.
        """
        if time.monotonic() >= self._refreshed + REFRESH_SECONDS:
            self._refresh()
        known, width = np.zeros(len(digests), bool), None
        values = np.empty((len(digests), self._n_classes), np.float32)
        for name, places, rows in self._candidates(digests):
            kind = self._files[name]
            if embeddings and (kind.width is None or width not in (None, kind.width)):
                continue
            right, found = self._read(name, kind, digests[places], rows)
            if embeddings and width is None and right.any():
                width = kind.width
                values = np.empty((len(digests), self._n_classes + (width or 0)), np.float32)
            values[places[right]] = found[right, : values.shape[1]]
            known[places[right]] = True
        logits, features = values[:, : self._n_classes], values[:, self._n_classes :]
        return known, Observed(logits, features if width else None)

    def add(self, digests: NDArray[np.uint64], seen: Observed, *, embeddings: bool) -> None:
        """Keep what a teacher says about some rows: a process that is killed after this call loses nothing.

        If the cache cannot be written (full disk, no permission), only warn: the caller still has the scores.
        """
        features = seen.embeddings if embeddings else None
        values = seen.logits if features is None else np.hstack([seen.logits, features])
        kind = Kind(self._n_classes, values.shape[1] - self._n_classes if embeddings else None)
        records = np.zeros((len(digests), kind.n_words), np.uint64)
        records[:, :2] = digests
        records[:, 2:-1].view(np.float32)[:, : values.shape[1]] = values
        records[:, -1] = kind.sums(self._key, records)
        step = max(1, self._file_bytes // (8 * kind.n_words))
        with self._writing():
            if not self._store.room_for(records.nbytes):
                return
            for start in range(0, len(records), step):
                self._append(kind, records[start : start + step])

    def flush(self) -> None:
        """Send what has not been sent yet, behind a URL; a killed process loses `UPLOAD_SECONDS` there."""
        with self._writing():
            while self._unsent:
                name = self._unsent.pop()
                _copy(self._folder / name, self._home / name)
            self._sent = time.monotonic()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._store.warn(
                "write",
                f"The cache {str(self._store.root)!r} cannot be written ({error.strerror or error}); "
                "these scores are not kept.",
            )

    def _append(self, kind: Kind, records: NDArray[np.uint64]) -> None:
        file, name = self._writers.pop(kind) if kind in self._writers else self._begin(kind)
        status = os.fstat(file.fileno())
        size = status.st_size
        if not status.st_nlink or (size and size + records.nbytes > self._file_bytes):  # deleted, or full
            file.close()
            file, name = self._begin(kind)
            size = 0
        _write(file, records.reshape(-1).view(np.uint8).data)
        self._writers[kind] = file, name  # not after a failure: what follows half a record would not be found
        self._index(name, kind, records[:, 0].copy(), size // (8 * kind.n_words))
        if self._remote:
            self._unsent.add(name)
            if time.monotonic() - self._sent >= UPLOAD_SECONDS:
                self.flush()

    def _begin(self, kind: Kind) -> tuple[BinaryIO, str]:
        """Return a new file to append to, and its name."""
        self._store.prepare()
        self._home.make_folder()
        (self._home / NAME).create(self._teacher.encode(errors="replace")[:MOST_NAME])
        width = "" if kind.width is None else f"-{kind.width}"
        name = f"{kind.n_classes}{width}-{secrets.token_hex(8)}.rows"
        path: Any = (self._folder / name).local
        file: BinaryIO = path.open("ab", buffering=0)
        weakref.finalize(self, file.close)
        self._store.used.add(self._home / name)
        return file, name

    def _refresh(self) -> None:
        """Take what other processes have written into the index."""
        self._refreshed = time.monotonic()
        try:
            if self._remote:
                self._fetch()
        except OSError as error:  # the run goes on without what is kept there
            self._store.warn("storage", f"{error} Rows that are kept there may be computed again.")
        for entry, kind in _files(self._folder):
            start, size = self._counts.get(entry.path.name, 0), 8 * kind.n_words
            if kind.n_classes != self._n_classes or entry.size // size <= start:
                continue
            if entry.size // size - start > INDEX_BYTES // 16 - sum(self._counts.values()):
                self._store.warn(
                    "index",
                    f"The cache {str(self._store.root)!r} has more rows of {self._teacher!r} than "
                    f"{size_text(INDEX_BYTES)} of memory can look up. The others are computed again.",
                )
                return
            with contextlib.suppress(OSError), entry.path.reading() as file:  # it may be gone again
                file.seek(start * size)
                words = np.frombuffer(file.read(entry.size // size * size - start * size), np.uint64)
                self._index(entry.path.name, kind, words[:: kind.n_words].copy(), start)

    def _fetch(self) -> None:
        """Copy files behind a URL that have grown; not those that this process writes or must send."""
        mine = {*(name for _, name in self._writers.values()), *self._unsent}
        for entry, _ in _files(self._home):
            copy = self._folder / entry.path.name
            known = copy.about()
            if copy.name not in mine and (known is None or known.size != entry.size):
                with contextlib.suppress(FileNotFoundError):
                    _copy(entry.path, copy)

    def _index(self, name: str, kind: Kind, halves: NDArray[np.uint64], start: int) -> None:
        """Note where rows are: record `start` of a file, and those after it."""
        self._files[name] = kind
        self._counts[name] = start + len(halves)
        places = np.arange(start, start + len(halves), dtype=np.uint64)
        places += np.uint64(list(self._files).index(name) << 32)
        # join runs of like size only: a row is then sorted a few times in all, and there are few runs
        while self._runs and len(self._runs[-1][0]) <= 2 * len(halves):
            before, at = self._runs.pop()
            halves, places = np.concatenate([before, halves]), np.concatenate([at, places])
        order = np.argsort(halves, kind="stable")  # quick where it consists of sorted runs
        self._runs.append((halves[order], places[order]))

    def _candidates(
        self, digests: NDArray[np.uint64]
    ) -> Iterator[tuple[str, NDArray[np.intp], NDArray[np.int64]]]:
        """Yield the files that may hold some rows, which rows, and their records there, in order."""
        order = np.argsort(digests[:, 0])  # sorted rows are found several times as fast
        wanted, places, rows = digests[order, 0], [np.empty(0, np.uint64)], [np.empty(0, np.intp)]
        for halves, at in self._runs:
            first = np.searchsorted(halves, wanted)
            twins = np.minimum(np.searchsorted(halves, wanted, side="right") - first, _MOST_TWINS)
            rows.append(np.repeat(order, twins))
            within = np.arange(twins.sum()) - np.repeat(np.cumsum(twins) - twins, twins)
            places.append(at[np.repeat(first, twins) + within])
        where, row = np.concatenate(places), np.concatenate(rows)
        order = np.argsort(where, kind="stable")
        numbers, names = where >> np.uint64(32), list(self._files)
        for number in np.unique(numbers).tolist():
            mine = order[numbers[order] == number]
            yield names[number], row[mine], (where[mine] & _ROW).astype(np.int64)

    def _read(
        self, name: str, kind: Kind, digests: NDArray[np.uint64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Return which records of a file hold the rows of these digests, and the values of all of them."""
        path = self._folder / name
        try:
            with path.reading() as file:
                records = kind.read(file, rows)
        except OSError:  # it is gone, or cannot be read
            return np.zeros(len(rows), bool), np.empty((len(rows), 2 * kind.n_words), np.float32)
        path.touch()
        self._store.used.add(self._home / name)
        sound = kind.sums(self._key, records) == records[:, -1]
        if not sound.all():
            self._store.warn(name, f"{path} has damaged rows; they are computed again.")
        return sound & (records[:, :2] == digests).all(axis=1), records[:, 2:-1].view(np.float32)


def _copy(source: StoragePath, target: StoragePath) -> None:
    with source.reading() as whole, target.writing() as file:
        shutil.copyfileobj(whole, file)


def _write(file: BinaryIO, rows: memoryview) -> None:
    while rows:
        rows = rows[file.write(rows) :]


def _delete_oldest(entries: Iterable[Entry], excess: int) -> int:
    """Delete what was not used for longest until `excess` bytes are gone; return how many are."""
    deleted = 0
    for entry in sorted(entries, key=lambda entry: (entry.used, str(entry.path))):
        if deleted >= excess:
            break
        entry.path.delete()
        deleted += entry.size
    return deleted


def _of_model(folder: StoragePath) -> dict[str, Any]:
    """Return what is kept of one teacher. Its name may be anyone's text."""
    files, teacher = _files(folder), (folder / NAME).read(MOST_NAME) or b""
    used = max((entry.used for entry, _ in files), default=0.0)
    return {
        "key": folder.name,
        "teacher": teacher.decode(errors="replace") or None,
        "n_classes": files[0][1].n_classes if files else None,
        "n_rows": sum(entry.size // (8 * kind.n_words) for entry, kind in files),
        "n_bytes": sum(entry.size for entry, _ in files),
        "n_files": len(files),
        "last_use": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(used)) if used else None,
    }


def as_store(cache: ScoreStore | str | os.PathLike[str], limit: float | str | None = None) -> ScoreStore:
    """Return a store for what users give as `cache` and `cache_limit`: a folder, or a store."""
    if limit is not None and isinstance(cache, ScoreStore):
        raise InvalidInputError(
            "{argument} needs a folder to apply to. Give the ScoreStore its own limit.",
            argument="cache_limit",
            value=limit,
        )
    return cache if isinstance(cache, ScoreStore) else ScoreStore(cache, limit, argument="cache_limit")
