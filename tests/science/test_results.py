"""Where runs write: a user's folder, or with --record the repository's own files."""

import argparse
import json
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks import results
from benchmarks.papers import records

PAPERS = Path(records.__file__).parent
NEEDS_FILES = {"languages"}  # seven language identifiers and labelled sentences
EXPERIMENTS = sorted(
    path.stem for path in PAPERS.glob("*.py") if "def _parser()" in path.read_text(encoding="utf-8")
)


def options(*words: str, tracked: Path = records.FOLDER / "unify.jsonl") -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.unify")
    results.add_options(parser)
    return results.parse(parser, words, tracked)


def test_a_run_writes_to_a_folder_of_the_users(tmp_path: Path) -> None:
    assert options().results == Path("benchmark-results/unify.jsonl")
    assert options("--results", str(tmp_path)).results == tmp_path / "unify.jsonl"
    ignored = (results.ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert f"{results.OWN}/" in ignored


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (records.FOLDER, "belongs to the repository. Give --record"),
        (records.FOLDER / "unify.jsonl", "names a file. Give its folder"),
        (Path("mine.jsonl"), "names a file. Give its folder"),
    ],
)
def test_tracked_files_need_record(given: Path, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--results", str(given))
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("state", ["unknown", "c" * 40 + "-dirty"])
def test_record_refuses_code_without_a_commit(
    state: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "commit", lambda: state)
    with pytest.raises(SystemExit):
        options("--record")
    assert "--record needs a git clone whose code is committed" in capsys.readouterr().err


def test_changed_code_is_dirty_and_changed_results_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "ROOT", tmp_path)
    assert results.commit() == "unknown"
    files = [tmp_path / "src" / "a.py", tmp_path / "benchmarks" / "papers" / "b.py"]
    stored = tmp_path / "benchmarks" / "papers" / "results" / "b.jsonl"
    for path in (*files, stored):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n", encoding="utf-8")
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert len(results.commit()) == 40
    stored.write_text("2\n", encoding="utf-8")
    assert len(results.commit()) == 40
    for path in files:
        path.write_text("2\n", encoding="utf-8")
        assert results.commit().endswith("-dirty")
        path.write_text("1\n", encoding="utf-8")


@pytest.mark.parametrize("module", sorted(set(EXPERIMENTS) - NEEDS_FILES))
def test_every_experiment_runs_without_files_by_default(module: str) -> None:
    parser = import_module(f"benchmarks.papers.{module}")._parser()
    data = parser.get_default("data")
    assert data is None or set([data] if isinstance(data, str) else data) <= {"digits", "generated"}


def test_no_stored_figure_comes_from_changed_code() -> None:
    for path in (results.ROOT / "benchmarks").rglob("results/*.jsonl"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not json.loads(line)["commit"].endswith(results.DIRTY), f"{path.name}, line {number}"


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    from benchmarks.papers.sources import LOADERS, MADE_BY, load

    for name in LOADERS:
        if name not in ("digits", "generated"):
            with pytest.raises(SystemExit, match=r"is not in .* Give --data-dir") as caught:
                load(name, str(tmp_path))
            assert any(words in str(caught.value) for words in MADE_BY.values())
