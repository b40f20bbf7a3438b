"""Score any number of rows: block by block, every teacher on every block.

Teachers are asked, and stored outputs are found, for one block at a time. So memory does not grow with the
number of rows, and rows are read once for all teachers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._validation import check_count
from consilience.exceptions import TeacherError
from consilience.labels import LabelSpace
from consilience.rows import Rows
from consilience.scoring.batches import SETTLE
from consilience.scoring.digests import row_digests
from consilience.scoring.engine import Asked, some_rows
from consilience.scoring.store import ScoreStore
from consilience.teachers import Teacher

BlockScores = tuple[int, NDArray[np.float32]]
"""The number of a block, and the packed logits (b, m) of its rows."""


def check_takes_blocks(teacher: Teacher) -> None:
    """Raise if a teacher can only be asked about all rows at once."""
    if not teacher.batched and teacher.part(slice(0, 0)) is None:
        raise TeacherError(
            teacher.name,
            "wants all rows at once (batched = False), and X is read block by block. Give rows that fit "
            "in memory, or a teacher that takes batches.",
        )


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
                report = _after(progress, done, rows, total)
                seen = one.observe(block, digests, embeddings=False, progress=report)
                packed[:, space.block(i)] = seen.logits
            except TeacherError as error:
                raise error.at(i, len(teachers)) from error.__cause__
            done += rows
            progress("scoring", done, total)
        yield block.number, packed


def open_streams(
    teachers: Sequence[Teacher], source: Rows, *, batch_size: int, store: ScoreStore | None
) -> list[Asked]:
    """Make teachers ready to be asked by blocks; an error names the teacher's place."""
    opened = []
    for i, teacher in enumerate(teachers):
        try:
            check_takes_blocks(teacher)
            if not teacher.settled and len(source) and teacher.part(slice(0, 0)) is None:
                teacher.settle(some_rows(source.head, slice(0, min(SETTLE, batch_size))))
            opened.append(Asked(teacher, source, batch_size=batch_size, store=store))
        except TeacherError as error:
            raise error.at(i, len(teachers)) from error.__cause__
    return opened


def _after(progress: Progress, before: int, rows: int, of: int) -> Progress:
    """Return the progress of one teacher on one block, as that of all."""

    def report(task: str, done: int, total: int) -> None:
        progress(task, before + done * rows // max(1, total), of)

    return report
