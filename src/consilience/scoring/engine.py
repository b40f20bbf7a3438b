"""Score every row with every teacher, batch by batch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from consilience._dataset_rows import read_rows
from consilience._progress import Progress, part_of, silent
from consilience._tables import as_values
from consilience._validation import check_count, n_rows, take_rows
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.labels import LabelSpace
from consilience.scoring.batches import FIRST, SETTLE, Batch, Pace, ask_batches
from consilience.scoring.digests import row_digests
from consilience.scoring.store import BLOCK_ROWS, ScoreStore, Segment, Shelf, as_float32, as_store
from consilience.teachers import Observed, Teacher

__all__ = ["Observed", "observe", "score"]


def observe(
    teacher: Teacher,
    X: Any,
    *,
    batch_size: int = 4096,
    store: ScoreStore | str | os.PathLike[str] | None = None,
    embeddings: bool = True,
    dtype: DTypeLike = np.float64,
    progress: Progress = silent,
) -> Observed:
    """Return a teacher's logits (n, k) and embeddings (n, d), of one pass over X.

    Parameters
    ----------
    teacher : Teacher
    X : array, sparse matrix, data frame, list or rows of a dataset
        n rows.
    batch_size : int
        Most rows per call. A slow teacher gets fewer, so that a call takes about two seconds; one with
        ``batched = False`` gets all rows at once.
    store : ScoreStore or path, optional
        Where outputs are kept: the teacher is not asked again about rows in it, and new rows are added batch
        by batch. It is not used for teachers without a fingerprint, for precomputed outputs, or for rows
        without plain content (such as dictionaries).
    embeddings : bool
        Whether embeddings are wanted, too.
    dtype : float64 or float32
        The precision that is wanted of stored logits: with float32, those that a stream rounded will do.
    progress : callable
        Called with ("scoring", rows done, rows in all).

    Returns
    -------
    Observed
        Its `embeddings` are None if the teacher has none, or they are not wanted.
    """
    X = as_values(X)
    rows, size, kept = n_rows(X), check_count("batch_size", batch_size), as_store(store)
    table, shelf = _Table(teacher, rows, embeddings), _shelf(teacher, kept, X, size)
    pace = Pace(size, FIRST if teacher.settled else SETTLE)
    digests = None if shelf is None else row_digests(X)
    done = 0
    if shelf is None or digests is None:
        for batch, seen in ask_batches(
            teacher, _slices(teacher, X, rows, pace), rows, pace, embeddings=embeddings
        ):
            table.put(batch.places, seen)
            done += batch.count
            progress("scoring", done, rows)
        return table.result()
    unique = Unique(digests)
    unmerged, loose = np.ones(len(unique.first), dtype=bool), 0
    for places, found in shelf.find(unique.digests, embeddings=embeddings, dtype=dtype):
        table.put(unique.first[places], Observed(found.logits, found.embeddings))
        unique.known[places] = True
        joined = found.loose and found.rounded is False  # blocks made here hold exact numbers alone
        unmerged[places], loose = joined, loose + joined
    done = int(unique.counts[unique.known].sum())
    if done:
        progress("scoring", done, rows)
    missing = np.sort(unique.first[~unique.known])
    if len(missing) == 0 and loose < 2:
        unmerged[:] = False  # there is nothing to join
    blocks = _Blocks(shelf, table, digests, np.sort(unique.first[unmerged]), missing)
    for batch, seen in ask_batches(
        teacher, picked(X, missing, pace), len(missing), pace, embeddings=embeddings
    ):
        part = batch.places
        new = Segment(digests[part], seen.logits, seen.embeddings, rounded=False)
        shelf.add(new, embeddings=embeddings)
        table.put(part, seen)
        blocks.put(part)
        done += int(unique.counts[unique.inverse[part]].sum())
        progress("scoring", done, rows)
    blocks.finish()
    table.copy(unique.first[unique.inverse])
    return table.result()


class _Table:
    """Logits (n, k) and embeddings (n, d) of a teacher that are filled part by part."""

    def __init__(self, teacher: Teacher, rows: int, embeddings: bool) -> None:
        self._name = teacher.name
        self._logits = np.empty((rows, len(teacher.classes)))
        self._features: NDArray[Any] | None = None
        self.wanted, self._empty = embeddings, True

    def put(self, rows: Any, seen: Observed) -> None:
        """Fill some rows; all parts must have embeddings of one width, or none."""
        self._logits[rows] = seen.logits
        if not self.wanted:
            return
        width = None if seen.embeddings is None else seen.embeddings.shape[1]
        if self._empty and seen.embeddings is not None:
            self._features = np.empty((len(self._logits), seen.embeddings.shape[1]), seen.embeddings.dtype)
        known = None if self._features is None else self._features.shape[1]
        if width != known and len(seen.logits):
            raise TeacherError(
                self._name,
                f"has embeddings of width {known} for some rows and {width} for others. If it was changed, "
                "give it another fingerprint, or clear the store.",
            )
        self._empty = False
        if self._features is not None:
            self._features[rows] = seen.embeddings

    def copy(self, source: NDArray[np.intp]) -> None:
        """Give every row what row ``source[row]`` got."""
        twins = np.flatnonzero(source != np.arange(len(source)))
        self._logits[twins] = self._logits[source[twins]]
        if self._features is not None:
            self._features[twins] = self._features[source[twins]]

    def take(self, rows: NDArray[np.intp]) -> Observed:
        """Return some rows."""
        return Observed(self._logits[rows], None if self._features is None else self._features[rows])

    def result(self) -> Observed:
        return Observed(self._logits, self._features)


class _Blocks:
    """Joins new rows to blocks, in the order of X, as soon as all rows of a block are known.

    Parameters
    ----------
    shelf : Shelf
    table : _Table
        What is known.
    digests : (n, 2) array
    rows : (u,) array of int
        The rows of X that are in no block, in order.
    missing : array of int
        Those of them that are not yet known.
    """

    def __init__(
        self,
        shelf: Shelf,
        table: _Table,
        digests: NDArray[np.uint64],
        rows: NDArray[np.intp],
        missing: NDArray[np.intp],
    ) -> None:
        self._shelf, self._table, self._digests, self._rows = shelf, table, digests, rows
        self._known = np.isin(rows, missing, assume_unique=True, invert=True)
        self._start = 0

    def put(self, rows: NDArray[np.intp]) -> None:
        """Note that some rows are known, and merge the blocks that are complete."""
        self._known[np.searchsorted(self._rows, rows)] = True
        self._merge_complete()

    def finish(self) -> None:
        """Merge what is left. Less than a block may be joined to others later."""
        self._merge_complete()
        if self._start < len(self._rows):
            self._merge(slice(self._start, None), whole=False)
        self._shelf.tidy()

    def _merge_complete(self) -> None:
        while self._known[self._start : (stop := self._start + BLOCK_ROWS)].all() and stop <= len(self._rows):
            self._merge(slice(self._start, stop), whole=True)
            self._start = stop

    def _merge(self, part: slice, *, whole: bool) -> None:
        rows = self._rows[part]
        seen = self._table.take(rows)
        block = Segment(self._digests[rows], seen.logits, seen.embeddings, rounded=False)
        self._shelf.merge(block, embeddings=self._table.wanted, whole=whole)


class Unique:
    """The distinct rows among some, by their digests.

    Attributes
    ----------
    digests : (u, 2) array
        Sorted, each once.
    first : (u,) array
        The first row of each.
    inverse : (n,) array
        The place of each row in `digests`.
    counts : (u,) array
        How many rows share each.
    known : (u,) array of bool
        Whether it has been found.
    """

    def __init__(self, digests: NDArray[np.uint64]) -> None:
        order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: of equal rows, the first comes first
        ordered = digests[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        self.digests, self.first = ordered[new], order[new]
        self.inverse = np.empty(len(order), dtype=np.intp)
        self.inverse[order] = np.cumsum(new) - 1
        self.counts = np.bincount(self.inverse, minlength=len(self.first))
        self.known = np.zeros(len(self.first), dtype=bool)


def _shelf(teacher: Teacher, store: ScoreStore | None, X: Any, batch_size: int) -> Shelf | None:
    """Return the shelf of a teacher's outputs, or None if they cannot or need not be stored."""
    if store is None or not teacher.batched:
        return None
    # the rows that would decide without a store
    teacher.settle(some_rows(X, slice(0, min(SETTLE, batch_size))))
    fingerprint = teacher.fingerprint
    return None if fingerprint is None else store.shelf(fingerprint, len(teacher.classes), teacher.name)


def score(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    X: Any,
    *,
    batch_size: int = 4096,
    store: ScoreStore | str | os.PathLike[str] | None = None,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Return the packed logits (n, m) of all teachers.

    They have single precision, as in the store and in streams: so soft labels do not depend on whether rows
    fit in memory.

    Parameters
    ----------
    teachers : sequence of Teacher
        In the order of the blocks of `space`.
    space : LabelSpace
    X : array, sparse matrix, data frame or list
        n rows.
    batch_size : int
        Rows per call, at most, as in `observe`.
    store : ScoreStore or path, optional
        Where outputs are kept, as in `observe`.
    progress : callable
        Called with ("scoring", rows done, rows in all), counted over all teachers.
    """
    rows, kept = n_rows(X), as_store(store)
    packed = np.empty((rows, space.n_columns))
    for i, teacher in enumerate(teachers):
        report = part_of(progress, i, len(teachers))
        try:
            seen = observe(
                teacher,
                X,
                batch_size=batch_size,
                store=kept,
                embeddings=False,
                dtype=np.float32,
                progress=report,
            )
        except TeacherError as error:
            raise error.at(i, len(teachers)) from error.__cause__
        packed[:, space.block(i)] = as_float32(seen.logits)[0]
    return packed


def _slices(teacher: Teacher, X: Any, rows: int, pace: Pace) -> Iterator[Batch]:
    """Yield the rows of X in order; at least one batch, so that an empty X shows errors, too."""
    if rows == 0 or not teacher.batched:
        yield Batch(slice(0, rows), rows, X)
        return
    for start, stop in pace.borders(rows):
        part = read_rows(X) if stop - start == rows else some_rows(X, slice(start, stop))
        yield Batch(slice(start, stop), stop - start, part)


def picked(X: Any, rows: NDArray[np.intp], pace: Pace, first: int = 0) -> Iterator[Batch]:
    """Yield some rows of X in order; X may be a block that begins at row `first`."""
    for start, stop in pace.borders(len(rows)):
        part = rows[start:stop]
        yield Batch(part, len(part), some_rows(X, part), first)


def some_rows(X: Any, rows: slice | NDArray[np.intp]) -> Any:
    """Return some rows of X, or say that they cannot be taken; those of a dataset are read here."""
    try:
        return read_rows(take_rows(X, rows))
    except InvalidInputError:
        raise
    except Exception as error:  # an X of any kind at all
        raise InvalidInputError(
            f"X is a {type(X).__name__} whose rows cannot be taken one by one ({error}). Give an array, a "
            "sparse matrix that has rows (CSR), a data frame or a list."
        ) from error
