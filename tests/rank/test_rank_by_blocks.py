"""Ranking on labelled rows that do not fit in memory: what teachers say of all of them counts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from consilience import ConsilienceWarning, as_teacher, rank_teachers
from consilience.rows import as_rows
from consilience.rows.source_rows import SourceRows

digits, y = load_digits(return_X_y=True)
X = np.hstack([digits, np.zeros((len(digits), 936))])  # rows are far larger than what teachers say of them
METRICS = ["transport", "leep", "nce", "logme", "h_score", "gbc", "transrate", "n_leep"]


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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 256)
    np.save(tmp_path / "a.npy", X[:1000])
    np.save(tmp_path / "b.npy", X[1000:])
    return tmp_path


def test_scores_are_those_of_rows_in_memory(teachers: dict[str, Any], folder: Path) -> None:
    labels = np.where(np.arange(len(y)) % 7 == 3, -1, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rank_teachers(teachers, folder, labels, METRICS, memory="4MB", n_bootstrap=20)
    want = rank_teachers(teachers, X, labels, METRICS, n_bootstrap=20)
    assert found.n_rows == want.n_rows == (labels >= 0).sum()
    for a, b in zip(found, want, strict=True):
        assert a.name == b.name
        assert a.error is None
        np.testing.assert_allclose([*a.scores.values()], [*b.scores.values()], rtol=1e-6)
        np.testing.assert_allclose(a.interval, b.interval, rtol=1e-6)


def test_a_sample_where_not_even_outputs_fit(teachers: dict[str, Any], folder: Path) -> None:
    with pytest.warns(
        ConsilienceWarning, match=r"of the 1,797 that have a label are used: what teachers say"
    ):
        found = rank_teachers(teachers, folder, y, memory="1MB", n_bootstrap=0)
    assert 400 < found.n_rows < 1797  # rows of 8 kB: 31 of them would fit
    assert all(row.error is None for row in found)


def test_a_sample_where_the_rows_themselves_are_needed(teachers: dict[str, Any], folder: Path) -> None:
    def size(case: Any) -> float:
        return float(np.asarray(case.X).shape[0])

    for options in ({"metric": size}, {"approximation": "student", "student": "logistic"}):
        with pytest.warns(ConsilienceWarning, match=r"random rows of 1,797 are used, those with a label"):
            found = rank_teachers(teachers, folder, y, memory="4MB", n_bootstrap=0, **options)
        assert found.n_rows == 125

    whole = as_teacher(lambda rows: rows[:, 20:30], list(range(10)), "whole", output="logits")
    whole.batched = False
    given = {**teachers, "whole": whole}
    with pytest.warns(ConsilienceWarning, match=r"random rows of 1,797 are used"):
        found = rank_teachers(given, folder, y, memory="4MB", n_bootstrap=0)
    assert {row.name for row in found if row.error is None} == {*given}


def test_source_rows(folder: Path) -> None:
    found = as_rows(folder)
    assert found is not None
    places = np.array([1500, 3, 4, 900, 3])
    rows = SourceRows(found, places)
    np.testing.assert_array_equal(rows.read(), X[places])
    np.testing.assert_array_equal(rows[1:3].read(), X[3:5])
    np.testing.assert_array_equal(np.stack(list(rows)), X[places])
    assert rows.shape == (5, 1000)
    assert np.asarray(rows).shape == (5, 1000)
