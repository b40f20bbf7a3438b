"""Progress without a terminal: a line every few seconds with rate and time left, and one at the end."""

from __future__ import annotations

import json
import threading
import time

import pytest

pytest.importorskip("rich")

from consilience._progress import silent
from consilience.cli import progress
from consilience.cli.log import Log, new_log
from consilience.cli.progress import Lines, progress_bars


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def reported(log: Log, *reports: tuple[float, str, int, int]) -> None:
    """Report progress at some seconds after the start."""
    clock = Clock()
    lines = Lines(log, 5.0, clock)
    for second, task, done, total in reports:
        clock.now = 100 + second
        lines(task, done, total)


SCORING = [
    (seconds, "scoring", done, 2000)
    for seconds, done in ((1, 100), (4.9, 500), (5, 1000), (9.9, 1500), (10, 1600), (10.5, 2000))
]


def test_a_line_comes_every_few_seconds_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    reported(Log(), *SCORING, (12, "training", 1, 10), (13, "training", 10, 10), (19, "nothing", 0, 0))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "scoring: 1,000 of 2,000 (50%), 200 per second, 5 s left",
        "scoring: 1,600 of 2,000 (80%), 160 per second, 2 s left",
        "scoring: 2,000 of 2,000 (100%), 190 per second, 10 s in all",
        "nothing: 0 of 0, 6 s in all",  # and none for the training: it took less than 5 seconds
    ]


def test_a_long_task_that_only_reports_its_end_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    reported(Log(), (1, "scoring", 8, 8), (8, "soft labels", 70, 70))
    assert capsys.readouterr().err == "soft labels: 70 of 70 (100%), 10 per second, 7 s in all\n"


def test_the_rate_forgets_what_came_from_a_cache(capsys: pytest.CaptureFixture[str]) -> None:
    slow = [(second, "scoring", 10_000 + second, 10_300) for second in range(1, 201)]
    reported(Log(), (0, "scoring", 10_000, 10_300), *slow)
    assert capsys.readouterr().err.splitlines()[-1].endswith("1 per second, 1 min 40 s left")


def test_a_task_that_begins_again_has_a_rate_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    reported(Log(), (1, "folds", 500, 1000), (2, "folds", 10, 1000), (11, "folds", 100, 1000))
    assert capsys.readouterr().err == "folds: 100 of 1,000 (10%), 10 per second, 1 min 30 s left\n"


def test_lines_of_json_have_the_same_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.format = "json"
    reported(log, *SCORING[:3], (6, "odd\x1b", 1, 2), (16, "odd\x1b", 1, 2))
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert {name: first[name] for name in ("level", "event", "task", "done", "total")} == {
        "level": "info", "event": "progress", "task": "scoring", "done": 1000, "total": 2000,
    }  # fmt: skip
    assert (first["rate"], first["seconds"], first["seconds_left"]) == (200, 5, 5)
    assert first["message"] == "scoring: 1,000 of 2,000 (50%), 200 per second, 5 s left"
    assert second["task"] == "odd\x1b"


def test_a_step_without_news_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = Lines(Log(), 5.0, clock)
    for second in (4, 6, 8):
        clock.now = 100 + second
        lines.remind()
    lines("training", 1, 4)
    clock.now = 114
    lines.remind()
    lines("training", 4, 4)
    clock.now = 130
    lines.remind()
    assert capsys.readouterr().err.splitlines() == [
        "working: 6 s",
        "training: 1 of 4 (25%), 0.071 per second, 42 s left",
        "training: 4 of 4 (100%), 0.29 per second, 14 s in all",
        "working: 16 s since training ended",
    ]


def test_reminders_come_by_themselves_and_end_with_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS", 0.05)
    found, end = "", time.monotonic() + 30
    with progress_bars():
        while not found and time.monotonic() < end:
            time.sleep(0.05)
            found = capsys.readouterr().err
    assert found.startswith("working: ")
    assert "progress" not in {thread.name for thread in threading.enumerate()}


def test_who_gets_lines_and_who_gets_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_bars(quiet=True) as report:
        assert report is silent
    with progress_bars() as report:
        assert isinstance(report, Lines)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bars() as report:
        assert not isinstance(report, Lines)
    with new_log() as log:
        log.format = "json"
        with progress_bars() as report:
            assert isinstance(report, Lines)
        with progress_bars(quiet=True) as report:
            assert report is silent
