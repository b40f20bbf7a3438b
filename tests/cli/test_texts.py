"""Texts on the command line: a .txt file has a text per line, and a model of texts is an .npz file."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import SoftLabelClassifier, load
from consilience.rows.files import read_alike

typer_testing = pytest.importorskip("click.testing")

WORDS = {
    "rain": ["wet", "grey", "drops", "puddle", "umbrella"],
    "sun": ["warm", "bright", "yellow", "beach", "shade"],
    "snow": ["cold", "white", "flake", "sledge", "frost"],
}
Run = Callable[..., Any]


def texts_of(names: list[str], seed: int) -> tuple[list[str], list[str]]:
    """Draw sixty texts of four words of each class."""
    random = np.random.default_rng(seed)
    labels = [name for name in names for _ in range(60)]
    return [" ".join(random.choice(WORDS[name], 4)) for name in labels], labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models that know two classes each, unlabelled texts, and labelled ones to test with."""
    root = tmp_path_factory.mktemp("texts")
    for name, known in {"a": ["rain", "sun"], "b": ["snow", "sun"]}.items():
        texts, labels = texts_of(known, 1)
        Q = np.eye(2)[[known.index(label) for label in labels]]
        SoftLabelClassifier(classes=known, random_state=0).fit(texts, Q).save(root / f"{name}.npz")
    for name, seed in {"X": 2, "test": 3}.items():
        texts, labels = texts_of(list(WORDS), seed)
        (root / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
        np.save(root / f"{name}_y.npy", np.array(labels))
    return root


@pytest.fixture
def run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an empty folder, on the files of `folder`."""
    from consilience.cli.app import app

    monkeypatch.chdir(tmp_path)

    def invoke(*words: str) -> Any:
        given = [str(folder / word) if (folder / word).is_file() else word for word in words]
        return typer_testing.CliRunner().invoke(app, given)

    return invoke


TEACHERS = ("-t", "a.npz", "-t", "b.npz")
TEST = ("--test-data", "test.txt", "--test-labels", "test_y.npy")


@pytest.mark.parametrize("memory", ["1GB", "10KB"], ids=["at once", "block by block"])
def test_texts_are_unified(memory: str, run: Run, folder: Path) -> None:
    asked = ("unify", *TEACHERS, "--data", "X.txt", "--out", "unified.npz", *TEST, "--memory", memory)
    done = run(*asked, "--json", "-q")
    assert done.exit_code == 0, done.stderr
    view = json.loads(done.stdout)
    assert view["n_rows"] == 180
    assert view["accuracy"] > 0.9
    texts = (folder / "test.txt").read_text(encoding="utf-8").splitlines()
    assert set(load("unified.npz").predict(texts)) == set(WORDS)
    predicted = run("predict", "unified.npz", "--data", "test.txt", "--out", "labels.txt", "-q")
    assert predicted.exit_code == 0, predicted.stderr
    assert len(Path("labels.txt").read_text(encoding="utf-8").splitlines()) == 180


def test_texts_are_distilled(run: Run) -> None:
    labels = ("--labels", "X_y.npy")
    done = run("distil", "-t", "a.npz", "--data", "X.txt", *labels, "--out", "s.npz", *TEST, "--json", "-q")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] > 0.9


@pytest.mark.parametrize("data", ["X.txt", "texts"], ids=["a file", "a folder"])
def test_ways_to_unify_texts_are_compared(data: str, run: Run, folder: Path) -> None:
    Path("texts").mkdir()
    shutil.copy(folder / "X.txt", "texts")
    methods = ("--method", "sd", "--method", "auto", "--quick")
    done = run("compare", *TEACHERS, "--data", data, "--labels", "X_y.npy", *methods, "--json", "-q")
    assert done.exit_code == 0, done.stderr
    assert len(json.loads(done.stdout)["rows"]) >= 2


def test_numbers_are_told_before_teachers_are_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> None:
        raise AssertionError("a teacher was asked")

    monkeypatch.setattr("consilience.scoring.blocks.score", asked)
    np.save("rows.npy", np.zeros((3, 2)))
    done = run("unify", *TEACHERS, "--data", "rows.npy", "--out", "u.onnx", "--student", "ngrams")
    assert done.exit_code == 2
    assert "--student 'ngrams' learns from texts, and X holds numbers" in done.stderr


def test_test_texts_of_any_length_take_little_memory(run: Run, folder: Path) -> None:
    texts = (folder / "test.txt").read_text(encoding="utf-8").splitlines()
    Path("long.txt").write_text("\n".join([*texts[:-1], "frost " * 30_000]) + "\n", encoding="utf-8")
    tracemalloc.start()
    try:
        rows = read_alike(Path("long.txt"), "--test-data", texts, "test.txt")
        assert tracemalloc.get_traced_memory()[1] < 10**7  # padded to the longest: 130 MB
    finally:
        tracemalloc.stop()
    assert len(rows) == 180


@pytest.mark.parametrize(
    ("data", "out", "says"),
    [
        ("X.txt", "unified.onnx", "A model of texts is written as .npz: use --out unified.npz."),
        ("rows.npy", "unified.npz", "This model is written as .onnx: use --out unified.onnx."),
    ],
)
def test_another_ending_is_told_before_teachers_are_asked(data: str, out: str, says: str, run: Run) -> None:
    np.save("rows.npy", np.zeros((3, 2)))
    done = run("unify", *TEACHERS, "--data", data, "--out", out)
    assert done.exit_code == 2
    assert says in done.stderr
