"""What the terminal shows, and the files that the command line reads and writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rich")

from consilience import InvalidInputError, LabelSpace, _console

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
    "best": "CE-BP",
    "supervised": 0.975,
    "supervised_seconds": 1.5,
    "n_transfer": 477,
    "sentences": ["What [happened]."],
    "seconds": 30.2,
    "seed": 4,
}


def test_demo_table(capsys: pytest.CaptureFixture[str]) -> None:
    _console.show_demo(DEMO)
    out = capsys.readouterr().out
    for expected in ("north", "zero, one", "81.0%", "79.0%", "97.5%", "- What [happened].", "30 seconds"):
        assert expected in out


def test_messages_are_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    _console.show_warning("two\nlines [bold]" + " long" * 60)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Warning: two lines [bold] long")
    assert captured.err.count("\n") == 1


def test_no_bars_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with _console.progress_bars() as progress:
        progress("scoring", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_bars_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with _console.progress_bars() as progress:
        progress("scoring", 1, 2)
        progress("scoring", 2, 2)
    captured = capsys.readouterr()
    assert "scoring" in captured.err
    assert captured.out == ""


def test_space_view_counts_shared_classes() -> None:
    space = LabelSpace(
        [["a", "b", "c"], ["c", "d"], ["e", "f"]], names=["x", "y", "z"], disconnected="ignore"
    )
    view = _console.space_view(space, ["onnx", "npy", "npz"])
    assert view["overlaps"] == [[3, 1, 0], [1, 2, 0], [0, 0, 2]]
    assert view["only_one_teacher"] == {"x": ["a", "b"], "y": ["d"], "z": ["e", "f"]}
    assert view["components"] == [["a", "b", "c", "d"], ["e", "f"]]


def test_many_teachers_have_no_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    space = LabelSpace([["a", "b"]] * 13)
    _console.show_space(_console.space_view(space, ["npy"] * 13))
    out = capsys.readouterr().out
    assert "Shared classes" not in out
    assert "Every class is known to two teachers or more." in out


@pytest.mark.parametrize("header", ["", "a,b\n"])
def test_csv_with_and_without_header(header: str, tmp_path: Path) -> None:
    path = tmp_path / "X.csv"
    path.write_text(f"{header}1,2.5\n3,-4e2\n")
    assert _console.read_rows(path, "--data").tolist() == [[1, 2.5], [3, -400]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2\n3\n", "line 2 has 1 columns and the first has 2"),
        ("a,b\n1,x\n", "line 2 has 'x', which is no number"),
        ("a,b\n", "a header and no rows"),
        ("", "it is empty"),
    ],
)
def test_csv_that_is_no_table(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "X.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=expected):
        _console.read_rows(path, "--data")


def test_parquet_rows(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=["r", "s"])
    frame.to_parquet(tmp_path / "X.parquet")
    assert _console.read_rows(tmp_path / "X.parquet", "--data").tolist() == [[1, 3], [2, 4]]


def test_npz_without_rows_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "X.npz", a=[1.0], b=[2.0])
    with pytest.raises(InvalidInputError, match="it has a, b; expected an array X"):
        _console.read_rows(tmp_path / "X.npz", "--data")


def test_labels_keep_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "y.csv"
    path.write_text('y\n3\n""\n7\n')
    assert _console.read_labels(path, 3, "--labels").tolist() == [3, None, 7]
    with pytest.raises(InvalidInputError, match=r"has shape \(3,\); expected \(4,\)"):
        _console.read_labels(path, 4, "--labels")


def test_classes_from_files(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("cat\n\ndog\n")
    (tmp_path / "list.json").write_text('["1", "2"]')
    given = [f"a=@{tmp_path / 'lines.txt'}", f"b=@{tmp_path / 'list.json'}", "c=1, 2"]
    parsed = _console.parse_classes(given, ["a", "b", "c"])
    assert parsed == {"a": ["cat", "dog"], "b": ["1", "2"], "c": [1, 2]}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "q.npy"
    path.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        _console.write_soft_labels(path, np.ones((1, 1)), np.array(["a"]))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
