"""Rank: which of many teachers would help with a task, without training on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._lazy import lazy

if TYPE_CHECKING:
    from consilience.rank.rank import rank_teachers
    from consilience.rank.ranking import RankedTeacher, Ranking

__all__ = [
    "RankedTeacher",
    "Ranking",
    "rank_teachers",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "RankedTeacher": "ranking",
        "Ranking": "ranking",
        "rank_teachers": "rank",
    },
)
