"""Functions that answer each row with pairs (class, score), or with costs."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from consilience.exceptions import TeacherError
from consilience.teachers import Function, as_teacher

TEXTS = ["one", "two", "three"]
CLASSES = ["de", "en", "fr"]


def teacher(answers: Any, output: str = "probabilities", **options: Any) -> Any:
    return Function(lambda texts: answers, CLASSES, "t", output=output, **options)


def proba(answers: Any, **options: Any) -> np.ndarray:
    return np.exp(teacher(answers, **options).predict_logits(TEXTS))


FULL = [[0.1, 0.7, 0.2], [0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]
PAIRS = [
    [("en", 0.7), ("fr", 0.2), ("de", 0.1)],
    [("de", 0.5), ("en", 0.25), ("fr", 0.25)],
    [("fr", 1.0), ("en", 0.0), ("de", 0.0)],
]


@pytest.mark.parametrize(
    "answers",
    [
        PAIRS,
        tuple(tuple(row) for row in PAIRS),
        [[list(pair) for pair in row] for row in PAIRS],
        [dict(row) for row in PAIRS],
        [np.array(row, dtype=object) for row in PAIRS],
        [np.array(row, dtype=[("class", "U2"), ("score", float)]) for row in PAIRS],
        pd.Series(PAIRS),
        np.array([dict(row) for row in PAIRS], dtype=object),
        map(dict, PAIRS),
        [iter(row) for row in PAIRS],
    ],
    ids=[
        "pairs",
        "tuples",
        "lists",
        "dicts",
        "arrays",
        "records",
        "series",
        "objects",
        "one by one",
        "iterators",
    ],
)
def test_the_order_of_an_answer_does_not_matter_nor_what_holds_it(answers: Any) -> None:
    np.testing.assert_allclose(proba(answers), np.maximum(FULL, 1e-6))


def test_numbers_may_name_classes() -> None:
    answers = [np.array([[2.0, 0.25], [0.0, 0.75]])]
    found = Function(lambda X: answers, [0, 1, 2], output="probabilities", floor=1e-3)
    np.testing.assert_allclose(np.exp(found.predict_logits([0])), [[0.75, 1e-3, 0.25]])


def test_the_best_few_are_scaled_to_one_and_the_rest_get_the_floor() -> None:
    found = proba([{"en": 0.6, "fr": 0.2}, {"de": 0.3}, PAIRS[1]], floor=1e-3)
    np.testing.assert_allclose(found, [[1e-3, 0.75, 0.25], [1, 1e-3, 1e-3], FULL[1]])


def test_no_answer_is_an_abstention() -> None:
    for nothing in (None, [], (), {}, np.empty((0, 2)), iter([])):
        assert np.isnan(proba([nothing, PAIRS[0], nothing])).all(axis=1).tolist() == [True, False, True]
    assert np.isnan(proba([None, None, None])).all()


def test_logits_that_are_not_named_get_the_lowest_of_the_answer() -> None:
    found = teacher([{"en": 3.0, "fr": -2.0}, None, {"de": 1, "en": 2, "fr": 3}], "logits")
    np.testing.assert_array_equal(
        found.predict_logits(TEXTS), [[-2, 3, -2], [np.nan, np.nan, np.nan], [1, 2, 3]]
    )


def test_costs_are_negative_logits_and_what_is_not_named_costs_the_most() -> None:
    found = teacher([{"en": 1.5, "fr": 7.0}, {"de": 2.0, "en": 0.5}, {"de": 1, "en": 2, "fr": 3}], "costs")
    np.testing.assert_array_equal(found.predict_logits(TEXTS), [[-7, -1.5, -7], [-2, -0.5, -2], [-1, -2, -3]])


def test_dense_costs_of_functions_and_arrays() -> None:
    costs = np.array([[1.0, 2.0, 0.0], [np.nan, np.nan, np.nan], [0.3, 0.3, 0.4]])
    for dense in (teacher(costs, "costs"), as_teacher(costs, CLASSES, output="costs")):
        np.testing.assert_array_equal(dense.predict_logits(TEXTS), -costs)


def test_costs_read_otherwise_are_another_teacher() -> None:
    prints = {teacher(PAIRS, output, fingerprint="v1").fingerprint for output in ("costs", "logits")}
    assert len(prints) == 2


@pytest.mark.parametrize(
    ("answers", "output", "says"),
    [
        (PAIRS, "auto", r"returned ranked answers, .* Pass output='probabilities', 'logits' or 'costs'"),
        (PAIRS[:2], "probabilities", "returned 2 answers for 3 rows of X"),
        ([*PAIRS[:2], {"xx": 1.0}], "probabilities", r"the class 'xx' in row 2, which is none"),
        ([[("en", 0.5), ("en", 0.5)], None, None], "probabilities", "a class twice in row 0"),
        ([None, {"en": np.nan, "de": 1}, None], "logits", "gave the scores nan, 1.0 in row 1"),
        ([None, {"en": np.inf, "de": 1}, None], "costs", "gave the scores inf, 1.0 in row 1"),
        ([None, {"en": "0.5"}, None], "probabilities", "gave the scores 0.5 in row 1"),
        ([None, {"en": None}, None], "probabilities", "gave the scores None in row 1"),
        ([None, {"en": True, "de": False}, None], "logits", "gave the scores True, False in row 1"),
        ([iter([0.5, 0.5]), None, None], "logits", "in row 0, which is no list of pairs"),
        ([("en", 0.9), ("de", 0.9), None], "probabilities", r"gave \('en', 0.9\) in row 0, which is no"),
        ([[("en", 0.9, 1)], {"en": 1.0}, None], "probabilities", r"gave .*, 1\)\] in row 0, .* no list"),
        ([{"en": 1.0}, "en", None], "probabilities", "gave 'en' in row 1, which is no list of pairs"),
        ([{"en": 0.0, "de": 0.0}, PAIRS[0], None], "probabilities", "no class a probability above 0 in"),
        ([PAIRS[0], {"en": 0.9, "de": 0.4}, None], "probabilities", "sum to 1.3 in row 1"),
        ([PAIRS[0], {"en": 0.9, "de": -0.4}, None], "probabilities", "the probability -0.4 in row 1"),
        ([{"en": 4.0}, None, None], "logits", r"named one class in row 0, 'en', .* Name more classes"),
        ([{"en": 4.0}, None, None], "costs", "and its costs say nothing of it"),
    ],
)  # fmt: skip
def test_wrong_answers_are_named(answers: Any, output: str, says: str | None) -> None:
    with pytest.raises(TeacherError, match=says) as caught:
        teacher(answers, output).predict_logits(TEXTS)
    assert str(caught.value).startswith("Teacher 't' ")


def test_models_give_no_costs() -> None:
    model = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(TeacherError, match="output='costs' is for arrays and functions"):
        as_teacher(model, output="costs")


@given(st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=3), min_size=3, max_size=3), st.randoms())
@settings(max_examples=50, deadline=None)
def test_a_full_answer_says_what_an_array_says(logits: list[list[float]], random: Any) -> None:
    answers = [random.sample([*zip(CLASSES, row, strict=True)], 3) for row in logits]
    np.testing.assert_array_equal(teacher(answers, "logits").predict_logits(TEXTS), logits)
    array = softmax(np.array(logits), axis=1)
    ranked = [dict(zip(CLASSES, row, strict=True)) for row in array.tolist()]
    np.testing.assert_allclose(
        teacher(ranked).predict_logits(TEXTS), teacher(array).predict_logits(TEXTS), rtol=1e-9, atol=1e-9
    )
