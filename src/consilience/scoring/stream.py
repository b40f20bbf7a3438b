"""Score any number of rows: block by block, every teacher on every block.

Teachers are asked, and stored outputs are found, for one block at a time. So memory does not grow with the
number of rows, and rows are read once for all teachers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._validation import check_count
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.labels import LabelSpace
from consilience.rows import Block, Rows
from consilience.scoring.batches import SETTLE, Batch, Pace, ask_batches
from consilience.scoring.digests import row_digests
from consilience.scoring.engine import Unique, picked, some_rows
from consilience.scoring.store import ScoreStore, Segment, Shelf, as_float32
from consilience.teachers import Teacher

BlockScores = tuple[int, NDArray[np.float32]]
"""The number of a block, and the packed logits (b, m) of its rows."""
WRITE_SECONDS = 0.03
"""Answers are written to a store before the block is complete if they took this long."""


class StreamedTeacher:
    """A teacher that is asked about one block after the other.

    The batches of a block do not depend on other blocks: some models answer in other last digits if they get
    other batches, and a block must have the same logits on every machine and after every stop.

    Parameters
    ----------
    teacher : Teacher
    source : Rows
        Of the rows. The first of them show how to read the teacher's scores.
    batch_size : int
        Most rows per call.
    store : ScoreStore, optional
        Where outputs are kept, rounded to single precision.

    Attributes
    ----------
    by_position : bool
        Whether the teacher holds the outputs of the rows of one X: it is not asked.
    """

    def __init__(
        self, teacher: Teacher, source: Rows, *, batch_size: int, store: ScoreStore | None = None
    ) -> None:
        check_takes_blocks(teacher)
        self.by_position = teacher.part(slice(0, 0)) is not None
        self.teacher, self.source = teacher, source
        self._batch_size = batch_size
        self._shelf: Shelf | None = None
        if self.by_position:
            teacher.check_rows(source)
            return
        if len(source):
            teacher.settle(some_rows(source.head, slice(0, min(SETTLE, batch_size))))
        if store is not None and teacher.fingerprint is not None:
            self._shelf = store.shelf(teacher.fingerprint, len(teacher.classes), teacher.name)

    @property
    def stores(self) -> bool:
        """Whether outputs are kept, and rows must be told apart by their digests."""
        return self._shelf is not None

    def score(
        self, block: Block, digests: NDArray[np.uint64] | None, progress: Progress = silent
    ) -> NDArray[np.float32]:
        """Return the logits (b, k) of a block.

        Parameters
        ----------
        block : Block
        digests : (b, 2) array or None
            Of its rows; None if rows have no plain content.
        progress : callable
            Called with ("scoring", rows done, rows of the block).
        """
        part = self.teacher.part(block.rows) if self.by_position else None
        if part is not None:
            try:
                return as_float32(part.predict_logits(block.X))[0]
            except InvalidInputError as error:  # the part knows its own rows only
                raise error.moved(block.rows.start) from error.__cause__
        if self._shelf is None or digests is None:
            return self._ask(block, progress)
        found = self._shelf.block(digests, dtype=np.float32)
        if found is not None:
            return np.asarray(found.logits, dtype=np.float32)
        return self._look_up_and_ask(block, digests, self._shelf, progress)

    def _ask(self, block: Block, progress: Progress) -> NDArray[np.float32]:
        rows = block.rows.stop - block.rows.start
        logits = np.empty((rows, len(self.teacher.classes)), np.float32)
        pace, done = Pace(self._batch_size), 0
        batches = (
            Batch(slice(start, stop), stop - start, some_rows(block.X, slice(start, stop)), block.rows.start)
            for start, stop in pace.borders(rows)
        )
        for batch, seen in ask_batches(self.teacher, batches, rows, pace, embeddings=False):
            logits[batch.places] = as_float32(seen.logits)[0]
            done += batch.count
            progress("scoring", done, rows)
        return logits

    def _look_up_and_ask(
        self, block: Block, digests: NDArray[np.uint64], shelf: Shelf, progress: Progress
    ) -> NDArray[np.float32]:
        """Take what the store has of a block, ask for the rest, and store the block as one segment."""
        logits = np.empty((len(digests), len(self.teacher.classes)), np.float32)
        unique, rounded = Unique(digests), False
        for places, found in shelf.find(unique.digests, embeddings=False, dtype=np.float32):
            logits[unique.first[places]] = found.logits
            unique.known[places] = True
            rounded = rounded or found.rounded is not False
        missing = np.sort(unique.first[~unique.known])
        pace, done = Pace(self._batch_size), len(unique.first) - len(missing)
        batches = picked(block.X, missing, pace, block.rows.start)
        with _Unwritten(shelf) as unwritten:
            for batch, seen in ask_batches(self.teacher, batches, len(missing), pace, embeddings=False):
                values, lossy = as_float32(seen.logits)
                rounded = rounded or lossy
                logits[batch.places] = values
                unwritten.add(Segment(digests[batch.places], values, None, rounded=lossy))
                done += batch.count
                progress("scoring", done, len(unique.first))
        logits = logits[unique.first[unique.inverse]]
        shelf.merge(Segment(digests, logits, None, rounded=rounded), embeddings=False, dtype=np.float32)
        return logits


def check_takes_blocks(teacher: Teacher) -> None:
    """Raise if a teacher can only be asked about all rows at once."""
    if not teacher.batched and teacher.part(slice(0, 0)) is None:
        raise TeacherError(
            teacher.name,
            "wants all rows at once (batched = False), and X is read block by block. Give rows that fit "
            "in memory, or a teacher that takes batches.",
        )


class _Unwritten:
    """Answers on rows of a block that are not in the store yet: a context.

    A batch is written at once, unless it came so quickly that to write it would take longer than to ask for
    it again: such batches wait for each other. So a killed process loses a batch, or less than
    `WRITE_SECONDS` of work. An error writes what there is.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf, self._parts, self._since = shelf, list[Segment](), time.perf_counter()

    def __enter__(self) -> _Unwritten:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:
            self._write()

    def add(self, segment: Segment) -> None:
        self._parts.append(segment)
        if time.perf_counter() - self._since >= WRITE_SECONDS:
            self._write()

    def _write(self) -> None:
        if self._parts:
            digests, logits = (
                [getattr(part, name) for part in self._parts] for name in ("digests", "logits")
            )
            rounded = any(part.rounded for part in self._parts)
            joined = Segment(np.concatenate(digests), np.concatenate(logits), None, rounded=rounded)
            self._shelf.add(joined, embeddings=False, dtype=np.float32)
        self._parts, self._since = [], time.perf_counter()


def score_blocks(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    source: Rows,
    *,
    batch_size: int = 4096,
    store: ScoreStore | None = None,
    progress: Progress = silent,
) -> Iterator[BlockScores]:
    """Yield the number and the packed logits (b, m) of every block, in order.

    Parameters
    ----------
    teachers : sequence of Teacher
        In the order of the blocks of `space`.
    space : LabelSpace
    source : Rows
    batch_size : int
        Rows per call of a teacher, at most.
    store : ScoreStore, optional
        Where outputs are kept: rows in it are not scored again, and a run that was stopped goes on there.
    progress : callable
        Called with ("scoring", rows done, rows in all), counted over all teachers.
    """
    check_count("batch_size", batch_size)
    asked = open_streams(teachers, source, batch_size=batch_size, store=store)
    total, done = len(source) * len(teachers), 0
    for block in source.blocks():
        rows = block.rows.stop - block.rows.start
        digests = row_digests(block.X) if any(one.stores for one in asked) else None
        packed = np.empty((rows, space.n_columns), np.float32)
        for i, one in enumerate(asked):
            try:
                packed[:, space.block(i)] = one.score(block, digests, _after(progress, done, rows, total))
            except TeacherError as error:
                raise error.at(i, len(teachers)) from error.__cause__
            done += rows
            progress("scoring", done, total)
        yield block.number, packed


def open_streams(
    teachers: Sequence[Teacher], source: Rows, *, batch_size: int, store: ScoreStore | None
) -> list[StreamedTeacher]:
    """Make teachers ready to be asked by blocks; an error names the teacher's place."""
    opened = []
    for i, teacher in enumerate(teachers):
        try:
            opened.append(StreamedTeacher(teacher, source, batch_size=batch_size, store=store))
        except TeacherError as error:
            raise error.at(i, len(teachers)) from error.__cause__
    return opened


def _after(progress: Progress, before: int, rows: int, of: int) -> Progress:
    """Return the progress of one teacher on one block, as that of all."""

    def report(task: str, done: int, total: int) -> None:
        progress(task, before + done * rows // max(1, total), of)

    return report
