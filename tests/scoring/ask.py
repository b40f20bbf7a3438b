"""Ask teachers, for the tests of several rooms."""

from typing import Any

import numpy as np

from consilience.labels import LabelSpace
from consilience.rows import as_rows
from consilience.run import Run
from consilience.scoring import blocks
from consilience.teachers import Observed


def run_of(batch_size: int = 4096, store: Any = None, progress: Any = None) -> Run:
    return Run(rows_per_call=batch_size, cache=store, progress=progress)


def observe(teacher: Any, X: Any, *, embeddings: bool = True, **options: Any) -> Observed:
    return blocks.observe(teacher, as_rows(X), run_of(**options), embeddings)


def score(teachers: Any, space: LabelSpace, X: Any, **options: Any) -> np.ndarray:
    return blocks.score(teachers, space, as_rows(X), run_of(**options))


def score_blocks(teachers: Any, space: LabelSpace, rows: Any, **options: Any) -> Any:
    return blocks.score_blocks(teachers, space, rows, run_of(**options))
