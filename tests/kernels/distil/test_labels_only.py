"""What labels alone tell about held-out rows, and the sketch of wide rows."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from consilience.kernels.distil.labels_only import held_out_log_proba, sketch_columns, standard_units


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
