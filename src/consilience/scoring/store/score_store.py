"""A folder that keeps the outputs of teachers."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
import warnings
import weakref
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from consilience._sizes import parse_size, size_text
from consilience.exceptions import ConsilienceWarning, InvalidInputError, StorageError
from consilience.files.storage import Entry, StoragePath, is_url, storage_path
from consilience.scoring.store.index import ROW_BYTES, Index
from consilience.scoring.store.segments import Name
from consilience.scoring.store.shelf import ABOUT, Shelf

FORMAT = 3
"""Part of each shelf's name: what other versions wrote is never read, and deleted by `clear` and limits."""
README = "README.txt"
STALE = 3600.0
"""Seconds after which a temporary file is taken for one that a killed run left; a write takes seconds."""
INDEX_BYTES = 2**28
"""Memory for the indexes of a store, all shelves together."""

_RECOUNT = 256  # writes after which the size of the store is counted again
_OLD_SEGMENT = re.compile(r"[0-9a-f]{32}\.npz")  # of format 2
_TRAINING = re.compile(r"training-[0-9a-f]+(-own)?")  # own: on labels that a student made itself
_CHECKPOINT = re.compile(r"training\.npz|\.training\.npz\.[0-9a-f]{16}\.tmp")
_SHELF = re.compile(r"[0-9a-f]{40}")
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")
# a store begins with this text, which must stay as it is: others are not recognised
_TEXT = """Scores and embeddings that consilience computed: a folder per model, files of rows inside.
Nothing here is needed: delete the folder, or parts of it, whenever you like; it is computed again.
"""


class ScoreStore:
    """A folder that keeps the outputs of teachers, by the content of teacher and row.

    Parameters
    ----------
    folder : path
        Created if it is missing. An existing one must be empty or a store. A URL such as
        ``"s3://bucket/scores"`` is reached through fsspec.
    limit : int, float, str or None
        Most bytes on disk, such as ``"20GB"``. Beyond it, the segments that were not used for longest are
        deleted; behind a URL, those that were written first. None: no limit.

    Attributes
    ----------
    folder : Path or str
        As it was given: text for a URL.
    root : StoragePath
        The folder to list, read and write.
    index_bytes : int
        Memory for looking up rows in any order, at 12 bytes per stored row.

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
            raise InvalidInputError(f"The store {folder!r} must be a folder.")
        self.folder: Any = folder if is_url(folder) else Path(folder)
        self.root = storage_path(folder)
        self.limit = None if limit is None else parse_size(argument, limit)
        if self.root.is_root() is False:
            raise InvalidInputError(f"The store {str(self.root)!r} is a file; give a folder.")
        # in this order: another process may be making the README at this moment
        if _holds_others(self.root) and not self._is_marked():
            raise InvalidInputError(
                f"The folder {str(self.root)!r} holds other files and is no store of scores. "
                "Give a new or an empty folder."
            )
        self.index_bytes = INDEX_BYTES
        self._indexes: weakref.WeakSet[Index] = weakref.WeakSet()
        self._used: dict[StoragePath, None] = {}  # by this run, the last one last
        self._current: dict[str, set[StoragePath]] = {}  # of each shelf: the segments of its current block
        self._total: int | None = None
        self._writes = 0
        self._warned: set[str] = set()
        self._delete_temporaries(older_than=STALE)

    @property
    def size(self) -> int:
        """Bytes that the store takes."""
        return sum(entry.size for entry in self.entries())

    @property
    def trainings_size(self) -> int:
        """Bytes of the checkpoints of trainings, which no limit counts."""
        return sum(entry.size for key in self.trainings() for entry in self._checkpoints(key))

    def trainings(self) -> list[str]:
        """Return the names of the folders with checkpoints of trainings that were stopped or go on."""
        return [name for name in self.root.folders() if _TRAINING.fullmatch(name)]

    def _checkpoints(self, key: str) -> list[Entry]:
        return [entry for entry in (self.root / key).entries() if _CHECKPOINT.fullmatch(entry.path.name)]

    def clear(self) -> None:
        """Delete all stored outputs, checkpoints and what killed runs left, but no other files.

        A process that is writing at this moment starts its file again.
        """
        for key in self.shelves():
            shelf = self.root / key
            for text in shelf.names():
                if is_segment(text) or text == ABOUT:
                    (shelf / text).delete()
        for key in self.trainings():
            for entry in self._checkpoints(key):
                entry.path.delete()
        self._delete_temporaries(older_than=-math.inf)
        for key in (*self.shelves(), *self.trainings()):
            (self.root / key).delete_folder()
        self._total = None

    def shelf(self, fingerprint: str, n_classes: int, teacher: str = "") -> Shelf:
        """Return the part of the store that belongs to one teacher."""
        key = blake2b(f"{FORMAT}\0{fingerprint}".encode(), digest_size=20).hexdigest()
        return Shelf(self, key, n_classes, teacher)

    def shelves(self) -> list[str]:
        """Return the names of the folders of teachers. Links do not count."""
        return [name for name in self.root.folders() if _SHELF.fullmatch(name)]

    def entries(self) -> list[Entry]:
        """Return all segments, of older versions as well."""
        return [
            entry
            for key in self.shelves()
            for entry in (self.root / key).entries()
            if is_segment(entry.path.name)
        ]

    def absolute(self) -> ScoreStore:
        """Return a store of the same folder for a process in another working folder."""
        return ScoreStore(self.folder if is_url(self.folder) else self.folder.absolute(), self.limit)

    def prepare(self) -> None:
        """Make the folder and its README."""
        self.root.make_root()
        readme = self.root / README
        if not readme.is_file():
            with readme.writing() as file:
                file.write(_TEXT.encode())

    def used(self, path: StoragePath) -> None:
        """Note that a segment was read."""
        path.touch()
        self._used.pop(path, None)
        self._used[path] = None

    def written(self, path: StoragePath) -> None:
        """Note that a segment was written."""
        self._used.pop(path, None)
        self._used[path] = None
        self._writes += 1
        if self._writes % _RECOUNT == 0:  # other processes write, too
            self._total = None
        elif self._total is not None:
            entry = path.entry()
            self._total += 0 if entry is None else entry.size

    def protect(self, key: str, paths: Iterable[StoragePath]) -> None:
        """Note the segments of the block that a shelf is at."""
        self._current[key] = set(paths)

    def enforce_limit(self) -> None:
        """Delete segments if the store has grown beyond its limit; some more, to have room for a while."""
        if self.limit is None:
            return
        try:
            if self._total is None:
                self._total = self.size
            if self._total > self.limit:
                self._trim(self.limit - self.limit // 16)
        except StorageError as error:
            self.warn_of_storage(error)

    def trim(self, limit: float | str) -> int:
        """Delete the segments that were not used for longest, until the store has at most `limit` bytes.

        Returns the number of bytes that were deleted.
        """
        before = self.size
        return before - self._delete_oldest(parse_size("limit", limit), self.entries())

    def _trim(self, limit: int) -> None:
        entries = self.entries()
        # what this run has used is deleted last, and its newest first: the next run then finds a part of it,
        # where the oldest first would delete each block just before it is wanted
        others = [entry for entry in entries if entry.path not in self._used]
        self._total = self._delete_oldest(limit, others, sum(entry.size for entry in entries))
        if self._total <= (self.limit or 0):
            return
        known = {entry.path: entry for entry in entries}
        current = set().union(*self._current.values())
        mine = [known[path] for path in reversed(self._used) if path in known and path not in current]
        self._total = self._delete(limit, mine, self._total)
        self._used = {path: None for path in self._used if path.is_file()}
        self._warn(
            "limit",
            f"This run needs more than the {size_text(self.limit or 0)} that the store {str(self.root)!r} "
            "may take. A part of its scores is not kept, and will be computed again.",
        )

    def _delete_oldest(self, limit: int, entries: list[Entry], total: int | None = None) -> int:
        total = sum(entry.size for entry in entries) if total is None else total
        return self._delete(limit, sorted(entries, key=lambda entry: (entry.used, str(entry.path))), total)

    def _delete(self, limit: int, entries: Iterable[Entry], total: int) -> int:
        """Delete segments in order until `total` is within a limit; return what is left of it."""
        for entry in entries:
            if total <= limit:
                break
            entry.path.delete()
            total -= entry.size
        return total

    def new_index(self) -> Index:
        """Return an index that counts against `index_bytes` as long as it is in use."""
        made = Index()
        self._indexes.add(made)
        return made

    def index_room(self) -> int:
        """Return how many more rows the indexes may take."""
        return self.index_bytes // ROW_BYTES - sum(len(index) for index in self._indexes)

    def warn_of_index(self) -> None:
        """Say once that not all rows can be looked up."""
        self._warn(
            "index",
            f"The store {str(self.root)!r} has more rows than its index of "
            f"{size_text(self.index_bytes)} holds. Rows in another order than before may be computed again.",
        )

    def warn_of_storage(self, error: StorageError) -> None:
        """Say once that a bucket does not answer."""
        self._warn("storage", f"{error} Rows that are stored there may be computed again.")

    def _warn(self, what: str, message: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(message, ConsilienceWarning, stacklevel=6)

    def _delete_temporaries(self, older_than: float) -> None:
        """Delete unfinished files of ours that are older than some seconds."""
        now = time.time()
        for folder in [self.root, *(self.root / key for key in self.shelves())]:
            for text in folder.names():
                found = _TEMPORARY.fullmatch(text)
                ours = found is not None and (found[1] in (README, ABOUT) or is_segment(found[1]))
                entry = (folder / text).entry() if ours else None
                if entry is not None and now - entry.used > older_than:
                    entry.path.delete()

    def _is_marked(self) -> bool:
        """Tell whether the folder has the README that a store begins with."""
        with contextlib.suppress(OSError), (self.root / README).reading() as file:
            return file.read(len(_TEXT)) == _TEXT.encode()
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        """Let copies, and those of other processes, count for themselves."""
        return type(self), (self.folder, self.limit), {"index_bytes": self.index_bytes}

    def __repr__(self) -> str:
        entries = self.entries()
        return (
            f"ScoreStore({str(self.root)!r}: {len(self.shelves())} models, "
            f"{len(entries)} segments, {size_text(sum(entry.size for entry in entries))})"
        )


def as_store(
    cache: ScoreStore | str | os.PathLike[str] | None, limit: float | str | None = None
) -> ScoreStore | None:
    """Return a store for what users give as `cache` and `cache_limit`: a folder, a store, or None."""
    if limit is not None and (cache is None or isinstance(cache, ScoreStore)):
        remedy = "Give {remedy}, too." if cache is None else "Give the ScoreStore its own limit."
        raise InvalidInputError(
            f"{{argument}} needs a folder to apply to. {remedy}",
            argument="cache_limit",
            value=limit,
            remedy="cache",
        )
    if cache is None or isinstance(cache, ScoreStore):
        return cache
    if not isinstance(cache, str | os.PathLike) or not os.fspath(cache):
        raise InvalidInputError(
            "{argument} must be a folder, a ScoreStore or None.", argument="cache", value=cache
        )
    return ScoreStore(cache, limit, argument="cache_limit")


def is_segment(text: str) -> bool:
    """Tell whether a file on a shelf is one of a store's by its name, of older versions as well."""
    return Name.parse(text) is not None or is_old(text)


def is_old(text: str) -> bool:
    """Tell whether a file on a shelf is a segment of an older version, by its name."""
    return _OLD_SEGMENT.fullmatch(text) is not None


def _holds_others(folder: StoragePath) -> bool:
    """Tell whether a folder holds anything but what a store puts there."""
    return any(
        not _SHELF.fullmatch(name) and not name.startswith(f".{README}.") for name in folder.all_names()
    )
