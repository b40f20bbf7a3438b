"""Torch students that learn from rows read block by block."""

import os
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.rows.rows import target_rows  # noqa: E402
from torch import nn  # noqa: E402

from consilience.exceptions import InvalidInputError  # noqa: E402
from consilience.nn import SoftCrossEntropy  # noqa: E402
from consilience.rows import HeldRows, Rows  # noqa: E402
from consilience.rows.targets import Epochs, TargetRows  # noqa: E402
from consilience.students import Network, batches  # noqa: E402
from consilience.students.batches import Blocks, ShuffledBatches  # noqa: E402

L = 3
CENTRES = 2.5 * np.random.default_rng(5).normal(size=(L, 4))


def problem(n: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(L, size=n)
    X = (rng.normal(size=(n, 4)) + CENTRES[y]).astype(np.float32)
    return X, (0.1 / L + 0.9 * np.eye(L)[y]).astype(np.float32), y


def fit(rows: Any, criterion: Any = None, **options: Any) -> Network:
    options = {"max_iter": 5, "lr": 0.01, "random_state": 0, **options}
    criterion = criterion or SoftCrossEntropy()
    student = Network(options.pop("module", None), **options)
    return student.learn_loss(rows, L, criterion)


def served(n: int, capacity: int, *, parts: int = 1, batch_size: int = 8, **options: Any) -> Any:
    """Batches of rows that are their own number, in blocks of 10."""
    numbers = np.arange(n, dtype=np.float32)[:, None]
    rows = target_rows(numbers, 2 * numbers, block_rows=10)
    blocks = Blocks(rows, None, torch.zeros(1, 1))
    options = {"num_workers": 0, "seed": 0, **options}
    return ShuffledBatches(
        blocks, Epochs(n, parts, parts), batch_size=batch_size, capacity=capacity, **options
    )


@pytest.mark.parametrize("capacity", [16, 40, 100])
@pytest.mark.parametrize("parts", [1, 3])
def test_each_pass_serves_each_row_once_in_another_order(capacity: int, parts: int) -> None:
    data = served(100, capacity, parts=parts)
    passes = []
    for _ in range(3):
        batches = [batch for _ in range(parts) for batch in data.epoch()]
        assert [len(X) for X, _ in batches] == [8] * 12 + [4]
        assert all(torch.equal(doubled, 2 * X) for X, doubled in batches)
        passes.append(torch.cat([X for X, _ in batches]).flatten().tolist())
    assert [sorted(rows) for rows in passes] == [list(range(100))] * 3
    assert passes[0] != passes[1] != passes[2]


def test_a_buffer_mixes_rows_of_far_blocks() -> None:
    first = torch.cat([X for X, _ in served(1000, 400).epoch()][:10]).flatten()
    assert len(set((first // 10).tolist())) > 20


def test_rows_that_fit_in_the_buffer_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    plain = TargetRows.read
    monkeypatch.setattr(TargetRows, "read", lambda self, block: read.append(block) or plain(self, block))
    for capacity, times in ((100, 1), (50, 3)):
        data = served(100, capacity)
        for _ in range(3):
            list(data.epoch())
        assert len(read) == 10 * times
        read.clear()


def test_a_last_batch_of_one_row_is_left_out() -> None:
    data = served(97, 30)
    first, second = ({int(row) for X, _ in data.epoch() for row in X} for _ in range(2))
    assert len(first) == len(second) == 96
    assert first != second


def test_a_small_buffer_teaches_as_much_as_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Q, _ = problem(600)
    Xt, _, yt = problem(4000, seed=1)
    rows = target_rows(X, Q, block_rows=50)
    scores = []
    for size in (2**12, 2**22):
        monkeypatch.setattr(batches, "BUFFER", size)
        students = [fit(rows, max_iter=30, random_state=seed, lr=1e-3) for seed in range(3)]
        scores.append([(student.predict_logits(Xt).argmax(axis=1) == yt).mean() for student in students])
    small, large = np.mean(scores, axis=1)
    assert small > large - 0.01


def test_same_seed_same_result_for_any_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BUFFER", 2**11)
    X, Q, _ = problem(300)
    rows = target_rows(X, Q, block_rows=32)
    logits = [fit(rows, num_workers=workers, max_iter=2).predict_logits(X) for workers in (0, 0, 2)]
    np.testing.assert_array_equal(logits[1:], [logits[0]] * 2)
    assert not np.array_equal(logits[0], fit(rows, random_state=1, max_iter=2).predict_logits(X))


def test_weights_of_rows_count() -> None:
    X, Q, y = problem(400)
    lies = np.arange(400) < 200
    wrong = np.where(lies[:, None], np.roll(Q, 1, axis=1), Q)
    rows = target_rows(X, wrong, np.where(lies, 0.001, 1.0), block_rows=64)
    student = fit(rows, criterion=SoftCrossEntropy(weighted=True), max_iter=15)
    assert (student.predict_logits(X).argmax(axis=1) == y).mean() > 0.9


def test_what_is_wrong_with_a_block_is_said() -> None:
    X, Q, _ = problem(100)
    X[77, 1] = np.nan
    with pytest.raises(InvalidInputError, match="not finite in row 77"):
        fit(target_rows(X, Q, block_rows=32), validation_fraction=0.0, module=nn.Linear(4, L))
    with pytest.raises(InvalidInputError, match="no rows"):
        fit(target_rows(X[:0], Q[:0]))


def test_blocks_without_rows_are_no_problem() -> None:
    X, Q, y = problem(300)
    rows = TargetRows(HeldRows(X, rows_of_a_block=50), Q, used=np.arange(300) // 50 % 2 == 0)
    rows.stretches = [range(3), range(3, 6)]
    assert (fit(rows, max_iter=10).predict_logits(X).argmax(axis=1) == y).mean() > 0.85


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads the memory from /proc")
def test_memory_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    class Made(Rows):
        """Rows that are made when they are read."""

        borders = np.arange(65) * 2**14

        def read(self, block: int) -> Any:
            most.append(resident())
            return np.tile(problem(2**14, seed=block)[0], 16)

    most: list[int] = []
    rows = TargetRows(Made(), np.tile(problem(2**14)[1], (64, 1)))
    before = resident()
    monkeypatch.setattr(batches, "BUFFER", 2**23)  # for 256 MB of rows
    fit(rows, max_iter=1, batch_size=4096, module=nn.Linear(64, L))
    assert max(most) - before < 130e6
