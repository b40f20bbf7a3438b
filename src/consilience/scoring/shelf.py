"""The part of a cache that belongs to one teacher: look rows up, and add them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from consilience._sizes import size_text
from consilience.files.storage import Entry, StoragePath, is_url
from consilience.scoring.records import FILE_BYTES, Kind, all_records, is_ours, is_plain, read_records

if TYPE_CHECKING:
    from consilience.scoring.store import ScoreStore
    from consilience.teachers import Observed

try:
    import fcntl
except ImportError:  # Windows: each process begins a file of its own
    fcntl = None  # type: ignore[assignment]

NAME = "name.txt"
"""A file in the folder of a model with its name, for people."""
MOST_NAME = 200
"""Bytes of it."""
UPLOAD_BYTES = 2**22
"""Behind a URL, a file is sent again whenever it has grown, and followed by another at this size."""
INDEX_BYTES = 2**30
"""Memory for looking rows up, all models of a cache together, at 16 bytes a row."""
UPLOAD_SECONDS = 1.0
"""Behind a URL, batches that come more quickly are sent together."""
REFRESH_SECONDS = 10.0
"""What other processes write is noticed after this time."""

_MOST_TWINS = 8  # records of one row, or of rows that share half of their digest, that are looked at
_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Shelf:
    """The part of a cache that belongs to one teacher: look rows up, and add them.

    Parameters
    ----------
    store : ScoreStore
    key : str
        The name of its folder.
    n_classes : int
    teacher : str
        The teacher's name, for `consilience cache`.
    """

    def __init__(self, store: ScoreStore, key: str, n_classes: int, teacher: str) -> None:
        self._store, self._key, self._n_classes, self._teacher = store, key, n_classes, teacher
        self._remote = store.root / key if is_url(store.folder) else None
        # what lies behind a URL is copied here once, and read and written as if it were here
        self._copies = tempfile.TemporaryDirectory(prefix="consilience-") if self._remote else None
        self._folder = StoragePath(Path(self._copies.name) if self._copies else store.folder / key)
        if self._copies:
            weakref.finalize(self, self._copies.cleanup)
        self._names, self._counts = list[str](), list[int]()  # of files, and how many rows are in the index
        self._runs = list[tuple[NDArray[np.uint64], NDArray[np.uint64]]]()
        self._writers = dict[Kind, tuple[BinaryIO, int]]()  # with the number of the file
        self._unsent, self._sent = set[str](), -np.inf
        self._refreshed = -np.inf

    @property
    def n_indexed(self) -> int:
        """The number of rows that can be looked up."""
        return sum(len(halves) for halves, _ in self._runs)

    def find(
        self, digests: NDArray[np.uint64], *, embeddings: bool
    ) -> tuple[NDArray[np.bool_], NDArray[np.float32], NDArray[np.float32] | None]:
        """Return which rows are known, their logits (n, k), and their embeddings (n, d) or None.

        Parameters
        ----------
        digests : (n, 2) uint64 array
            Of the rows, in any order.
        embeddings : bool
            Whether embeddings are wanted. Then rows that were kept without them are unknown.
        """
        known, values = np.zeros(len(digests), bool), np.empty((len(digests), self._n_classes), np.float32)
        width: int | None = None
        for again in (False, True):
            for number, places, rows in self._candidates(digests):
                kind = Kind.parse(self._names[number])
                if kind is None or (embeddings and (kind.width is None or width not in (None, kind.width))):
                    continue
                left = ~known[places]
                found, records = self._read(number, kind, digests[places[left]], rows[left])
                places = places[left][found]
                if not len(places):
                    continue
                if embeddings and width is None:
                    width = kind.width
                    values = np.empty((len(digests), self._n_classes + (width or 0)), np.float32)
                values[places] = records[:, : values.shape[1]]
                known[places] = True
            if again or known.all() or time.monotonic() < self._refreshed + REFRESH_SECONDS:
                break
            self._refresh()
        features = values[:, self._n_classes :] if width else None
        return known, values[:, : self._n_classes], features

    def add(self, digests: NDArray[np.uint64], seen: Observed, *, embeddings: bool) -> None:
        """Keep what a teacher says about some rows: a process that is killed after this call loses nothing.

        If the cache cannot be written (full disk, no permission), only warn: the caller still has the scores.
        """
        features = seen.embeddings
        kind = Kind(self._n_classes, (0 if features is None else features.shape[1]) if embeddings else None)
        size = UPLOAD_BYTES if self._remote else FILE_BYTES
        size = size if self._store.limit is None else min(size, self._store.limit // 16)
        step = max(1, size // kind.n_bytes)
        for start in range(0, len(digests), step):
            part = slice(start, start + step)
            records = np.zeros((len(digests[part]), kind.n_bytes // 8), np.uint64)
            records[:, :2] = digests[part]
            values = records[:, 2:-1].view(np.float32)
            values[:, : self._n_classes] = seen.logits[part]
            if kind.width and features is not None:
                values[:, self._n_classes : self._n_classes + kind.width] = features[part]
            records[:, -1] = kind.sums(self._key, records)
            try:
                if not self._store.room_for(records.nbytes):
                    return
                self._append(kind, records, size)
            except OSError as error:
                self._cannot_write(error)
                return

    def _append(self, kind: Kind, records: NDArray[np.uint64], size: int) -> None:
        file, number = self._writers.get(kind) or self._begin(kind, size)
        start = os.fstat(file.fileno())
        if start.st_nlink == 0 or (
            start.st_size and start.st_size + records.nbytes > size
        ):  # deleted, or full
            file, number = self._begin(kind, size)
            start = os.fstat(file.fileno())
        view = records.reshape(-1).view(np.uint8).data
        try:
            _write(file, view)
        except OSError:
            os.ftruncate(file.fileno(), start.st_size)  # no half of a record before the next one
            raise
        self._index(records[:, 0].copy(), number, start.st_size // kind.n_bytes)
        if self._remote is not None:
            self._unsent.add(self._names[number])
            if time.monotonic() - self._sent >= UPLOAD_SECONDS:
                self._send()

    def flush(self) -> None:
        """Send what has not been sent yet, behind a URL; a killed process loses `UPLOAD_SECONDS` there."""
        try:
            self._send()
        except OSError as error:
            self._cannot_write(error)

    def _send(self) -> None:
        while self._unsent and self._remote is not None:
            name = self._unsent.pop()
            with (self._folder / name).reading() as whole, (self._remote / name).writing() as sent:
                shutil.copyfileobj(whole, sent)
        self._sent = time.monotonic()

    def _cannot_write(self, error: OSError) -> None:
        self._store.warn(
            "write",
            f"The cache {str(self._store.root)!r} cannot be written ({error.strerror or error}); "
            "these scores are not kept.",
        )

    def _begin(self, kind: Kind, size: int) -> tuple[BinaryIO, int]:
        """Return a file to append to, and its number: one with room that nobody writes, or a new one."""
        self._store.prepare()
        folder = self._remote or self._folder
        folder.make_folder()
        if NAME not in folder.names():
            with (folder / NAME).writing() as about:
                about.write(self._teacher[:MOST_NAME].encode(errors="replace"))
        for entry in [] if self._remote else self._folder.entries():
            name = entry.path.name
            if Kind.parse(name) == kind and entry.size < size // 2 and (file := self._taken_over(name, kind)):
                self._refresh()  # what its writer has added since
                break
        else:
            name = kind.new_name()
            file = self._opened(name, os.O_CREAT | os.O_EXCL)
            _lock(file)  # where there are no locks, nobody takes it over
        self._store.used.add(folder / name)
        self._writers[kind] = file, self._number(name)
        return self._writers[kind]

    def _taken_over(self, name: str, kind: Kind) -> BinaryIO | None:
        """Return a file that nobody writes any more, without the half of a record that a kill may leave."""
        with contextlib.suppress(OSError):
            file = self._opened(name, 0)
            if _lock(file):
                size = os.fstat(file.fileno()).st_size
                os.ftruncate(file.fileno(), size - size % kind.n_bytes)
                return file
            file.close()
        return None

    def _opened(self, name: str, flags: int) -> BinaryIO:
        path = self._folder.path / name
        handle = os.open(path, _FLAGS | flags, 0o666)
        file = open(handle, "ab", buffering=0)  # noqa: SIM115 (it lives as long as this object)
        weakref.finalize(self, file.close)
        return file

    def _number(self, name: str) -> int:
        if name not in self._names:
            self._names.append(name)
            self._counts.append(0)
        return self._names.index(name)

    def _refresh(self) -> None:
        """Take what other processes have written into the index."""
        self._refreshed = time.monotonic()
        try:
            entries = self._listed()
        except OSError as error:  # the run goes on without what is kept there
            self._store.warn("storage", f"{error} Rows that are kept there may be computed again.")
            return
        for entry in entries:
            kind, number = Kind.parse(entry.path.name), self._number(entry.path.name)
            start = self._counts[number]
            if kind is None or kind.n_classes != self._n_classes:
                continue
            if entry.size // kind.n_bytes - start > self._store.index_room():
                self._store.warn(
                    "index",
                    f"The cache {str(self._store.root)!r} has more rows than {size_text(INDEX_BYTES)} of "
                    "memory can look up. The others are computed again.",
                )
                return
            with contextlib.suppress(OSError), entry.path.reading() as file:  # it may be gone again
                file.seek(start * kind.n_bytes)
                halves = [records[:, 0].copy() for records in all_records(file, kind)]
                if halves:
                    self._index(np.concatenate(halves), number, start)

    def _listed(self) -> list[Entry]:
        """Return the files that may hold rows of this teacher; those behind a URL are copied here."""
        mine = [self._names[number] for _, number in self._writers.values()]
        for entry in self._remote.entries() if self._remote else []:
            copy = self._folder / entry.path.name
            known = copy.about()
            if not is_ours(entry) or copy.name in mine or (known is not None and known.size == entry.size):
                continue
            with contextlib.suppress(FileNotFoundError), entry.path.reading() as sent, copy.writing() as file:
                shutil.copyfileobj(sent, file)
        found = self._folder.entries() if self._folder.is_folder() else []
        return [entry for entry in found if is_ours(entry)]

    def _index(self, halves: NDArray[np.uint64], number: int, start: int) -> None:
        """Note where rows are: record `start` of a file, and those after it."""
        self._counts[number] = start + len(halves)
        places = np.arange(start, start + len(halves), dtype=np.uint64) + np.uint64(number << 32)
        # join runs of like size only: a row is then sorted a few times in all, and there are few runs
        while self._runs and len(self._runs[-1][0]) <= 2 * len(halves):
            before, at = self._runs.pop()
            halves, places = np.concatenate([before, halves]), np.concatenate([at, places])
        order = np.argsort(halves, kind="stable")  # quick where it consists of sorted runs
        self._runs.append((halves[order], places[order]))

    def _candidates(
        self, digests: NDArray[np.uint64]
    ) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.int64]]]:
        """Yield the files that may hold some rows, which rows, and their records there, in order."""
        found: list[tuple[NDArray[Any], NDArray[Any]]] = []
        order = np.argsort(digests[:, 0])  # sorted rows are found several times as fast
        wanted = digests[order, 0]
        for halves, at in self._runs:
            first = np.searchsorted(halves, wanted)
            for shift in range(_MOST_TWINS):
                places = np.flatnonzero(halves.take(first + shift, mode="clip") == wanted)
                places = places[first[places] + shift < len(halves)]
                if not len(places):
                    break
                found.append((at[first[places] + shift], order[places]))
        if not found:
            return
        where, places = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(where, kind="stable")
        numbers, rows = (where[order] >> np.uint64(32)).astype(int), (where[order] & np.uint64(2**32 - 1))
        borders = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(order)]
        for a, b in pairwise(borders):
            if b > a:
                yield int(numbers[a]), places[order[a:b]], rows[a:b].astype(np.int64)

    def _read(
        self, number: int, kind: Kind, digests: NDArray[np.uint64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Return which records of a file hold the rows of these digests, and the values of those that do."""
        path = self._folder / self._names[number]
        try:
            with path.reading() as file:
                records = read_records(file, kind, rows)
        except OSError:  # it is gone, or cannot be read
            return np.zeros(len(rows), bool), np.empty((0, 0), np.float32)
        path.touch()
        self._store.used.add((self._remote or self._folder) / path.name)
        values = records[:, 2:-1].view(np.float32)[:, : kind.n_classes + (kind.width or 0)]
        sound = (kind.sums(self._key, records) == records[:, -1]) & is_plain(values[:, : kind.n_classes])
        sound &= is_plain(values[:, kind.n_classes :])
        if not sound.all():
            self._store.warn(path.name, f"{path} has damaged rows; they are computed again.")
        right = sound & (records[:, :2] == digests).all(axis=1)
        return right, values if right.all() else values[right]


def _write(file: BinaryIO, rows: memoryview) -> None:
    while rows:
        rows = rows[file.write(rows) :]


def _lock(file: BinaryIO) -> bool:
    """Take a file for this process until it is closed; False if another has it, or if there are no locks."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
