"""Labelled rows that a torch student is measured on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")

from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402

from consilience import CollisionClassifier, CrossTaskDistiller, SoftLabelClassifier, Unifier  # noqa: E402
from consilience.exceptions import ConsilienceError, InvalidInputError  # noqa: E402
from consilience.nn import SoftCrossEntropy  # noqa: E402
from consilience.students import Network  # noqa: E402

NAMES = np.array(["ant", "bee", "cat"])
rng = np.random.default_rng(0)
y = rng.integers(3, size=200)
X = rng.normal(size=(200, 4)) + 2 * rng.normal(size=(3, 4))[y]
X_val, y_val = X[150:], y[150:]


def fit(**options: Any) -> Network:
    options = {"max_iter": 3, "random_state": 0, "validation": (X_val, y_val), **options}
    return Network(**options).fit(X[:150], np.eye(3)[y[:150]], n_classes=3, criterion=SoftCrossEntropy())


def test_the_history_has_loss_and_accuracy_of_the_labels() -> None:
    student = fit(patience=None)
    last, logits = student.history_[-1], student.predict_logits(X_val)
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert last["valid_loss"] == pytest.approx(log_loss(y_val, proba), rel=1e-5)
    assert last["valid_accuracy"] == np.mean(logits.argmax(axis=1) == y_val)


def test_measuring_changes_nothing() -> None:
    measured = fit(patience=None).predict_logits(X)
    plain = fit(patience=None, validation=None, validation_fraction=0.0).predict_logits(X)
    np.testing.assert_array_equal(measured, plain)


def test_patience_keeps_the_best_epoch() -> None:
    wrong = (X_val, (y_val + 1) % 3)  # the more is learnt, the worse
    student = fit(validation=wrong, patience=2, max_iter=30, lr=0.01)
    losses = [row["valid_loss"] for row in student.history_]
    assert len(losses) < 30
    best = int(np.argmin(losses))
    assert best < len(losses) - 1
    again = fit(validation=wrong, patience=None, max_iter=best + 1, lr=0.01)
    np.testing.assert_array_equal(student.predict_logits(X), again.predict_logits(X))


def test_labels_are_names_of_classes_and_aliases() -> None:
    teachers = [LogisticRegression().fit(X[y != k], NAMES[y[y != k]]) for k in (0, 2)]
    labels = ["kitty" if name == "cat" else name for name in NAMES[y_val]]
    labels[0] = None
    unified = Unifier(
        teachers,
        Network(max_iter=5, patience=None, validation=(X_val, labels)),
        aliases={"kitty": "cat"},
        random_state=0,
    ).fit(X[:150])
    accuracy = unified.student_.history_[-1]["valid_accuracy"]
    assert accuracy == pytest.approx(unified.score(X_val[1:], labels[1:]))
    student = Network(validation=(X_val, ["dog"] * 50))
    with pytest.raises(ConsilienceError, match=r"y of validation.*dog"):
        Unifier([as_never, as_never], student).fit(X)


class Never:
    """A teacher that must not be asked."""

    classes_ = NAMES

    def predict_proba(self, X: Any) -> Any:
        raise AssertionError("a fault is found before teachers are asked")


as_never = Never()


@pytest.mark.parametrize(
    "make",
    [
        lambda student: SoftLabelClassifier(student),
        lambda student: CollisionClassifier(model=student, noise=0.1),
        lambda student: CrossTaskDistiller(None, student, loss="none"),
    ],
)
def test_other_estimators_take_names_too(make: Any) -> None:
    student = Network(max_iter=4, patience=None, validation=(X_val, NAMES[y_val]), random_state=0)
    model = make(student).fit(X[:150], NAMES[y[:150]])
    assert model.student_.history_[-1]["valid_accuracy"] == model.score(X_val, NAMES[y_val])


def test_columns_of_a_table_are_put_in_order() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(kind=np.where(y == 0, "red", "blue"))
    val = frame[150:][["kind", "d", "b", "a", "c"]]
    student = Network(max_iter=3, patience=None, validation=(val, NAMES[y_val]), random_state=0)
    model = SoftLabelClassifier(student).fit(frame[:150], NAMES[y[:150]])
    assert model.student_.history_[-1]["valid_accuracy"] == model.score(val, NAMES[y_val])


@pytest.mark.parametrize(
    ("validation", "says"),
    [
        (X_val, "validation is a ndarray; give a pair"),
        ((X_val, y_val[:3]), "50 rows and 3 labels"),
        ((X_val[:, :2], y_val), r"rows of validation have shape \(50, 2\)"),
        ((X_val, y_val + 1), "the label 3; expected 0 to 2"),
        ((X_val, y_val - 3), "no row with a label"),
        ((X_val, y_val * 1.0), "expected .n,. whole numbers from 0 to 2"),
    ],
)
def test_wrong_pairs_are_named(validation: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        fit(validation=validation)
