"""What teachers said and saw, kept on disk: no teacher is asked twice about the same row.

A store is a folder. It holds a folder per teacher, named by the fingerprint of its content, and in it
segments: files of up to a batch of rows, each row found by a digest of its content. A changed teacher has
another fingerprint and a changed row another digest, so that nothing has to be declared out of date.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.exceptions import ConsilienceWarning, InvalidInputError
from consilience.files.atomic import replacing

FORMAT = 1
README = "README.txt"

_SEGMENT = re.compile(r"[0-9a-f]{32}\.npz")
_SHELF = re.compile(r"[0-9a-f]{40}")
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
    """A folder that keeps what teachers said of rows, by content.

    Parameters
    ----------
    folder : path
        Made when it is missing. One that exists must be empty, or a store already.

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

    @property
    def size(self) -> int:
        """Bytes that the store takes."""
        return sum(_bytes(path) for path in self._segments())

    def clear(self) -> None:
        """Delete what is kept, and nothing else that may lie in the folder."""
        for path in list(self._segments()):
            with contextlib.suppress(OSError):
                path.unlink()
        for shelf in self._shelves():
            with contextlib.suppress(OSError):  # someone else's file inside, or another process at work
                shelf.rmdir()

    def shelf(self, fingerprint: str) -> Shelf:
        """Return what is kept of one teacher."""
        key = blake2b(f"{FORMAT}\0{fingerprint}".encode(), digest_size=20).hexdigest()
        return Shelf(self, key)

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
    """What a store keeps of one teacher.

    Parameters
    ----------
    store : ScoreStore
    key : str
        The name of its folder.
    """

    def __init__(self, store: ScoreStore, key: str) -> None:
        self._store, self._key = store, key
        self._folder = store.folder / key

    def find(self, digests: NDArray[np.uint64], *, embeddings: bool) -> Iterator[tuple[Any, Segment]]:
        """Yield what is known of some rows, segment by segment.

        Parameters
        ----------
        digests : (u, 2) uint64 array
            Of the rows asked for, sorted by the first column and then the second, each once.
        embeddings : bool
            Whether embeddings are wanted: what was kept without them is then unknown.

        Yields
        ------
        places : (s,) array of int
            Positions in `digests`.
        segment : Segment
            Their rows, in this order; without embeddings where they are not wanted.
        """
        if not _is_folder(self._folder):
            return
        for path in _segments(self._folder):
            try:
                found = self._read(path, digests, embeddings)
            except FileNotFoundError:  # cleared by another process
                continue
            except Exception as error:  # numpy, zipfile and zlib raise all kinds, for a bit that was flipped
                warnings.warn(
                    f"{path} is broken ({type(error).__name__}: {error}); it is left out and its rows are "
                    "computed again.",
                    ConsilienceWarning,
                    stacklevel=4,
                )
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                continue
            if found is not None:
                yield found

    def add(self, segment: Segment, *, embeddings: bool) -> None:
        """Keep some rows; `embeddings` tells whether they were asked for, since a teacher may have none.

        A store that cannot be written (a full disk, a folder of someone else) warns: scores that cannot be
        kept are still scores.
        """
        try:
            self._write(segment, embeddings)
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
            "asked": np.array(embeddings),
            "logits": segment.logits,
        }
        if segment.embeddings is not None:
            arrays["embeddings"] = segment.embeddings
        sums = {f"sum_{name}": self._sum(name, values) for name, values in arrays.items()}
        with replacing(self._folder / f"{secrets.token_hex(16)}.npz") as file:
            np.savez(file, **arrays, **sums)  # type: ignore[arg-type]

    def _read(
        self, path: Path, digests: NDArray[np.uint64], embeddings: bool
    ) -> tuple[NDArray[np.intp], Segment] | None:
        """Return the wanted rows of one segment, or None where it has none of them."""
        # opened here: numpy leaves a file that is no archive open
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if any(member.compress_type for member in archive.zip.infolist()):
                raise ValueError("it is compressed")  # by others, and nobody knows to what size
            kept = self._checked(archive, "digests")
            if embeddings and not bool(self._checked(archive, "asked")):
                return None
            if kept.ndim != 2 or kept.shape[1] != 2:
                raise ValueError("its digests have a wrong shape")
            places = np.searchsorted(digests[:, 0], kept[:, 0])
            places[places == len(digests)] = 0
            rows = np.flatnonzero((digests[places] == kept).all(axis=1)) if len(digests) else places[:0]
            if len(rows) == 0:
                return None
            logits = self._checked(archive, "logits")
            features = (
                self._checked(archive, "embeddings") if embeddings and "embeddings" in archive.files else None
            )
        if len(logits) != len(kept) or (features is not None and len(features) != len(kept)):
            raise ValueError("its parts differ in length")
        every = len(rows) == len(kept)
        part = Segment(
            kept if every else kept[rows],
            logits if every else logits[rows],
            features if every or features is None else features[rows],
        )
        return places[rows], part

    def _checked(self, archive: Any, name: str) -> NDArray[Any]:
        values: NDArray[Any] = archive[name]
        if not np.array_equal(archive[f"sum_{name}"], self._sum(name, values)):
            raise ValueError(f"the checksum of its {name} is wrong")
        return values

    def _sum(self, name: str, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the checksum of an array: of this teacher, under this name, with this type and shape."""
        digest = blake2b(f"{self._key} {name} {values.dtype.str} {values.shape}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        return np.frombuffer(digest.digest(), dtype=np.uint8)


def as_store(cache: ScoreStore | str | os.PathLike[str] | None) -> ScoreStore | None:
    """Return a store for what users give as cache=: a folder, a store, or None."""
    if cache is None or isinstance(cache, ScoreStore):
        return cache
    if not isinstance(cache, str | os.PathLike) or not os.fspath(cache):
        raise InvalidInputError(f"cache={cache!r} must be a folder, a ScoreStore or None.")
    return ScoreStore(cache)


def _holds_others(folder: Path) -> bool:
    """Tell whether a folder holds anything but what a store puts there."""
    names = [path.name for path in folder.iterdir()]
    return any(not _SHELF.fullmatch(name) and not name.startswith(f".{README}.") for name in names)


def _segments(shelf: Path) -> list[Path]:
    """Return the segments in a folder; what only has the name of one (a link, a pipe) is none."""
    return [path for path in sorted(shelf.iterdir()) if _SEGMENT.fullmatch(path.name) and _is_file(path)]


def _mode(path: Path) -> int:
    """Return what kind of file lies under a path itself, not where it leads; 0 where there is none."""
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
