"""The pictures of the site are what their code draws, and can be read in light and dark."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs" / "figures").glob("*.svg")), ids=lambda path: path.stem
)
def test_a_picture_is_what_its_code_draws(picture: Path) -> None:
    from docs.figures.__main__ import FIGURES

    drawn, kept = FIGURES[picture.name](), picture.read_text(encoding="utf8")
    assert NUMBER.sub("#", drawn) == NUMBER.sub("#", kept), "run python -m docs.figures"
    # another machine's arithmetic may move a point by the last digit that is written
    found = [[float(number) for number in NUMBER.findall(text)] for text in (drawn, kept)]
    assert found[0] == pytest.approx(found[1], abs=0.21)


def test_every_picture_is_kept_and_says_what_it_shows() -> None:
    from docs.figures.__main__ import FIGURES

    assert {path.name for path in (ROOT / "docs" / "figures").glob("*.svg")} == set(FIGURES)
    for name in FIGURES:
        text = (ROOT / "docs" / "figures" / name).read_text(encoding="utf8")
        assert "<title>" in text
        assert "prefers-color-scheme:dark" in text
