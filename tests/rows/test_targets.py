"""Rows and their targets, read block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from consilience.exceptions import InvalidInputError
from consilience.rows import targets
from consilience.rows.targets import ArrayTargets, Epochs, check_block, look_at, read_everything, windows


def numbered(n: int, block_rows: int = 16, weights: Any = None) -> ArrayTargets:
    numbers = np.arange(n, dtype=float)[:, None]
    return ArrayTargets(numbers, 2 * numbers, weights, block_rows=block_rows)


def test_epochs_are_parts_of_long_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "EPOCH_ROWS", 100)
    monkeypatch.setattr(targets, "ROW_VISITS", 650)
    assert Epochs.of(1000, 50, limited=True) == (1000, 10, 10)  # at least a pass
    assert Epochs.of(300, 50, limited=True) == (300, 3, 6)
    assert Epochs.of(10, 50, limited=True) == (10, 1, 50)
    assert Epochs.of(1000, 4, limited=False) == (1000, 10, 40)  # as the user says
    cut = Epochs.of(295, 2, limited=False)
    assert [cut.end(epoch, 29) for epoch in range(-1, 6)] == [0, 9, 19, 29, 38, 48, 58]


@pytest.mark.parametrize("n", [20, 300, 5000])
def test_the_share_held_out_is_exact_and_the_rest_is_found_again(n: int) -> None:
    rows = numbered(n)
    look = look_at(rows, 3, fraction=0.2, n_sample=50)
    assert look.measured is not None
    held = look.measured[0].ravel()
    assert len(set(held)) == look.n_held_out == np.ceil(0.2 * n)
    np.testing.assert_array_equal(look.measured[1], 2 * look.measured[0])
    left = []
    for stretch in rows.stretches:
        for block in stretch:
            X = rows.read(block)[0]
            rest = look.held_out.rest(block, len(X))
            left.append(X if rest is None else X[rest])
    assert sorted([*np.concatenate(left).ravel(), *held]) == list(range(n))
    assert not set(look.sample[0].ravel()) & set(held)
    assert 0 < len(look.sample[0]) < 120
    assert abs(held.mean() - n / 2) < n / 3


def test_another_seed_holds_out_other_rows() -> None:
    rows = numbered(300)
    first, again, other = (look_at(rows, seed, fraction=0.1, n_sample=9).measured for seed in (0, 0, 1))
    assert first is not None
    assert again is not None
    assert other is not None
    np.testing.assert_array_equal(first[0], again[0])
    assert set(first[0].ravel()) != set(other[0].ravel())


def test_few_blocks_are_looked_at_and_few_rows_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_LOOKED_AT", 10)
    monkeypatch.setattr(targets, "MOST_HELD_OUT", 30)
    rows = numbered(1600)
    look = look_at(rows, 0, fraction=0.1, n_sample=20)
    assert len(look.held_out.blocks) == 10
    assert look.n_held_out == 30


def test_nothing_is_held_out_of_few_rows() -> None:
    look = look_at(numbered(19), 0, fraction=0.5, n_sample=5)
    assert look.measured is None
    assert look.n_held_out == 0
    assert look.held_out.rest(0, 16) is None


@pytest.mark.parametrize("kind", [np.asarray, csr_array, pd.DataFrame, lambda X: [str(x) for x in X.ravel()]])
def test_windows_serve_each_row_once_in_bounded_memory(kind: Any) -> None:
    numbers = np.arange(100.0)[:, None]
    rows = ArrayTargets(kind(numbers), numbers, np.arange(100), block_rows=8)
    look = look_at(rows, 0, fraction=0.2, n_sample=5)
    n_bytes = 2 * 30 * rows.row_bytes  # windows of up to 30 rows
    orders = []
    for seed in (0, 1):
        parts = list(windows(rows, np.random.default_rng(seed), n_bytes, look.held_out))
        assert max(len(part[1]) for part in parts) <= 30
        for X, goals, weights in parts:
            values = X.toarray().ravel() if hasattr(X, "toarray") else np.asarray(X).ravel()
            np.testing.assert_array_equal(values.astype(float), goals.ravel())
            np.testing.assert_array_equal(weights, goals.ravel())
        orders.append(np.concatenate([part[1].ravel() for part in parts]).tolist())
    assert orders[0] != orders[1]
    assert len(set(orders[0])) == 80
    assert look.measured is not None
    assert set(orders[0]).isdisjoint(look.measured[1].ravel())


def test_everything_can_be_read() -> None:
    X, goals, weights = read_everything(numbered(50))
    assert X.ravel().tolist() == list(range(50))
    assert goals.shape == (50, 1)
    assert weights is None
    with pytest.raises(InvalidInputError, match="no rows"):
        read_everything(numbered(0))


def test_blocks_that_do_not_fit_together_are_named() -> None:
    rows = numbered(20)
    X, goals, _ = rows.read(0)
    with pytest.raises(InvalidInputError, match=r"Block 0 has 15 rows and targets of shape \(16, 1\)"):
        check_block((X[:15], goals, None), rows, 0)
    with pytest.raises(InvalidInputError, match=r"row weights of shape \(3,\); expected \(16,\)"):
        check_block((X, goals, np.ones(3, np.float32)), rows, 0)


def test_a_sample_is_random_and_at_most_all() -> None:
    rows = numbered(40, weights=np.ones(40))
    X, goals, weights = rows.sample(10, 0)
    assert len(set(X.ravel())) == len(goals) == 10
    assert weights is not None
    assert len(rows.sample(100, 0)[0]) == 40
    assert rows.row_number(1, 3) == 19
