"""Training that was stopped goes on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from consilience import Run, Unifier

pytest.importorskip("torch")

from consilience.scoring.store import ScoreStore
from consilience.students import Network, training

EPOCHS = 6


@pytest.fixture
def stopped(data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Path]:
    """Teachers, rows, and the folder of a training that was stopped after four epochs."""
    monkeypatch.setattr(training, "INTERVAL", 0.0)
    with pytest.raises(RuntimeError, match="stopped"):
        unifier(data[0], cache=tmp_path / "cache", progress=StopAfter(4)).fit(data[1])
    assert len(list((tmp_path / "cache").glob("training-*"))) == 1
    return *data, tmp_path / "cache"


@pytest.fixture(scope="module")
def data() -> Any:
    X, y = load_iris(return_X_y=True)
    random = np.random.default_rng(0)
    rows = np.repeat(X, 30, axis=0) + random.normal(size=(30 * len(X), 4)) / 10
    teachers = [LogisticRegression(max_iter=500).fit(X[y != k], y[y != k]) for k in (0, 2)]
    return teachers, rows


def unifier(teachers: Any, method: str = "auto", self_label: bool = False, **options: Any) -> Unifier:
    student = Network(max_iter=EPOCHS, patience=None, random_state=0, self_label=self_label)
    return Unifier(teachers, student, method, random_state=0, run=Run(memory="100KB", **options))


class StopAfter:
    """Raises after some epochs of training, those of a second training among them."""

    def __init__(self, epochs: int) -> None:
        self.epochs, self.seen = epochs, 0

    def __call__(self, task: str, done: int, total: int) -> None:
        self.seen += task == "training"
        if self.seen == self.epochs:
            raise RuntimeError("stopped")


def test_a_stopped_training_comes_to_the_same_result(stopped: Any) -> None:
    teachers, rows, cache = stopped
    whole = unifier(teachers).fit(rows)
    watch = StopAfter(EPOCHS + 1)
    again = unifier(teachers, cache=cache, progress=watch).fit(rows)
    assert 0 < watch.seen <= EPOCHS - 4 + 1  # at most one epoch is repeated
    np.testing.assert_allclose(again.predict_proba(rows), whole.predict_proba(rows), atol=1e-6)
    assert not list(cache.glob("training-*"))


def test_other_soft_labels_begin_a_training_of_their_own(stopped: Any) -> None:
    teachers, rows, cache = stopped
    other, plain = unifier(teachers, cache=cache, method="ce"), unifier(teachers, method="ce")
    np.testing.assert_allclose(
        other.fit(rows).predict_proba(rows), plain.fit(rows).predict_proba(rows), atol=1e-6
    )
    assert len(list(cache.glob("training-*"))) == 1  # the first one still waits


def test_a_stopped_training_on_own_labels_is_listed_and_cleared(
    data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "INTERVAL", 0.0)
    (teachers, rows), cache = data, tmp_path / "cache"
    watch = StopAfter(EPOCHS + 2)  # in the second training
    with pytest.raises(RuntimeError, match="stopped"):
        unifier(teachers, cache=cache, self_label=True, progress=watch).fit(rows)
    store = ScoreStore(cache)
    assert store.contents()["n_trainings"] == 1
    assert store.contents()["n_bytes_trainings"] > 0
    store.clear()
    assert not list(cache.glob("training-*"))
