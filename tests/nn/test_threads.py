"""A torch student uses one thread for small steps, and leaves torch as it was."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")

from torch import nn  # noqa: E402

from consilience.nn import SoftCrossEntropy  # noqa: E402
from consilience.students import Network  # noqa: E402
from consilience.students._threads import SMALL_STEP, multiplications_per_row, one_torch_thread  # noqa: E402

X = np.random.default_rng(0).normal(size=(40, 6))
Q = np.full((40, 2), 0.5)


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


class Counting(nn.Linear):
    """A layer that notes torch's number of threads."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__(n_features, n_classes)
        self.threads: set[int] = set()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if len(rows) > 2:  # not while it is only looked at
            self.threads.add(torch.get_num_threads())
        return super().forward(rows)


@pytest.mark.parametrize(("batch_size", "expected"), [(16, 1), (SMALL_STEP // 12 + 1, 3)])
def test_small_steps_have_one_thread_and_large_ones_all(batch_size: int, expected: int) -> None:
    student = Network(Counting, max_iter=2, batch_size=batch_size, random_state=0)
    student.fit(X, Q, n_classes=2, criterion=SoftCrossEntropy())
    assert student.module_.threads == {expected}
    assert torch.get_num_threads() == 3
    student.predict_logits(X)
    assert student.module_.threads == {expected, 1}  # the forty rows are little work in any case


def test_one_thread_of_the_user_stays() -> None:
    torch.set_num_threads(1)
    student = Network(Counting, max_iter=1, batch_size=SMALL_STEP, random_state=0)
    student.fit(X, Q, n_classes=2, criterion=SoftCrossEntropy())
    assert student.module_.threads == {1}
    assert torch.get_num_threads() == 1


def test_many_threads_at_once_leave_the_number_as_it_was() -> None:
    def hammer(_: int) -> int:
        for _ in range(200):
            with one_torch_thread():
                torch.ones(4) @ torch.ones(4)
        return int(torch.get_num_threads())

    for _ in range(3):
        with ThreadPoolExecutor(9) as pool:
            assert set(pool.map(hammer, range(9))) == {3}
        assert torch.get_num_threads() == 3


def test_multiplications_are_counted_where_torch_can() -> None:
    rows = torch.zeros(2, 3, 8, 8)
    convolution = nn.Conv2d(3, 5, 3, padding=1)
    assert multiplications_per_row(convolution, rows) == 5 * 27 * 64
    assert multiplications_per_row(convolution, rows, "cuda") == float("inf")
    assert multiplications_per_row(nn.Sequential(nn.LSTM(8, 4)), torch.zeros(2, 5, 8)) == float("inf")
