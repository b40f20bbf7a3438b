"""What a saved classifier says about its student and its teachers."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from consilience import SoftLabelClassifier, as_teacher
from consilience.files.card import card_path, read_card
from consilience.files.disk import file_sha256
from consilience.students import Classifier, Logistic, saving
from consilience.students.saving import describe_model, describe_teacher
from consilience.students.student import student_name


def test_students_are_called_by_the_model_that_learns() -> None:
    tree = DecisionTreeClassifier()
    assert student_name(Classifier(tree)) == "DecisionTreeClassifier"
    assert student_name(Classifier(make_pipeline(StandardScaler(), tree))) == "DecisionTreeClassifier"
    assert student_name(SimpleNamespace(scores="logits")) == "torch network"


def test_teachers_have_the_checksum_of_their_file_or_of_their_content(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, proba=[[0.5, 0.5]], classes=["a", "b"])
    about = describe_teacher(as_teacher(as_teacher(path), name="other"))
    assert about == {"name": "other", "classes": ["a", "b"], "file": "t.npz", "sha256": file_sha256(path)}
    assert describe_teacher(as_teacher(path), names=False)["classes"] == "2 classes"
    path.unlink()
    assert describe_teacher(as_teacher([[0.5, 0.5]], ["a", "b"]))["fingerprint"] is None
    models = (LogisticRegression(C=C).fit(np.eye(2), [0, 1]) for C in (1, 9))
    first, other = (describe_teacher(as_teacher(model))["fingerprint"] for model in models)
    assert first != other
    assert len(first) == 64


def test_the_card_of_many_teachers_with_many_classes_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    teachers = [as_teacher(np.eye(1500), list(range(1500)), name="many"), as_teacher(np.eye(2), ["a", "b"])]

    def told() -> list[object]:
        made = describe_model({}, Logistic(), teachers, None)
        return [teacher["classes"] for teacher in made["teachers"]]

    assert told() == ["1500 classes", ["a", "b"]]
    monkeypatch.setattr(saving, "MOST_NAMES", 1501)
    assert told() == ["1500 classes", "2 classes"]


def test_the_card_says_how_fit_was_called_whatever_is_set_afterwards(tmp_path: Path) -> None:
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    model = SoftLabelClassifier(Logistic(min_label=0.125)).fit(X, y).set_params(student__min_label=0.25)
    card = read_card(card_path(model.save(tmp_path / "model.onnx")))
    assert "0.125" in str(card.details)
    assert "0.25" not in str(card.details)
