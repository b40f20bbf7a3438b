"""What a run says on stderr: progress, warnings and errors, as text and as JSON."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("click")

from click.testing import CliRunner

from consilience.cli import log
from consilience.cli.command import Commands, new_app
from consilience.cli.log import Log, Reports, progress_bars
from consilience.exceptions import ConsilienceWarning, InvalidInputError
from consilience.run import silent


@pytest.fixture
def clock() -> Any:
    """A clock that is set by hand."""
    return SimpleNamespace(now=100.0)


@pytest.fixture
def reports(clock: Any) -> Reports:
    return Reports(Log(), lambda: clock.now)


def test_a_short_task_prints_nothing_and_a_long_one_lines_and_its_end(
    reports: Reports, clock: Any, capsys: Any
) -> None:
    for done in range(4):
        reports("short", done, 3)
        clock.now += 1
    assert capsys.readouterr() == ("", "")
    for done in range(0, 6000, 1000):
        reports("scoring", done, 6000)
        clock.now += 1
    reports.remind()
    reports("scoring", 6000, 6000)
    assert capsys.readouterr().err.splitlines() == [
        "scoring: 5,000 of 6,000 (83%), 1,000 per second, 0:00:01 left",
        "scoring: 6,000 of 6,000 (100%), 1,000 per second, 0:00:06 passed",
    ]


def test_a_task_that_begins_again_is_a_new_one(reports: Reports, clock: Any, capsys: Any) -> None:
    for done in (1, 2, 1):
        reports("training", done, 2)
    clock.now += 7
    reports.remind()
    assert capsys.readouterr().err == "training: 1 of 2 (50%), 0:00:07 passed\n"


def test_silence_is_told(reports: Reports, clock: Any, capsys: Any) -> None:
    reports.remind()  # nothing has been silent for long yet
    clock.now += 9
    reports.remind()
    reports("scoring", 1, 1)
    clock.now += 65
    reports.remind()
    lines = [f"working, 0:0{passed} since the last report" for passed in ("0:09", "1:05")]
    assert capsys.readouterr().err.splitlines() == lines


def test_reminders_come_from_a_thread_that_ends(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(log, "SECONDS", 0.05)
    with progress_bars(Log()) as report:
        report("scoring", 1, 2)
        time.sleep(0.15)
    assert "scoring: 1 of 2 (50%)" in capsys.readouterr().err
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_bars_and_quiet_has_nothing(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bars(Log()) as report:
        report("scoring", 1, 2)
        report("training", 1, 3)
    assert "scoring" in capsys.readouterr().err
    with progress_bars(Log(), quiet=True) as report:
        assert report is silent


ENDS = {
    "bad": InvalidInputError("no \x1b[2J."),
    "broken": ZeroDivisionError("ours"),
    "stopped": KeyboardInterrupt(),
}


def working() -> Commands:
    """An app whose command warns, and ends as its name says."""
    app = new_app("For tests.")

    def fine() -> Any:
        """Work."""
        warnings.warn(ConsilienceWarning("Look\n at {argument}.", argument="tol", value=3), stacklevel=1)
        return {"found": 1}, "found: 1"

    def failing() -> Any:
        """Find a fault."""
        return {"passed": False}, "failed"

    app.new(fine)
    app.new(failing)
    for name, error in ENDS.items():
        app.new(raising(name, error))
    return app


def raising(name: str, error: BaseException) -> Any:
    def command() -> None:
        """Do not work."""
        raise error

    command.__name__ = name
    return command


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("name", "code", "between"),
    [
        ("fine", 0, [("warning", "warning", "Look at tol=3.")]),
        ("bad", 2, [("error", "error", "no \\x1b[2J.")]),
        ("broken", 1, [("error", "error", "ours")]),
        ("stopped", 130, []),
        ("failing", 1, []),
    ],
)
def test_a_log_of_json_has_an_object_on_each_line(
    name: str, code: int, between: list[tuple[str, ...]]
) -> None:
    result = CliRunner().invoke(working(), [name, "--log", "json"])
    assert result.exit_code == code
    first, *middle, last = events(result.stderr)
    assert [(one["level"], one["event"], one["message"].replace("\x1b", "")) for one in middle] == between
    assert (first["event"], last["event"], last["exit_code"]) == ("started", "finished", code)
    assert all(one["command"] == name and one["time"].endswith("Z") for one in (first, *middle, last))
    assert ("ZeroDivisionError" in middle[0].get("traceback", "")) if name == "broken" else True


def test_a_log_of_text_has_sentences() -> None:
    app = working()
    fine = CliRunner().invoke(app, ["fine"])
    assert (fine.stdout, fine.stderr) == ("found: 1\n", "Warning: Look at tol=3.\n")
    bad = CliRunner().invoke(app, ["bad"])
    assert (bad.exit_code, bad.stdout, bad.stderr) == (2, "", "Error: no \\x1b[2J.\n")
    broken = CliRunner().invoke(app, ["broken"])
    assert isinstance(broken.exception, ZeroDivisionError)  # a mistake of ours has its traceback
    view = json.loads(CliRunner().invoke(app, ["fine", "--json"]).stdout)
    assert view["warnings"] == [{"category": "ConsilienceWarning", "message": "Look at tol=3."}]


def test_a_mistake_before_the_log_is_chosen_is_json_too(tmp_path: Path) -> None:
    app = working()
    for words in (["fine", "--nonsense", "--log=json"], ["fine", "--log", "json", "extra"]):
        result = CliRunner().invoke(app, words)
        (only,) = events(result.stderr)
        assert (result.exit_code, only["event"]) == (2, "error")
    (tmp_path / "r.toml").write_text('log = "json"\n')
    result = CliRunner().invoke(app, ["fine", "--config", str(tmp_path / "r.toml")])
    assert [one["event"] for one in events(result.stderr)] == ["started", "warning", "finished"]
    refused = CliRunner().invoke(app, ["fine", "--log", "xml"])
    assert refused.stderr.startswith("Error: --log 'xml' is unknown; use 'text' or 'json'.")


SLEEPING = """
import sys, time
from consilience.cli.command import new_app
def work(run=None):
    "Work."
    run.report("scoring", 1, 2)
    print("ready", flush=True)
    time.sleep(60)
app = new_app("For tests.")
app.new(work)
app(["work", *sys.argv[1:]], prog_name="test")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("options", [(), ("--log", "json")])
def test_a_keyboard_interrupt_ends_with_130_and_no_traceback(options: tuple[str, ...]) -> None:
    # where the tests run in the background SIGINT is ignored, and a child would inherit that
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen([sys.executable, "-c", start + SLEEPING, *options], **pipes)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    _, written = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "Traceback" not in written
    assert not options or events(written)[-1]["exit_code"] == 130
