"""Which rows fit which model, without running it."""

from typing import Any

import numpy as np
import pandas
import pytest
from scipy.sparse import csr_matrix

from consilience.repository.entry import ModelEntry
from consilience.repository.signature import misfit, shown_inputs
from consilience.teachers.inputs import Input


def entry(*inputs: Input, **others: Any) -> ModelEntry:
    return ModelEntry("m", ("a", "b"), "m.onnx", {}, inputs or None, **others)


NUMBERS = entry(Input("X", "float32", (None, 3)))
WHOLE = entry(Input("X", "int64", (None, 3)))
IMAGES = entry(Input("X", "float32", (None, 3, None, None)))
TEXTS = entry(Input("X", "text", (None,)))
NAMED = entry(Input("X", "float32", (None, 2)), feature_names=("a", "b"))
COLUMNS = entry(
    Input("a", "float32", (None, 1)),
    Input("b", "text", (None, 1)),
    feature_names=("a", "b"),
    column_kinds={"a": "number", "b": "text"},
)
INPUTS = entry(Input("a", "float32", (None, 1)), Input("b", "text", (None, 1)))
FRAME = pandas.DataFrame({"b": [1.0, 2.0], "a": [3.0, 4.0]})


@pytest.mark.parametrize(
    ("model", "X", "fits"),
    [
        (NUMBERS, np.zeros((4, 3)), True),
        (NUMBERS, [[1, 2, 3]], True),
        (NUMBERS, csr_matrix(np.eye(3)), True),
        (NUMBERS, np.zeros((4, 2)), False),
        (NUMBERS, np.zeros((4, 3, 3)), False),
        (NUMBERS, np.array([["a", "b", "c"]]), False),
        (NUMBERS, ["a text"], False),
        (WHOLE, np.zeros((4, 3), dtype=np.uint8), True),
        (WHOLE, np.zeros((4, 3)), False),
        (IMAGES, np.zeros((2, 3, 8, 9)), True),
        (IMAGES, np.zeros((2, 1, 8, 9)), False),
        (TEXTS, ["a", "b"], True),
        (TEXTS, np.array(["a", "b"]), True),
        (TEXTS, np.array(["a", "b"], dtype=object), True),
        (TEXTS, np.zeros((4, 3)), False),
        (TEXTS, FRAME, False),
        (NAMED, FRAME, True),
        (NAMED, FRAME.rename(columns={"a": "c"}), False),
        (NAMED, np.zeros((4, 2)), True),
        (COLUMNS, FRAME, True),
        (COLUMNS, np.zeros((4, 2)), True),
        (COLUMNS, np.zeros((4, 3)), False),
        (INPUTS, FRAME, True),
        (INPUTS, FRAME[["a"]], False),
        (INPUTS, np.zeros((4, 2)), False),
        (entry(), np.zeros((4, 2)), True),
    ],
)
def test_rows_fit_or_do_not(model: ModelEntry, X: Any, fits: bool) -> None:
    assert (misfit(model, X) == "") is fits


def test_inputs_in_words() -> None:
    assert shown_inputs(IMAGES) == "float32 (n, 3, ?, ?)"
    assert [shown_inputs(one) for one in (TEXTS, COLUMNS, entry())] == ["texts", "2 columns", "unknown"]
