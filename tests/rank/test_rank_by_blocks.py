"""Ranking on labelled rows in files: the same scores, whether or not the rows fit in memory."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from consilience import ConsilienceWarning, Run, as_teacher, rank_teachers
from consilience.rank import Transport
from consilience.rank import rank as ranks
from consilience.rank.options import METRICS

digits, y = load_digits(return_X_y=True)
X = np.hstack([digits, np.zeros((len(digits), 936))])  # rows are far larger than what teachers say of them
FEW = Run(memory="4MB")


@pytest.fixture(scope="module")
def teachers() -> dict[str, Any]:
    low, high = y < 5, y >= 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = MLPClassifier((16,), max_iter=20, random_state=0).fit(X[high], y[high])
    linear = LogisticRegression(max_iter=300).fit(X[low], y[low])
    given = as_teacher(linear.predict_proba(X), list(linear.classes_), "given", output="probabilities")
    # a function, since the embedding of a linear model is the row itself
    asked = as_teacher(linear.predict_proba, list(linear.classes_), "asked", output="probabilities")
    return {"asked": asked, "network": network, "given": given}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", X[:1000])
    np.save(tmp_path / "b.npy", X[1000:])
    return tmp_path


def test_scores_are_those_of_rows_in_memory(teachers: dict[str, Any], folder: Path) -> None:
    labels = np.where(np.arange(len(y)) % 7 == 3, -1, y)
    chosen = [*set(METRICS) - {"otce"}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rank_teachers(teachers, folder, labels, metric=chosen, run=FEW)
    want = rank_teachers(teachers, X, labels, metric=chosen)
    assert found.n_rows == want.n_rows == (labels >= 0).sum()
    for a, b in zip(found, want, strict=True):
        assert a.name == b.name
        assert a.error is None
        np.testing.assert_allclose([*a.scores.values()], [*b.scores.values()], rtol=1e-6)
        np.testing.assert_allclose(a.interval, b.interval, rtol=1e-6)


def test_many_rows_are_a_sample_wherever_they_lie(
    teachers: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "MOST_ROWS", 500)
    found, want = (rank_teachers(teachers, rows, y, run=FEW) for rows in (folder, X))
    assert found.n_rows == want.n_rows == 500
    np.testing.assert_allclose([row.score for row in found], [row.score for row in want], rtol=1e-6)
    assert all(row.error is None for row in found)


def test_fewer_rows_where_they_themselves_are_needed(teachers: dict[str, Any], folder: Path) -> None:
    def size(case: Any) -> float:
        return float(np.asarray(case.X).shape[0])

    for metric in (size, Transport(student="logistic")):
        with pytest.warns(ConsilienceWarning, match=r"125 random rows of the 1,797 that have a label"):
            found = rank_teachers(teachers, folder, y, metric=metric, confidence=None, run=FEW)
        assert found.n_rows == 125


def test_a_teacher_that_wants_all_rows_at_once_fails_where_they_do_not_fit(
    teachers: dict[str, Any], folder: Path
) -> None:
    whole = as_teacher(lambda rows: rows[:, 20:30], list(range(10)), "whole", output="logits")
    whole.batched = False
    given = {**teachers, "whole": whole}
    assert all(row.error is None for row in rank_teachers(given, folder, y, confidence=None))
    (failed,) = [row for row in rank_teachers(given, folder, y, run=FEW) if row.error]
    assert failed.name == "whole"
    assert "memory" in str(failed.error)
