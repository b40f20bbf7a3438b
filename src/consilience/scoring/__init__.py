"""Run teachers on rows: in batches, in several processes, on Ray, with a cache of what they said."""

from consilience.scoring.blocks import (
    Asked,
    observe,
    score,
    score_blocks,
    with_open_cache,
)
from consilience.scoring.store import ScoreStore, as_store

__all__ = [
    "Asked",
    "ScoreStore",
    "as_store",
    "observe",
    "score",
    "score_blocks",
    "with_open_cache",
]
