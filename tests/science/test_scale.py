"""The benchmark of many rows runs, its runs survive kills, and its tables say what the records hold."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.scale import end_to_end, run
from benchmarks.scale.problem import DrawnRows
from benchmarks.scale.processes import run as run_process

pytestmark = pytest.mark.skipif(os.name != "posix" or not Path("/proc/self/stat").exists(), reason="Linux")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]


def test_rows_are_the_same_at_every_read_and_differ_between_blocks() -> None:
    source = DrawnRows(40_000, seed=3)
    assert len(source) == 40_000
    assert (source.read(1) == DrawnRows(40_000, seed=3).read(1)).all()
    assert not (source.read(0) == source.read(1)).any()


@pytest.mark.nightly
def test_a_quick_run_appends_a_record_for_each_kind(tmp_path: Path) -> None:
    out = tmp_path / "scale.jsonl"
    assert run.main(["--quick", "--only", "loop", "stream, store", "--results", str(tmp_path)]) == 0
    loop, stream = lines(out)
    assert [loop["name"], stream["name"]] == ["loop", "stream, store"]
    assert loop["command"].startswith("python -m benchmarks.scale --quick")
    assert stream["steps"].keys() >= {"scoring", "soft labels"}
    assert stream["store_bytes"] > 4 * run.QUICK_ROWS * stream["logits"]
    assert 1e8 < loop["peak_bytes"] < 1e10


def test_a_process_beyond_its_limit_fails_and_one_that_says_a_word_is_killed() -> None:
    code = "import sys; x = bytearray(10**9); print(len(x))"
    assert run_process([sys.executable, "-c", code]).output == "1000000000\n"
    assert run_process([sys.executable, "-c", code], data_limit=5 * 10**8).exit_code == 1
    code = "import sys, time; print('now', file=sys.stderr, flush=True); time.sleep(60)"
    ended = run_process([sys.executable, "-c", code], kill_when=lambda line: line == "now\n")
    assert ended.killed
    assert ended.exit_code == -9
    assert ended.seconds < 30


@pytest.mark.nightly
def test_a_run_that_is_killed_twice_comes_to_the_same_model(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    out = tmp_path / "scale.jsonl"
    words = ["--rows", "3e4", "--memory", "10MB", "--student", "logistic", "--compare", "--quick"]
    assert end_to_end.main([*words, "--folder", str(tmp_path / "work"), "--results", str(tmp_path)]) == 0
    (record,) = lines(out)
    assert record["same_bytes"]
    assert record["stored"][-1] == 4 * 30_000  # none twice
    assert record["peak_bytes"] < record["limit"]
