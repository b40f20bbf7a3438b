"""The cache: what teachers said about rows, on disk, so that no teacher is asked twice about the same row.

A cache is a folder, with a folder for each model, named by the model's fingerprint. In it are append-only
files of records: the digest of a row, what the model says about it, and a checksum. A file has one writer at
a time. A changed model has another fingerprint and a changed row another digest, so nothing goes out of date.
A damaged record costs that record, and files are deleted as a whole.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import weakref
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from consilience._sizes import parse_size, size_text
from consilience.exceptions import ConsilienceWarning, InvalidInputError, warn
from consilience.files.storage import Entry, StoragePath, is_url, storage_path
from consilience.run import Run
from consilience.scoring.records import Kind
from consilience.scoring.shelf import INDEX_BYTES, MOST_NAME, NAME, Shelf

README = "README.txt"

_RECOUNT = 256  # writes after which the size of the cache is counted again: others write, too
_SHELF = re.compile(r"model-[0-9a-f]{32}")
_TRAINING = re.compile(r"training-[0-9a-f]+(-own)?")  # own: on labels that a student made itself
_CHECKPOINT = re.compile(r"training\.npz|\.training\.npz\.[0-9a-f]{16}\.tmp")
_RECORDS = re.compile(r"\.?[1-9][0-9-]*-[0-9a-f]{16}\.rows(\.[0-9a-f]{16}\.tmp)?")
_EARLIER = re.compile(r"[0-9a-f]{40}")  # the folder of a model in caches of earlier versions
# a folder that begins with this text is a cache, whatever else is in it
_TEXT = """Scores and embeddings that consilience computed: a folder per model, files of rows inside.
Nothing here is needed: delete the folder, or parts of it, whenever you like; it is computed again.
"""


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

    Attributes
    ----------
    root : StoragePath
        The folder to list, read and write.
    used : set of StoragePath
        The files that this run has read or written.

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
            raise InvalidInputError(f"The cache {folder!r} must be a folder.")
        self.folder: Any = folder if is_url(folder) else Path(folder).absolute()
        self.root = storage_path(self.folder)
        self.limit = None if limit is None else parse_size(argument, limit)
        if self.root.is_root() is False:
            raise InvalidInputError(f"The cache {str(self.root)!r} is a file; give a folder.")
        names = [name for name in self.root.names() if README not in name]
        earlier = any(_EARLIER.fullmatch(name) for name in names)
        ours = earlier or any(_SHELF.fullmatch(name) or _TRAINING.fullmatch(name) for name in names)
        if names and not ours and not self._is_marked():
            raise InvalidInputError(
                f"The folder {str(self.root)!r} holds other files and is no cache. "
                "Give a new or an empty folder."
            )
        self._shelves = weakref.WeakValueDictionary[tuple[str, int], Shelf]()
        self.used = set[StoragePath]()
        self._total, self._writes, self._full = 0, 0, False
        self._warned = set[str]()
        if earlier:
            self.warn(
                "earlier",
                f"{str(self.root)!r} holds a cache of an earlier version, which is not used: delete it when "
                "you like.",
            )

    def _is_marked(self) -> bool:
        with contextlib.suppress(OSError), (self.root / README).reading() as file:
            return file.read(len(_TEXT)) == _TEXT.encode()
        return False

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
        if README not in self.root.names():
            with (self.root / README).writing() as file:
                file.write(_TEXT.encode())

    def contents(self) -> dict[str, Any]:
        """Return what is there, for people and as JSON: bytes and rows in all and by model."""
        models = [_of_model(self.root / key) for key in self._keys()]
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
        for key in self.root.folders():
            if _SHELF.fullmatch(key):
                (self.root / key / NAME).delete()
            if _SHELF.fullmatch(key) or _TRAINING.fullmatch(key):
                (self.root / key).delete_folder()  # if it is empty

    def trim(self, limit: float | str) -> None:
        """Delete the files that were not used for longest, until at most `limit` bytes are left."""
        _delete_oldest(self._entries(), self.size - parse_size("limit", limit))

    def room_for(self, n_bytes: int) -> bool:
        """Tell whether so much more may be written; if need be, delete what this run has not used."""
        if self.limit is None:
            return True
        if self._writes % _RECOUNT == 0:
            self._total, self._full = self.size, False
        self._writes += 1
        if self._total + n_bytes > self.limit and not self._full:
            # some more, to have room for a while
            excess = self._total + n_bytes - self.limit + self.limit // 16
            others = [entry for entry in self._entries() if entry.path not in self.used]
            self._total -= _delete_oldest(others, excess)
        self._full = self._total + n_bytes > self.limit
        if self._full:
            self.warn(
                "limit",
                f"This run needs more than the {size_text(self.limit)} that the cache {str(self.root)!r} may "
                "take. A part of its scores is not kept, and will be computed again.",
            )
            return False
        self._total += n_bytes
        return True

    def index_room(self) -> int:
        """Return of how many more rows the places fit in memory."""
        return INDEX_BYTES // 16 - sum(shelf.n_indexed for shelf in self._shelves.values())

    def warn(self, what: str, message: str) -> None:
        """Warn once of one thing."""
        if what not in self._warned:
            self._warned.add(what)
            warn(ConsilienceWarning(message))

    def _keys(self) -> list[str]:
        return [name for name in self.root.folders() if _SHELF.fullmatch(name)]

    def _entries(self) -> list[Entry]:
        found = (entry for key in self._keys() for entry in (self.root / key).entries())
        return [entry for entry in found if _RECORDS.fullmatch(entry.path.name)]

    def _checkpoints(self) -> list[Entry]:
        folders = [name for name in self.root.folders() if _TRAINING.fullmatch(name)]
        found = (entry for name in folders for entry in (self.root / name).entries())
        return [entry for entry in found if _CHECKPOINT.fullmatch(entry.path.name)]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self.limit)  # copies count for themselves

    def __repr__(self) -> str:
        return f"ScoreStore({str(self.root)!r}: {len(self._keys())} models, {size_text(self.size)})"


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
    entries = [entry for entry in folder.entries() if _RECORDS.fullmatch(entry.path.name)]
    kinds = [(entry, kind) for entry in entries if (kind := Kind.parse(entry.path.name)) is not None]
    teacher = ""
    with contextlib.suppress(OSError), (folder / NAME).reading() as file:
        teacher = file.read(MOST_NAME).decode(errors="replace")
    used = max((entry.used for entry in entries), default=0.0)
    return {
        "key": folder.name,
        "teacher": teacher or None,
        "n_classes": kinds[0][1].n_classes if kinds else None,
        "n_rows": sum(entry.size // kind.n_bytes for entry, kind in kinds),
        "n_bytes": sum(entry.size for entry in entries),
        "n_files": len(entries),
        "last_use": f"{datetime.datetime.fromtimestamp(used, datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
        if used
        else None,
    }


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


def with_open_cache(run: Run) -> Run:
    """Return the same `Run` with its cache opened, for a verb that asks teachers several times."""
    store = as_store(run.cache, run.cache_limit)
    return run.changed(cache=store, cache_limit=None)
