"""SoftLabelClassifier: any student on the user's own soft labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from consilience import InvalidInputError, SoftLabelClassifier
from consilience.files.card import read_card
from consilience.files.export import OPSET
from consilience.students import Logistic
from consilience.teachers import Onnx

NAMES = ["bird", "cat", "ant"]  # not sorted: the user's order counts


def votes(n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of three groups, and the shares of nine votes that are right seven times out of ten."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 3)) * 0.5 + np.eye(3)[y] * 3
    shares = 0.7 * np.eye(3)[y] + 0.1
    return X, np.array([rng.multinomial(9, p / p.sum()) / 9 for p in shares]), y


@pytest.mark.parametrize(
    "student", ["logistic", "forest", "boosting", "mlp", "torch", LogisticRegression(), GaussianNB()]
)
def test_students_learn_named_soft_labels(student: Any) -> None:
    if student == "torch":
        pytest.importorskip("torch")
    X, Q, y = votes()
    model = SoftLabelClassifier(student, classes=NAMES, random_state=0).fit(X, Q)
    assert model.classes_.tolist() == NAMES
    assert model.score(X, np.array(NAMES)[y]) > 0.9
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_allclose(proba.mean(axis=0), Q.mean(axis=0), atol=0.05)
    assert model.n_features_in_ == 3


@pytest.mark.parametrize("student", ["logistic", "forest", "boosting"])
def test_a_saved_model_is_a_teacher_with_the_same_probabilities(student: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    X, Q, _ = votes()
    model = SoftLabelClassifier(student, classes=NAMES, temperature=2, random_state=0).fit(X, Q)
    path = model.save(tmp_path / "votes.onnx")
    proto = onnx.load(path)
    assert next(o.version for o in proto.opset_import if o.domain == "") == OPSET
    assert {o.name for o in proto.graph.output} == {"probabilities", "label"}
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    teacher = Onnx(path, floor=1e-12)
    assert teacher.classes.tolist() == NAMES
    for rows in (X[:1], X):
        got = softmax(teacher.predict_logits(rows), axis=1)
        np.testing.assert_allclose(got, model.predict_proba(rows), atol=1e-5)
    card = read_card(tmp_path / "votes.card.json")
    assert (card.details["temperature"], card.details["made"]["settings"]["temperature"]) == ("2", 2)
    assert "3 classes" in card.description


def test_hard_labels_are_soft_labels_too() -> None:
    X, _, y = votes()

    def proba(rows: Any, labels: Any, **options: Any) -> Any:
        return SoftLabelClassifier("logistic", **options).fit(rows, labels).predict_proba(X)

    np.testing.assert_allclose(proba(X, y), proba(X, np.eye(3)[y]))
    some: list[Any] = [None if i % 2 else NAMES[k] for i, k in enumerate(y)]
    np.testing.assert_allclose(proba(X, some, classes=NAMES), proba(X[::2], y[::2]))


def test_balance_makes_up_for_a_frequent_class() -> None:
    X, Q, _ = votes()
    Q = (Q + np.array([0.6, 0.0, 0.0])) / 1.6
    models = [SoftLabelClassifier("logistic", balance=b).fit(X, Q) for b in (False, "sqrt", True)]
    shares = [model.predict_proba(X)[:, 0].mean() for model in models]
    assert shares[0] > shares[1] + 0.03 > shares[2] + 0.06
    assert models[0].class_weights_ is None
    np.testing.assert_allclose(models[2].class_weights_, 1 / Q.mean(axis=0))


def test_the_temperature_of_soft_labels_is_undone() -> None:
    X, _, _ = votes()
    p = softmax(X @ np.diag([1.0, 2.0, 3.0]), axis=1)
    soft = p ** (1 / 3) / (p ** (1 / 3)).sum(axis=1, keepdims=True)
    model = SoftLabelClassifier(Logistic(min_label=0), temperature=3).fit(X, soft)
    np.testing.assert_allclose(model.predict_proba(X), p, atol=0.06)
    plain = SoftLabelClassifier(Logistic(min_label=0)).fit(X, soft)
    assert np.abs(plain.predict_proba(X) - p).max() > 0.3


@pytest.mark.parametrize(
    ("options", "Q", "message"),
    [
        ({}, [[0.5, 0.6], [1, 0]], "sums to 1.1 in row 0"),
        ({}, [[-0.5, 1.5], [1, 0]], "expected probabilities"),
        ({}, [[np.nan, 1], [1, 0]], "expected probabilities"),
        ({}, [[0.5, 0.5]], "y has 1 rows and X has 2"),
        ({}, None, "give soft labels or labels"),
        ({"classes": ["a"]}, [[0.5, 0.5], [1, 0]], "1 classes for 2 columns"),
        ({"classes": ["a", "a"]}, [[0.5, 0.5], [1, 0]], "a"),
        ({"balance": "auto"}, [[0.5, 0.5], [1, 0]], "balance"),
        ({"temperature": 0}, [[0.5, 0.5], [1, 0]], "temperature"),
        ({"student": "forrest"}, [[0.5, 0.5], [1, 0]], "Did you mean 'forest'"),
    ],
)
def test_what_is_wrong_is_said(options: Any, Q: Any, message: str) -> None:
    model = SoftLabelClassifier(**{"student": "logistic", **options})
    with pytest.raises(InvalidInputError, match=message):
        model.fit(np.array([[0.0], [1.0]]), Q)
    with pytest.raises(InvalidInputError, match="no rows"):
        SoftLabelClassifier("logistic").fit(np.empty((0, 2)), np.empty((0, 2)))
