"""``consilience evaluate``: the same figures as `Unifier.evaluate`, from files."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import refused, run, view_of

from consilience import Unifier, as_teacher
from consilience.inspect.evaluate import evaluate_teacher


@pytest.fixture(scope="module")
def folder(irises: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A unified model, what its two teachers say, and labelled rows, two of them without a label."""
    pytest.importorskip("skl2onnx")
    root = tmp_path_factory.mktemp("files")
    shutil.copytree(irises, root, dirs_exist_ok=True)
    teachers = [root / "early.npz", root / "late.npz"]
    Unifier(teachers, "logistic", random_state=0).fit(np.load(root / "X.npy")).save(root / "unified.onnx")
    (root / "roses.csv").write_text("label\n" + "rose\n" * 150)
    (root / "y.csv").write_text("label\n" + "\n".join(["", "", *np.load(root / "y.npy")[2:]]) + "\n")
    return root


def test_it_says_what_evaluate_says(folder: Path) -> None:
    files = ("--data", folder / "X.npy", "--labels", folder / "y.csv")
    teachers = ("-t", folder / "early.npz", "-t", folder / "late.npz")
    view = view_of("evaluate", folder / "unified.onnx", *files, *teachers, "--student", "logistic")
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy").astype(object)
    y[:2] = None
    opened = [as_teacher(folder / name) for name in ("unified.onnx", "early.npz", "late.npz")]
    expected = evaluate_teacher(
        opened[0], X, y, teachers=opened[1:], labels_only=True, student="logistic", random_state=0
    )
    assert view == {"model": str(folder / "unified.onnx"), **expected.to_dict(), "seed": 0, "warnings": []}
    assert view["n_unlabelled"] == 2
    assert [row["kind"] for row in view["compared"]] == ["vote", "labels only", "teacher", "teacher"]
    shown = run("evaluate", folder / "unified.onnx", *files, *teachers).stdout
    assert "148 rows of 3 classes, and 2 without a label, left out" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--student", "tree"], "--student 'tree' is unknown"),
        (["--bins", "0"], "--bins 0 must be"),
        (["--folds", "1"], "--folds 1 must be"),
        (["--confidence", "2"], "--confidence 2.0 must be below 1"),
        (["-t", "none.onnx"], "none.onnx"),
        (["--labels", "roses.csv"], "--labels"),
        (["--labels", "roses.csv"], "rose"),
    ],
)
def test_mistakes_are_one_sentence(
    folder: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    files = ("--data", folder / "X.npy", "--labels", folder / "y.csv")
    assert message in refused("evaluate", folder / "unified.onnx", *files, *options)
