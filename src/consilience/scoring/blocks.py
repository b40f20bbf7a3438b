"""Score rows with teachers, block by block; what the cache knows is not asked.

Memory does not grow with the number of rows, and rows are read once for all teachers. A small array is one
block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._dataset_rows import read_rows
from consilience._progress import Progress, silent
from consilience._validation import take_rows
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.labels import LabelSpace
from consilience.rows import Block, Rows, as_rows, new_array
from consilience.rows.ray import RaySource
from consilience.run import Run
from consilience.scoring.batches import FIRST, SETTLE, Batch, Pace, ask, ask_batches
from consilience.scoring.digests import row_digests
from consilience.scoring.shelf import Shelf
from consilience.scoring.store import ScoreStore, as_store
from consilience.teachers import Observed, Teacher

BlockScores = tuple[int, NDArray[np.float32]]
"""The number of a block, and the packed logits (b, m) of its rows."""
Finish = Callable[[slice, NDArray[np.float32]], NDArray[np.float32]]
"""What to make of the packed logits (b, m) of a block where they are: from its rows and these to (b, c)."""


def score(teachers: Sequence[Teacher], space: LabelSpace, rows: Rows, run: Run) -> NDArray[np.float32]:
    """Return the packed logits (n, m) of all teachers, in single precision; see `score_blocks`."""
    packed = new_array((len(rows), space.n_columns), run)
    for number, logits in score_blocks(teachers, space, rows, run):
        packed[rows.rows_of(number)] = logits
    return packed


def score_blocks(
    teachers: Sequence[Teacher], space: LabelSpace, rows: Rows, run: Run, finish: Finish | None = None
) -> Iterator[BlockScores]:
    """Yield the number and the packed logits (b, m) of every block: in order, or on Ray as they are done.

    Parameters
    ----------
    teachers : sequence of Teacher
        In the order of the blocks of `space`. One with ``batched = False`` gets all rows at once.
    space : LabelSpace
    rows : Rows
        Those that Ray holds are always scored on Ray.
    run : Run
        Rows in its cache are not scored again, and a run that was stopped goes on there. Progress is told as
        ("scoring", rows done, rows in all), counted over all teachers.
    finish : callable, optional
        What to make of the logits of a block, on Ray in the worker; its result is yielded instead.
    """
    if run.engine == "ray" or isinstance(rows, RaySource):
        from consilience.scoring.ray import score_on_ray

        return score_on_ray(teachers, space, rows, run, finish)
    return score_here(teachers, space, rows, run, finish)


def score_here(
    teachers: Sequence[Teacher], space: LabelSpace, rows: Rows, run: Run, finish: Finish | None = None
) -> Iterator[BlockScores]:
    """Do what `score_blocks` does, in this process."""
    asked = open_teachers(teachers, rows, run, as_store(run.cache, run.cache_limit))
    total, done = len(rows) * len(teachers), 0
    for block in rows.blocks():
        count, packed = len_of(block), np.empty((len_of(block), space.n_columns), np.float32)
        digests = digests_of(block, asked)
        for i, one in enumerate(asked):
            with placed(i, len(teachers)):
                seen = one.observe(block, digests, after(run.report, done, count, total))
            packed[:, space.block(i)] = seen.logits
            done += count
            run.report("scoring", done, total)
        yield block.number, packed if finish is None else finish(block.rows, packed)


def observe(teacher: Teacher, rows: Any, run: Run, embeddings: bool = True) -> Observed:
    """Return a teacher's logits (n, k) and embeddings (n, d), of one pass over the rows.

    The values have single precision. Embeddings are None if the teacher has none, or they are not wanted.

    Parameters
    ----------
    teacher : Teacher
    rows : Rows, array, sparse matrix, data frame or list
        n rows.
    run : Run
        As for `score_blocks`, but the teacher is always asked on this machine.
    embeddings : bool
        Whether embeddings are wanted, too.
    """
    rows = as_rows(rows)
    asked = Asked(teacher, rows, run, as_store(run.cache, run.cache_limit), embeddings)
    table, progress = _Table(teacher, len(rows), embeddings, run, np.float64), run.report
    # no rows are asked about, too: they may be of a wrong kind
    for block in rows.blocks() if len(rows) else [Block(0, slice(0, 0), rows.given)]:
        seen = asked.observe(
            block, digests_of(block, [asked]), after(progress, block.rows.start, len_of(block), len(rows))
        )
        table.put(block.rows, seen)
    return table.seen


class Asked:
    """A teacher that is asked about one block after the other.

    The batches of a block do not depend on other blocks: some models answer in other last digits if they get
    other batches, and a block must have the same logits on every machine and after every stop.

    Parameters
    ----------
    teacher : Teacher
    rows : Rows
        All of them. The first show how to read the teacher's scores.
    run : Run
    store : ScoreStore, optional
        Where answers are kept. Not those of teachers without a fingerprint, or that hold the answers.
    embeddings : bool
        Whether embeddings are wanted, too.

    Attributes
    ----------
    held : bool
        Whether the answers for all rows are here: the teacher holds them, or it wants all rows at once.
    stores : bool
        Whether answers are kept, and rows must be told apart by their digests.
    """

    def __init__(
        self, teacher: Teacher, rows: Rows, run: Run, store: ScoreStore | None, embeddings: bool = False
    ) -> None:
        self.teacher, self._run, self._embeddings = teacher, run, embeddings
        self._shelf: Shelf | None = None
        self._whole: Observed | None = None
        self.held = teacher.part(slice(0, 0)) is not None
        if self.held:
            teacher.check_rows(rows.given)
        elif not teacher.batched:
            self._whole, self.held = ask(teacher, rows.all(run), len(rows), embeddings), True
        elif store is not None:
            # the rows that would decide without a cache: the fingerprint depends on it
            settle(teacher, rows, run)
            if teacher.fingerprint is not None:
                self._shelf = store.shelf(teacher.fingerprint, len(teacher.classes), teacher.name)
        self.stores = self._shelf is not None

    def observe(
        self, block: Block, digests: NDArray[np.uint64] | None, progress: Progress = silent
    ) -> Observed:
        """Return the logits (b, k) of a block in single precision, and its embeddings (b, d) if wanted.

        Parameters
        ----------
        block : Block
        digests : (b, 2) array or None
            Of its rows; None if rows have no plain content.
        progress : callable
            Called with ("scoring", rows done, rows of the block).
        """
        count = len_of(block)
        if self._whole is not None:
            return self._whole.take(block.rows)
        part = self.teacher.part(block.rows) if self.held else None
        if part is not None:
            try:
                return ask(part, block.X, count, self._embeddings)
            except InvalidInputError as error:  # the part knows its own rows only
                raise error.moved(block.rows.start) from error.__cause__
        table, missing = _Table(self.teacher, count, self._embeddings, self._run), np.arange(count)
        first, shelf = missing, self._shelf if digests is not None else None
        if shelf is not None and digests is not None:
            known, logits, features = shelf.find(digests, embeddings=self._embeddings)
            table.put(known, Observed(logits[known], None if features is None else features[known]))
            missing = np.flatnonzero(~known)
            first = missing[_first_of_each(digests[missing])]
            if not len(missing):
                return table.seen
        wanted, done = np.unique(first), count - len(missing)
        pace = Pace(self._run.rows_per_call, FIRST if self.teacher.settled else SETTLE)
        if done:
            progress("scoring", done, count)
        batches = _batches(self.teacher, block, wanted, pace)
        try:
            for batch, seen in ask_batches(
                self.teacher, batches, len(wanted), pace, embeddings=self._embeddings
            ):
                table.put(batch.places, seen)
                if shelf is not None and digests is not None:
                    shelf.add(digests[batch.places], seen, embeddings=self._embeddings)
                done += batch.count
                progress("scoring", done, count)
        finally:
            if shelf is not None:
                shelf.flush()
        if len(wanted) < len(missing):  # equal rows
            table.put(missing, table.seen.take(first))
            progress("scoring", count, count)
        return table.seen


def open_teachers(teachers: Sequence[Teacher], rows: Rows, run: Run, store: ScoreStore | None) -> list[Asked]:
    """Make teachers ready to be asked; an error names the teacher's place."""
    opened = []
    for i, teacher in enumerate(teachers):
        with placed(i, len(teachers)):
            opened.append(Asked(teacher, rows, run, store))
    return opened


def settle(teacher: Teacher, rows: Rows, run: Run) -> None:
    """Decide from the first rows how to read a teacher's scores, unless that is known."""
    if not teacher.settled and len(rows):
        teacher.predict_logits(read_rows(take_rows(rows.head, slice(0, min(SETTLE, run.rows_per_call)))))


def len_of(block: Block) -> int:
    """Return the number of rows of a block."""
    return int(block.rows.stop - block.rows.start)


def digests_of(block: Block, asked: Sequence[Asked]) -> NDArray[np.uint64] | None:
    """Return the digests of the rows of a block, if a teacher needs them."""
    return row_digests(block.X) if any(one.stores for one in asked) else None


@contextmanager
def placed(place: int, count: int) -> Iterator[None]:
    """Say which of `count` teachers an error is about."""
    try:
        yield
    except TeacherError as error:
        raise error.at(place, count) from error.__cause__


def after(progress: Progress, before: int, rows: int, of: int) -> Progress:
    """Return the progress of some rows, after others, as that of all."""

    def report(task: str, done: int, total: int) -> None:
        progress(task, before + done * rows // max(1, total), of)

    return report


class _Table:
    """Logits (n, k) and embeddings (n, d) of a teacher that are filled part by part."""

    def __init__(
        self, teacher: Teacher, rows: int, embeddings: bool, run: Run, dtype: type = np.float32
    ) -> None:
        self._name, self._run, self._empty = teacher.name, run, embeddings
        self._embeddings = embeddings
        self.logits = new_array((rows, len(teacher.classes)), run, dtype)
        self.features: NDArray[np.float32] | None = None

    @property
    def seen(self) -> Observed:
        """All of it."""
        return Observed(self.logits, self.features)

    def put(self, rows: Any, seen: Observed) -> None:
        """Fill some rows; all parts must have embeddings of one width, or none."""
        self.logits[rows] = seen.logits
        if not self._embeddings or (len(seen.logits) == 0 and len(self.logits)):
            return
        width = None if seen.embeddings is None else seen.embeddings.shape[1]
        if self._empty and width is not None:
            self.features = new_array((len(self.logits), width), self._run)
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


def _first_of_each(digests: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return for each row the first one that is like it."""
    _, first, which = np.unique(digests, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[which.ravel()])


def _batches(teacher: Teacher, block: Block, rows: NDArray[np.intp], pace: Pace) -> Iterator[Batch]:
    """Yield some rows of a block in order; at least one batch, so that no rows show errors, too."""
    if not len(rows):
        yield Batch(slice(0, 0), 0, block.X, block.rows.start)
    for start, stop in pace.borders(len(rows)):
        part: Any = rows[start:stop]
        if part[-1] - part[0] == stop - start - 1:
            part = slice(int(part[0]), int(part[-1]) + 1)  # a view, where X is an array
        X = block.X if stop - start == len_of(block) else take_rows(block.X, part)
        yield Batch(part, stop - start, read_rows(X), block.rows.start)
