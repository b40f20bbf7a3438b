"""``consilience repo``: every command calls what it names, and shows what came."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("skl2onnx")
pytest.importorskip("onnxruntime")

from tests.cli import running


def run(*words: Any) -> Any:
    return running.run("repo", *words)


def shown(*words: Any) -> Any:
    return running.view_of("repo", *words)


@pytest.fixture
def folder(irises: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two models of irises, and rows, in the present folder."""
    shutil.copytree(irises, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for stem in ("early", "late"):
        shown("add", "models", f"{stem}.onnx", "--task", "irises", "--metric", "accuracy=0.9")
    return tmp_path


def test_models_are_listed_and_shown(folder: Path) -> None:
    view = shown("list", "models")
    assert [one["name"] for one in view["models"]] == ["early", "late"]
    assert [one["name"] for one in shown("list", "models", "--class", "setosa")["models"]] == ["early"]
    assert shown("list", "models", "--licence", "MIT")["models"] == []
    one = shown("show", "models", "early")
    assert one["classes"] == ["setosa", "versicolor"]
    assert one["metrics"] == {"accuracy": 0.9}
    assert Path(one["path"]).is_file()
    text = run("list", "models").stdout
    assert [line.split()[:2] for line in text.splitlines()] == [
        ["2", "models"],
        ["model", "task"],
        ["early", "irises"],
        ["late", "irises"],
    ]
    assert "\n  task: irises\n" in run("show", "models", "early").stdout
    assert "float32 (n, 4)" in text
    running.done("inspect", one["path"])  # --teacher takes that path


def test_search_runs_a_few(folder: Path) -> None:
    assert shown("describe", "models", "--reference", "X.npy", "--quiet")["described"] == ["early", "late"]
    view = shown("search", "models", "--data", "X.npy", "--labels", "y.npy", "--top", 1, "--quiet")
    assert (view["n_run"], view["n_models"], len(view["teachers"])) == (1, 2, 1)
    assert len(view["shortlist"]) == 2
    text = run("search", "models", "--data", "X.npy", "--labels", "y.npy", "--top", 1).stdout
    assert "1 of 2 models run" in text


def test_cover_names_files(folder: Path) -> None:
    view = shown("cover", "models", "setosa", "virginica")
    assert list(view["models"]) == ["early", "late"]
    assert "No model knows owl" in running.refused("repo", "cover", "models", "setosa", "owl")


def test_a_url_is_a_repository(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    url = f"memory:/{tmp_path}/shared"
    assert "is not a folder" in running.refused("repo", "list", url)
    shown("add", url, "early.onnx")
    assert [one["name"] for one in shown("list", url)["models"]] == ["early"]
    path = Path(shown("show", url, "early")["path"])
    assert path.read_bytes() == (folder / "early.onnx").read_bytes()
    assert path.is_relative_to(tmp_path / "user")
    assert shown("verify", url)["passed"]


def test_verify_exits_with_1_where_something_is_wrong(folder: Path) -> None:
    assert run("verify", "models").exit_code == 0
    (path,) = (folder / "models" / "late").rglob("late.onnx")
    path.write_bytes(b"x")
    result = run("verify", "models")
    assert result.exit_code == 1
    assert "late.onnx is not the file that was added" in result.stdout
    assert shown("remove", "models", "late") == {"removed": "late", "warnings": []}
    assert run("verify", "models").exit_code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["list", "nowhere"], "nowhere is not a folder. Make a repository with consilience repo add."),
        (["show", "models", "owl"], "no model 'owl'"),
        (["add", "models", "early.onnx"], "or give --name another"),
        (
            ["add", "models", "early.onnx", "--name", "x", "--metric", "good"],
            "--metric has '' at ['good']; expected a number",
        ),
        (["add", "models", "early.onnx", "--name", "a/b"], "--name 'a/b' must be a text"),
        (["search", "models", "--data", "X.npy", "--labels", "y.npy"], "has a description yet"),
        (["cover", "models", "setosa", "--cost", "euros"], "--cost 'euros' is unknown"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], sentence: str, folder: Path) -> None:
    assert sentence in running.refused("repo", *words)
