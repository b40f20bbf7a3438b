"""The benchmark of searching a repository runs, and its tables say what the records hold."""

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.repository.problem import make_problem
from benchmarks.repository.render import read, render
from benchmarks.repository.run import EVERY, main


@pytest.mark.nightly
def test_a_quick_run_finds_better_models_than_chance_and_is_rendered(tmp_path: Path) -> None:
    out = tmp_path / "search.jsonl"
    asked = ["--quick", "--cache", str(tmp_path), "--methods", "auto", EVERY, "--results", str(tmp_path)]
    assert main(asked) == 0
    records = [json.loads(line) for line in out.read_text(encoding="utf8").splitlines()]
    assert [(r["models"], r["method"]) for r in records] == [
        (10, "auto"),
        (10, EVERY),
        (30, "auto"),
        (30, EVERY),
    ]
    large = records[2]["truths"]["distil"]
    assert large["first"] < large["random"] / 2
    assert str(tmp_path) not in out.read_text(encoding="utf8")
    assert read(out) == []  # quick figures are never rendered
    out.write_text("\n".join(json.dumps(r | {"quick": False}) for r in records), encoding="utf8")
    page = render(read(out))
    assert f"| **auto** | {100 * large['recall']:.0f} % | {large['pearson']:.2f} |" in page


def test_nobody_shares_rows_and_the_first_models_do_not_depend_on_their_number() -> None:
    few, more = (make_problem("digits", None, count, 2, 0) for count in (1, 3))
    rows = np.concatenate([few.reference, *(task.X_test for task in few.tasks[:1])])
    assert len(np.unique(rows, axis=0)) == len(rows)
    task = few.tasks[0]
    assert not (task.X[:, None] == task.X_test[None]).all(axis=2).any()
    assert not (task.X[:, None] == few.reference[None]).all(axis=2).any()
    assert few.models[0].classes.tolist() == more.models[0].classes.tolist()
    np.testing.assert_array_equal(few.models[0].answer(task.X)[0], more.models[0].answer(task.X)[0])
