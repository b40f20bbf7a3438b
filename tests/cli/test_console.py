"""What the terminal shows."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("rich")

from consilience import LabelSpace
from consilience.cli import console

DEMO: dict[str, Any] = {
    "sites": [
        {
            "name": "north",
            "model": "SVM",
            "rows": 80,
            "classes": ["zero", "one"],
            "own_accuracy": 0.9,
            "accuracy": 0.2,
        }
    ],
    "variants": [
        {"name": "SD", "family": "E", "accuracy": 0.81, "label_accuracy": 0.79, "seconds": 1.0},
        {"name": "CE-BP", "family": "BP", "accuracy": 0.91, "label_accuracy": None, "seconds": 2.0},
    ],
    "disjoint": {
        "sites": [
            {
                "name": "low",
                "model": "SVM",
                "rows": 80,
                "classes": ["zero", "one"],
                "own_accuracy": 0.9,
                "accuracy": 0.2,
            }
        ],
        "variants": [
            {"name": "AUTO", "family": "BS", "accuracy": 0.853, "label_accuracy": 0.8, "seconds": 1.0}
        ],
    },
    "best": "CE-BP",
    "supervised": 0.975,
    "supervised_seconds": 1.5,
    "n_transfer": 477,
    "sentences": ["What [happened]."],
    "seconds": 30.2,
    "seed": 4,
}


def test_demo_table(capsys: pytest.CaptureFixture[str]) -> None:
    console.show_demo(DEMO)
    out = capsys.readouterr().out
    for expected in ("north", "zero, one", "81.0%", "79.0%", "97.5%", "- What [happened].", "30 seconds"):
        assert expected in out


def test_messages_are_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.show_warning("two\nlines [bold]" + " long" * 60)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Warning: two lines [bold] long")
    assert captured.err.count("\n") == 1


def test_no_bars_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress_bars() as progress:
        progress("scoring", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_bars_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with console.progress_bars() as progress:
        progress("scoring", 1, 2)
        progress("scoring", 3, 4)  # the total may change
        progress("training", 5, 9)
    captured = capsys.readouterr()
    assert captured.out == ""
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", captured.err)
    last = dict(re.findall(r"(\w+)\W+(\d/\d)", shown))
    assert last == {"scoring": "3/4", "training": "5/9"}


def test_quiet_shows_no_bars(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with console.progress_bars(quiet=True) as progress:
        progress("scoring", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_space_view_counts_shared_classes() -> None:
    space = LabelSpace(
        [["a", "b", "c"], ["c", "d"], ["e", "f"]], names=["x", "y", "z"], disconnected="ignore"
    )
    view = console.space_view(space, ["onnx", "npy", "npz"])
    assert view["overlaps"] == [[3, 1, 0], [1, 2, 0], [0, 0, 2]]
    assert view["only_one_teacher"] == {"x": ["a", "b"], "y": ["d"], "z": ["e", "f"]}
    assert view["components"] == [["a", "b", "c", "d"], ["e", "f"]]


def test_one_teacher_shares_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    console.show_space(console.space_view(LabelSpace([["a", "b"]], names=["x"]), ["npy"]))
    out = capsys.readouterr().out
    assert "2 classes from 1 teacher" in out
    assert "Shared classes" not in out
    assert "Only x knows" not in out


@pytest.mark.parametrize(("n_teachers", "has_matrix"), [(2, True), (12, True), (13, False)])
def test_many_teachers_have_no_matrix(
    n_teachers: int, has_matrix: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    space = LabelSpace([["a", "b"]] * n_teachers)
    console.show_space(console.space_view(space, ["npy"] * n_teachers))
    out = capsys.readouterr().out
    assert ("Shared classes" in out) == has_matrix
    assert "At least two teachers know every class." in out


def test_a_pipe_is_wide_and_a_terminal_keeps_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert console.console().width == console.WIDTH
    monkeypatch.setenv("COLUMNS", "200")
    assert console.console().width == 200
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    assert console.console().width == 60
