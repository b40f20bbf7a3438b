"""`Ranking.report`: the page of a ranking."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("jinja2")

from consilience.rank.ranking import RankedTeacher, Ranking, ranking_page

ROWS = (
    RankedTeacher(None, "<b>best", -0.5, (-0.6, -0.4), 0.8, 0.1, (), None, {"leep": -0.5, "nce": -1.0}),
    RankedTeacher(
        None, "next", -0.7, (-0.8, -0.6), 0.2, 0.1, ("few rows",), None, {"leep": -0.7}, partial=True
    ),
    RankedTeacher(None, "broken", -math.inf, (math.nan, math.nan), math.nan, 0.0, (), "failed: no <i>file"),
)
RANKING = Ranking(ROWS, "leep", 300, 4, 0.95)


def test_the_page_has_scores_intervals_wins_and_failures(tmp_path: Path) -> None:
    page = ranking_page(RANKING)
    json.dumps(page, allow_nan=False)
    dots, table = page["sections"][0]["blocks"]
    assert dots["rows"][0] == ("<b>best", [[-0.5, -0.6, -0.4]])
    assert [head["title"] for head in table["columns"]] == [
        *("rank", "teacher", "leep", "low", "high", "wins", "nce", "seconds", ""),
    ]
    assert table["rows"][0][1:7] == ["<b>best", -0.5, -0.6, -0.4, 0.8, -1.0]
    assert [row[-1] for row in table["rows"]] == ["", "few rows", "failed: failed: no <i>file"]
    assert table["marked"] == [1]
    text = RANKING.report(tmp_path / "rank.html").read_text(encoding="utf8")
    assert "&lt;b&gt;best" in text
    assert "<b>best" not in text


def test_reasons_are_told_in_full() -> None:
    why = "failed: " + "word " * 50 + "\x1b[2J"
    page = ranking_page(Ranking((replace(ROWS[2], error=why),), "leep", 30, 2, 0.95))
    told = page["sections"][0]["blocks"][0]["rows"][0][-1]
    assert told == "failed: " + why.replace("\x1b", "\\x1b")


def test_a_ranking_without_resamples_or_without_any_score_has_a_page(tmp_path: Path) -> None:
    bare = RankedTeacher(None, "a", 0.5, (math.nan, math.nan), math.nan, 0.1, scores={"leep": 0.5})
    Ranking((bare,), "leep", 30, 2, 0.95).report(tmp_path / "bare.html")
    Ranking(ROWS[2:], "leep", 30, 2, 0.95).report(tmp_path / "failed.html")
