"""Ask a teacher about rows, block by block; what the cache knows is not asked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._dataset_rows import read_rows
from consilience._progress import Progress, part_of, silent
from consilience._tables import as_values
from consilience._validation import check_count, n_rows, take_rows
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.labels import LabelSpace
from consilience.rows import Block
from consilience.scoring.batches import FIRST, SETTLE, Batch, Pace, ask, ask_batches
from consilience.scoring.digests import row_digests
from consilience.scoring.store import ScoreStore, as_store
from consilience.teachers import Observed, Teacher

__all__ = ["Observed", "observe", "score"]


class Asked:
    """A teacher that is asked about one block after the other.

    The batches of a block do not depend on other blocks: some models answer in other last digits if they get
    other batches, and a block must have the same logits on every machine and after every stop.

    Parameters
    ----------
    teacher : Teacher
    X : rows
        The first of them show how to read the teacher's scores.
    batch_size : int
        Most rows per call.
    store : ScoreStore, optional
        Where answers are kept. Not those of teachers without a fingerprint, or that hold the answers.

    Attributes
    ----------
    by_position : bool
        Whether the teacher holds the outputs of the rows of one X: it is not asked.
    stores : bool
        Whether answers are kept, and rows must be told apart by their digests.
    """

    def __init__(self, teacher: Teacher, X: Any, *, batch_size: int, store: ScoreStore | None) -> None:
        self.teacher, self._batch_size, self._shelf = teacher, batch_size, None
        self.by_position = teacher.part(slice(0, 0)) is not None
        if self.by_position:
            teacher.check_rows(X)
        elif store is not None and teacher.batched:
            # the rows that would decide without a cache: the fingerprint depends on it
            if not teacher.settled:
                teacher.settle(some_rows(X, slice(0, min(SETTLE, batch_size))))
            if teacher.fingerprint is not None:
                self._shelf = store.shelf(teacher.fingerprint, len(teacher.classes), teacher.name)
        self.stores = self._shelf is not None

    def observe(
        self,
        block: Block,
        digests: NDArray[np.uint64] | None,
        *,
        embeddings: bool,
        progress: Progress = silent,
    ) -> Observed:
        """Return the logits (b, k) of a block in single precision, and its embeddings (b, d) if wanted.

        Parameters
        ----------
        block : Block
        digests : (b, 2) array or None
            Of its rows; None if rows have no plain content.
        embeddings : bool
        progress : callable
            Called with ("scoring", rows done, rows of the block).
        """
        rows = block.rows.stop - block.rows.start
        part = self.teacher.part(block.rows) if self.by_position else None
        if part is not None:
            try:
                return ask(part, block.X, rows, embeddings)
            except InvalidInputError as error:  # the part knows its own rows only
                raise error.moved(block.rows.start) from error.__cause__
        table, missing = _Table(self.teacher, rows, embeddings), np.arange(rows)
        first = missing
        if self._shelf is not None and digests is not None:
            known, logits, features = self._shelf.find(digests, embeddings=embeddings)
            if known.all():
                return Observed(logits, features)
            table.put(known, Observed(logits[known], None if features is None else features[known]))
            missing = np.flatnonzero(~known)
            first = missing[_first_of_each(digests[missing])]
        wanted, done = np.unique(first), rows - len(missing)
        pace = Pace(self._batch_size, FIRST if self.teacher.settled else SETTLE)
        if done:
            progress("scoring", done, rows)
        batches = _batches(self.teacher, block, wanted, pace)
        try:
            for batch, seen in ask_batches(self.teacher, batches, len(wanted), pace, embeddings=embeddings):
                table.put(batch.places, seen)
                if self._shelf is not None and digests is not None:
                    self._shelf.add(digests[batch.places], seen, embeddings=embeddings)
                done += batch.count
                progress("scoring", done, rows)
        finally:
            if self._shelf is not None:
                self._shelf.flush()
        if len(wanted) < len(missing):
            table.copy(first, missing)
            progress("scoring", rows, rows)
        return Observed(table.logits, table.features)


class _Table:
    """Logits (n, k) and embeddings (n, d) of a teacher that are filled part by part."""

    def __init__(self, teacher: Teacher, rows: int, embeddings: bool) -> None:
        self._name, self._wanted, self._empty = teacher.name, embeddings, True
        self.logits = np.empty((rows, len(teacher.classes)), np.float32)
        self.features: NDArray[np.float32] | None = None

    def put(self, rows: Any, seen: Observed) -> None:
        """Fill some rows; all parts must have embeddings of one width, or none."""
        self.logits[rows] = seen.logits
        if not self._wanted or (len(seen.logits) == 0 and len(self.logits)):
            return
        width = None if seen.embeddings is None else seen.embeddings.shape[1]
        if self._empty and width is not None:
            self.features = np.empty((len(self.logits), width), np.float32)
        known = None if self.features is None else self.features.shape[1]
        if width != known:
            raise TeacherError(
                self._name,
                f"has embeddings of width {known} for some rows and {width} for others. If it was changed, "
                "give it another fingerprint, or clear the cache.",
            )
        self._empty = False
        if self.features is not None:
            self.features[rows] = seen.embeddings

    def copy(self, source: NDArray[np.intp], target: NDArray[np.intp]) -> None:
        """Give some rows what others have."""
        self.logits[target] = self.logits[source]
        if self.features is not None:
            self.features[target] = self.features[source]


def observe(
    teacher: Teacher,
    X: Any,
    *,
    batch_size: int = 4096,
    store: ScoreStore | str | os.PathLike[str] | None = None,
    embeddings: bool = True,
    progress: Progress = silent,
) -> Observed:
    """Return a teacher's logits (n, k) and embeddings (n, d), of one pass over X, in single precision.

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
    progress : callable
        Called with ("scoring", rows done, rows in all).

    Returns
    -------
    Observed
        Its `embeddings` are None if the teacher has none, or they are not wanted.
    """
    X = as_values(X)
    asked = Asked(teacher, X, batch_size=check_count("batch_size", batch_size), store=as_store(store))
    block = Block(0, slice(0, n_rows(X)), X)
    digests = row_digests(X) if asked.stores else None
    seen = asked.observe(block, digests, embeddings=embeddings, progress=progress)
    return Observed(seen.logits.astype(np.float64), seen.embeddings)


def score(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    X: Any,
    *,
    batch_size: int = 4096,
    store: ScoreStore | str | os.PathLike[str] | None = None,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Return the packed logits (n, m) of all teachers, in single precision.

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
            seen = observe(teacher, X, batch_size=batch_size, store=kept, embeddings=False, progress=report)
        except TeacherError as error:
            raise error.at(i, len(teachers)) from error.__cause__
        packed[:, space.block(i)] = seen.logits
    return packed


def _first_of_each(digests: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return for each row the first one that is like it."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: of equal rows, the first comes first
    ordered = digests[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.empty(len(order), dtype=np.intp)
    first[order] = order[new][np.cumsum(new) - 1]
    return first


def _batches(teacher: Teacher, block: Block, rows: NDArray[np.intp], pace: Pace) -> Iterator[Batch]:
    """Yield some rows of a block in order; at least one batch, so that no rows show errors, too."""
    count = block.rows.stop - block.rows.start
    if len(rows) == count and (count == 0 or not teacher.batched):
        yield Batch(slice(0, count), count, block.X, block.rows.start)
        return
    for start, stop in pace.borders(len(rows)):
        part: Any = rows[start:stop]
        if part[-1] - part[0] == stop - start - 1:
            part = slice(int(part[0]), int(part[-1]) + 1)  # a view, where X is an array
        X = read_rows(block.X) if stop - start == count else some_rows(block.X, part)
        yield Batch(part, stop - start, X, block.rows.start)


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
