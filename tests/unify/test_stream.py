"""Rows of a source with their targets, for a student that learns by passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.labels import LabelSpace
from consilience.rows import HeldRows
from consilience.rows.source_targets import SourceTargets
from consilience.unify.stream import Streamed, packed_targets

N = 20
ROWS = np.arange(float(N))[:, None]
SPACE = LabelSpace([["a", "b"], ["b", "c"]])
LOGITS = np.column_stack([ROWS, -ROWS, 2 * ROWS, -2 * ROWS]).astype(np.float32)


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> Streamed:
    """Rows of which nothing is known in the first block, and in every third row."""
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 4)
    covered = (np.arange(N) >= 4) & (np.arange(N) % 3 > 0)
    zeros, ones = np.zeros(2, dtype=int), np.ones(2)
    return Streamed([], SPACE, HeldRows(ROWS), LOGITS, None, covered, zeros, ones, 0.0)


def targets_of(streamed: Streamed) -> SourceTargets:
    return SourceTargets(streamed.source, streamed.covered, lambda rows: LOGITS[rows], lambda X: 10 * X, 4)


def test_rows_of_which_nothing_is_known_are_left_out(streamed: Streamed) -> None:
    targets = targets_of(streamed)
    known = np.flatnonzero(streamed.covered)
    parts = [targets.read(block) for stretch in targets.stretches for block in stretch]
    assert targets.n_rows == len(known) == sum(len(part[1]) for part in parts)
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), 10 * ROWS[known])
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), LOGITS[known])
    assert len(parts[0][1]) == 0
    numbers = [targets.row_number(b, i) for b, part in enumerate(parts) for i in range(len(part[1]))]
    assert numbers == known.tolist()
    assert targets.n_bytes == 8 * len(known)


def test_a_sample_has_its_own_targets(streamed: Streamed) -> None:
    X, found, weights = targets_of(streamed).sample(10, seed=0)
    places = (X.ravel() / 10).astype(int)
    assert 0 < len(places) <= 10
    assert streamed.covered[places].all()
    assert weights is None
    np.testing.assert_array_equal(found, LOGITS[places])
    assert found.dtype == np.float32


def test_logits_are_divided_by_temperatures(streamed: Streamed) -> None:
    heated = streamed.heated(np.array([2.0, 4.0]), 0.0)
    assert heated.logits(slice(1, 2)).tolist() == [[0.5, -0.5, 0.5, -0.5]]
    assert heated.compared().shape == (N, 4)
    smooth: Any = streamed.heated(np.ones(2), 0.1).logits(slice(19, 20))
    assert smooth.min() > LOGITS.min()


def test_known_labels_are_one_more_teacher(streamed: Streamed) -> None:
    assert packed_targets(streamed)[0] is SPACE
    labels = np.full(N, -1)
    labels[7] = 2
    known = Streamed(**{**vars(streamed), "labels": labels})
    space, targets = packed_targets(known)
    assert space.n_teachers == 3
    for rows, answered in ((slice(6, 9), [False, True, False]), (slice(12, 16), [False] * 4)):
        packed = targets(rows)
        assert packed.shape[1] == space.n_columns
        expected = np.where(np.array(answered)[:, None], np.nan, LOGITS[rows])  # the label is the last word
        np.testing.assert_array_equal(packed[:, :4], expected)
        assert (~np.isnan(packed[:, 4:]).any(axis=1)).tolist() == answered
    assert targets(slice(7, 8))[0, 4:].argmax() == list(space.classes).index("c")
