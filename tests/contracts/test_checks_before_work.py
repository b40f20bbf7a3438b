"""What can be known before teachers are asked is checked before: they may take hours."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from consilience import CrossTaskDistiller, InvalidInputError, Unifier, as_teacher, methods, students

X = np.random.default_rng(0).normal(size=(30, 4))
Y = np.arange(30) % 2


def never(rows: Any) -> np.ndarray:
    raise AssertionError("the teacher was asked")


TEACHER = as_teacher(never, ["a", "b"], output="logits")
STUDENTS = ["logistic", "mlp", "torch", None]


def broken() -> np.ndarray:
    rows = X.copy()
    rows[3, 1] = np.nan
    return rows


@pytest.mark.parametrize("student", STUDENTS)
def test_rows_that_the_student_cannot_take(student: Any) -> None:
    if student == "torch":
        pytest.importorskip("torch")
    for model, y in ((Unifier(TEACHER, student), None), (CrossTaskDistiller(TEACHER, student), Y)):
        with pytest.raises(InvalidInputError, match="NaN or infinity in row 3"):
            model.fit(broken(), y)


@pytest.mark.parametrize(("y", "words"), [(["a"] * 29, "y has 29 rows and X has 30"), (["c"] * 30, "'c'")])
def test_labels_of_a_unifier(y: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Unifier(TEACHER, "logistic").fit(X, y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"student": students.Logistic(self_label=True, loss="collision")}, "self_label=True needs"),
        ({"method": methods.CE(tol=-1.0)}, "tol"),
        ({"method": "mfp"}, "Did you mean 'mf-p'"),
        ({"balance": "yes"}, "balance"),
    ],
)
def test_options_of_a_unifier(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Unifier(TEACHER, **{"student": "logistic", **options}).fit(X)


def test_labels_of_a_distiller() -> None:
    with pytest.raises(InvalidInputError, match="29"):
        CrossTaskDistiller(TEACHER, "logistic").fit(X, Y[:29])


def test_a_table_that_the_student_cannot_encode() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X[:, 0], "vector": [[1, 2]] * 30})
    with pytest.raises(InvalidInputError, match="Column 'vector' of X holds list"):
        Unifier(TEACHER, "logistic").fit(frame)


def test_a_failed_save_writes_nothing(tmp_path: Any) -> None:
    model = Unifier([LogisticRegression().fit(X, Y)], "logistic").fit(X)
    for name in ("model.txt", "nowhere/model.onnx"):
        with pytest.raises(InvalidInputError):
            model.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
