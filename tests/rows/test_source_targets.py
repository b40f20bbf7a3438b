"""Rows of a source with their targets, for a student that learns by passes."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.rows import HeldRows
from consilience.rows.source_targets import SourceTargets

N = 20
ROWS = np.arange(float(N))[:, None]
TARGETS = np.column_stack([ROWS, -ROWS, 2 * ROWS, -2 * ROWS]).astype(np.float32)
USED = (np.arange(N) >= 4) & (np.arange(N) % 3 > 0)


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> SourceTargets:
    """Rows of which the first block, and every third row, are not used."""
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 4)
    return SourceTargets(HeldRows(ROWS), USED, lambda rows: TARGETS[rows], lambda X: 10 * X, 4)


def test_rows_that_are_not_used_are_left_out(targets: SourceTargets) -> None:
    known = np.flatnonzero(USED)
    parts = [targets.read(block) for stretch in targets.stretches for block in stretch]
    assert targets.n_rows == len(known) == sum(len(part[1]) for part in parts)
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), 10 * ROWS[known])
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), TARGETS[known])
    assert len(parts[0][1]) == 0
    numbers = [targets.row_number(b, i) for b, part in enumerate(parts) for i in range(len(part[1]))]
    assert numbers == known.tolist()
    assert targets.n_bytes == 8 * len(known)


def test_a_sample_has_its_own_targets(targets: SourceTargets) -> None:
    X, found, weights = targets.sample(10, seed=0)
    places = (X.ravel() / 10).astype(int)
    assert 0 < len(places) <= 10
    assert USED[places].all()
    assert weights is None
    np.testing.assert_array_equal(found, TARGETS[places])
    assert found.dtype == np.float32
