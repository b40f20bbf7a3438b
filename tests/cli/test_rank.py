"""``consilience rank``, as a new user meets it."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from tests.cli.running import refused, run, view_of

from consilience.cli.verbs import write_ranking
from consilience.exceptions import InvalidInputError
from consilience.rank import rank as ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    X, y = load_digits(return_X_y=True)
    rows = np.flatnonzero(y >= 5)
    train, rows = rows[::2], rows[1::4]
    names = np.array(["five", "six", "seven", "eight", "nine"])[y[rows] - 5]
    np.save(root / "X.npy", X[rows])
    np.save(root / "y.npy", names)
    gap = names.astype(object)
    gap[3] = ""
    (root / "gap.csv").write_text("label\n" + "\n".join(f'"{label}"' for label in gap) + "\n")
    for name, known in (("all", y[train] >= 5), ("two", y[train] >= 8)):
        model = LogisticRegression(max_iter=300).fit(X[train][known] / 16, y[train][known])
        np.savez(root / f"{name}.npz", proba=model.predict_proba(X[rows] / 16), classes=model.classes_)
    np.savez(root / "constant.npz", proba=np.tile([0.3, 0.7], (len(rows), 1)), classes=np.array(["a", "b"]))
    np.save(root / "minus.npy", np.where(np.arange(len(rows)) < 9, -1, y[rows]))
    np.save(root / "one.npy", np.where(np.arange(len(rows)) < 9, -1, 1))
    np.savez(root / "short.npz", proba=np.full((3, 2), 0.5), classes=np.array(["a", "b"]))
    return root


def files(folder: Path, *names: str) -> list[object]:
    given: list[object] = ["--data", folder / "X.npy", "--labels", folder / "y.npy"]
    for name in names:
        given += ["--teacher", folder / f"{name}.npz"]
    return given


def test_the_teacher_of_the_same_digits_is_best_and_the_constant_one_last(
    folder: Path, tmp_path: Path
) -> None:
    table = tmp_path / "ranking.csv"
    options = (*files(folder, "two", "constant", "all"), "--metric", "transport", "--metric", "leep")
    view = view_of("rank", *options, "--csv", table)
    assert [row["name"] for row in view["teachers"]] == ["all", "two", "constant"]
    best, second, last = view["teachers"]
    assert best["interval"][0] < best["score"] < best["interval"][1]
    assert best["wins"] == 1.0
    assert best["scores"]["leep"] > second["scores"]["leep"]
    assert last["score"] is None
    assert last["error"] == "gives the same answer for every row."
    with table.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["teacher"] for line in lines] == ["all", "two", "constant"]
    assert float(lines[1]["leep"]) == second["scores"]["leep"]
    shown = run("rank", *options)
    assert shown.stdout.index("all") < shown.stdout.index("two") < shown.stdout.index("constant")
    assert f"{best['score']:.4g}" in shown.stdout
    assert shown.stderr == ""


def test_a_line_of_the_csv_file_has_every_figure_of_a_teacher(tmp_path: Path) -> None:
    good = {
        "rank": 1, "name": "b, c", "score": 0.1234567, "interval": [0.1, 0.2], "wins": 0.75, "seconds": 1.5,
        "scores": {"leep": 0.1234567, "nce": -3.0}, "warnings": ["is rare.", "is slow."], "error": None,
    }  # fmt: skip
    nothing = {"score": None, "interval": [None, None], "wins": None, "scores": {}, "warnings": []}
    bad = {"rank": 2, "name": "\u00e9", "seconds": 0.5, "error": "is constant."} | nothing
    write_ranking(tmp_path / "r.csv", {"metric": "leep", "teachers": [good, bad]})
    assert (tmp_path / "r.csv").read_text(encoding="utf-8").splitlines() == [
        "rank,teacher,leep,low,high,wins,seconds,nce,warnings,error",
        '1,"b, c",0.1234567,0.1,0.2,0.75,1.5,-3.0,is rare.; is slow.,',
        "2,\u00e9,,,,,0.5,,,is constant.",
    ]


def test_the_layer_that_is_named_is_the_embedding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    graph = "zoo (float[n, 2] X) => (float[n, 2] out) { first = Relu (X) second = Neg (first) out = Abs (X) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 15]> {graph}')
    (tmp_path / "zoo.onnx").write_bytes(model.SerializeToString())
    X = np.array([[-3.0, 1.0], [2.0, -5.0], [0.5, 4.0], [1.0, 1.5]], dtype=np.float32)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", ["a", "b", "a", "b"])
    asked: dict[str, Any] = {}

    def stop(teachers: dict[str, Any], *_: object, **__: object) -> None:
        asked.update(teachers)
        raise InvalidInputError("Enough.")

    monkeypatch.setattr(ranks, "rank_teachers", stop)
    files = ("--data", tmp_path / "X.npy", "--labels", tmp_path / "y.npy", "--teacher", tmp_path / "zoo.onnx")
    for layer, expected in (("first", np.maximum(X, 0)), ("second", -np.maximum(X, 0))):
        run("rank", *files, "--classes", "zoo=cat,dog", "--embed", f"zoo={layer}")
        np.testing.assert_array_equal(asked["zoo"].embed(X), expected)
        assert asked["zoo"].classes.tolist() == ["cat", "dog"]


@pytest.mark.parametrize(("labels", "left_out"), [("gap.csv", 1), ("minus.npy", 9)])
def test_rows_without_a_label_are_left_out(folder: Path, labels: str, left_out: int) -> None:
    view = view_of("rank", *files(folder, "all"), "--labels", folder / labels)
    assert view["n_rows"] == len(np.load(folder / "X.npy")) - left_out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--metric", "logmi"], "--metric 'logmi' is unknown; use 'transport', "),
        (["--score", "eq24"], "--score 'eq24' is unknown"),
        (["--temperature", "0"], "--temperature 0.0 must be"),
        (["--bootstrap", "-1"], "--bootstrap -1 must be"),
        (["--labels", "one.npy"], "--labels has one class, 1; give labels of 2 classes or more"),
        (["--labels", "no.npy"], "does not exist"),
        (["--labels", "X.npy"], "--labels: X.npy has shape"),
        (["--teacher", "no.npz"], "no.npz cannot be read"),
        (["--teacher", "all.npz"], "is given twice"),
        (["--embed", "all"], "--embed all must be NAME=LAYER with the name of a teacher: all"),
        (["--embed", "al=first"], "--embed al must be NAME=LAYER with the name of a teacher: all"),
        (["--seed", "-1"], "--seed -1 must be a whole number of at least 0"),
        (["--csv", "table.txt"], "--csv writes .csv"),
    ],
)
def test_bad_input_exits_2_with_one_sentence(
    arguments: list[str], expected: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert expected in refused(
        "rank", "--data", "X.npy", "--labels", "y.npy", "--teacher", "all.npz", *arguments
    )
    assert sorted(folder.iterdir()) == before


def test_without_a_single_teacher_that_can_be_assessed_there_is_no_ranking(
    folder: Path, tmp_path: Path
) -> None:
    said = refused("rank", *files(folder, "constant", "short"), "--csv", tmp_path / "ranking.csv")
    assert list(tmp_path.iterdir()) == []
    assert said == "Error: No teacher could be scored. constant gives the same answer for every row.\n"
