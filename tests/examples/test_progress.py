"""Progress as lines: not too many, and the end of what was begun."""

from __future__ import annotations

import pytest

pytest.importorskip("rich")

from examples.language_identification.progress import Lines, shown

from consilience._progress import silent


def test_a_line_comes_every_few_seconds_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    report = Lines(5.0, clock=lambda: now[0])
    for second, done in ((1, 100), (4.9, 500), (5, 1000), (9.9, 1500), (10, 1600), (10.5, 2000)):
        now[0] = 100 + second
        report("scoring", done, 2000)
    now[0] = 112.0
    report("training", 1, 10)  # two seconds after the last line
    report("training", 10, 10)
    now[0] = 120.0
    report("nothing", 0, 0)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "scoring: 1,000 of 2,000 (50%), 5 seconds so far",
        "scoring: 1,600 of 2,000 (80%), 10 seconds so far",
        "scoring: 2,000 of 2,000 (100%), 10 seconds so far",
        "nothing: 0 of 0, 20 seconds so far",
    ]


def test_quiet_is_silent_and_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    with shown(quiet=True) as report:
        assert report is silent
    with shown() as report:
        assert isinstance(report, Lines)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with shown() as report:
        assert report is not silent
        assert not isinstance(report, Lines)
