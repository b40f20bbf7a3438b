"""Verdicts on the papers' claims follow from the result files, by the rules that the pages state."""

import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.evidence import claims, pages, uhc
from benchmarks.evidence.__main__ import main
from benchmarks.papers import records


def check(*met: bool, trials: int = 9) -> claims.Check:
    return claims.Check("digits", trials, "3 points", {f"c{i}": one for i, one in enumerate(met)})


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([check(True, True), check(True)], "holds"),
        ([check(True, False), check(True)], "holds partly"),
        ([check(True), check(False)], "holds partly"),
        ([check(True, False, False)], "does not hold here"),
        ([check(True), check(False, trials=4)], "holds"),
        ([check(False, trials=4)], "not decided: too few trials"),
        ([], "not tried here"),
    ],
)
def test_a_verdict_counts_comparisons_of_enough_trials(checks: list[claims.Check], verdict: str) -> None:
    assert claims.Claim("A title", "Table 1", "Words.", "9 points.", "a rule.", checks).verdict == verdict


def test_above_needs_five_trials_and_a_clear_difference() -> None:
    high = np.array([0.8, 0.9, 0.7, 0.8, 0.9, 0.7])
    assert claims.above(high, high - 0.1)
    assert not claims.above(high - 0.1, high)
    assert not claims.above(high, high)
    assert not claims.above(high[:4], high[:4] - 0.1)
    assert not claims.above(high, high + np.array([0.1, -0.1] * 3))


def test_users_make_the_pages_from_their_own_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, output = tmp_path / "own", tmp_path / "pages"
    with pytest.raises(SystemExit):
        main(["--results", str(own), "--output", str(output)])
    assert "has no result files" in capsys.readouterr().err
    own.mkdir()
    shutil.copy(records.FOLDER / uhc.FILE, own)
    assert main(["--results", str(own), "--output", str(output)]) == 0
    assert "(#all-proposed-methods-beat-sd) | Table 2" in (output / "uhc.md").read_text(encoding="utf-8")
    assert "No trials yet." in (output / "sctd.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["--results", str(own), "--output", str(pages.FOLDER)])


def test_every_anchor_of_the_pages_is_a_heading() -> None:
    for name in pages.PAPERS:
        text = (pages.FOLDER / f"{name}.md").read_text(encoding="utf-8")
        headings = {claims.anchor(line.lstrip("# ")) for line in text.splitlines() if line.startswith("#")}
        linked = {part.partition(")")[0] for part in text.split("](#")[1:]}
        assert linked
        assert linked <= headings
