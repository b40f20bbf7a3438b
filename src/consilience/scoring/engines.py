"""The old ways to score here or on Ray, until unify has moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.labels import LabelSpace
from consilience.rows import Rows, as_rows
from consilience.run import Progress, Run, silent
from consilience.scoring.blocks import BlockScores, Finish, score, score_blocks
from consilience.scoring.ray import engine_options
from consilience.teachers import Teacher

ENGINES = ("local", "ray")
BlockEngine = Callable[..., Iterator[BlockScores]]


def check_engine(engine: str, options: Mapping[str, Any] | None = None) -> None:
    """Raise unless the engine is known, and its options are."""
    run = Run(engine=engine, engine_options=options)
    run.check_options()
    engine_options(run)


def engine_for(engine: str, options: Mapping[str, Any] | None, source: Rows | None = None) -> BlockEngine:
    """Return what scores blocks. Rows that Ray holds are always scored on Ray."""

    def run_blocks(
        teachers: Sequence[Teacher],
        space: LabelSpace,
        source: Rows,
        *,
        batch_size: int = 4096,
        store: Any = None,
        progress: Progress = silent,
        finish: Finish | None = None,
    ) -> Iterator[BlockScores]:
        run = Run(
            rows_per_call=batch_size, cache=store, progress=progress, engine=engine, engine_options=options
        )
        return score_blocks(teachers, space, source, run, finish)

    return run_blocks


def score_rows(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    X: Any,
    *,
    engine: str = "local",
    options: Mapping[str, Any] | None = None,
    batch_size: int = 4096,
    store: Any = None,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Return the packed logits (n, m) of rows in memory."""
    run = Run(rows_per_call=batch_size, cache=store, progress=progress, engine=engine, engine_options=options)
    return np.asarray(score(teachers, space, as_rows(X), run), np.float64)
