"""The check tells good teachers from bad."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from consilience.distil import teacher_check
from consilience.distil.teacher_check import MAX_COLUMNS, MAX_ROWS, MIN_ROWS, Folds, check_teacher
from consilience.exceptions import ConvergenceWarning
from consilience.kernels.distil import labels_only as kernel
from consilience.kernels.softmax_regression import fit_softmax_regression


def check(labels: np.ndarray, codes: np.ndarray, labels_only: np.ndarray | None = None) -> Any:
    """Check a teacher with these transported labels; without `labels_only`, the labels tell nothing."""
    return check_teacher("t", labels, codes, np.zeros(labels.shape) if labels_only is None else labels_only)


def labels_only_log_proba(X: Any, codes: np.ndarray, seed: int = 0) -> np.ndarray:
    return Folds.draw(X, codes, int(codes.max()) + 1, seed).labels_only_log_proba


CODES = np.arange(60) % 4
RIGHT = 0.6 * np.eye(4)[CODES] + 0.1
SURE = np.log(0.996 * np.eye(4)[CODES] + 0.001)


def test_teachers_are_told_apart() -> None:
    assert check(RIGHT, CODES).reliability == 1
    wrong, mixed = RIGHT[:, [1, 2, 3, 0]], RIGHT[np.random.RandomState(0).permutation(60)]
    for labels in (wrong, mixed, np.full((60, 4), 0.25)):
        found = check(labels, CODES)
        assert not found.used
        assert "nats" in found.reason
    assert check(wrong, CODES).gain == pytest.approx(0, abs=1e-6)


def test_a_teacher_who_says_what_the_labels_say_adds_nothing() -> None:
    found = check(RIGHT, CODES, SURE)
    assert found.gain > 0.5
    assert not found.used
    assert "no more than chance would" in found.reason
    half = np.where(np.arange(60)[:, None] % 2, SURE, 0.0)
    assert check(RIGHT, CODES, half).reliability == 1


def test_overconfident_teachers_count_less() -> None:
    flips = np.arange(60) % 3 == 0
    guess = np.where(flips, (CODES + 1) % 4, CODES)
    found = check(0.98 * np.eye(4)[guess] + 0.005, CODES)
    assert 0 < found.reliability < 0.6
    assert found.accuracy == pytest.approx(2 / 3)


def test_a_teacher_less_accurate_than_the_labels_counts_by_the_square_of_the_ratio() -> None:
    """It knows half of the classes; the labels know all, and are not sure of any."""
    known = CODES < 2
    labels = np.where(known[:, None], 0.8 * np.eye(4)[CODES] + 0.05, [0.3, 0.2, 0.25, 0.25])
    weak = np.log(0.1 * np.eye(4)[CODES] + 0.225)
    found = check(labels, CODES, weak)
    assert (found.accuracy, found.labels_only_accuracy) == (0.5, 1.0)
    assert not found.beats_labels
    # the power before the discount
    floored = np.log((1 - teacher_check.FLOOR) * labels + teacher_check.FLOOR / 4)
    power = teacher_check.best_power(weak, floored, CODES, teacher_check.PRICE)
    assert power > 0.5
    assert found.reliability == pytest.approx(0.25 * power)


def test_a_teacher_more_accurate_than_the_labels_is_not_raised_above_its_power() -> None:
    poor = np.log(np.where(np.arange(60)[:, None] % 4 < 2, 0.1 * np.eye(4)[CODES] + 0.225, 0.25))
    found = check(RIGHT, CODES, poor)
    assert found.accuracy > found.labels_only_accuracy
    assert found.beats_labels
    assert found.reliability == 1


def test_a_teacher_as_accurate_as_the_labels_is_used_on_unlabelled_rows() -> None:
    found = check(RIGHT, CODES, np.where(np.arange(60)[:, None] % 2, SURE, 0.01 * np.eye(4)[CODES]))
    assert found.accuracy == found.labels_only_accuracy == 1.0
    assert found.beats_labels


def test_a_few_rows_on_which_a_teacher_is_sure_and_wrong_do_not_decide() -> None:
    guess = np.where(np.arange(60) < 2, (CODES + 1) % 4, CODES)
    found = check(np.eye(4)[guess], CODES)
    assert found.reliability > 0.5


@pytest.mark.parametrize("shares", [(50, 10), (30, 20, 10), (7, 7, 7, 39), (1, 2, 57), (20, 20, 20)])
def test_a_constant_teacher_tells_nothing_even_where_it_names_the_most_frequent_class(
    shares: tuple[int, ...],
) -> None:
    codes = np.repeat(np.arange(len(shares)), shares)
    found = check(np.tile(np.array(shares) / 60, (60, 1)), codes)
    assert found.gain == pytest.approx(0, abs=1e-9)
    assert not found.used


def test_a_teacher_of_very_low_reliability_is_dropped() -> None:
    """It is hard to tell from chance in each row, and a thousand rows tell it from chance."""
    codes = np.arange(1000) % 4
    for right, used in ((310, False), (500, True)):
        guess = np.where(np.random.RandomState(0).permutation(1000) < right, codes, (codes + 1) % 4)
        found = check(np.eye(4)[guess], codes)
        assert found.gain > 1.645 * found.error
        assert found.added > 0
        assert found.used == used


def test_only_held_out_rows_are_judged() -> None:
    labels = RIGHT.copy()
    labels[30:] = np.nan
    found = check(labels, CODES)
    assert found.n_rows == 30
    assert found.added == pytest.approx(check(RIGHT[:30], CODES[:30]).added)


def test_too_few_rows_are_not_judged() -> None:
    for labels, codes in (
        (RIGHT[: MIN_ROWS - 1], CODES[: MIN_ROWS - 1]),
        (np.where(np.arange(60)[:, None] < MIN_ROWS - 1, RIGHT, np.nan), CODES),
    ):
        found = check(labels, codes)
        assert (found.n_rows, found.reliability) == (0, 0.0)
        assert not found.beats_labels
        assert "could not be checked: it answered fewer than 8 labelled rows" in found.reason
    assert check(RIGHT[:MIN_ROWS], CODES[:MIN_ROWS]).n_rows == MIN_ROWS


def test_at_most_so_many_rows_are_held_out() -> None:
    codes = np.arange(9000) % 3
    assert np.count_nonzero(Folds.draw(["text"] * 9000, codes, 3, 0).fold >= 0) == MAX_ROWS


def test_wide_and_sparse_rows_are_checked_as_well_and_never_made_dense(monkeypatch: Any) -> None:
    random = np.random.RandomState(0)
    rows = random.uniform(size=(200, 20_000)).astype(np.float32)
    rows[random.uniform(size=rows.shape) > 0.02] = 0
    codes = np.arange(200) % 4
    for code in range(4):
        rows[codes == code, 300 * code : 300 * code + 100] += 1
    widths = []

    def watched(X: Any, *args: Any, **options: Any) -> Any:
        widths.append(X.shape[1])
        return fit_softmax_regression(X, *args, **options)

    monkeypatch.setattr(kernel, "fit_softmax_regression", watched)
    dense = labels_only_log_proba(rows, codes)
    assert (dense.argmax(axis=1) == codes).mean() > 0.95
    assert set(widths) == {MAX_COLUMNS}
    sparse = csr_array(rows)
    monkeypatch.setattr(csr_array, "toarray", narrow_only(csr_array.toarray))
    np.testing.assert_allclose(labels_only_log_proba(sparse, codes), dense, atol=1e-3)


def narrow_only(toarray: Any) -> Any:
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        assert self.shape[1] <= MAX_COLUMNS
        return toarray(self, *args, **options)

    return guarded


def test_with_many_rows_only_those_held_out_are_looked_at() -> None:
    codes = np.arange(5000) % 4
    held_out = Folds.draw(["text"] * 5000, codes, 4, 0).fold >= 0
    rows = np.eye(4, dtype=np.float32)[codes]
    rows[~held_out] = np.nan  # looked at, they would spoil all
    log_proba = labels_only_log_proba(rows, codes)
    assert (log_proba[held_out].argmax(axis=1) == codes[held_out]).all()
    assert (log_proba[~held_out] == 0).all()


def test_a_regression_that_stops_early_is_told(monkeypatch: Any) -> None:
    def hasty(*args: Any, **options: Any) -> Any:
        return fit_softmax_regression(*args, **(options | {"max_iter": 1}))

    monkeypatch.setattr(kernel, "fit_softmax_regression", hasty)
    rows = np.random.RandomState(0).normal(size=(60, 5)) + CODES[:, None]
    with pytest.warns(
        ConvergenceWarning, match=r"stopped after \d+ steps with a gradient of .*, above 0.001"
    ) as told:
        labels_only_log_proba(rows, CODES)
    assert len(told) == 1  # for five folds


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("d", [4, 2 * MAX_COLUMNS])
def test_constant_columns_do_not_hide_the_others(d: int, sparse: bool) -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(200) % 2
    X = np.zeros((200, d), dtype=np.float32)
    X[:, 0] = codes + 0.3 * rng.normal(size=200)
    plain = labels_only_log_proba(csr_array(X) if sparse else X, codes)
    X[:, 1:] = 1e6 + 0.1
    constant = labels_only_log_proba(csr_array(X) if sparse else X, codes)
    assert np.exp(plain[np.arange(200), codes]).mean() > 0.8
    np.testing.assert_allclose(constant, plain, atol=1e-3)


def test_what_labels_tell_is_learnt_on_other_rows() -> None:
    noise = (
        np.random.RandomState(0).normal(size=(60, 100)).astype(np.float32)
    )  # room to learn 48 rows by heart
    assert (labels_only_log_proba(noise, CODES).argmax(axis=1) == CODES).mean() < 0.5
    noise[:, 0] += 5 * CODES
    noise[:, 1] += 5 * (CODES % 2)
    assert (labels_only_log_proba(noise, CODES).argmax(axis=1) == CODES).mean() > 0.6
    assert (labels_only_log_proba(["text"] * 60, CODES) == 0).all()
