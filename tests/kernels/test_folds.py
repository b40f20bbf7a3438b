"""Folds spread every class evenly, and never hold out the only row of a class."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.kernels.folds import held_out_folds, stratified_folds

CODES = np.repeat(np.arange(6), [1, 2, 5, 7, 13, 1])


@pytest.mark.parametrize("shuffle", ["rows", "classes"])
def test_every_class_is_spread_evenly(shuffle: str) -> None:
    folds = stratified_folds(CODES, 5, np.random.RandomState(0), shuffle=shuffle)
    for code in range(6):
        assert np.ptp(np.bincount(folds[code == CODES], minlength=5)) <= 1
    again = stratified_folds(CODES, 5, np.random.RandomState(0), shuffle=shuffle)
    other = stratified_folds(CODES, 5, np.random.RandomState(1), shuffle=shuffle)
    assert np.array_equal(folds, again)
    assert not np.array_equal(folds, other)


@pytest.mark.parametrize("shuffle", ["rows", "classes"])
def test_folds_have_about_the_same_size(shuffle: str) -> None:
    """Also where every class has fewer rows than there are folds."""
    folds = stratified_folds(np.repeat(np.arange(10), 2), 5, np.random.RandomState(0), shuffle=shuffle)
    assert np.bincount(folds, minlength=5).tolist() == [4] * 5


@pytest.mark.parametrize("shuffle", ["rows", "classes"])
def test_the_only_row_of_a_class_is_never_held_out(shuffle: str) -> None:
    folds = held_out_folds(CODES, 5, np.random.RandomState(0), shuffle=shuffle)
    assert np.flatnonzero(folds < 0).tolist() == [0, len(CODES) - 1]


def test_at_most_so_many_rows_are_held_out_and_the_others_keep_their_folds() -> None:
    codes = np.arange(300) % 3
    every = held_out_folds(codes, 5, np.random.RandomState(0), shuffle="classes")
    some = held_out_folds(codes, 5, np.random.RandomState(0), shuffle="classes", max_rows=40)
    assert np.count_nonzero(some >= 0) == 40
    assert np.array_equal(some[some >= 0], every[some >= 0])
    assert set(np.flatnonzero(some >= 0)) != set(range(40))


def test_recorded_figures_depend_on_these_draws() -> None:
    """A change here changes every ranking, and every check of a distiller."""
    codes = np.array([1, 0, 1, 1, 0, 0, 1, 0, 2])
    rows = held_out_folds(codes, 3, np.random.RandomState(7))
    classes = held_out_folds(codes, 3, np.random.RandomState(7), shuffle="classes", max_rows=7)
    assert rows.tolist() == [2, 1, 1, 1, 2, 0, 0, 0, -1]
    assert classes.tolist() == [0, 2, 2, 1, 1, 0, -1, 0, -1]
