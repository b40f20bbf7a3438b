"""Checking what models return."""

import re

import numpy as np
import pytest

from consilience.exceptions import InvalidInputError, TeacherError
from consilience.teachers import Function, HardLabels
from consilience.teachers.outputs import ScoreReader

X = np.zeros((4, 2))
LOGITS = np.array([[1.0, -2.0, 0.5], [0.1, 0.2, 3.0], [0.0, 0.0, 0.0], [-1.0, 2.0, 0.0]])
PROBA = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6]])
GOOD = np.tile(PROBA[:1], (4, 1))


def read(scores: object, output: str = "auto", k: int = 3, **options: float) -> np.ndarray:
    return Function(lambda X: scores, list(range(k)), "t", output=output, **options).predict_logits(X)


def replaced(array: np.ndarray, row: int, values: object) -> np.ndarray:
    copy = array.copy()
    copy[row] = values
    return copy


@pytest.mark.parametrize(
    ("scores", "output", "message"),
    [
        (np.zeros((4, 11)), "auto", "returned 11 columns for 3 classes. Give classes= one name per column."),
        (np.zeros((4, 1)), "auto", "returned 1 column for 3 classes."),
        (np.zeros((3, 3)), "auto", "returned 3 rows for 4 rows of X."),
        (np.zeros(4), "auto", "returned an array of shape (4,); expected (4, 3)"),
        (np.zeros((4, 3, 1)), "auto", "shape (4, 3, 1); expected (4, 3)"),
        (np.array([["a"] * 3] * 4), "auto", "returned <U1 entries instead of an array of numbers"),
        (None, "auto", "returned a NoneType instead of an array of numbers"),
        ([[1, 2, 3], [1]], "auto", "returned a list instead of an array of numbers"),
        (LOGITS + 0j, "auto", "returned complex128 entries"),
        (
            replaced(LOGITS, 2, [1, np.nan, 2]),
            "auto",
            "cannot be used: its scores have nan in row 2 (1 such row). Give finite numbers, or NaN",
        ),
        (replaced(LOGITS, 3, [1, -np.inf, 2]), "logits", "have -inf in row 3 (1 such row)"),
        (replaced(PROBA, 1, [np.inf, 0, 0]), "probabilities", "have inf in row 1"),
        (
            replaced(GOOD, 1, 0.2),
            "auto",
            "gave probabilities that sum to 0.6 in row 1 (1 such row). Pass output='l",
        ),
        (GOOD * 0.9, "probabilities", "sum to 0.9 in row 0 (4 such rows). Pass output='logits' if these are"),
        (
            replaced(PROBA, 2, [1.2, -0.2, 0]),
            "probabilities",
            "gave the probability 1.2 in row 2 (1 such row)",
        ),
        (replaced(PROBA, 2, [0.6, -0.2, 0.6]), "probabilities", "gave the probability -0.2 in row 2"),
    ],
)
def test_wrong_outputs_are_named(scores: object, output: str, message: str) -> None:
    with pytest.raises(TeacherError, match=re.escape(message)) as caught:
        read(scores, output)
    assert str(caught.value).startswith("Teacher 't' ")


def test_one_number_per_row_for_two_classes_shows_both_remedies() -> None:
    with pytest.raises(
        TeacherError, match=r"np.column_stack\(\[1 - p, p\]\).*np.column_stack\(\[0 \* d, d\]\)"
    ):
        read(np.zeros(4), k=2)


def test_logits_stay_and_probabilities_become_floored_logs() -> None:
    np.testing.assert_array_equal(read(LOGITS), LOGITS)
    np.testing.assert_array_equal(read(PROBA, "logits"), PROBA)
    given = PROBA.copy()
    np.testing.assert_allclose(read(given), np.log(np.maximum(PROBA, 1e-6)))
    np.testing.assert_array_equal(given, PROBA)  # the model's own array is not written to
    np.testing.assert_allclose(read(PROBA, floor=0.01)[2], np.log([1.0, 0.01, 0.01]))
    nearly = read((GOOD * 1.0005).astype(np.float32))  # is scaled to one
    np.testing.assert_allclose(np.exp(nearly).sum(axis=1), 1, atol=1e-12)
    read(replaced(GOOD, 0, [1 + 5e-7, -5e-7, 0]))


def test_rows_of_nan_abstain() -> None:
    for scores in (LOGITS, PROBA):
        logits = read(replaced(scores, 1, np.nan))
        np.testing.assert_array_equal(logits, replaced(read(scores), 1, np.nan))
    assert np.isnan(read(np.full((4, 3), np.nan))).all()
    with pytest.raises(TeacherError, match=r"sum to 0\.5 in row 2 "):  # rows are counted with them
        read(replaced(replaced(GOOD, 0, np.nan), 2, [0.5, 0, 0]))


def test_the_first_batch_decides_and_abstentions_do_not() -> None:
    reader = ScoreReader("t", 3)
    with pytest.raises(TeacherError):
        reader.read(GOOD * 0.5, 4)  # what is refused decides nothing, either
    assert np.isnan(reader.read(np.full((4, 3), np.nan), 4)).all()
    assert reader.output == "auto"
    reader.read(PROBA, 4)
    assert reader.output == "probabilities"
    with pytest.raises(TeacherError, match=r"gave the probability -2 in row 0 .*Pass output='logits'"):
        reader.read(LOGITS, 4)


@pytest.mark.parametrize(
    "option",
    [{"floor": 0}, {"floor": 0.5}, {"smoothing": 1}, {"label_smoothing": 0}, {"label_smoothing": 1.0}],
)
def test_options_out_of_range(option: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(option))):
        HardLabels(["a", "b"], **option)
