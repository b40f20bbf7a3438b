"""Where teachers run: on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._validation import check_choice, n_rows
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.labels import LabelSpace
from consilience.rows import HeldRows, Rows
from consilience.rows.ray import RaySource
from consilience.scoring.engine import observe, score
from consilience.scoring.ray import score_on_ray
from consilience.scoring.ray_options import read_options
from consilience.scoring.ray_worker import Finish
from consilience.scoring.store import ScoreStore
from consilience.scoring.stream import BlockScores, score_blocks
from consilience.teachers import Teacher

ENGINES = ("local", "ray")


class BlockEngine(Protocol):
    """Yields the number and the packed logits (b, m) of every block, in any order."""

    def __call__(
        self,
        teachers: Sequence[Teacher],
        space: LabelSpace,
        source: Rows,
        *,
        batch_size: int = 4096,
        store: ScoreStore | None = None,
        progress: Progress = silent,
        finish: Finish | None = None,
    ) -> Iterator[BlockScores]:
        """Score all blocks; if `finish` is given, yield what it makes of the logits."""
        ...


def check_engine(engine: str, options: Mapping[str, Any] | None = None) -> None:
    """Raise unless the engine is known, and its options are."""
    check_choice("engine", engine, ENGINES)
    if engine == "local" and options:
        raise InvalidInputError(
            "{argument} are for {remedy}; drop them.", argument="engine_options", remedy=("engine", "ray")
        )
    read_options(options)


def engine_for(engine: str, options: Mapping[str, Any] | None, source: Rows | None = None) -> BlockEngine:
    """Return what scores blocks. Rows that Ray holds are always scored on Ray."""
    if engine == "ray" or isinstance(source, RaySource):
        return partial(score_on_ray, options=read_options(options))
    return _score_here


def _score_here(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    source: Rows,
    *,
    batch_size: int = 4096,
    store: ScoreStore | None = None,
    progress: Progress = silent,
    finish: Finish | None = None,
) -> Iterator[BlockScores]:
    for number, logits in score_blocks(
        teachers, space, source, batch_size=batch_size, store=store, progress=progress
    ):
        yield number, logits if finish is None else finish(source.rows_of(number), logits)


def score_rows(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    X: Any,
    *,
    engine: str = "local",
    options: Mapping[str, Any] | None = None,
    batch_size: int = 4096,
    store: ScoreStore | None = None,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Return the packed logits (n, m) of rows in memory; see `consilience.scoring.engine.score`."""
    if engine == "local":
        return score(teachers, space, X, batch_size=batch_size, store=store, progress=progress)
    packed, source, count = np.empty((n_rows(X), space.n_columns)), HeldRows(X), len(teachers)
    whole = [i for i, teacher in enumerate(teachers) if not teacher.batched]  # want all rows at once
    asked = [i for i in range(count) if i not in whole]
    try:
        for i in whole:
            packed[:, space.block(i)] = observe(teachers[i], X, embeddings=False).logits
        if not asked:
            return packed
        part = LabelSpace(
            [space.class_lists[i] for i in asked],
            names=[space.names[i] for i in asked],
            disconnected="ignore",
        )
        columns = np.concatenate([np.arange(space.n_columns)[space.block(i)] for i in asked])
        for number, logits in score_on_ray(
            [teachers[i] for i in asked],
            part,
            source,
            batch_size=batch_size,
            store=store,
            progress=progress,
            options=read_options(options),
        ):
            packed[source.rows_of(number), columns] = logits
    except TeacherError as error:
        named = [i for i, teacher in enumerate(teachers) if teacher.name == error.teacher]
        raise error.at(named[0], count) if len(named) == 1 else error from error.__cause__
    return packed
