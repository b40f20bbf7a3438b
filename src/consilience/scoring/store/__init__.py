"""Outputs of teachers on disk, so that no teacher is asked twice about the same row.

A store is a folder. It holds a folder per teacher (a shelf), named by the fingerprint of its content. In it
are segments: files of rows, where each row is found by a digest of its content. A changed teacher has another
fingerprint and a changed row another digest, so nothing ever goes out of date.
"""

from __future__ import annotations

from consilience.scoring.store.score_store import ScoreStore, as_store
from consilience.scoring.store.segments import BLOCK_ROWS, Segment, as_float32
from consilience.scoring.store.shelf import Shelf

__all__ = ["BLOCK_ROWS", "ScoreStore", "Segment", "Shelf", "as_float32", "as_store"]
