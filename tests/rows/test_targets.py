"""Rows and their targets, read block by block."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier
from tests.rows.rows import target_rows

from consilience import ConsilienceWarning
from consilience.exceptions import InvalidInputError
from consilience.rows import HeldRows, targets
from consilience.rows.targets import Epochs, TargetRows, in_random_order, is_sorted, look_at, windows
from consilience.students import Classifier, Network


def numbered(n: int, block_rows: int = 16, weights: Any = None) -> TargetRows:
    numbers = np.arange(n, dtype=float)[:, None]
    return target_rows(numbers, 2 * numbers, weights, block_rows=block_rows)


def joined(rows: TargetRows) -> list[Any]:
    return [np.concatenate(parts) for parts in zip(*rows.parts(), strict=True) if parts[0] is not None]


def test_epochs_are_parts_of_long_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "EPOCH_ROWS", 100)
    monkeypatch.setattr(targets, "ROW_VISITS", 650)
    assert Epochs.of(1000, 50, limited=True) == (1000, 10, 10)  # at least a pass
    assert Epochs.of(300, 50, limited=True) == (300, 3, 6)
    assert Epochs.of(10, 50, limited=True) == (10, 1, 50)
    assert Epochs.of(1000, 4, limited=False) == (1000, 10, 40)  # as the user says
    cut = Epochs.of(295, 2, limited=False)
    assert [cut.end(epoch, 29) for epoch in range(-1, 6)] == [0, 9, 19, 29, 38, 48, 58]


def test_rows_that_are_not_used_are_left_out() -> None:
    used = (np.arange(20) >= 4) & (np.arange(20) % 3 > 0)
    X = np.arange(20.0)[:, None]
    rows = TargetRows(HeldRows(X, rows_of_a_block=4), X.repeat(4, axis=1), None, used, lambda X: 10 * X)
    known = np.flatnonzero(used)
    for found, goals, weights in ((*joined(rows), None), rows.everything()):
        np.testing.assert_array_equal(found, 10 * X[known])
        np.testing.assert_array_equal(goals, X[known].repeat(4, axis=1))
        assert weights is None
        assert goals.dtype == np.float32
    assert (rows.n_rows, rows.n_columns, rows.n_bytes) == (len(known), 4, 8 * len(known))
    assert [rows.rows_in(block) for block in rows.numbers] == [0, 3, 3, 2, 3]
    assert rows.row_number(7) == 7
    few, goals, _ = rows.sample(10, seed=0)
    np.testing.assert_array_equal(few, 10 * goals[:, :1])
    assert used[goals[:, 0].astype(int)].all()
    assert 0 < len(few) <= 10
    with pytest.raises(InvalidInputError, match="no rows"):
        numbered(0).everything()


@pytest.mark.parametrize("count", [2, 5])
def test_shares_are_fair_and_have_every_row_once(count: int) -> None:
    rows = numbered(300)
    shares = [rows.share(place, count) for place in range(count)]
    assert sorted(np.concatenate([joined(share)[0].ravel() for share in shares])) == list(range(300))
    assert max(share.n_rows for share in shares) - min(share.n_rows for share in shares) <= 16
    assert len(shares[0].sample(300, 0)[0]) == 300  # of all


@pytest.mark.parametrize("n", [20, 300, 5000])
def test_the_share_held_out_is_exact_and_the_rest_is_found_again(n: int) -> None:
    rows = numbered(n)
    look = look_at(rows, 3, fraction=0.2, n_sample=50)
    held = look.measured[0].ravel()
    assert len(set(held)) == n - look.rest.n_rows == np.ceil(0.2 * n)
    np.testing.assert_array_equal(look.measured[1], 2 * look.measured[0])
    assert sorted([*joined(look.rest)[0].ravel(), *held]) == list(range(n))
    assert not set(look.sample[0].ravel()) & set(held)
    assert len(look.sample[0]) == min(50, n - len(held))
    assert abs(held.mean() - n / 2) < n / 3
    again, other = (look_at(rows, seed, fraction=0.2, n_sample=50).measured for seed in (3, 4))
    np.testing.assert_array_equal(again[0], look.measured[0])
    assert set(other[0].ravel()) != set(held)


def test_few_blocks_are_looked_at_and_few_rows_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_LOOKED_AT", 10)
    monkeypatch.setattr(targets, "MOST_HELD_OUT", 30)
    look = look_at(numbered(1600), 0, fraction=0.1, n_sample=20)
    assert len(set((look.measured[0].ravel() // 16).tolist())) <= 10
    assert (len(look.measured[0]), look.rest.n_rows) == (30, 1570)
    alone = look_at(numbered(19), 0, fraction=0.5, n_sample=5)  # too few to hold some out
    assert (alone.measured, alone.rest.n_rows) == (None, 19)


@pytest.mark.parametrize("kind", [np.asarray, csr_array, pd.DataFrame, lambda X: [str(x) for x in X.ravel()]])
def test_windows_serve_each_row_once_in_bounded_memory(kind: Any) -> None:
    numbers = np.arange(100.0)[:, None]
    rows = target_rows(kind(numbers), numbers, np.arange(100), block_rows=8)
    look = look_at(rows, 0, fraction=0.2, n_sample=5)
    n_bytes = 2 * 30 * rows.row_bytes  # windows of up to 30 rows
    orders = []
    for seed in (0, 1):
        parts = list(windows(look.rest, np.random.default_rng(seed), n_bytes))
        assert max(len(part[1]) for part in parts) <= 30
        for X, goals, weights in parts:
            values = X.toarray().ravel() if hasattr(X, "toarray") else np.asarray(X).ravel()
            np.testing.assert_array_equal(values.astype(float), goals.ravel())
            np.testing.assert_array_equal(weights, goals.ravel())
        orders.append(np.concatenate([part[1].ravel() for part in parts]).tolist())
    assert orders[0] != orders[1]
    assert len(set(orders[0])) == 80
    assert set(orders[0]).isdisjoint(look.measured[1].ravel())


N, L = 6000, 5
random = np.random.default_rng(0)
y = random.integers(L, size=N)
X = (np.eye(L)[y] * 2 + random.normal(size=(N, L))).astype(np.float32)
Q = (np.eye(L)[y] * 0.8 + 0.2 / L).astype(np.float32)
SORTED = np.argsort(y, kind="stable")


def in_order(order: Any = slice(None), weights: Any = None) -> TargetRows:
    return target_rows(X[order], Q[order], weights, block_rows=500)


def test_sorted_rows_are_found() -> None:
    assert is_sorted(in_order(SORTED), 0)
    assert not is_sorted(in_order(), 0)
    drift = np.argsort(y + 8 * random.normal(size=N))  # half of a percent of the variance
    assert not is_sorted(in_order(drift), 0)


def test_a_copy_has_every_row_once_with_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "BLOCK_ROWS", 128)
    given = in_order(SORTED, np.arange(N))
    found = in_random_order(given, N * given.row_bytes / 4, seed=0)
    moved, goals, weights = joined(found)
    places = weights.astype(int)
    assert sorted(places.tolist()) == list(range(N))
    np.testing.assert_array_equal(moved, X[SORTED][places])
    np.testing.assert_array_equal(goals, Q[SORTED][places])
    assert [found.row_number(place) for place in range(N)] == places.tolist()
    assert len(found.stretches) == 8
    for stretch in found.stretches:  # each is a sample of all rows
        mean = np.concatenate([found.read(block)[1] for block in stretch]).mean(axis=0)
        np.testing.assert_allclose(mean, Q.mean(axis=0), atol=0.06)


def test_copies_are_made_only_where_they_help(monkeypatch: pytest.MonkeyPatch) -> None:
    size = N * in_order().row_bytes
    for given, n_bytes in ((in_order(), size / 9), (in_order(SORTED), size)):
        assert in_random_order(given, n_bytes, 0) is given
    texts = target_rows([str(i) for i in range(N)], Q[SORTED], block_rows=500)
    with pytest.warns(ConsilienceWarning, match=r"are sorted.*only arrays of numbers.*Shuffle the files"):
        assert in_random_order(texts, 1000, 0) is texts

    class Usage:
        free = 1000

    monkeypatch.setattr(targets.shutil, "disk_usage", lambda folder: Usage)
    given = in_order(SORTED)
    with pytest.warns(ConsilienceWarning, match="does not fit on the disk"):
        assert in_random_order(given, 1000, 0) is given


@pytest.mark.parametrize(
    ("student", "module"),
    [
        (Network(max_iter=3, lr=0.01, patience=None, random_state=0), "batches"),
        (
            Classifier(MLPClassifier((16,), max_iter=3, learning_rate_init=0.01), random_state=0),
            "partial_fit",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_students_learn_sorted_rows_as_well(
    student: Any, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = int(0.1 * N * in_order().row_bytes)
    monkeypatch.setattr(f"consilience.students.{module}.BUFFER", room)

    def accuracy(order: Any) -> float:
        learner = clone(student)
        learner.learn(in_order(order), np.ones(L))
        predict = getattr(learner, "predict_logits", None) or learner.estimator_.predict_proba
        return float((predict(X).argmax(axis=1) == y).mean())

    assert accuracy(SORTED) > accuracy(random.permutation(N)) - 0.02
