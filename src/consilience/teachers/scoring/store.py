"""Outputs of teachers on disk, so that no teacher is asked twice about the same row.

A store is a folder. It holds a folder per teacher, named by the fingerprint of its content. In it are
segments: files of up to a batch of rows, where each row is found by a digest of its content. A changed
teacher has another fingerprint and a changed row another digest, so nothing ever goes out of date.

A segment is an .npz file. Each array has a checksum that is bound to the teacher, the array's name, type and
shape; `contents` tells whether there must be embeddings. So damage to the file's directory is detected, like
damage to its numbers.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import secrets
import stat
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._validation import check_block
from consilience.exceptions import ConsilienceWarning, InvalidInputError
from consilience.files.arrays import ArrayFileError, NpzFile
from consilience.files.atomic import replacing

FORMAT = 2
README = "README.txt"
STALE = 3600.0
"""Seconds after which a temporary file is taken for one that a killed run left; a write takes seconds."""

_SEGMENT = re.compile(r"[0-9a-f]{32}\.npz")
_SHELF = re.compile(r"[0-9a-f]{40}")
_TEMPORARY = re.compile(rf"\.({re.escape(README)}|{_SEGMENT.pattern})\.[0-9a-f]{{16}}\.tmp")
# the embeddings of a segment: not asked for, none, or some
_UNASKED, _WITHOUT, _WITH = range(3)
_TEXT = """Scores and embeddings that consilience computed: a folder per model, files of rows inside.
Nothing here is needed: delete the folder, or parts of it, whenever you like; it is computed again.
"""


@dataclass(frozen=True)
class Segment:
    """Some rows of one teacher, as they lie on disk.

    Attributes
    ----------
    digests : (n, 2) uint64 array
    logits : (n, k) float64 array
    embeddings : (n, d) array or None
    """

    digests: NDArray[np.uint64]
    logits: NDArray[np.float64]
    embeddings: NDArray[Any] | None


class ScoreStore:
    """A folder that keeps the outputs of teachers, by the content of teacher and row.

    Parameters
    ----------
    folder : path
        Created if it is missing. An existing one must be empty or a store.

    Examples
    --------
    >>> import tempfile
    >>> ScoreStore(tempfile.mkdtemp()).size
    0
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            raise InvalidInputError(f"The store {folder!r} must be a folder.")
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidInputError(f"The store {str(self.folder)!r} is a file; give a folder.")
        if self.folder.is_dir() and not self._is_marked() and _holds_others(self.folder):
            raise InvalidInputError(
                f"The folder {str(self.folder)!r} holds other files and is no store of scores. "
                "Give a new or an empty folder."
            )
        self._delete_temporaries(older_than=STALE)

    @property
    def size(self) -> int:
        """Bytes that the store takes."""
        return sum(_bytes(path) for path in self._segments())

    def clear(self) -> None:
        """Delete all stored outputs and what killed runs left, but no other files.

        A process that is writing at this moment starts its file again.
        """
        for path in list(self._segments()):
            with contextlib.suppress(OSError):
                path.unlink()
        self._delete_temporaries(older_than=-math.inf)
        for shelf in self._shelves():
            with contextlib.suppress(OSError):  # someone else's file inside, or another process at work
                shelf.rmdir()

    def shelf(self, fingerprint: str, n_classes: int) -> Shelf:
        """Return the part of the store that belongs to one teacher."""
        key = blake2b(f"{FORMAT}\0{fingerprint}".encode(), digest_size=20).hexdigest()
        return Shelf(self, key, n_classes)

    def _delete_temporaries(self, older_than: float) -> None:
        """Delete unfinished files of ours that are older than some seconds."""
        now = time.time()
        for folder in [self.folder, *self._shelves()] if self.folder.is_dir() else []:
            with contextlib.suppress(OSError):  # another process may delete the same
                for path in folder.iterdir():
                    ours = _TEMPORARY.fullmatch(path.name) is not None and _is_file(path)
                    if ours and now - path.lstat().st_mtime > older_than:
                        path.unlink(missing_ok=True)

    def _is_marked(self) -> bool:
        """Tell whether the folder has the README that a store begins with."""
        readme = self.folder / README
        if not _is_file(readme):
            return False
        with contextlib.suppress(OSError), readme.open("rb") as file:
            return file.read(len(_TEXT)) == _TEXT.encode()
        return False

    def _shelves(self) -> list[Path]:
        found = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        return [path for path in found if _SHELF.fullmatch(path.name) and _is_folder(path)]

    def _segments(self) -> Iterator[Path]:
        for shelf in self._shelves():
            yield from _segments(shelf)

    def __repr__(self) -> str:
        segments = list(self._segments())
        total = sum(map(_bytes, segments)) / 1e6
        return (
            f"ScoreStore({str(self.folder)!r}: {len(self._shelves())} models, "
            f"{len(segments)} segments, {total:.1f} MB)"
        )


class Shelf:
    """The part of a store that belongs to one teacher.

    Parameters
    ----------
    store : ScoreStore
    key : str
        The name of its folder.
    n_classes : int
        The teacher's, which its logits must have.
    """

    def __init__(self, store: ScoreStore, key: str, n_classes: int) -> None:
        self._store, self._key, self._n_classes = store, key, n_classes
        self._folder = store.folder / key

    def find(self, digests: NDArray[np.uint64], *, embeddings: bool) -> Iterator[tuple[Any, Segment]]:
        """Yield what is known of some rows, segment by segment.

        Parameters
        ----------
        digests : (u, 2) uint64 array
            Of the rows asked for, sorted by the first column and then the second, each once.
        embeddings : bool
            Whether embeddings are wanted. If so, rows that were stored without them count as unknown.

        Yields
        ------
        places : (s,) array of int
            Positions in `digests`.
        segment : Segment
            Their rows, in this order; without embeddings where they are not wanted.
        """
        if not _is_folder(self._folder):
            return
        known: list[int | None] = []  # the width of all embeddings, once there are some
        for path in _segments(self._folder):
            try:
                found = self._read(path, digests, embeddings)
                if found is None:
                    continue
                features = found[1].embeddings
                width = None if features is None else features.shape[1]
                if known and width != known[0]:
                    raise ValueError(f"its embeddings have the width {width}, and others {known[0]}")
            except ValueError as error:
                if path.exists():  # and was not cleared by another process
                    self._drop(path, error)
                continue
            known[:] = [width]
            yield found

    def _drop(self, path: Path, error: ValueError) -> None:
        """Delete a broken segment, and say so."""
        reason = error.reason if isinstance(error, ArrayFileError) else str(error).rstrip(".")
        warnings.warn(
            f"{path} is broken ({reason}); it is left out and its rows are computed again.",
            ConsilienceWarning,
            stacklevel=5,
        )
        if not isinstance(error.__cause__, OSError | MemoryError):  # unreadable is not damaged
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def add(self, segment: Segment, *, embeddings: bool) -> None:
        """Store some rows; `embeddings` tells whether they were asked for, since a teacher may have none.

        If the store cannot be written (full disk, no permission), only warn: the caller still has the scores.
        """
        try:
            try:
                self._write(segment, embeddings)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                self._write(segment, embeddings)  # another process cleared the store in between
        except OSError as error:
            warnings.warn(
                f"The store {str(self._store.folder)!r} cannot be written ({error.strerror or error}); "
                "these scores are not kept.",
                ConsilienceWarning,
                stacklevel=4,
            )

    def _write(self, segment: Segment, embeddings: bool) -> None:
        self._store.folder.mkdir(parents=True, exist_ok=True)
        readme = self._store.folder / README
        if not readme.exists():
            with replacing(readme) as file:
                file.write(_TEXT.encode())
        self._folder.mkdir(exist_ok=True)
        if not _is_folder(self._folder):
            raise OSError(f"{self._folder} is a link")
        arrays: dict[str, NDArray[Any]] = {
            "digests": segment.digests,
            "contents": np.array(_UNASKED, dtype=np.uint8),
            "logits": segment.logits,
        }
        if segment.embeddings is not None:
            arrays["contents"], arrays["embeddings"] = np.array(_WITH, np.uint8), segment.embeddings
        elif embeddings:
            arrays["contents"] = np.array(_WITHOUT, np.uint8)
        sums = {f"sum_{name}": self._sum(name, values) for name, values in arrays.items()}
        with replacing(self._folder / f"{secrets.token_hex(16)}.npz") as file:
            np.savez(file, **arrays, **sums)  # type: ignore[arg-type]

    def _read(
        self, path: Path, digests: NDArray[np.uint64], embeddings: bool
    ) -> tuple[NDArray[np.intp], Segment] | None:
        """Return the wanted rows of one segment, or None where it has none of them."""
        # refuse compressed files: we write none, and those of others may inflate to any size
        with NpzFile(path, compressed=False) as archive:
            contents = int(self._checked(archive, "contents", np.uint8, ()))
            kept = self._checked(archive, "digests", np.uint64, (None, 2))
            if embeddings and contents == _UNASKED:
                return None
            places = np.searchsorted(digests[:, 0], kept[:, 0])
            places[places == len(digests)] = 0
            rows = np.flatnonzero((digests[places] == kept).all(axis=1)) if len(digests) else places[:0]
            if len(rows) == 0:
                return None
            logits = self._checked(archive, "logits", np.float64, (len(kept), self._n_classes))
            features = None
            if embeddings and contents == _WITH:
                features = self._checked(archive, "embeddings", np.floating, (len(kept), None))
        every = len(rows) == len(kept)
        part = Segment(
            kept if every else kept[rows],
            logits if every else logits[rows],
            features if every or features is None else features[rows],
        )
        check_block(part.logits, "logits")
        if part.embeddings is not None:
            check_block(part.embeddings, "embeddings")
        return places[rows], part

    def _checked(
        self, archive: NpzFile, name: str, kind: type[np.generic], shape: tuple[int | None, ...]
    ) -> NDArray[Any]:
        """Return one array, or raise unless its checksum, type and shape (None: any length) are right."""
        for part in (name, f"sum_{name}"):
            if part not in archive.names:
                raise ValueError(f"it has no {part}")
        values = archive.read(name)
        if not np.array_equal(archive.read(f"sum_{name}"), self._sum(name, values)):
            raise ValueError(f"the checksum of its {name} is wrong")
        fits = values.ndim == len(shape) and all(
            wanted in (None, length) for wanted, length in zip(shape, values.shape, strict=True)
        )
        if not fits or not np.issubdtype(values.dtype, kind):
            raise ValueError(f"its {name} are {values.dtype} of shape {values.shape}")
        return values

    def _sum(self, name: str, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the checksum of an array, bound to the teacher and to the array's name, type and shape."""
        digest = blake2b(f"{self._key} {name} {values.dtype.str} {values.shape}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        return np.frombuffer(digest.digest(), dtype=np.uint8)


def as_store(cache: ScoreStore | str | os.PathLike[str] | None) -> ScoreStore | None:
    """Return a store for what users give as `cache`: a folder, a store, or None."""
    if cache is None or isinstance(cache, ScoreStore):
        return cache
    if not isinstance(cache, str | os.PathLike) or not os.fspath(cache):
        raise InvalidInputError(
            "{argument} must be a folder, a ScoreStore or None.", argument="cache", value=cache
        )
    return ScoreStore(cache)


def _holds_others(folder: Path) -> bool:
    """Tell whether a folder holds anything but what a store puts there."""
    names = [path.name for path in folder.iterdir()]
    return any(not _SHELF.fullmatch(name) and not name.startswith(f".{README}.") for name in names)


def _segments(shelf: Path) -> list[Path]:
    """Return the segments in a folder. Links and pipes do not count, whatever their name."""
    return [path for path in sorted(shelf.iterdir()) if _SEGMENT.fullmatch(path.name) and _is_file(path)]


def _mode(path: Path) -> int:
    """Return the file type of a path without following links; 0 if nothing is there."""
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _is_file(path: Path) -> bool:
    return stat.S_ISREG(_mode(path))


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # deleted by another process
        return 0
