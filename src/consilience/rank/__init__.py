"""Rank: which of many teachers would help with a task, without training on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy

if TYPE_CHECKING:
    from consilience.rank.options import (
        GBC,
        LEEP,
        NCE,
        NLEEP,
        OTCE,
        HScore,
        LogME,
        Own,
        Transport,
        TransRate,
    )
    from consilience.rank.rank import rank_teachers
    from consilience.rank.ranking import RankedTeacher, Ranking

_METRICS = ("GBC", "LEEP", "NCE", "NLEEP", "OTCE", "HScore", "LogME", "Own", "TransRate", "Transport")
__all__ = [
    "GBC",
    "LEEP",
    "NCE",
    "NLEEP",
    "OTCE",
    "HScore",
    "LogME",
    "Own",
    "RankedTeacher",
    "Ranking",
    "TransRate",
    "Transport",
    "rank_teachers",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(_METRICS, "options"),
        "RankedTeacher": "ranking",
        "Ranking": "ranking",
        "rank_teachers": "rank",
    },
)
