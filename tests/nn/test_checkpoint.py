"""A training by passes that was killed goes on from its last checkpoint, to the same result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")

from tests.rows.rows import target_rows  # noqa: E402

from consilience.files.storage import storage_path  # noqa: E402
from consilience.nn import SoftCrossEntropy  # noqa: E402
from consilience.students import Network, _checkpoint  # noqa: E402

L = 3


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checkpoint, "INTERVAL", 0.0)


def problem(n: int = 300) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    y = rng.integers(L, size=n)
    X = (rng.normal(size=(n, 4)) + rng.normal(size=(L, 4))[y]).astype(np.float32)
    return X, (0.1 / L + 0.9 * np.eye(L)[y]).astype(np.float32)


def fit(folder: Path | None, *, killed_after: int | None = None, key: str = "", **options: Any) -> Any:
    """Train for six epochs; return the student and the epochs that were run, or None if it was killed."""
    epochs: list[int] = []

    def progress(task: str, done: int, total: int) -> None:
        epochs.append(done)
        if killed_after is not None and done > killed_after:
            raise MemoryError

    X, Q = problem()
    student = Network(**{"max_iter": 6, "random_state": 0, "lr": 0.01, **options})
    try:
        student.fit_by_passes(
            target_rows(X, Q, block_rows=64),
            n_classes=L,
            criterion=SoftCrossEntropy(),
            memory=2**14,  # a buffer of some of the rows
            progress=progress,
            checkpoint=None if folder is None else storage_path(folder),
            key=key,
        )
    except MemoryError:
        return None, epochs
    return student, epochs


@pytest.mark.parametrize(
    "options", [{}, {"patience": 2, "lr": 0.1}, {"optimizer": "sgd"}, {"precision": "float16"}]
)
def test_a_killed_run_comes_to_the_same_result(tmp_path: Path, options: Any) -> None:
    X, _ = problem()
    whole, all_epochs = fit(None, **options)
    assert fit(tmp_path / "new", killed_after=2, **options) == (None, [1, 2, 3])
    assert (tmp_path / "new" / _checkpoint.FILE).exists()
    student, epochs = fit(tmp_path / "new", **options)
    assert epochs == all_epochs[2:]
    np.testing.assert_array_equal(student.predict_logits(X), whole.predict_logits(X))
    same = [{k: v for k, v in row.items() if k != "dur"} for row in student.history_]
    assert same == [{k: v for k, v in row.items() if k != "dur"} for row in whole.history_]
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [{"key": "other"}, {"random_state": 1}, {"lr": 0.02}, {"batch_size": 64}, {"optimizer": "adamw"}],
)
def test_another_training_starts_anew(tmp_path: Path, change: Any) -> None:
    fit(tmp_path, killed_after=2)
    _, epochs = fit(tmp_path, **change)
    assert epochs[0] == 1


def test_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    fit(tmp_path, killed_after=2)
    file = tmp_path / _checkpoint.FILE
    for content in (b"", file.read_bytes()[:-200], b"PK\x03\x04 nonsense"):
        file.write_bytes(content)
        student, epochs = fit(tmp_path, max_iter=1)
        assert epochs == [1]
        assert student is not None


def test_checkpoints_are_not_written_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checkpoint, "INTERVAL", 60.0)
    fit(tmp_path, killed_after=4)
    assert not list(tmp_path.iterdir())
