"""The old way to score blocks, until distil has moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from consilience.exceptions import TeacherError
from consilience.labels import LabelSpace
from consilience.rows import Rows
from consilience.run import Progress, Run, silent
from consilience.scoring import blocks
from consilience.scoring.blocks import BlockScores as BlockScores
from consilience.teachers import Teacher


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
    store: Any = None,
    progress: Progress = silent,
) -> Iterator[BlockScores]:
    """See `consilience.scoring.score_blocks`."""
    run = Run(rows_per_call=batch_size, cache=store, progress=progress)
    return blocks.score_blocks(teachers, space, source, run)
