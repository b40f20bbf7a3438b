"""Folds, and regressions on the other folds."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from consilience.kernels.held_out import (
    held_out_folds,
    held_out_log_proba,
    sketch_columns,
    standard_units,
    stratified_folds,
    thin,
)

CODES = np.repeat(np.arange(6), [1, 2, 5, 7, 13, 1])


def test_every_class_is_spread_evenly() -> None:
    folds = stratified_folds(CODES, 5, np.random.RandomState(0))
    for code in range(6):
        assert np.ptp(np.bincount(folds[code == CODES], minlength=5)) <= 1
    again = stratified_folds(CODES, 5, np.random.RandomState(0))
    other = stratified_folds(CODES, 5, np.random.RandomState(1))
    assert np.array_equal(folds, again)
    assert not np.array_equal(folds, other)


def test_folds_have_about_the_same_size() -> None:
    """Also where every class has fewer rows than there are folds."""
    folds = stratified_folds(np.repeat(np.arange(10), 2), 5, np.random.RandomState(0))
    assert np.bincount(folds, minlength=5).tolist() == [4] * 5


def test_the_only_row_of_a_class_is_never_held_out() -> None:
    folds = held_out_folds(CODES, 5, np.random.RandomState(0))
    assert np.flatnonzero(folds < 0).tolist() == [0, len(CODES) - 1]


def test_at_most_so_many_rows_are_held_out_and_the_others_keep_their_folds() -> None:
    codes = np.arange(300) % 3
    every = held_out_folds(codes, 5, np.random.RandomState(0))
    some = held_out_folds(codes, 5, np.random.RandomState(0), max_rows=40)
    assert np.count_nonzero(some >= 0) == 40
    assert np.array_equal(some[some >= 0], every[some >= 0])
    assert set(np.flatnonzero(some >= 0)) != set(range(40))


def test_held_out_rows_are_predicted_from_the_others_only() -> None:
    random = np.random.RandomState(0)
    codes = np.arange(40) % 2
    rows = random.normal(size=(40, 3)).astype(np.float32)
    rows[:, 0] += 9 * codes
    folds = np.arange(40) % 5
    folds[:4] = -1
    before = held_out_log_proba(rows, codes, 2, folds)
    assert before.worst is not None
    assert before.worst.converged
    np.testing.assert_allclose(np.exp(before.log_proba[4:]).sum(axis=1), 1, rtol=1e-5)
    assert (before.log_proba[:4] == 0).all()
    assert (before.log_proba[4:].argmax(axis=1) == codes[4:]).all()
    # the label of a held-out row does not change what is predicted for its fold, and does for the others
    flipped = codes.copy()
    flipped[7] = 1 - flipped[7]
    after = held_out_log_proba(rows, flipped, 2, folds).log_proba
    own = folds == folds[7]
    np.testing.assert_array_equal(after[own], before.log_proba[own])
    assert not np.array_equal(after[~own & (folds >= 0)], before.log_proba[~own & (folds >= 0)])
    # rows that are never held out are learnt from
    flipped = codes.copy()
    flipped[0] = 1 - flipped[0]
    assert not np.array_equal(held_out_log_proba(rows, flipped, 2, folds).log_proba, before.log_proba)


def test_without_folds_nothing_is_predicted() -> None:
    found = held_out_log_proba(np.ones((3, 2), np.float32), np.arange(3), 3, np.full(3, -1))
    assert found.worst is None
    assert (found.log_proba == 0).all()


def test_a_sketch_keeps_inner_products_and_is_the_same_for_sparse_rows() -> None:
    random = np.random.RandomState(0)
    rows = random.normal(size=(30, 5000)).astype(np.float32)
    rows[:15, :400] += 1.0
    rows += 3.0  # no column is centred already
    sketch = sketch_columns(rows, 512)
    assert sketch.shape == (30, 512)
    mean, scale = standard_units(rows.mean(axis=0), rows.std(axis=0))
    standard = (rows - mean) / scale
    lengths = np.linalg.norm(standard, axis=1)
    error = (sketch @ sketch.T - standard @ standard.T) / np.outer(lengths, lengths)
    assert np.sqrt((error**2).mean()) < 2 / np.sqrt(512)
    np.testing.assert_allclose(sketch_columns(csr_array(rows), 512), sketch, atol=1e-2)


def test_columns_that_hardly_vary_do_not_blow_up() -> None:
    _, scale = standard_units(np.zeros(3), np.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(scale, [0.1, 1.1, 2.1])
    assert standard_units(np.zeros(2), np.zeros(2))[1].min() > 0


@pytest.mark.parametrize("seed", range(5))
def test_thinning_keeps_sums_and_what_fits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(100):
        weights = rng.dirichlet(np.ones(20)) ** rng.integers(1, 4) * (rng.random(20) < 0.8)
        size = int(rng.integers(1, 25))
        kept, picked = thin(weights, size, rng.random(size))
        assert len(kept) <= size
        assert (weights[kept] > 0).all()
        np.testing.assert_allclose(picked.sum(), weights.sum())
        if np.count_nonzero(weights) <= size:
            np.testing.assert_allclose(picked, weights[kept])


def test_thinning_is_right_on_average() -> None:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(12, 0.5))
    total = np.zeros(12)
    for _ in range(4000):
        kept, picked = thin(weights, 5, rng.random(5))
        total[kept] += picked
    np.testing.assert_allclose(total / 4000, weights, atol=0.01)
