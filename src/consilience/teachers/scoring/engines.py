"""Where teachers run: on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from consilience._progress import Progress, silent
from consilience._validation import check_choice
from consilience.exceptions import InvalidInputError
from consilience.labels import LabelSpace
from consilience.sources import Source
from consilience.sources.ray import RaySource
from consilience.teachers import Teacher
from consilience.teachers.scoring.ray import score_on_ray
from consilience.teachers.scoring.ray_options import read_options
from consilience.teachers.scoring.ray_worker import Finish
from consilience.teachers.scoring.store import ScoreStore
from consilience.teachers.scoring.stream import BlockScores, score_blocks

ENGINES = ("local", "ray")


class BlockEngine(Protocol):
    """Yields the number and the packed logits (b, m) of every block, in any order."""

    def __call__(
        self,
        teachers: Sequence[Teacher],
        space: LabelSpace,
        source: Source,
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


def engine_for(engine: str, options: Mapping[str, Any] | None, source: Source | None = None) -> BlockEngine:
    """Return what scores blocks. Rows that Ray holds are always scored on Ray."""
    if engine == "ray" or isinstance(source, RaySource):
        return partial(score_on_ray, options=read_options(options))
    return _score_here


def _score_here(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    source: Source,
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
