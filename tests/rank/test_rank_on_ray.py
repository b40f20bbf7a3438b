"""Ranking on Ray: one task per teacher, and the ranking of one machine."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from consilience import Run, as_teacher, rank_teachers
from consilience.exceptions import ScoringError

pytestmark = pytest.mark.usefixtures("ray_cluster", "_by_value")

X, y = load_iris(return_X_y=True)


@pytest.fixture
def _by_value() -> Iterator[None]:
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def models() -> dict[str, Any]:
    known = LogisticRegression(max_iter=500).fit(X, y)
    guess = LogisticRegression(max_iter=500).fit(X, np.random.default_rng(0).permutation(y))
    return {"guess": guess, "known": known}


def raises(rows: Any) -> Any:
    raise ValueError("no such rows")


def ends(rows: Any) -> Any:
    os._exit(1)


def hangs(rows: Any) -> Any:
    time.sleep(1000)


def function(body: Any) -> Any:
    return as_teacher(body, [0, 1], output="logits")


def test_the_ranking_is_that_of_one_machine_and_failures_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.scoring.ray.TRIES", 1)
    given = {**models(), "raises": function(raises), "ends": function(ends)}
    calls: list[tuple[str, int, int]] = []
    found = rank_teachers(given, X, y, run=Run(engine="ray", progress=lambda *call: calls.append(call)))
    local = rank_teachers({**models(), "raises": function(raises)}, X, y)
    assert [row.name for row in found][:2] == ["known", "guess"]
    assert [(row.score, row.interval) for row in found][:2] == [(row.score, row.interval) for row in local][
        :2
    ]
    errors = {row.name: row.error for row in found if row.error}
    assert errors["raises"] == local[-1].error
    assert "process on Ray ended" in str(errors["ends"])
    assert calls == [("ranking", i, 4) for i in range(1, 5)]
    assert next(iter(found)).teacher is not None


def test_rows_that_do_not_fit_are_read_by_the_tasks(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.hstack([X, np.zeros((len(X), 996))]))  # 1.2 MB

    def first_columns(rows: Any) -> Any:
        return rows[:, :3]

    given = {"plain": as_teacher(first_columns, [0, 1, 2], output="logits"), "raises": function(raises)}
    found, want = (
        rank_teachers(given, tmp_path / "X.npy", y, run=Run(memory="1MB", engine=name))
        for name in ("ray", "local")
    )
    assert found.n_rows == want.n_rows == len(X)
    assert [(row.name, row.score, row.error) for row in found] == [
        (row.name, row.score, row.error) for row in want
    ]


def test_a_task_that_hangs_is_told() -> None:
    with pytest.raises(ScoringError, match=r"1 of 1 tasks on Ray are left.*2 seconds.*raise timeout"):
        rank_teachers([function(hangs)], X, y, run=Run(engine="ray", engine_options={"timeout": 2}))
