"""Tables: names, order, and what columns hold."""

import datetime
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_matrix

from consilience import CollisionClassifier, CollisionClustering, InvalidInputError
from consilience.rows import as_rows
from consilience.rows.tables import (
    column_values,
    columns_of,
    has_missing,
    in_order,
    is_numeric,
    kind_of,
    name_problem,
    number_advice,
    rows_sha256,
)

pandas = pytest.importorskip("pandas")

FRAME = pandas.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})


@pytest.mark.parametrize("rows", [np.eye(3), [[1], [2, 3]], ["a", "b"], np.arange(2)])
def test_rows_that_do_not_fit_the_names_are_left_to_the_model(rows: Any) -> None:
    assert in_order(rows, ["a", "b"]) is rows


def test_a_long_list_of_names_is_cut() -> None:
    problem = name_problem([], [f"c{i}" for i in range(20)])
    assert "lacks the columns 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7' and 12 more." in problem


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (FRAME, True),
        (pandas.DataFrame({"a": [True, False]}), True),
        (FRAME.assign(c=[True, False]), False),
        (FRAME.assign(c=pandas.array([1, None], "Int64")), False),
        (FRAME.assign(c=["x", "y"]), False),
        (FRAME.assign(c=pandas.to_datetime(["2020-01-01", "2020-01-02"])), False),
    ],
)
def test_numeric_tables(frame: Any, expected: bool) -> None:
    assert is_numeric(frame) == expected


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_missing_numbers_are_found(library: str) -> None:
    make = pytest.importorskip(library).DataFrame
    assert not has_missing(make({"a": [1.0, 2.0], "b": [3, 4]}))
    assert not has_missing(make({"a": [1, 2], "b": [3, 4]}))
    assert has_missing(make({"a": [1.0, float("nan")], "b": [3, 4]}))
    assert has_missing(make({"a": [1.0, None], "b": [3.0, 4.0]}))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["x", None], "text"),
        (pandas.Categorical([1, 2]), "text"),
        (pandas.array(["x", None], "string"), "text"),
        ([1, "x"], "text"),
        ([1, None], "number"),
        ([True, None], "truth"),
        (pandas.array([True, None], "boolean"), "truth"),
        ([None, None], "empty"),
        ([{}, {}], "other"),
        ([1j, 2j], "other"),
        (pandas.period_range("2020", periods=2, freq="M"), "other"),
    ],
)
def test_kinds(values: Any, expected: str) -> None:
    assert kind_of(pandas.Series(values)) == expected


def test_values_of_columns_for_a_graph() -> None:
    frame = pandas.DataFrame({"t": ["x", None], "n": [1, 2], "w": [1.5, None], "u": [0, 0]})
    texts, whole, numbers = column_values(frame, ["text", "number", "number", "unused"])
    assert texts.tolist() == [["x"], [""]]
    assert whole.dtype == np.int64
    assert np.isnan(numbers[1, 0])


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_columns_mean_the_same_in_all_libraries(library: str) -> None:
    pytest.importorskip(library)
    day, zone = datetime.datetime(2024, 2, 29, 10), datetime.timezone(datetime.timedelta(hours=2))
    cells = {
        "number": ([1.5, None, 3.0], "number"),
        "whole": ([1, 2, 3], "number"),
        "truth": ([True, None, False], "truth"),
        "text": (["x", None, "ä"], "text"),
        "time": ([day, None, day], "time"),
        "zone": ([day.replace(tzinfo=zone), None, day.replace(tzinfo=zone)], "time"),
        "date": ([day.date(), None, day.date()], "time"),
        "span": ([datetime.timedelta(seconds=1.5), None, datetime.timedelta(0)], "duration"),
        "empty": ([None, None, None], "empty"),
    }
    frame = pandas.DataFrame({name: pandas.Series(values) for name, (values, _) in cells.items()})
    table = pytest.importorskip("pyarrow").table({name: values for name, (values, _) in cells.items()})
    other = pytest.importorskip("polars").from_arrow(table) if library == "polars" else table
    kinds = [kind for _, kind in cells.values()]
    assert [kind_of(column) for column in columns_of(frame)] == kinds
    assert [kind_of(column) for column in columns_of(other)] == kinds
    for found, expected in zip(column_values(other, kinds), column_values(frame, kinds), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_polars_needs_no_pandas() -> None:
    code = """
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] == "pandas" else self.finder.find_spec(name, *rest)
sys.meta_path[:] = map(Without, sys.meta_path)
import polars, consilience
frame = polars.DataFrame({"age": [30, None, 50] * 8, "city": ["Ulm", "Bonn", None] * 8})
model = consilience.SoftLabelClassifier("logistic").fit(frame, ["a", "b", "a"] * 8)
assert model.predict(frame).tolist() == ["a", "b", "a"] * 8
assert model.predict([[30, "Ulm"]]).tolist() == ["a"]
"""
    pytest.importorskip("polars")
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("model", [CollisionClassifier(), CollisionClustering(2)])
def test_models_of_numbers_name_the_other_columns(model: Any) -> None:
    frame = FRAME.assign(city=["Ulm", "Bonn"])
    with pytest.raises(InvalidInputError, match=r"These columns hold no numbers: 'city'\. Encode them first"):
        model.fit(frame, [0, 1])
    assert number_advice(FRAME) == ""


NUMBERS = np.arange(6.0).reshape(3, 2)
MIXED = pandas.DataFrame(
    {
        "age": [30, 40, 50],
        "city": ["Ulm", None, "Bonn"],
        "seen": pandas.to_datetime(["2024-01-01", None, "2024-03-01"]),
        "ill": [True, False, True],
    }
)
SAME = [
    *(
        (NUMBERS, other)
        for other in (
            NUMBERS.astype(np.int8),
            NUMBERS.astype(np.float32),
            np.asfortranarray(NUMBERS),
            NUMBERS.tolist(),
        )
    ),
    (NUMBERS, pandas.DataFrame(NUMBERS)),
    (MIXED, MIXED[["ill", "seen", "age", "city"]].astype({"age": float, "city": "category"})),
    (
        coo_matrix(([1.0, 1.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2)),
        csr_matrix([[0.0, 2.0], [3.0, 0.0]]),
    ),
    (["a", "b"], np.array(["a", "b"])),
    (np.array([[0.0, np.nan]]), np.array([[-0.0, -np.nan]])),
]


@pytest.mark.parametrize(("rows", "other"), SAME)
def test_one_checksum_for_one_content(rows: Any, other: Any) -> None:
    assert rows_sha256(rows) == rows_sha256(other)


def test_another_content_has_another_checksum() -> None:
    changed = MIXED.assign(city=["Ulm", "Ulm", "Bonn"])
    arrays = [NUMBERS, NUMBERS[::-1], NUMBERS.T, NUMBERS.ravel(), -NUMBERS, csr_matrix(NUMBERS)]
    renamed = MIXED.rename(columns={"age": "years"})
    frames = [MIXED, MIXED[::-1], changed, MIXED[["age"]], renamed]
    found = [rows_sha256(rows) for rows in (*arrays, *frames, ["ab", "c"], ["a", "bc"])]
    assert None not in found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("rows", [[{"a": 1}], [[1, 2], [3]], 5, np.array([1j]), as_rows(NUMBERS)])
def test_rows_without_plain_content_have_none(rows: Any) -> None:
    assert rows_sha256(rows) is None
