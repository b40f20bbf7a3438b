"""The check tells good teachers from bad."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from consilience.distil import teacher_check
from consilience.distil.teacher_check import (
    LEAST_ROWS,
    MOST_ROWS,
    check_teacher,
    learn_alone,
    make_folds,
)
from consilience.exceptions import ConvergenceWarning
from consilience.kernels.softmax_regression import fit_softmax_regression


def check(Q: np.ndarray, codes: np.ndarray, log_alone: np.ndarray | None = None) -> Any:
    """Check a teacher whose transported labels are Q whatever the costs."""
    folds = make_folds(codes, np.random.RandomState(0))
    alone = np.zeros(Q.shape) if log_alone is None else log_alone
    return check_teacher("t", Q, codes, alone, folds, lambda train: lambda proba: proba)


CODES = np.arange(60) % 4
RIGHT = 0.6 * np.eye(4)[CODES] + 0.1


def test_teachers_are_told_apart() -> None:
    assert check(RIGHT, CODES).trust == 1
    wrong, mixed = RIGHT[:, [1, 2, 3, 0]], RIGHT[np.random.RandomState(0).permutation(60)]
    for Q in (wrong, mixed, np.full((60, 4), 0.25)):
        verdict = check(Q, CODES)
        assert not verdict.kept
        assert "nats" in verdict.reason
    assert check(wrong, CODES).gain == pytest.approx(0, abs=1e-6)


def test_a_teacher_who_says_what_the_labels_say_adds_nothing() -> None:
    sure = np.log(0.996 * np.eye(4)[CODES] + 0.001)
    verdict = check(RIGHT, CODES, sure)
    assert verdict.gain > 0.5
    assert not verdict.kept
    assert "no more than chance may" in verdict.reason
    half = np.where(np.arange(60)[:, None] % 2, sure, 0.0)
    assert check(RIGHT, CODES, half).trust == 1


def test_overconfident_teachers_count_less() -> None:
    flips = np.arange(60) % 3 == 0
    guess = np.where(flips, (CODES + 1) % 4, CODES)
    verdict = check(0.98 * np.eye(4)[guess] + 0.005, CODES)
    assert 0 < verdict.trust < 0.6
    assert verdict.accuracy == pytest.approx(2 / 3)


def test_only_held_out_rows_are_compared() -> None:
    codes = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2])
    folds = make_folds(codes, np.random.RandomState(0))
    assert folds[-1] == -1  # the only row of its class
    assert all((np.bincount(folds[codes == c], minlength=5) == 1).all() for c in (0, 1))
    assert np.count_nonzero(make_folds(np.arange(9000) % 3, np.random.RandomState(0)) >= 0) == MOST_ROWS
    seen: list[np.ndarray] = []

    def label(train: np.ndarray) -> Any:
        seen.append(train)
        return lambda proba: proba

    Q = np.full((11, 3), 1 / 3)
    Q[3] = np.nan  # abstains
    check_teacher("t", Q, codes, np.zeros((11, 3)), folds, label)
    for fold, train in zip(np.unique(folds[(folds >= 0) & (np.arange(11) != 3)]), seen, strict=True):
        assert not train[folds == fold].any()
        assert not train[3]


def test_too_few_rows_are_not_judged() -> None:
    verdict = check(RIGHT[: LEAST_ROWS - 1], CODES[: LEAST_ROWS - 1])
    assert (verdict.n_rows, verdict.trust) == (0, 0.0)
    assert not verdict.leads
    assert "could not be checked" in verdict.reason


def test_wide_and_sparse_rows_are_checked_as_well_and_never_made_dense(monkeypatch: Any) -> None:
    random = np.random.RandomState(0)
    rows = random.uniform(size=(200, 20_000)).astype(np.float32)
    rows[random.uniform(size=rows.shape) > 0.02] = 0
    codes = np.arange(200) % 4
    for code in range(4):
        rows[codes == code, 300 * code : 300 * code + 100] += 1
    folds = make_folds(codes, random)
    widths = []

    def watched(X: Any, *args: Any, **options: Any) -> Any:
        widths.append(X.shape[1])
        return fit_softmax_regression(X, *args, **options)

    monkeypatch.setattr(teacher_check, "fit_softmax_regression", watched)
    dense = learn_alone(rows, codes, 4, folds)
    assert (dense.argmax(axis=1) == codes).mean() > 0.95
    assert set(widths) == {teacher_check.MOST_COLUMNS}
    sparse = csr_array(rows)
    monkeypatch.setattr(csr_array, "toarray", narrow_only(csr_array.toarray))
    np.testing.assert_allclose(learn_alone(sparse, codes, 4, folds), dense, atol=1e-3)


def narrow_only(toarray: Any) -> Any:
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        assert self.shape[1] <= teacher_check.MOST_COLUMNS
        return toarray(self, *args, **options)

    return guarded


def test_only_rows_that_are_held_out_are_made_dense() -> None:
    codes = np.arange(5000) % 4
    folds = make_folds(codes, np.random.RandomState(0))
    rows = np.eye(4, dtype=np.float32)[codes]
    rows[folds < 0] = np.nan  # looked at, they would spoil all
    log_p = learn_alone(rows, codes, 4, folds)
    assert (log_p[folds >= 0].argmax(axis=1) == codes[folds >= 0]).all()
    assert (log_p[folds < 0] == 0).all()


def test_a_regression_that_stops_early_is_told(monkeypatch: Any) -> None:
    def hasty(*args: Any, **options: Any) -> Any:
        return fit_softmax_regression(*args, **(options | {"max_iter": 1}))

    monkeypatch.setattr(teacher_check, "fit_softmax_regression", hasty)
    rows = np.random.RandomState(0).normal(size=(60, 5)) + CODES[:, None]
    with pytest.warns(
        ConvergenceWarning, match=r"stopped after \d+ steps with a gradient of .*, above 0.001"
    ):
        learn_alone(rows, CODES, 4, make_folds(CODES, np.random.RandomState(0)))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("d", [4, 2 * teacher_check.MOST_COLUMNS])
def test_constant_columns_do_not_hide_the_others(d: int, sparse: bool) -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(200) % 2
    X = np.zeros((200, d), dtype=np.float32)
    X[:, 0] = codes + 0.3 * rng.normal(size=200)
    folds = make_folds(codes, np.random.RandomState(0))
    plain = learn_alone(csr_array(X) if sparse else X, codes, 2, folds)
    X[:, 1:] = 1e6 + 0.1
    constant = learn_alone(csr_array(X) if sparse else X, codes, 2, folds)
    assert np.exp(plain[np.arange(200), codes]).mean() > 0.8
    np.testing.assert_allclose(constant, plain, atol=1e-3)


def test_what_labels_tell_is_learnt_on_other_rows() -> None:
    random = np.random.RandomState(0)
    noise = random.normal(size=(60, 100)).astype(np.float32)  # room enough to learn 48 rows by heart
    folds = make_folds(CODES, random)
    log_p = learn_alone(noise, CODES, 4, folds)
    assert (log_p.argmax(axis=1) == CODES).mean() < 0.5
    noise[:, 0] += 5 * CODES
    noise[:, 1] += 5 * (CODES % 2)
    assert (learn_alone(noise, CODES, 4, folds).argmax(axis=1) == CODES).mean() > 0.6
    assert (learn_alone(["text"] * 60, CODES, 4, folds) == 0).all()
