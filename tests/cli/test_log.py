"""What a run says on stderr, what its result says of warnings, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

typer = pytest.importorskip("typer")

from typer.testing import CliRunner  # noqa: E402

from consilience.cli import console, progress  # noqa: E402
from consilience.cli.app import Json, Quiet, new_app  # noqa: E402
from consilience.cli.commands import app  # noqa: E402
from consilience.exceptions import ConvergenceWarning, InvalidInputError  # noqa: E402


def working(error: BaseException | None = None) -> Any:
    """Return an app whose command warns, shows progress, and fails or has a result."""
    made = new_app()

    @made.command()
    def work(as_json: Json = False, quiet: Quiet = False) -> None:
        warnings.warn(
            ConvergenceWarning("Late:\n after {argument}.", argument="x", value="\x1b"), stacklevel=1
        )
        with console.progress_bars(quiet=quiet) as report:
            report("scoring", 1, 2)
        if error is not None:
            raise error
        console.show_json({"n": 1}) if as_json else print("n 1")

    @made.command()
    def rest() -> None: ...

    return made


def lines(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stderr.splitlines()]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS", 0.0)


def test_a_log_of_json_has_an_object_per_line(often: None) -> None:
    result = CliRunner().invoke(working(), ["work", "--log", "json"])
    assert (result.exit_code, result.stdout) == (0, "n 1\n")
    found = lines(result)
    assert [line["event"] for line in found] == ["started", "warning", "progress", "finished"]
    assert [line["level"] for line in found] == ["info", "warning", "info", "info"]
    assert {line["command"] for line in found} == {"work"}
    assert all(datetime.fromisoformat(line["time"]).utcoffset() is not None for line in found)
    assert (found[1]["message"], found[1]["category"]) == ("Late: after x='\\x1b'.", "ConvergenceWarning")
    assert (found[2]["task"], found[2]["done"], found[2]["total"]) == ("scoring", 1, 2)
    assert found[3]["exit_code"] == 0
    assert found[3]["seconds"] >= 0
    quiet = lines(CliRunner().invoke(working(), ["work", "--log", "json", "--quiet"]))
    assert [line["event"] for line in quiet] == ["started", "warning", "finished"]


@pytest.mark.parametrize(
    ("error", "exit_code", "message"),
    [
        (InvalidInputError("{argument} is bad.", argument="log", value=1), 2, "--log 1 is bad."),
        (OSError(28, "Full", "u.onnx"), 2, "u.onnx cannot be read or written: Full."),
        (KeyboardInterrupt(), 130, None),
        (ZeroDivisionError("ours"), 1, "ours"),
    ],
)
def test_an_error_is_a_line_of_json_too(error: BaseException, exit_code: int, message: str | None) -> None:
    result = CliRunner().invoke(working(error), ["work", "--log", "json", "--quiet", "--json"])
    assert (result.exit_code, result.stdout) == (exit_code, "")
    *_, last = lines(result)
    assert (last["event"], last["exit_code"]) == ("finished", exit_code)
    errors = [line for line in lines(result) if line["level"] == "error"]
    assert [line["message"] for line in errors] == ([message] if message else [])
    assert [line for line in errors if "ZeroDivisionError" in line.get("traceback", "")] == errors[
        : exit_code == 1
    ]


@pytest.mark.parametrize("options", ["--nonsense --log json", "--log=json --seed x", "--log json --plot"])
def test_a_mistake_in_the_options_is_a_line_of_json_too(options: str) -> None:
    (line,) = lines(CliRunner().invoke(app, ["demo", *options.split()]))
    assert (line["level"], line["event"], line["command"]) == ("error", "error", "demo")


def test_a_recipe_chooses_the_log_and_the_command_line_wins(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('log = "json"\n')
    found = lines(CliRunner().invoke(working(), ["work", "--config", str(recipe), "--quiet"]))
    assert [line["event"] for line in found] == ["started", "warning", "finished"]
    plain = CliRunner().invoke(working(), ["work", "--config", str(recipe), "--log", "text"])
    assert plain.stderr == "Warning: Late: after x='\\x1b'.\n"
    written = CliRunner().invoke(
        working(), ["work", "--config", str(recipe), "--write-config", str(tmp_path / "again.toml")]
    )
    assert [(line["event"], line["file"]) for line in lines(written)] == [
        ("written", str(tmp_path / "again.toml"))
    ]


def test_the_result_has_the_warnings_of_its_own_run() -> None:
    made = working()
    for _ in range(2):
        result = CliRunner().invoke(made, ["work", "--json"])
        expected = [{"category": "ConvergenceWarning", "message": "Late: after x='\\x1b'."}]
        assert json.loads(result.stdout) == {"n": 1, "warnings": expected}
        assert result.stderr == "Warning: Late: after x='\\x1b'.\n"  # and on stderr as ever


def test_true_commands_always_have_a_list_of_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, classes in {"a": ["x", "y"], "b": ["y", "z"], "c": ["u", "v"]}.items():
        np.savez(f"{name}.npz", proba=np.tile([0.25, 0.75], (4, 1)), classes=classes)
    np.save("X.npy", np.zeros((4, 2)))
    files = ["--data", "X.npy", "--soft-labels", "q.npz", "--method", "sd", "--json"]
    apart = CliRunner().invoke(app, ["unify", "-t", "a.npz", "-t", "c.npz", *files])
    (warning,) = json.loads(apart.stdout)["warnings"]
    assert warning["category"] == "DisconnectedWarning"
    assert apart.stderr == f"Warning: {warning['message']}\n"
    for arguments in (
        ["unify", "-t", "a.npz", "-t", "b.npz", *files],
        ["inspect", "a.npz", "c.npz", "--json"],
    ):
        assert json.loads(CliRunner().invoke(app, arguments).stdout)["warnings"] == []


CODE = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have ignored it
import consilience.cli.commands as commands
from consilience.cli import main
from consilience.cli.app import new_app
from consilience.files.disk import replacing
from pathlib import Path
commands.app = new_app()
@commands.app.command()
def work(text: str = "no", file: Path = Path("out.txt")) -> None:
    if text != "no":
        print(text)
        return
    with replacing(file) as opened:
        opened.write(b"half")
        print("at work", file=sys.stderr, flush=True)
        time.sleep(60)
@commands.app.command()
def rest() -> None: ...
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize(("number", "code", "left"), [(signal.SIGINT, 130, 1), (signal.SIGTERM, -15, 2)])
def test_signals_end_a_run_and_keep_what_was_there(number: int, code: int, left: int, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("before")
    child = subprocess.Popen(
        [sys.executable, "-c", CODE, "work"], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    assert child.stderr.readline() == "at work\n"
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (code, "", "")
    assert (tmp_path / "out.txt").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == left  # a killed process cannot remove its temporary file


@pytest.mark.skipif(os.name != "posix", reason="pipes are those of POSIX")
def test_a_reader_that_has_left_is_exit_code_1_without_noise() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    arguments = [sys.executable, "-c", CODE, "work", "--text", "hello"]
    # buffered, as it is for users: what is printed leaves the process late
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        arguments, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, env=buffered
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
