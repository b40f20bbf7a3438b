"""Run teachers on rows: in batches, in several processes, on Ray, with a cache of what they said."""

from consilience.scoring.blocks import Asked, observe, score, score_blocks
from consilience.scoring.ray import RayOptions, engine_options
from consilience.scoring.store import ScoreStore, as_store, with_open_cache

__all__ = [
    "Asked",
    "RayOptions",
    "ScoreStore",
    "as_store",
    "engine_options",
    "observe",
    "score",
    "score_blocks",
    "with_open_cache",
]
