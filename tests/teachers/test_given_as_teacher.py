"""Which source goes to which adapter, and what all share."""

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from consilience.exceptions import InvalidInputError, TeacherError
from consilience.teachers import Function, Observed, Teacher, TeacherLike, as_teacher

X = np.zeros((2, 1))


class Own:
    """A user's own teacher, with one of the optional members."""

    name = "own"
    classes = ("a", "b")

    def predict_logits(self, X: object) -> np.ndarray:
        return np.array([[1.0, 2.0], [3.0, 4.0]])

    def embed(self, X: object) -> str:
        return "features"


def two_columns(X: np.ndarray) -> np.ndarray:
    return np.zeros((len(X), 2))


def test_three_members_make_a_teacher() -> None:
    own = Own()
    assert isinstance(own, TeacherLike)
    teacher = as_teacher(own)
    assert isinstance(teacher, Teacher)
    assert (teacher.name, teacher.classes.tolist()) == ("own", ["a", "b"])
    np.testing.assert_array_equal(teacher.predict_logits(X), [[1.0, 2.0], [3.0, 4.0]])
    assert as_teacher(teacher) is teacher
    assert as_teacher(teacher, name="own") is teacher


def test_the_other_members_have_defaults() -> None:
    class Plain:
        name, classes, predict_logits = "plain", ["a", "b"], Own.predict_logits
        n_jobs = None

    for teacher in (as_teacher(Plain()), as_teacher(Plain(), name="other")):
        assert (teacher.batched, teacher.n_jobs, teacher.output) == (True, 1, "logits")
        assert teacher.class_weights is teacher.class_centres is teacher.fingerprint is None
        teacher.release()
        seen = teacher.observe(X)
        assert seen.embeddings is teacher.embed(X) is teacher.randomised(0) is None
        np.testing.assert_array_equal(seen.logits, teacher.predict_logits(X))


def test_the_other_members_of_an_object_are_used() -> None:
    class Full(Own):
        batched, n_jobs, output, fingerprint = False, 3, None, "v1"
        class_weights, class_centres = [[1.0], [2.0]], np.zeros((2, 1))

        def observe(self, X: object) -> Observed:
            return Observed(np.zeros((2, 2)), np.ones((2, 1)))

        def randomised(self, seed: int) -> Own:
            return Own()

        release = Mock()

    for teacher in (as_teacher(Full()), as_teacher(Full(), name="other")):
        assert (teacher.batched, teacher.n_jobs, teacher.output) == (False, 3, None)
        assert teacher.fingerprint == "v1"
        np.testing.assert_array_equal(teacher.class_weights, [[1.0], [2.0]])
        np.testing.assert_array_equal(teacher.class_centres, [[0.0], [0.0]])
        np.testing.assert_array_equal(teacher.observe(X).embeddings, np.ones((2, 1)))
        assert isinstance(teacher.randomised(0), Teacher)
        Full.release.reset_mock()
        teacher.release()
        Full.release.assert_called_once_with()


@pytest.mark.parametrize(
    ("logits", "says"),
    [
        (None, "returned a NoneType instead of an array of numbers"),
        ("ab", "returned a str instead"),
        ([["a", "b"]], "returned a list instead"),
        ([[1.0], [1.0, 2.0]], "returned a list instead"),
        ([[10**400, 1.0]], "returned a list instead"),
    ],
)
def test_what_an_object_of_the_user_returns_is_checked(logits: Any, says: str) -> None:
    own = Own()
    own.predict_logits = lambda X: logits  # type: ignore[method-assign]
    with pytest.raises(TeacherError, match=f"Teacher 'own' {says}"):
        as_teacher(own).predict_logits(X)


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        *((classes, "'own'") for classes in (["a"], ["a", "a"], [], "ab", [None, "x"])),
        (["b", "a"], "'own' .* the same names in another order"),
    ],
)
def test_classes_that_cannot_rename(classes: Any, says: str) -> None:
    with pytest.raises(TeacherError, match=says):
        as_teacher(Own(), classes=classes)


def test_names_of_functions() -> None:
    partial = functools.partial(two_columns)
    names = [as_teacher(one, ["a", "b"]).name for one in (two_columns, partial, lambda X: X)]
    assert names == ["two_columns", "two_columns", "function"]
    assert as_teacher(two_columns, ["a", "b"], "mine").name == "mine"


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (7, "'int' is a int, which is no classifier"),
        (None, "which is no classifier"),
        (
            "model.pkl",
            "'model' is given as 'model.pkl'; a teacher's file ends in .onnx, .npy, .npz, .parquet",
        ),
        ("", "a teacher's file ends in"),
        (Own, "'Own' is a class. Give an instance"),
        (two_columns, "is a function, which does not name its classes. Give classes="),
        (Path("nowhere.onnx"), "'nowhere' cannot be used: nowhere.onnx cannot be read: No such file"),
    ],
)
def test_what_cannot_be_a_teacher(obj: object, message: str) -> None:
    with pytest.raises(TeacherError, match=message):
        as_teacher(obj)


def two(**options: Any) -> Teacher:
    return Function(two_columns, ["a", "b"], **options)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: two(output="proba"), InvalidInputError, "output='proba' is unknown.*mean 'probabilities'"),
        (lambda: two(batch_size=0), InvalidInputError, "batch_size=0"),
        (lambda: two(device="cuda"), TypeError, r"Function\(\) got an unexpected keyword argument 'device'"),
        (lambda: two(fingerprint=""), InvalidInputError, "must be a text that is not empty"),
        (lambda: two(fingerprint=3), InvalidInputError, "must be a text that is not empty"),
        (lambda: two(output="labels"), TeacherError, "output='labels' is for arrays"),
        (lambda: as_teacher(Own(), output="probabilities"), TeacherError, "is a teacher already"),
        (lambda: as_teacher(Own(), embed="layer"), TeacherError, "give embed= where it is made"),
        (lambda: as_teacher(Own(), columns=[0]), TeacherError, "give columns= where it is made"),
    ],
)
def test_options_are_checked(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


class Broken(Own):
    def predict_logits(self, X: object) -> Any:
        raise KeyError("weights")

    embed = predict_logits


BROKEN = as_teacher(Broken())


@pytest.mark.parametrize(
    "ask",
    [BROKEN.predict_logits, BROKEN.embed, as_teacher(lambda X: X["b"], ["a", "b"], "own").predict_logits],
)
def test_a_foreign_error_is_told_with_the_shape_and_its_cause(ask: Any) -> None:
    message = r"'own' failed on X of shape \(2, 1\) \(float64\): (Key|Index)Error"
    with pytest.raises(TeacherError, match=message) as caught:
        ask(X)
    assert isinstance(caught.value.__cause__, KeyError | IndexError)
    assert str(caught.value.at(2, 5)).startswith("Teacher 'own' (3 of 5) failed")


def test_no_framework_is_imported_for_a_function() -> None:
    code = (
        "import sys; from consilience.teachers import as_teacher; "
        "as_teacher(lambda X: X, ['a']); as_teacher([[1.0]], ['a']); "
        "heavy = ('torch', 'onnx', 'onnxruntime', 'pyarrow', 'pandas', 'lightgbm'); "
        "print([module for module in heavy if module in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_function_has_a_fingerprint_when_it_is_given_one() -> None:
    assert as_teacher(lambda X: X, ["a"]).fingerprint is None

    def mark(version: str = "v1", name: str = "b", classes: str = "a") -> str | None:
        options: dict[str, Any] = {"output": "logits", "fingerprint": version, "embed": lambda X: X}
        return Function(lambda X: X, [classes], name, **options).fingerprint

    assert mark() == mark()
    # two functions of one version are not one function
    assert len({mark(), mark("v2"), mark(name="x"), mark(classes="b")}) == 4


def test_smoothing_is_kept_for_the_verbs_and_changes_no_answer() -> None:
    given: dict[str, Any] = {"classes": ["a", "b"], "output": "logits", "fingerprint": "v1"}
    plain, none = Function(two_columns, **given), Function(two_columns, smoothing=0, **given)
    assert (plain.smoothing, none.smoothing, as_teacher(Own()).smoothing) == (0.001, 0, 0.001)
    assert as_teacher(none, name="other").smoothing == 0
    assert plain.fingerprint == none.fingerprint
    np.testing.assert_array_equal(plain.predict_logits(X), none.predict_logits(X))


@pytest.mark.parametrize("member", ["predict_logits", "observe", "embed"])
def test_a_renamed_teacher_complains_in_its_own_name(member: str) -> None:
    inner = as_teacher(np.ones((3, 2)), ["a", "b"], "inner", output="logits", embed=np.ones((3, 4)))
    renamed = as_teacher(inner, name="outer")
    with pytest.raises(TeacherError, match="'outer' holds outputs for 3 rows and X has 5"):
        getattr(renamed, member)(np.ones((5, 1)))
