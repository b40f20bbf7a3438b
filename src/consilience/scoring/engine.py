"""The old ways into `consilience.scoring`, until unify and distil have moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.labels import LabelSpace
from consilience.rows import as_rows
from consilience.run import Progress, Run, silent
from consilience.scoring import blocks
from consilience.teachers import Observed, Teacher


def observe(
    teacher: Teacher,
    X: Any,
    *,
    batch_size: int = 4096,
    store: Any = None,
    embeddings: bool = True,
    progress: Progress = silent,
) -> Observed:
    """See `consilience.scoring.observe`."""
    run = Run(rows_per_call=batch_size, cache=store, progress=progress)
    run.check_options()
    return blocks.observe(teacher, as_rows(X), run, embeddings)


def score(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    X: Any,
    *,
    batch_size: int = 4096,
    store: Any = None,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """See `consilience.scoring.score`."""
    run = Run(rows_per_call=batch_size, cache=store, progress=progress)
    return np.asarray(blocks.score(teachers, space, as_rows(X), run), np.float64)
