"""Texts on the command line: a .txt file has a text per line, and a model of texts is an .npz file."""

import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.running import done, refused, view_of

from consilience import SoftLabelClassifier, load
from consilience.rows.files import read_alike

WORDS = {
    "rain": ["wet", "grey", "drops", "puddle", "umbrella"],
    "sun": ["warm", "bright", "yellow", "beach", "shade"],
    "snow": ["cold", "white", "flake", "sledge", "frost"],
}


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
def inside(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of its own, with the files of `folder`."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


TEACHERS = ("-t", "a.npz", "-t", "b.npz")
TEST = ("--test-data", "test.txt", "--test-labels", "test_y.npy")


@pytest.mark.parametrize("memory", ["1GB", "10KB"], ids=["at once", "block by block"])
def test_texts_are_unified(memory: str, inside: None) -> None:
    files = ("--data", "X.txt", "--out", "unified.npz", *TEST)
    view = view_of("unify", *TEACHERS, *files, "--memory", memory, "-q")
    assert view["n_rows"] == 180
    assert view["accuracy"] > 0.9
    texts = Path("test.txt").read_text(encoding="utf-8").splitlines()
    assert set(load("unified.npz").predict(texts)) == set(WORDS)
    done("predict", "unified.npz", "--data", "test.txt", "--out", "labels.txt", "-q")
    assert len(Path("labels.txt").read_text(encoding="utf-8").splitlines()) == 180


def test_texts_are_distilled(inside: None) -> None:
    files = ("--data", "X.txt", "--labels", "X_y.npy", "--out", "s.npz", *TEST)
    assert view_of("distil", "-t", "a.npz", *files, "-q")["accuracy"] > 0.9


def test_ways_to_unify_texts_in_a_folder_are_compared(inside: None) -> None:
    Path("texts").mkdir()
    shutil.copy("X.txt", "texts")
    options = ("--labels", "X_y.npy", "--method", "sd", "--method", "auto", "--quick", "-q")
    assert len(view_of("compare", *TEACHERS, "--data", "texts", *options)["rows"]) >= 2


def test_numbers_are_told_before_teachers_are_asked(inside: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> None:
        raise AssertionError("a teacher was asked")

    monkeypatch.setattr("consilience.scoring.blocks.score", asked)
    np.save("rows.npy", np.zeros((3, 2)))
    said = refused("unify", *TEACHERS, "--data", "rows.npy", "--out", "u.onnx", "--student", "ngrams")
    assert "--student 'ngrams' learns from texts, and X holds numbers" in said


def test_test_texts_of_any_length_take_little_memory(inside: None) -> None:
    texts = Path("test.txt").read_text(encoding="utf-8").splitlines()
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
def test_another_ending_is_told_before_teachers_are_asked(
    data: str, out: str, says: str, inside: None
) -> None:
    np.save("rows.npy", np.zeros((3, 2)))
    assert says in refused("unify", *TEACHERS, "--data", data, "--out", out)
