"""The reproduction of the paper's tables: trials are recorded, resumed and rendered."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a module of the benchmarks and returns what it prints.

    It runs here, not in a process of its own: importing torch would take longer than the trials.
    """

    def run(module: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [module, *arguments])  # a record has the command
        import_module(f"benchmarks.papers.{module}").main()
        return capsys.readouterr().out

    return run


def test_a_killed_run_continues_and_renders(run: Run, tmp_path: Path) -> None:
    results = tmp_path / "unify.jsonl"
    options = ("--data", "digits", "--epochs", "2", "--results", str(tmp_path))
    run("unify", *options, "--trials", "1")
    whole = results.read_text(encoding="utf-8")
    results.write_text(whole + whole[: len(whole) // 2], encoding="utf-8")  # killed while writing
    assert "1 of 2 trials" in run("unify", *options, "--trials", "2", "--resume")
    assert "0 of 2 trials" in run("unify", *options, "--trials", "2", "--resume")
    lines = results.read_text(encoding="utf-8").splitlines()
    first, second = json.loads(lines[0]), json.loads(lines[-1])
    assert (first["seed"], second["seed"]) == (0, 1)
    assert len(first["accuracy"]) == 17
    assert {"commit", "command", "versions", "date"} <= first.keys()
    table = run("render", "--results", str(tmp_path))
    assert "random (2 trials)" in table
    assert ".5310" in table  # SD on LSUN with VGG16, published
    assert "**" in table


def test_noise_brings_teachers_down_to_the_wanted_accuracy(run: Run, tmp_path: Path) -> None:
    results = tmp_path / "unify.jsonl"
    options = ("--data", "digits", "--epochs", "1", "--trials", "1", "--results", str(tmp_path))
    run("unify", *options, "--sensitivity", "accuracy")
    trials = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    wanted = [trial["setting"]["accuracy"] for trial in trials]
    reached = [trial["teacher_accuracy"] for trial in trials]  # on test rows: near, not equal
    assert wanted == [0.4, 0.5, 0.6, 0.7, 0.8]
    assert all(abs(a - b) < 0.15 for a, b in zip(wanted, reached, strict=True)), reached
    table = run("render", "--results", str(tmp_path)).split("Sensitivity to accuracy")[1].splitlines()
    assert table[0].endswith(", 1 trials")
    assert table[2] == "| method, accuracy | 0.4 | 0.5 | 0.6 | 0.7 | 0.8 |"
