import copy
import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError as SklearnNotFittedError

from consilience import CollisionClassifier, CollisionClustering, CrossTaskDistiller, Unifier, exceptions
from consilience._words import shorten
from consilience.exceptions import (
    ConsilienceError,
    ConsilienceWarning,
    ConvergenceWarning,
    InvalidInputError,
    LabelSpaceError,
    NotFittedError,
    TeacherError,
    shown,
)
from consilience.students import Ngrams


def as_flag(name: str, value: str | None) -> str:
    return f"/{name}" if value is None else f"/{name} {value}"


def test_the_text_is_put_together_from_the_data() -> None:
    error = InvalidInputError(
        "{argument} is wrong in row {row}; use {remedy}.",
        argument="method",
        value="mfp",
        remedy=("train", "estimate"),
        row=np.int64(3),
    )
    assert str(error) == "method='mfp' is wrong in row 3; use train='estimate'."
    assert error.worded(as_flag) == "/method 'mfp' is wrong in row 3; use /train 'estimate'."
    assert str(error.changed(row=30)) == "method='mfp' is wrong in row 30; use train='estimate'."
    assert error.row == 3
    assert (error.argument, error.value, error.teacher) == ("method", "'mfp'", None)


def test_an_argument_without_a_value_is_only_named() -> None:
    error = InvalidInputError("Give {remedy} one name per column.", remedy="classes")
    assert str(error) == "Give classes= one name per column."
    assert error.worded(as_flag) == "Give /classes one name per column."


def test_a_teachers_error_knows_its_teacher_its_row_and_its_place() -> None:
    error = TeacherError("birds", "gave inf in row {row}.", row=4)
    assert str(error) == "Teacher 'birds' gave inf in row 4."
    assert (error.teacher, error.row, error.problem) == ("birds", 4, "gave inf in row 4.")
    assert str(error.at(2, 5)) == "Teacher 'birds' (3 of 5) gave inf in row 4."
    assert str(error.at(2, 5).changed(row=40, teacher="zoo")) == "Teacher 'zoo' (3 of 5) gave inf in row 40."


def test_an_error_that_quotes_another_keeps_its_data() -> None:
    inner = InvalidInputError("{argument} is in row {row}", argument="classes", value=[1], row=7)
    outer = TeacherError("birds", f"cannot be used: {inner.message}.").changed(**inner.data)
    assert str(outer) == "Teacher 'birds' cannot be used: classes=[1] is in row 7."
    assert outer.changed(row=8).worded(as_flag) == "Teacher 'birds' cannot be used: /classes [1] is in row 8."


@pytest.mark.parametrize(
    "error",
    [
        InvalidInputError("{argument} {row}", argument="method", value=lambda: None, row=3),
        LabelSpaceError("{remedy}", remedy=("aliases", {"a": "b"})),
        TeacherError("birds", "gave {row}", row=4).at(1, 2).changed(row=9),
        ConvergenceWarning("stopped at {argument}", argument="max_iter", value=3),
        NotFittedError("call fit"),
    ],
)
def test_errors_cross_processes_and_copies_whole(error: Exception) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


def test_slots_without_data_are_plain_text() -> None:
    assert str(InvalidInputError("y has {row} and {argument}.")) == "y has {row} and {argument}."


def test_what_has_no_repr_is_shown_all_the_same() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(Shy()) == "a Shy"
    assert shown(10**5000) == "a very long int"
    assert shown(10**400).endswith("... (401 characters)")


def test_every_error_and_warning_is_in_the_tree() -> None:
    found = [value for value in vars(exceptions).values() if isinstance(value, type)]
    errors = [value for value in found if value.__name__.endswith("Error")]
    told = [value for value in found if value.__name__.endswith("Warning")]
    assert len(errors) >= 7
    assert all(issubclass(value, ConsilienceError) for value in errors)
    assert all(issubclass(value, ConsilienceWarning) for value in told)
    assert all(value.__name__ in str(exceptions.__doc__) for value in [*errors, *told])


def test_not_fitted_is_one_error_for_all_estimators() -> None:
    assert issubclass(NotFittedError, ConsilienceError)
    assert issubclass(NotFittedError, SklearnNotFittedError)
    X = np.zeros((2, 2))
    for estimator, rows in (
        (Unifier([]), X),
        (CrossTaskDistiller(None), X),
        (CollisionClassifier(), X),
        (CollisionClustering(2), X),
        (Ngrams(), ["a"]),
    ):
        with pytest.raises(
            NotFittedError, match=f"This {type(estimator).__name__} is not fitted yet; call fit"
        ):
            estimator.predict(rows)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{row}{remedy}", r"'\x7brow}\x7bremedy}'"),
        ("a\0\x1b[2J", r"'a\x00\x1b[2J'"),
        ("x" * 3000, "(3002 characters)"),
    ],
)
def test_texts_of_others_are_cut_and_escaped_and_are_no_slots(text: str, told: str) -> None:
    for error in (
        InvalidInputError(f"y has {shown(text)} in row {{row}}; use {{remedy}}.", remedy=("a", text), row=7),
        TeacherError(text, f"gave {shorten([text])} in row {{row}}.", row=7),
        InvalidInputError("{argument} {row}.", argument="name", value=text, row=7),
    ):
        assert told in str(error)
        assert str(error).count("7") == 1 + str(error).count("x7b")
        assert len(str(error)) < 700
    # what a caller forgot to cut
    told = str(ConsilienceWarning(f"{text}{'x' * 9000} The remedy."))
    assert told.isprintable()
    assert len(told) < 2100
    assert told.endswith("The remedy.")
