"""What strangers send to fitted classifiers, and slips in arguments: an answer, or one sentence of ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from consilience import (
    CollisionClassifier,
    CollisionClustering,
    CrossTaskDistiller,
    InvalidInputError,
    LabelSpace,
    SoftLabelClassifier,
    Unifier,
    as_teacher,
    collision_pseudo_labels,
    load,
    rank_teachers,
)
from consilience.students.server import ModelServer, ServedModel
from consilience.teachers.inference_protocol import encode
from consilience.transport import ncm_accuracy

RANDOM = np.random.default_rng(0)
X, Y, PROBA = RANDOM.normal(size=(60, 3)), np.arange(60) % 3, RANDOM.dirichlet(np.ones(3), 60)
MODEL = LogisticRegression().fit(X, Y)
FITTED: dict[str, Any] = {
    "unified": Unifier([MODEL, MODEL], "logistic", random_state=0).fit(X),
    "of soft labels": SoftLabelClassifier("logistic").fit(X, PROBA),
    "distilled": CrossTaskDistiller([MODEL], student="logistic", check=False, random_state=0).fit(X, Y),
    "of noisy labels": CollisionClassifier().fit(X, Y),
    "clustered": CollisionClustering(3, random_state=0).fit(X),
}
ROWS: dict[str, Any] = {
    "too few columns": X[:, :2],
    "no columns": X[:, 0],
    "a missing value": np.where(np.eye(60, 3) > 0, np.nan, X),
    "infinity": np.where(np.eye(60, 3) > 0, np.inf, X),
    "texts": ["a", "b"],
    "None": None,
    "no rows": X[:0],
    "images": np.ones((4, 3, 2)),
    "objects": np.array([[object()] * 3] * 4),
    "complex": X * 1j,
    "masked": np.ma.masked_array(X, X > 1),
    "records": np.zeros(4, dtype=[("a", float), ("b", float), ("c", float)]),
    "ragged": [[1.0, 2.0, 3.0], [1.0]],
}
LABELS: dict[str, Any] = {
    "none known": np.full(60, np.nan),
    "too few": Y[:10],
    "infinite": np.where(Y == 0, np.inf, Y),
    "two columns": PROBA,
    "objects": [object()] * 60,
    "texts": np.array(list("abc" * 20)),
}
CALLS: dict[str, Callable[[], Any]] = {
    "a time as a count": lambda: rank_teachers([MODEL], X, Y, folds=np.timedelta64(3, "s")),
    "a block of no teacher": lambda: LabelSpace([["a", "b"]]).block(-1),
    "a block with a name": lambda: LabelSpace([["a", "b"]]).block("a"),  # type: ignore[arg-type]
    "an array as a flag": lambda: ncm_accuracy(MODEL, X, Y, normalize=X),  # type: ignore[arg-type]
    "no lists of classes": lambda: LabelSpace(None),  # type: ignore[arg-type]
    "an array as another flag": lambda: collision_pseudo_labels(PROBA, 1.0, paper_scaling=X[:0]),
    "a disk as rows": lambda: FITTED["unified"].evaluate("/", Y),
    "a disk as a teacher": lambda: as_teacher("/"),
    **{
        f"a file named {path!r:.9}": lambda path=path: FITTED["unified"].save(path)  # type: ignore[misc]
        for path in (
            5,
            None,
            b"x.onnx",
            "a\0.onnx",
            "x" * 300 + ".onnx",
            "ä" * 120 + ".onnx",
            "\ud800.onnx",
            "",
            Path("/no/such/folder/x.onnx"),
        )
    },
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("model", FITTED)
def test_rows_that_cannot_be_predicted_are_refused(model: str, rows: str) -> None:
    for ask in (FITTED[model].predict, FITTED[model].predict_proba):
        with pytest.raises(InvalidInputError):
            ask(ROWS[rows])


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("model", sorted(set(FITTED) - {"clustered"}))
def test_labels_that_cannot_be_compared_are_refused(model: str, labels: str) -> None:
    for measure in (FITTED[model].score, FITTED[model].evaluate):
        with pytest.raises(InvalidInputError):
            measure(X, LABELS[labels])


@pytest.mark.parametrize("call", CALLS)
def test_slips_get_one_sentence(call: str) -> None:
    with pytest.raises((InvalidInputError, OSError), match=r"^[A-Z'a-z/][^\n]{10,400}$") as caught:
        CALLS[call]()
    assert type(caught.value).__module__ == "consilience.exceptions"


def test_what_only_looks_odd_is_taken() -> None:
    model = FITTED["unified"]
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix(X)
    np.testing.assert_array_equal(model.predict(matrix), model.predict(X))
    np.testing.assert_array_equal(model.predict(np.ma.masked_array(X)), model.predict(X))
    np.testing.assert_array_equal(model.predict(X.tolist()), model.predict(X))
    np.testing.assert_array_equal(model.predict(polars.Series(X.tolist())), model.predict(X))


def test_missing_values_go_all_the_way(tmp_path: Path) -> None:
    """Rows with gaps are learnt from, predicted, saved and served, where teachers and student take them."""
    gaps = np.where(RANDOM.random(X.shape) < 0.1, np.nan, X)
    low, high = (
        HistGradientBoostingClassifier(max_iter=5).fit(gaps[rows], Y[rows]) for rows in (Y < 2, Y > 0)
    )
    model = Unifier([low, high], "boosting", random_state=0).fit(gaps)
    proba = model.predict_proba(gaps)
    path = model.save(tmp_path / "gaps.onnx")
    np.testing.assert_allclose(load(path).predict_proba(gaps), proba, atol=1e-5)
    body, headers = encode({}, "inputs", [("X", "FP64", gaps[:3])], binary=True)
    with ModelServer(ServedModel(path)).start() as server:
        answer = httpx.post(f"{server.url}/infer", content=body, headers=headers).json()
    np.testing.assert_allclose(np.reshape(answer["outputs"][0]["data"], (3, 3)), proba[:3], atol=1e-5)
