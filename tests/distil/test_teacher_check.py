"""The check tells good teachers from bad."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from consilience import as_teacher
from consilience.distil.losses import Sinkhorn
from consilience.distil.teacher_check import (
    MAX_COLUMNS,
    MIN_ROWS,
    Folds,
    check_teacher,
    choose_weight,
    compare_labels,
    student_log_proba,
)
from consilience.distil.teacher_signal import Task, make_signal, plans_by_fold
from consilience.exceptions import ConvergenceWarning
from consilience.kernels import held_out as kernel
from consilience.kernels.linear_model import fit_softmax_regression
from consilience.run import Run
from consilience.scoring.blocks import observe
from consilience.transport.costs import Embedding


def compare(labels: np.ndarray, codes: np.ndarray, labels_only: np.ndarray | None = None) -> Any:
    """Compare transported labels with what labels tell; without `labels_only`, they tell their shares."""
    if labels_only is None:
        shares = np.bincount(codes, minlength=labels.shape[1]) / len(codes)
        labels_only = np.tile(np.log(shares), (len(codes), 1))
    return compare_labels("t", labels, codes, labels_only)


def labels_only_log_proba(X: Any, codes: np.ndarray, seed: int = 0) -> np.ndarray:
    return Folds.draw(Task(X, np.arange(int(codes.max()) + 1), codes, X), seed).labels_only_log_proba


CODES = np.arange(60) % 4
RIGHT = 0.6 * np.eye(4)[CODES] + 0.1
SURE = np.log(0.996 * np.eye(4)[CODES] + 0.001)


def test_teachers_are_told_apart() -> None:
    assert compare(RIGHT, CODES).knows_more
    wrong, mixed = RIGHT[:, [1, 2, 3, 0]], RIGHT[np.random.RandomState(0).permutation(60)]
    for labels in (wrong, mixed, np.full((60, 4), 0.25)):
        found = compare(labels, CODES)
        assert not found.knows_more
        assert "nats" in found.reason
    assert compare(wrong, CODES).gain == pytest.approx(0, abs=1e-6)
    # a few rows on which a teacher is sure and wrong do not decide
    guess = np.where(np.arange(60) < 2, (CODES + 1) % 4, CODES)
    assert compare(np.eye(4)[guess], CODES).gain > 1


def test_a_teacher_who_says_what_the_labels_say_knows_no_more() -> None:
    assert not compare(RIGHT, CODES, SURE).knows_more
    assert not compare(RIGHT, CODES, np.log(RIGHT)).knows_more
    half = np.where(np.arange(60)[:, None] % 2, SURE, 0.0)
    found = compare(RIGHT, CODES, half)
    assert found.knows_more
    assert "knows more about 60 held-out labels" in replace(found, reliability=1.0).reason


def test_a_teacher_less_accurate_than_the_labels_knows_no_more() -> None:
    """It saves nats where it is sure and right; the labels are right more often, and sure of nothing."""
    half = np.arange(60) % 2 == 0
    labels = np.where(half[:, None], 0.97 * np.eye(4)[CODES] + 0.0075, 0.25 + 0.01 * np.eye(4)[CODES - 1])
    weak = np.log(0.25 + 0.02 * np.eye(4)[np.where(np.arange(60) < 40, CODES, CODES - 1)])
    found = compare(labels, CODES, weak)
    assert found.gain > 2 * found.error
    assert found.accuracy < found.labels_only_accuracy
    assert not found.knows_more


@pytest.mark.parametrize("shares", [(50, 10), (30, 20, 10), (7, 7, 7, 39), (1, 2, 57), (20, 20, 20)])
def test_a_constant_teacher_tells_nothing_even_where_it_names_the_most_frequent_class(
    shares: tuple[int, ...],
) -> None:
    codes = np.repeat(np.arange(len(shares)), shares)
    texts = labels_only_log_proba(["text"] * 60, codes)
    found = compare(np.tile(np.array(shares) / 60, (60, 1)), codes, texts)
    assert found.gain == pytest.approx(0, abs=1e-4)
    assert not found.knows_more


class Repository(NamedTuple):
    """A task in which rows tell their class badly and hidden columns tell it well, and its teachers."""

    task: Task
    hidden: np.ndarray

    def signal(self, kind: str) -> Any:
        random = np.random.RandomState(1)
        logits = 3.0 * self.hidden
        if kind == "junk":
            logits = random.permutation(logits)
        elif kind == "silent":
            logits = np.where(np.arange(len(logits))[:, None] % 4 == 0, np.nan, logits)
        teacher = as_teacher(logits, list("abcd"), kind, output="logits", embed=np.nan_to_num(logits))
        return make_signal(
            teacher, observe(teacher, self.task.X, Run()), self.task, Sinkhorn(), Embedding(), 0
        )


def repository(seed: int, unlabelled: int = 150, texts: bool = False) -> Repository:
    random = np.random.RandomState(seed)
    truth = np.arange(40 + unlabelled) % 4
    hidden = np.eye(4)[truth] + 0.2 * random.normal(size=(len(truth), 4))
    X = (0.4 * hidden @ random.normal(size=(4, 30)) + random.normal(size=(len(truth), 30))).astype(np.float32)
    codes = np.where(np.arange(len(truth)) < 40, truth, -1)
    rows = [f"{row}" for row in X] if texts else X
    return Repository(Task(rows, np.arange(4), codes, rows), hidden)


def earned(repository: Repository, kind: str, weights: tuple[float, ...] = (10.0, 30.0, 100.0)) -> Any:
    folds = Folds.draw(repository.task, 0)
    return check_teacher(repository.signal(kind), folds, weights, 1 / 3)


@pytest.mark.parametrize("seed", range(5))
def test_a_good_teacher_earns_a_weight_and_junk_none(seed: int) -> None:
    here = repository(seed)
    good, junk, silent = (earned(here, kind) for kind in ("good", "junk", "silent"))
    assert good.reliability in (0.1, 0.3, 1.0)
    assert good.added > 1
    assert (junk.reliability, junk.used) == (0.0, False)
    assert np.isnan(junk.added)
    assert "knows no more about 40 held-out labels than the other labels do" in junk.reason
    assert (silent.used, silent.n_rows) == (True, 30)


def test_a_weight_that_makes_the_student_worse_is_not_earned(monkeypatch: Any) -> None:
    """The teacher knows more; but the student with it is replaced by one that knows nothing."""
    here = repository(0)
    for spoilt, reliability in ((100.0, (0.1, 0.3)), (0.0, (0.0,))):

        def student(*args: Any, spoilt: float = spoilt) -> Any:
            found = student_log_proba(*args)
            return np.zeros_like(found) if args[3] >= spoilt else found

        monkeypatch.setattr("consilience.distil.teacher_check.student_log_proba", student)
        found = earned(here, "good")
        assert found.knows_more
        assert found.reliability in reliability
    assert (found.added, found.used) == (0.0, False)
    assert "made a student no better on 40 held-out rows" in found.reason


def test_the_largest_weight_within_one_standard_error_of_the_best_is_taken() -> None:
    labels_only = np.log(np.where(np.arange(60)[:, None] < 30, RIGHT, 0.25))
    better = np.log(np.where(np.arange(60)[:, None] < 50, RIGHT, 0.25))
    noise = 0.1 * np.random.RandomState(0).normal(size=(60, 4))
    index, gain = choose_weight(labels_only, [labels_only, better, better + noise], CODES)
    assert (index, gain > 5) == (2, True)
    assert choose_weight(labels_only, [better, labels_only, labels_only], CODES)[0] == 0
    assert choose_weight(labels_only, [labels_only, labels_only], CODES) == (None, 0.0)
    # less sure and wrong more often: never, whatever it saves
    often_wrong = np.log(np.where(np.arange(60)[:, None] < 40, RIGHT, 0.25 + 0.02 * np.eye(4)[CODES - 1]))
    barely_right = np.log(0.25 + 1e-3 * np.eye(4)[CODES])
    mostly = np.where(np.arange(60)[:, None] < 30, np.log(RIGHT), barely_right)
    assert choose_weight(mostly, [often_wrong], CODES) == (None, 0.0)


def test_the_students_stand_in_is_the_logistic_regression_of_scikit_learn(monkeypatch: Any) -> None:
    """Weighted copies of rows for every class, as `LogisticRegression` takes them."""
    monkeypatch.setattr(kernel, "TOLERANCE", 1e-6)
    here = repository(0)
    signal, folds = here.signal("good"), Folds.draw(here.task, 0)
    plans = plans_by_fold(signal, folds.fold)
    found = student_log_proba(signal, folds, plans, 30.0, 0.5)
    fold, codes = folds.fold[folds.rows], here.task.codes[folds.rows]
    q = np.exp(signal.observed.logits[folds.rows] / 3)
    q = ((q / q.sum(axis=1, keepdims=True)) @ plans[2]) ** 3
    c = np.where(codes >= 0, 0.5, 1.0) * 30.0 * 0.3 / 9
    labels = c[:, None] * q / q.sum(axis=1, keepdims=True) + (codes[:, None] == np.arange(4))
    learnt = fold != 2
    rows = here.task.X[folds.rows]
    mean, scale = kernel.standard_units(rows[learnt].mean(axis=0), rows[learnt].std(axis=0))
    Z = (rows - mean) / scale
    model = LogisticRegression(C=1 / kernel.DECAY, tol=1e-8, max_iter=10_000)
    model.fit(
        np.repeat(Z[learnt], 4, axis=0),
        np.tile(np.arange(4), learnt.sum()),
        sample_weight=(labels[learnt] / labels.sum(axis=1).max()).ravel(),
    )
    np.testing.assert_allclose(found[fold == 2], model.predict_log_proba(Z[fold == 2]), atol=1e-3)


def test_where_rows_are_not_numbers_a_teacher_earns_the_least_weight() -> None:
    here = repository(0, texts=True)
    assert earned(here, "good").reliability == 0.1
    assert earned(here, "junk").reliability == 0.0


def test_too_few_rows_are_not_judged() -> None:
    for labels, codes in (
        (RIGHT[: MIN_ROWS - 1], CODES[: MIN_ROWS - 1]),
        (np.where(np.arange(60)[:, None] < MIN_ROWS - 1, RIGHT, np.nan), CODES),
    ):
        found = compare(labels, codes)
        assert (found.n_rows, found.reliability) == (0, 0.0)
        assert not found.knows_more
        assert "could not be checked: it answered fewer than 8 labelled rows" in found.reason
    assert compare(RIGHT[:MIN_ROWS], CODES[:MIN_ROWS]).n_rows == MIN_ROWS


def test_wide_and_sparse_rows_are_checked_as_well_and_never_made_dense(monkeypatch: Any) -> None:
    random = np.random.RandomState(0)
    rows = random.uniform(size=(200, 20_000)).astype(np.float32)
    rows[random.uniform(size=rows.shape) > 0.02] = 0
    codes = np.arange(200) % 4
    for code in range(4):
        rows[codes == code, 300 * code : 300 * code + 100] += 1
    folds, toarray = Folds.draw(Task(rows, np.arange(4), codes, rows), 0), csr_array.toarray
    assert folds.table.shape == (200, MAX_COLUMNS)
    assert (folds.labels_only_log_proba.argmax(axis=1) == codes).mean() > 0.95

    def narrow_only(self: Any) -> Any:
        assert self.shape[1] <= MAX_COLUMNS
        return toarray(self)

    sparse = csr_array(rows)
    monkeypatch.setattr(csr_array, "toarray", narrow_only)
    found = labels_only_log_proba(sparse, codes)
    np.testing.assert_allclose(found, folds.labels_only_log_proba, atol=1e-3)


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


def test_what_labels_tell_is_learnt_on_other_rows() -> None:
    noise = (
        np.random.RandomState(0).normal(size=(60, 100)).astype(np.float32)
    )  # room to learn 48 rows by heart
    assert (labels_only_log_proba(noise, CODES).argmax(axis=1) == CODES).mean() < 0.5
    noise[:, 0] += 8 * CODES
    noise[:, 1] += 8 * (CODES % 2)
    assert (labels_only_log_proba(noise, CODES).argmax(axis=1) == CODES).mean() > 0.6
    assert (labels_only_log_proba(["text"] * 60, CODES) == 0).all()
