"""The part of a store that belongs to one teacher: look rows up, add them, and join them to blocks."""

from __future__ import annotations

import errno
import json
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from consilience.exceptions import ConsilienceWarning, StorageError
from consilience.files.arrays import ArrayFileError
from consilience.files.storage import StoragePath
from consilience.scoring.store.index import Index, among, in_order
from consilience.scoring.store.segments import (
    BLOCK_ROWS,
    Name,
    Place,
    Segment,
    SegmentFile,
    as_dtype,
    cast,
    names_of,
    opened,
    to_store,
    write_segment,
)

if TYPE_CHECKING:
    from consilience.scoring.store.score_store import ScoreStore

ABOUT = "about.json"
"""A file on each shelf that names its teacher, for people."""
MOST_LOOSE = 64
"""Loose segments of a shelf beyond which they are joined."""
FEW = 16
"""Rows are read one by one if they are less than this part of a segment: 1/16."""
_MOST_TEXT = 200


class Shelf:
    """The part of a store that belongs to one teacher.

    A teacher is asked in batches. Each is added as a loose segment at once, so that a killed process loses at
    most one. When all rows of a block are known, they are merged: one file takes the place of the loose ones.

    Parameters
    ----------
    store : ScoreStore
    key : str
        The name of its folder.
    n_classes : int
        The teacher's, which its logits must have.
    teacher : str
        The teacher's name, for `consilience cache`.
    """

    def __init__(self, store: ScoreStore, key: str, n_classes: int, teacher: str = "") -> None:
        self._store, self._key, self._n_classes, self._teacher = store, key, n_classes, teacher
        self._folder = store.root / key
        self._index: Index | None = None
        self._searched = False
        self._loose: dict[str, _Loose] = {}
        self._mine: list[Name] = []  # loose segments of this object, which wait for their block

    def block(
        self, digests: NDArray[np.uint64], *, embeddings: bool = False, dtype: DTypeLike = np.float64
    ) -> Segment | None:
        """Return some rows if one segment holds exactly these, in this order. No other file is read.

        Parameters
        ----------
        digests : (n, 2) uint64 array
            Of the rows, in the order of the stream.
        embeddings : bool
            Whether embeddings are wanted. If so, rows that were stored without them count as unknown.
        dtype : float64 or float32
            Of the logits. Rows that were rounded to float32 are unknown to a reader of float64.
        """
        wanted = as_dtype(dtype)
        names = names_of(digests, embeddings, wanted) if len(digests) else []
        for name in [name for name in names if (self._folder / str(name)).may_exist()]:
            found = self._read(name, lambda file: _whole(file, digests, self._n_classes, embeddings))
            if found is not None:
                self._store.used(self._folder / str(name))
                self._protect(name)
                return cast(found, wanted)
        return None

    def find(
        self, digests: NDArray[np.uint64], *, embeddings: bool, dtype: DTypeLike = np.float64
    ) -> Iterator[tuple[Any, Segment]]:
        """Yield what is known of some rows, segment by segment.

        The first search looks into all segments. Later ones use an index of digests in memory, of 12 bytes
        per row; a store has `index_bytes` for all its shelves. Rows beyond that are only found by `block`.

        Parameters
        ----------
        digests : (u, 2) uint64 array
            Of the rows asked for, sorted by the first column and then the second, each once.
        embeddings, dtype
            As in `block`.

        Yields
        ------
        places : (s,) array of int
            Positions in `digests`; each is yielded once.
        segment : Segment
            Their rows, in this order; without embeddings where they are not wanted.
        """
        wanted = as_dtype(dtype)
        left = np.ones(len(digests), dtype=bool)
        width: list[int | None] = []  # of all embeddings, once there are some
        for name, places, rows in self._candidates(digests, left):
            if not left.any():
                return
            if not name.serves(embeddings, wanted):
                continue

            def look(file: SegmentFile, places: Any = places, rows: Any = rows) -> Any:
                if rows is None or len(rows) * FEW > file.n_rows:
                    found = _some(file, digests, left, self._n_classes, embeddings)
                else:
                    found = _few(
                        file, digests, places[left[places]], rows[left[places]], self._n_classes, embeddings
                    )
                return None if found is None else (found[0], _of_width(found[1], width))

            found = self._read(name, look, parts=True)
            if found is not None and len(found[0]):
                left[found[0]] = False
                self._store.used(self._folder / str(name))
                yield found[0], cast(found[1], wanted)

    def add(self, segment: Segment, *, embeddings: bool, dtype: DTypeLike = np.float64) -> None:
        """Store a batch of rows at once, as a loose segment.

        If the store cannot be written (full disk, no permission), only warn: the caller still has the scores.

        Parameters
        ----------
        segment : Segment
        embeddings : bool
            Whether embeddings were asked for, since a teacher may have none.
        dtype : float64 or float32
            float32: round what needs more, and mark it. Numbers that need no more are stored so in any case.
        """
        name = self._keep(segment, "loose", embeddings, as_dtype(dtype))
        if name is None:
            return
        self._wait(name, segment.digests)
        if len(self._mine) > MOST_LOOSE:
            self._gather(self._mine)
            if len(self._mine) > MOST_LOOSE // 2:  # they cannot be joined: do not try each time
                self._mine = []
        self._protect()
        self._store.enforce_limit()

    def merge(
        self,
        segment: Segment,
        *,
        embeddings: bool,
        dtype: DTypeLike = np.float64,
        whole: bool = True,
    ) -> None:
        """Store a block of rows as one segment, then delete what it makes superfluous.

        These are loose segments all of whose rows are in this block or in others that were merged here, and
        poorer segments of the same rows. A process that is killed in between leaves rows twice, never none.

        Parameters
        ----------
        segment : Segment
            The rows, in the order of the stream.
        embeddings, dtype
            As in `add`.
        whole : bool
            Whether the block is complete. If not, it may be joined to others later.
        """
        name = self._merge(segment, "block" if whole else "loose", embeddings, as_dtype(dtype))
        if name is not None:
            self._protect(name)
            self._store.enforce_limit()

    def tidy(self) -> None:
        """Join loose segments, of killed runs as well, if there are many."""
        loose = [name for name in self._names() if name.place == "loose"]
        if len(loose) > MOST_LOOSE:
            self._gather(loose)

    def _gather(self, names: list[Name]) -> None:
        """Join loose segments to larger ones; those that are large enough become blocks."""
        for kind in ((rounded, asked) for rounded in (False, True) for asked in (False, True)):
            group: list[Segment] = []
            for name in [name for name in names if (name.rounded, name.asked) == kind]:
                found = self._read(name, lambda file: file.segment(self._n_classes, embeddings=True))
                if found is None:
                    continue
                if group and not _alike(group[0], found):
                    self._join(group, kind[1])
                    group = []
                group.append(found)
                if sum(len(part.digests) for part in group) >= BLOCK_ROWS:
                    self._join(group, kind[1])
                    group = []
            self._join(group, kind[1])

    def _join(self, group: list[Segment], asked: bool) -> None:
        if len(group) < 2:
            return
        features = [part.embeddings for part in group if part.embeddings is not None]
        logits = np.concatenate([part.logits for part in group])
        joined = Segment(
            np.concatenate([part.digests for part in group]),
            logits,
            np.concatenate(features) if features else None,
            group[0].rounded,
        )
        self._merge(joined, "block" if len(logits) >= BLOCK_ROWS else "loose", asked, logits.dtype)

    def _merge(self, segment: Segment, place: Place, embeddings: bool, dtype: np.dtype[Any]) -> Name | None:
        name = self._keep(segment, place, embeddings, dtype)
        if name is None:
            return None
        if place == "loose":
            self._wait(name, segment.digests)
        self._delete_covered(name, segment.digests)
        self._mine = [other for other in self._mine if str(other) in self._loose]
        return name

    def _wait(self, name: Name, digests: NDArray[np.uint64]) -> None:
        """Note a loose segment of ours that waits for its block."""
        self._loose[str(name)] = _Loose(digests)
        if name not in self._mine:
            self._mine.append(name)

    def _protect(self, *names: Name) -> None:
        """Tell the store which segments belong to the current block: no limit deletes them."""
        self._store.protect(self._key, [self._folder / str(name) for name in (*names, *self._mine)])

    def _delete_covered(self, name: Name, digests: NDArray[np.uint64]) -> None:
        """Delete what a new segment of some rows makes superfluous."""
        others = [other for other in self._names() if other != name and name.covers(other)]
        # a larger one makes a smaller one superfluous, never the reverse: two processes with the same rows in
        # two orders would each delete what the other one wrote
        loose = [other for other in others if other.place == "loose" and other.size_order < name.size_order]
        ordered = in_order(digests) if loose else digests
        for other in others:
            same = other.content == name.content and name.place == "block"
            if same or (other in loose and self._covered(other, ordered)):
                self._delete(other)

    def _covered(self, name: Name, digests: NDArray[np.uint64]) -> bool:
        """Note which rows of a loose segment are in `digests` (sorted); tell whether all have been merged."""
        loose = self._rows_of(name)
        if loose is None:
            return False
        loose.merged[among(digests, loose.digests)[1]] = True
        return bool(loose.merged.all())

    def _delete(self, name: Name) -> None:
        self._loose.pop(str(name), None)
        (self._folder / str(name)).delete()

    def _candidates(
        self, digests: NDArray[np.uint64], left: NDArray[np.bool_]
    ) -> Iterator[tuple[Name, NDArray[np.intp] | None, NDArray[np.intp] | None]]:
        """Yield the segments to look into: all the first time, and later those that may hold some rows.

        With the latter come the places in `digests`, and the rows of the segment.
        """
        names = self._names()
        if not self._searched:
            self._searched = True
            yield from ((name, None, None) for name in names)
            return
        for name in names:
            if name.place == "loose" and self._may_hold(name, digests):
                yield name, None, None
        present = {str(name): name for name in names}
        for text, places, rows in self._refreshed(names).candidates(digests):
            if text in present and left[places].any():
                yield present[text], places, rows

    def _may_hold(self, name: Name, digests: NDArray[np.uint64]) -> bool:
        loose = self._rows_of(name)
        return loose is not None and len(among(digests, loose.digests)[0]) > 0

    def _rows_of(self, name: Name) -> _Loose | None:
        """Return the rows of a loose segment, which are kept in memory; None if it is gone."""
        if str(name) not in self._loose:
            kept = self._read(name, SegmentFile.digests, parts=True)
            if kept is None:
                return None
            self._loose[str(name)] = _Loose(kept)
        return self._loose[str(name)]

    def _refreshed(self, names: list[Name]) -> Index:
        """Return the index, with the digests of blocks that are new."""
        blocks = [name for name in names if name.place == "block"]
        if self._index is None or len(blocks) < len(self._index.names) // 2:  # most of it is gone
            self._index = self._store.new_index()
        new: dict[str, NDArray[np.uint64]] = {}
        room = self._store.index_room()
        for name in blocks:
            if str(name) in self._index:
                continue
            if name.rows > room:
                self._store.warn_of_index()
                break
            kept = self._read(name, SegmentFile.digests, parts=True)
            if kept is not None:
                new[str(name)] = kept
                room -= len(kept)
        self._index.add(new)
        return self._index

    def _names(self) -> list[Name]:
        """Return the segments of the shelf. Links and pipes do not count, whatever their name."""
        try:
            texts = self._folder.names() if self._folder.is_folder() else []
        except StorageError as error:  # the run goes on without what is stored there
            self._store.warn_of_storage(error)
            return []
        found = (Name.parse(text) for text in texts)
        return [name for name in found if name is not None]

    def _read(self, name: Name, read: Any, *, parts: bool = False) -> Any:
        """Return what `read` takes from a segment; None if it is gone, or broken: then drop it."""
        path = self._folder / str(name)
        if not self._folder.is_folder():
            return None
        try:
            with opened(path, self._key, name, parts=parts) as file:
                return read(file)
        except FileNotFoundError:
            return None
        except StorageError as error:
            self._store.warn_of_storage(error)
        except (ValueError, OSError) as error:
            if isinstance(error.__cause__, StorageError):
                self._store.warn_of_storage(error.__cause__)
            elif path.is_file():  # and was not cleared by another process
                self._drop(path, error)
        return None

    def _drop(self, path: StoragePath, error: ValueError | OSError) -> None:
        """Delete a broken segment, and say so."""
        reason = error.reason if isinstance(error, ArrayFileError) else str(error).rstrip(".")
        warnings.warn(
            f"{path} is broken ({reason}); it is left out and its rows are computed again.",
            ConsilienceWarning,
            stacklevel=6,
        )
        if not isinstance(error, OSError) and not isinstance(error.__cause__, OSError | MemoryError):
            path.delete()  # unreadable is not damaged

    def _keep(self, segment: Segment, place: Place, embeddings: bool, dtype: np.dtype[Any]) -> Name | None:
        """Write a segment, or warn; None if it has no rows or cannot be written."""
        if len(segment.digests) == 0:
            return None
        name, logits = to_store(segment, place, embeddings, dtype)
        if str(name) in self._loose and (self._folder / str(name)).is_file():
            return name
        try:
            try:
                self._write(name, segment, logits)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                self._write(name, segment, logits)  # another process cleared the store in between
        except OSError as error:
            warnings.warn(
                f"The store {str(self._store.root)!r} cannot be written ({error.strerror or error}); "
                "these scores are not kept.",
                ConsilienceWarning,
                stacklevel=5,
            )
            return None
        self._store.written(self._folder / str(name))
        return name

    def _write(self, name: Name, segment: Segment, logits: NDArray[Any]) -> None:
        self._store.prepare()
        self._folder.make_folder()
        about = self._folder / ABOUT
        if not about.is_file():
            text = json.dumps({"teacher": self._teacher[:_MOST_TEXT], "n_classes": self._n_classes})
            with about.writing() as file:
                file.write(text.encode())
        path = self._folder / str(name)
        if name.place == "block" and path.can_rename:
            twin = self._folder / str(Name("loose", name.rows, name.content, name.rounded, name.asked))
            if twin.name in self._loose and twin.is_file():  # one batch was the whole block
                twin.rename(path)
                self._loose.pop(twin.name)
                return
        with path.writing() as file:
            write_segment(file, self._key, name, segment.digests, logits, segment.embeddings)


class _Loose:
    """The rows of a loose segment.

    Attributes
    ----------
    digests : (n, 2) array
    merged : (n,) array of bool
        Whether each is in a block, too.
    """

    def __init__(self, digests: NDArray[np.uint64]) -> None:
        self.digests = digests
        self.merged = np.zeros(len(digests), dtype=bool)


def _whole(file: SegmentFile, digests: NDArray[np.uint64], n_classes: int, embeddings: bool) -> Segment:
    kept = file.digests()
    if not np.array_equal(kept, digests):
        raise ValueError("it does not hold the rows that its name says")
    return file.part(kept, None, n_classes, embeddings)


def _some(
    file: SegmentFile,
    digests: NDArray[np.uint64],
    left: NDArray[np.bool_],
    n_classes: int,
    embeddings: bool,
) -> tuple[NDArray[np.intp], Segment] | None:
    """Return those rows of a segment that are still wanted, and where; None if there are none."""
    kept = file.digests()
    places, rows = among(digests, kept)
    new = left[places]
    first = np.sort(np.unique(places[new], return_index=True)[1])  # a stream may have a row twice
    if len(first) == 0:
        return None
    if len(first) * FEW <= len(kept):
        return _few(file, digests, places[new][first], rows[new][first], n_classes, embeddings)
    return places[new][first], file.part(kept, rows[new][first], n_classes, embeddings)


def _few(
    file: SegmentFile,
    digests: NDArray[np.uint64],
    places: NDArray[np.intp],
    rows: NDArray[np.intp],
    n_classes: int,
    embeddings: bool,
) -> tuple[NDArray[np.intp], Segment]:
    """Return a few rows of a segment, without reading the others."""
    right, found = file.few(digests[places], rows, n_classes, embeddings)
    return places[right], found


def _of_width(segment: Segment, width: list[int | None]) -> Segment:
    """Return a segment whose embeddings are as wide as those before, or raise."""
    wide = None if segment.embeddings is None else segment.embeddings.shape[1]
    if width and width[0] != wide:
        raise ValueError(f"its embeddings have the width {wide}, and others {width[0]}")
    width[:] = [wide]
    return segment


def _alike(one: Segment, other: Segment) -> bool:
    """Tell whether two segments can be one: embeddings of one width and type, or none."""
    if one.embeddings is None or other.embeddings is None:
        return one.embeddings is other.embeddings
    return (
        one.embeddings.shape[1:] == other.embeddings.shape[1:]
        and one.embeddings.dtype == other.embeddings.dtype
    )
