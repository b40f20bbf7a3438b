"""Scoring on Ray: the same logits as on one machine, whatever happens to workers and machines.

What both engines do is in tests/contracts/test_engines.py. Here a run has one worker where one is enough:
each is a process, and starting it takes longer than all the rest.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.rows.rows import check_source

from consilience import (
    ConsilienceWarning,
    InvalidInputError,
    LabelSpace,
    MissingDependencyError,
    TeacherError,
    as_teacher,
)
from consilience.exceptions import ScoringError
from consilience.rows import HeldRows, Rows, as_rows
from consilience.rows.datasets import RayRows
from consilience.run import Run
from consilience.scoring import ray as engine
from consilience.scoring import score_blocks
from consilience.teachers import Function, Teacher

pytestmark = [
    pytest.mark.usefixtures("ray_cluster", "_small_blocks"),
]


X = np.random.default_rng(0).normal(size=(600, 4))


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ten blocks, and functions of this file that workers can load though they cannot import it."""
    import ray

    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 64)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def rising(rows: Any) -> Any:
    return np.column_stack([rows[:, 0], rows[:, 1] * 2])


def model(seed: int, name: str) -> Teacher:
    y = np.array(["a", "b", "c", "d"])[np.random.default_rng(seed).integers(seed, seed + 3, len(X))]
    return as_teacher(LogisticRegression().fit(X, y), name=name)


def teachers() -> list[Teacher]:
    return [model(0, "first"), model(1, "second"), function(rising)]


def function(body: Any, name: str = "function", **options: Any) -> Teacher:
    return Function(body, ["d", "e"], name, output="logits", **options)


def space_of(asked: list[Teacher]) -> LabelSpace:
    return LabelSpace([t.classes for t in asked], names=[t.name for t in asked], disconnected="ignore")


def on_ray(asked: list[Teacher], rows: Any = X, **options: Any) -> np.ndarray:
    chosen = {"timeout": 60.0, "workers": 1, **options.pop("options", {})}
    return packed_by(asked, rows, Run(engine="ray", engine_options=chosen, **options))


def here(asked: list[Teacher], rows: Any = X) -> np.ndarray:
    return packed_by(asked, rows, Run())


def packed_by(asked: list[Teacher], rows: Any, run: Run) -> np.ndarray:
    given = rows if isinstance(rows, Rows) else HeldRows(rows)
    space = space_of(asked)
    packed = np.full((len(given), space.n_columns), np.nan, np.float32)
    for number, logits in score_blocks(asked, space, given, run):
        assert np.isnan(packed[given.rows_of(number)]).all()
        packed[given.rows_of(number)] = logits
    return packed


def test_workers_read_files_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("rows.parquet")
    pytest.importorskip("pandas").DataFrame(X, columns=list("pqrs")).to_parquet(path)
    asked = [as_teacher(lambda rows: rows[["p", "q"]].to_numpy(), ["a", "b"], output="logits")]
    rows = as_rows(path)
    assert rows.n_blocks == 10
    np.testing.assert_array_equal(on_ray(asked, rows), here(asked, rows))
    path.unlink()
    with pytest.raises((ScoringError, InvalidInputError), match=r"rows\.parquet"):
        on_ray(asked, rows)


def test_rows_that_ray_holds() -> None:  # arrays: tests/unify/test_unifier_on_ray.py
    import ray

    frame = pytest.importorskip("pandas").DataFrame(X, columns=list("pqrs"))
    check_source(RayRows([ray.put(frame[:250]), ray.put(frame[250:])], [250, 350], 64), frame, sent=False)
    texts = [f"text {i}" for i in range(300)]
    data = ray.data.from_items([{"words": text} for text in texts], override_num_blocks=7)
    check_source(as_rows(data), texts, sent=False)


@pytest.mark.nightly
def test_a_teacher_that_always_ends_its_process() -> None:
    def dies(rows: Any) -> Any:
        if (rows[:, 0] == X[300, 0]).any():
            os._exit(1)
        return rising(rows)

    with pytest.raises(ScoringError, match=r"3 workers died at block 4 of X, .* teacher 'deadly'"):
        on_ray([*teachers()[:2], function(dies, "deadly")])


@pytest.mark.nightly
def test_a_machine_that_is_removed(ray_cluster: Any) -> None:
    def slow(rows: Any) -> Any:
        time.sleep(0.02)
        return rising(rows)

    asked = [*teachers()[:2], function(slow)]
    options = {"workers": 3, "num_cpus": 2}  # one on each machine
    lost = ray_cluster.add_node(num_cpus=2, object_store_memory=80 * 2**20)
    removed = threading.Event()

    def remove(task: str, done: int, total: int) -> None:
        if done > 200 and not removed.is_set():
            removed.set()
            ray_cluster.remove_node(lost)

    np.testing.assert_array_equal(on_ray(asked, progress=remove, options=options), here(teachers()))
    assert removed.is_set()


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "asked"

    def counted(rows: Any) -> Any:
        with log.open("a") as file:
            file.write("".join(f"{value!r}\n" for value in rows[:, 0].tolist()))
        return rising(rows)

    asked = [function(counted, fingerprint="v1")]
    found = score_blocks(asked, space_of(asked), HeldRows(X), Run(engine="ray", cache=tmp_path / "scores"))
    next(found)
    found.close()
    before = log.read_text().split()
    np.testing.assert_array_equal(on_ray(asked, cache=tmp_path / "scores"), here([function(rising)]))
    after = log.read_text().split()[len(before) :]
    # only the batch at which the worker was ended is asked again
    assert len(set(before) & set(after)) <= 4 * 64 < 600
    assert {*before, *after} == {repr(value) for value in X[:, 0].tolist()}


def test_a_store_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    def full(self: Any, *given: Any) -> None:
        raise OSError(28, "No space left on device")

    def fills(rows: Any) -> Any:
        from consilience.scoring import store as shelf

        shelf._write = full  # on the machine of the worker
        return rising(rows)

    with pytest.warns(ConsilienceWarning, match="No space left on device.*not kept") as told:
        packed = on_ray([function(fills, fingerprint="v1")], cache=tmp_path / "scores")
    np.testing.assert_array_equal(packed, rising(X).astype(np.float32))
    assert len(told) == 1


@pytest.mark.nightly
def test_a_hung_teacher_is_told() -> None:
    def hangs(rows: Any) -> Any:
        while (rows[:, 0] == X[300, 0]).any():
            time.sleep(1)
        return rising(rows)

    with pytest.raises(ScoringError, match=r"not moved for .* seconds.*'stuck' has been at block 4.*goes on"):
        on_ray([function(hangs, "stuck")], options={"timeout": 4.0})


def test_needs_that_no_machine_meets_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "START_SECONDS", 1.0)
    options = {"timeout": 2.0, "num_gpus": 1}
    with (
        pytest.warns(ConsilienceWarning, match=r"needs 1 CPU and 1 GPU, .* 4 CPU .* 0 GPU"),
        pytest.raises(ScoringError, match=r"no worker could be started|none of them is at work"),
    ):
        on_ray(teachers(), options=options)


def test_more_workers_than_there_is_room_for_are_told() -> None:
    import ray

    cpus = int(ray.cluster_resources()["CPU"])  # a machine that was removed may still be counted
    with pytest.warns(ConsilienceWarning, match=f"room for {cpus} of {cpus + 2} workers"):
        count = engine._how_many(ray, 10, engine.RayOptions(workers=cpus + 2))
    assert count == cpus


def test_what_cannot_be_sent() -> None:
    lock = threading.Lock()

    def locked(rows: Any) -> Any:
        with lock:
            return rising(rows)

    with pytest.raises(TeacherError, match=r"'function' cannot be sent to the workers of Ray"):
        on_ray([function(locked)])


def test_without_a_cluster_or_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def unreachable(**options: Any) -> None:
        assert options["address"] == "192.0.2.1:6379"
        raise ConnectionError("nobody there")

    monkeypatch.setattr(ray, "init", unreachable)
    with pytest.raises(ScoringError, match=r"at '192\.0\.2\.1:6379': ConnectionError: nobody there"):
        on_ray(teachers(), options={"address": "192.0.2.1:6379"})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        MissingDependencyError, match=r"Scoring on Ray needs ray: pip install 'consilience\[ray\]'"
    ):
        on_ray(teachers())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "must be a dict"),
        ({"worker": 3}, "'worker' is unknown; .* Did you mean 'workers'"),
        ({"workers": 0}, "workers=0 must be"),
        ({"timeout": 0}, "timeout=0 must be"),
        ({"num_gpus": -1}, "num_gpus=-1 must be"),
    ],
)
def test_options_are_checked(given: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        engine.engine_options(Run(engine="ray", engine_options=given))
