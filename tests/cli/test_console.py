"""What the terminal shows: tables from the mappings that ``--json`` prints."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rich")

from consilience import LabelSpace
from consilience.cli import console, tables
from consilience.teachers.inputs import Input


def printed(parts: Any, capsys: pytest.CaptureFixture[str]) -> str:
    out = console.console()
    for part in parts:
        out.print(part, soft_wrap=isinstance(part, str))
    return " ".join(capsys.readouterr().out.split())


def view_of(lists: list[list[str]], names: list[str], inputs: Any = None) -> dict[str, Any]:
    space = LabelSpace(lists, names=names, disconnected="ignore")
    teachers = [SimpleNamespace(name=name, inputs=inputs, output="scores") for name in names]
    return tables.space_view(space, teachers, ["npy"] * len(names))


def test_a_space_counts_shared_classes(capsys: pytest.CaptureFixture[str]) -> None:
    view = view_of([["a", "b", "c"], ["c", "d"], ["e", "f"]], ["x[/]", "y", "z"])
    assert view["overlaps"] == [[3, 1, 0], [1, 2, 0], [0, 0, 2]]
    assert view["only_one_teacher"] == {"x[/]": ["a", "b"], "y": ["d"], "z": ["e", "f"]}
    assert view["components"] == [["a", "b", "c", "d"], ["e", "f"]]
    text = printed(tables.space(view), capsys)
    assert "x[/] 3 1 · y 1 2 · z · · 2" in text
    assert "Only x[/] knows a, b." in text
    assert "2 components, which share no classes: a, b, c, d e, f Their outputs" in text


@pytest.mark.parametrize(("n_teachers", "has_matrix"), [(1, False), (2, True), (12, True), (13, False)])
def test_a_few_teachers_have_a_matrix(
    n_teachers: int, has_matrix: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    view = view_of([["a", "b"]] * n_teachers, [f"x{i}" for i in range(n_teachers)])
    assert ("Shared classes" in printed(tables.space(view), capsys)) == has_matrix


def test_many_inputs_of_a_model_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    inputs = tuple(Input(f"c{i}", "float32", (None, 1)) for i in range(25))
    text = printed(tables.space(view_of([["a", "b"]], ["x"], inputs)), capsys)
    assert "x c0 float32 n x 1 scores (n x 2) c1 float32" in text
    assert "c19 float32 n x 1 and 5 more" in text


UNIFIED: dict[str, Any] = {
    "teachers": [{"name": "[x]", "kind": "npy", "n_classes": 2, "abstentions": 1, "temperature": 1.5}],
    "n_classes": 2, "classes": ["a", "b"], "n_rows": 9, "n_labels": 3, "method": "auto",
    "pool_weights": {"ce": 0.25, "ranks": 0.75}, "neighbor_weight": 0.4, "calibrated": True,
    "off_set": False, "balanced": True, "student": "LogisticRegression", "encoding": None,
    "seconds": {"scoring": 1.0, "training": 2.0}, "accuracy": 0.5, "n_test": 4, "out": "u.onnx",
    "soft_labels": None, "report": None,
}  # fmt: skip


def test_a_unified_model(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(tables.unified(UNIFIED), capsys)
    assert "[x] npy 2 1 of 9 rows 1.50" in text
    assert "method auto (ce 25%, ranks 75%), calibrated, neighbours 40%, balanced" in text
    assert "accuracy 50.0% of 4 test rows model u.onnx" in text
    assert "soft labels " not in text
    encoding = {f"column {i}": "a number" for i in range(23)}
    more = UNIFIED | {"encoding": encoding, "calibrated": False, "student": None, "pool_weights": None}
    text = printed(tables.unified(more), capsys)
    assert "column 19 a number and 3 more" in text
    assert "none: only soft labels were asked for" in text
    assert "1.50" not in text


def test_a_cell_without_a_value_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a", "share": 0.5}, {"name": "[b]\x1b", "share": None}]
    console.console().print(console.table({"name": "{name}", ">share": "{share:.1%}"}, rows, bold=rows[:1]))
    assert " ".join(capsys.readouterr().out.split()).endswith("a 50.0% [b]\\x1b")


@pytest.mark.parametrize(
    ("environment", "width"),
    [
        ({"COLUMNS": "60"}, console.WIDTH),
        ({"COLUMNS": "200"}, 200),
        ({"COLUMNS": "60", "FORCE_COLOR": "1"}, 60),
    ],
)
def test_a_pipe_is_wide_and_a_terminal_keeps_its_width(
    environment: dict[str, str], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert console.console().width == width
