"""Training by Ray Train: the result of one process, whatever happens to workers."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")


from consilience import ConsilienceWarning, InvalidInputError, Unifier, as_teacher  # noqa: E402
from consilience.exceptions import ScoringError, StorageError  # noqa: E402
from consilience.nn import SoftCrossEntropy  # noqa: E402
from consilience.rows import HeldRows  # noqa: E402
from consilience.rows.targets import TargetRows  # noqa: E402
from consilience.run import Run, silent  # noqa: E402
from consilience.scoring.ray import RayOptions  # noqa: E402
from consilience.students import Network, ray_train, training  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("_small_blocks"),
]

random = np.random.default_rng(0)
X = random.normal(size=(400, 3)).astype(np.float32)
Q = np.column_stack([p := 1 / (1 + np.exp(-3 * X[:, 0])), 1 - p]).astype(np.float32)


@pytest.fixture
def _small_blocks(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Four blocks of 100 rows, and classes of this file that workers can load."""
    import ray

    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 100)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def rows_of(values: Any = X) -> TargetRows:
    return TargetRows(HeldRows(values), np.asarray(Q, np.float32), None, None, as_they_are)


def as_they_are(rows: Any) -> Any:
    return rows


def student(module: Any = None, **options: Any) -> Network:
    return Network(module, **{"random_state": 0, "lr": 0.05, "patience": None, **options})


class Mortal(torch.nn.Module):
    """A linear module whose process ends once, at a batch to train on, and notes every such batch."""

    def __init__(self, log: Path, deadly: int) -> None:
        super().__init__()
        self.layer, self.log, self.deadly = torch.nn.Linear(3, 2), log, deadly

    def forward(self, rows: Any) -> Any:
        if self.training and torch.is_grad_enabled() and torch.distributed.is_initialized():
            with self.log.open("a") as file:
                file.write("x")
            if self.log.stat().st_size >= self.deadly and not self.log.with_suffix(".died").exists():
                self.log.with_suffix(".died").touch()
                os._exit(1)
        return self.layer(rows)


ON_RAY: Any = {"engine": "ray", "engine_options": {"train_workers": 2, "timeout": 300}}
WHOLE = {"optimizer": "sgd", "batch_size": 400, "validation_fraction": 0.0}
"""Batches of all rows: whatever worker has which of them, a step is the same as in one process."""


@pytest.mark.nightly
def test_a_network_learns_what_it_learns_in_one_process_though_a_worker_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "INTERVAL", 0.0)
    torch.manual_seed(0)
    module, fitted, calls = Mortal(tmp_path / "steps", deadly=2 * 4), [], []
    for more in ({**ON_RAY, "cache": tmp_path / "cache"}, {}):
        learner = student(module, max_iter=8, standardize=True, **WHOLE)
        run = Run(progress=lambda *call: calls.append(call), **more)
        fitted.append(learner.learn(rows_of(), np.ones(2), temperature=2.0, run=run, key="0"))
        assert ("training", 8, 8) in calls
        calls.clear()
    found, want = fitted
    np.testing.assert_allclose(found.predict_all(X, 2), want.predict_all(X, 2), atol=1e-5)
    assert [entry["epoch"] for entry in found.history_] == list(range(1, 9))
    assert found.n_iter_ == 8
    assert not found.module_.training
    assert (tmp_path / "steps.died").exists()
    # two workers take eight steps; if they began again at the first, there would be more than this
    assert (tmp_path / "steps").stat().st_size <= 2 * 8 + 4
    assert list((tmp_path / "cache").rglob(training.FILE)) == []


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (InvalidInputError("X is not finite in row 333."), "X is not finite in row 333"),
        (StorageError("no bucket"), "no bucket"),
        (TypeError("odd rows"), "Training on Ray failed: TypeError: odd rows"),
        (RuntimeError("a worker has gone"), None),
    ],
)
def test_the_keeper_learns_of_errors_that_a_new_start_would_not_mend(
    error: Exception, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(keeper: Any) -> None:
        raise error

    told: list[Any] = []
    monkeypatch.setattr("ray.get", lambda value: value)
    with pytest.raises(type(error)):
        ray_train._train_share({"work": fail, "keeper": _Asked(told.append)})
    assert [kept in str(one) for one in told] == ([] if kept is None else [True])


STILL = r"not moved for 0 seconds \(timeout 0.01\).*"


@pytest.mark.parametrize(
    ("signs", "failed", "says"),
    [
        (0, None, STILL + r"needs 2 workers .* has 4 CPU \(1 free\)"),
        (1, None, STILL + "have started, and took no step"),
        (1, ScoringError("odd rows"), "odd rows"),
    ],
)
def test_a_training_that_fails_or_does_not_move_is_told(
    signs: int, failed: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    still = SimpleNamespace(  # a cluster on which nothing happens
        wait=lambda running, timeout: ([], running),
        get=lambda asked: (signs, (0, 0), failed),
        cluster_resources=lambda: {"CPU": 4},
        available_resources=lambda: {"CPU": 1},
    )
    monkeypatch.setattr(ray_train, "START_SECONDS", 0.01)
    with pytest.raises(ScoringError, match=says):
        ray_train._wait(still, None, _Asked(), RayOptions(timeout=0.01), 2, silent)


class _Asked:
    """Stands for the keeper."""

    def __init__(self, remote: Any = lambda: None) -> None:
        self.remote = remote

    @property
    def seen(self) -> Any:
        return self

    fail = seen


def test_a_worker_for_each_block_at_most() -> None:
    with pytest.warns(ConsilienceWarning, match="4 blocks, so 4 of 6 train_workers"):
        assert ray_train._workers(RayOptions(train_workers=6), rows_of()) == 4


def test_what_ray_train_cannot() -> None:
    with pytest.raises(InvalidInputError, match="has callbacks"):
        student(callbacks=[object()]).learn_loss(rows_of(), 2, SoftCrossEntropy(), run=Run(**ON_RAY))
    teacher = as_teacher(np.asarray(Q), ["right", "left"])
    with pytest.raises(InvalidInputError, match=r"student='LogisticRegression'.*no torch network"):
        Unifier([teacher], "logistic", run=Run(engine="ray", engine_options={"train_workers": 2})).fit(X)
