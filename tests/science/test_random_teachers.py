"""The table of random teachers counts and correlates what its records say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
REAL = ("a", "b", "c")
RANDOM = ("1,000 classes, sure", "1,000 classes, unsure", "200 classes, sure", "width 2,048")


@pytest.fixture(scope="module")
def render() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT))
    yield import_module("benchmarks.papers.render_assess")
    sys.path.remove(str(ROOT))


def record(classes: str, per_class: int, published: list[float | None], cross: list[float | None]) -> Any:
    names = (*REAL, *RANDOM)
    return {
        "setting": {"data": "digits", "classes": classes, "per_class": per_class},
        "seed": 0,
        "truth": {"distil": {"a": 0.1, "b": 0.2, "c": 0.3}, "reuse": {"a": 0.3, "b": 0.2, "c": 0.1}},
        "scores": {
            "folds=1": {"leep": dict(zip(names, published, strict=True))},
            "folds=2": {"leep": dict(zip(names, cross, strict=True))},
        },
        "command": "python",
        "commit": "0" * 40,
    }


def test_the_table_counts_rankings_and_averages_correlations(render: Any) -> None:
    rising = [1.0, 2.0, 3.0]
    found = [
        # an older run of the first one, which must not count
        record("shared", 2, [9.0, 2.0, 3.0, 9, 9, 9, 9], [9.0, 2.0, 3.0, 9, 9, 9, 9]),
        record("shared", 2, [*rising, 4, 2, 3.0, 0], [*rising, 0, 0, 0, 0]),
        record("shared", 5, [*rising, 4, 2, 2.0, None], [3.0, 2.0, 1.0, 0, 0, 0, 0]),
        record("other", 2, [1.0, 1.0, 1.0, 1, 0, 0, 0], [*rising, 4, 0, 0, 0]),
    ]
    row = next(line for line in render.render_random(found).splitlines() if line.startswith("| `leep`"))
    counts = ["3 → 1", "0", "1 → 0", "0"]  # a tie with the best counts
    means = ["1.00 → 0.00", "0.00 → 1.00", "-1.00 → 0.00", "0.00 → -1.00"]
    assert row.strip("| ").split(" | ") == ["`leep`", *counts, *means]
    assert "of 3 rankings" in render.render_random(found)
    assert render.render_random([]) == "Not measured yet."


def run(
    pearson: dict[str, float], commit: str = "a" * 40, seed: int = 0, seconds: dict[str, float] | None = None
) -> Any:
    task = {
        "task": 0,
        "pearson": pearson,
        "scores": {"transport": {"one": 0.0}},
        "seconds": seconds or {},
        "accuracy": {"one": 0.5},
        "alone": 0.4,
    }
    return {
        "setting": {"data": "digits"},
        "seed": seed,
        "command": "python",
        "commit": commit,
        "tasks": [task],
    }


def test_a_task_run_twice_keeps_metrics_of_both_runs(render: Any) -> None:
    found = [run({"leep": 0.1, "logme": 0.2}), run({"leep": 0.3}, "b" * 40)]
    ((task,),) = render.latest_tasks(found).values()
    assert task["pearson"] == {"leep": 0.3, "logme": 0.2}
    assert task["origins"] == [("python", "a" * 40), ("python", "b" * 40)]


def test_metrics_of_a_column_have_the_same_tasks_and_times_are_ratios(render: Any) -> None:
    found = [
        run({"leep": 0.1, "logme": 0.2}, seconds={"leep": 3.0, "logme": 2.0}),
        run({"leep": 0.3}, seed=1, seconds={"leep": 1.0}),
    ]
    published = {"table_11": {"logme": 0.7}, "table_13": {"leep": 0.1, "logme": 0.4}, "source": "a paper"}
    head, _, leep, logme = render.render(found, published).splitlines()[:4]
    assert head == "| metric | digits (1 tasks) | digits (2 tasks) | published | time / logme | published |"
    assert leep == "| leep | 0.10 ± 0.00 | 0.20 ± 0.10 |  | 0.5 x | 0.25 x |"
    assert logme == "| logme | 0.20 ± 0.00 |  | 0.70 | 1 x | 1 x |"
    assert render.render(found[:1], published).startswith("| metric | digits (1 tasks) | published |")
