"""Data frames of pandas and of polars are rows like those of an array."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from consilience import (
    CollisionClassifier,
    CollisionClustering,
    CrossTaskDistiller,
    Run,
    Unifier,
    rank_teachers,
)
from consilience._validation import n_rows, take_rows
from consilience.scoring.digests import row_digests

X, y = load_iris(return_X_y=True)
SOLVED = 1e-3  # frames store columns, so sums are rounded in another order and solvers stop elsewhere
COLUMNS = ["length", "width", "petal length", "petal width"]


@pytest.fixture(params=["pandas", "polars"])
def library(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


@pytest.fixture
def frame(library: Any) -> Any:
    return library.DataFrame(dict(zip(COLUMNS, X.T, strict=True)))


def teachers(rows: Any) -> list[Any]:
    """Return two models that know two classes each, fitted on rows of the kind given."""
    known = [y < 2, y > 0]
    return [LogisticRegression(max_iter=500).fit(take_rows(rows, part), y[part]) for part in known]


@pytest.mark.parametrize("rows", [slice(3, 7), np.array([5, 0, 5]), y == 1], ids=["slice", "places", "mask"])
def test_rows_of_a_frame_are_taken(frame: Any, rows: Any) -> None:
    taken = take_rows(frame, rows)
    np.testing.assert_array_equal(taken.to_numpy(), X[rows])
    assert list(taken.columns) == COLUMNS
    assert n_rows(taken) == len(X[rows])


def test_a_row_has_the_digest_of_its_values_whatever_rows_are_around_it(frame: Any) -> None:
    whole, part = row_digests(frame), row_digests(take_rows(frame, slice(20, 60)))
    np.testing.assert_array_equal(whole[20:60], part)
    assert len(np.unique(whole, axis=0)) == len(np.unique(X, axis=0))


def test_a_unifier_gives_what_it_gives_for_an_array(frame: Any, library: Any, tmp_path: Path) -> None:
    labels = [None] * 140 + y[140:].tolist()
    options = {"student": "logistic", "random_state": 0}
    expected = Unifier(teachers(X), **options).fit(X, labels).predict_proba(X)
    found = Unifier(teachers(frame), run=Run(cache=tmp_path), **options).fit(frame, library.Series(labels))
    np.testing.assert_allclose(found.predict_proba(frame), expected, atol=SOLVED)
    again = Unifier(teachers(frame), run=Run(cache=tmp_path), **options).fit(frame, labels)  # from the store
    np.testing.assert_allclose(again.predict_proba(frame), found.predict_proba(frame), atol=1e-12)


def test_the_other_verbs_give_what_they_give_for_an_array(frame: Any, library: Any) -> None:
    labels = library.Series([None if row % 3 else int(name) for row, name in enumerate(y)])
    plain = np.where(np.arange(len(y)) % 3, -1, y)

    def distilled(rows: Any, labels: Any) -> np.ndarray:
        options = {"check": False, "random_state": 0}  # its check would leave rows out, and warn
        model = CrossTaskDistiller(teachers(rows)[:1], "logistic", **options).fit(rows, labels)
        return np.asarray(model.predict_proba(rows))

    np.testing.assert_allclose(distilled(frame, labels), distilled(X, plain), atol=SOLVED)
    for model in (CollisionClassifier(), CollisionClustering(3, n_init=1, random_state=0)):
        np.testing.assert_array_equal(model.fit(frame, labels).predict(frame), model.fit(X, plain).predict(X))
    ranked, expected = rank_teachers(teachers(frame), frame, labels), rank_teachers(teachers(X), X, plain)
    scores = [row.score for row in expected.rows]
    assert [row.score for row in ranked.rows] == pytest.approx(scores, abs=SOLVED)
