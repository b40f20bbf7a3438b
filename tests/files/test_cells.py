"""Cells of .csv files: what becomes a number, a date, a text, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.files.cells import read_cells

pandas = pytest.importorskip("pandas")


def column(*cells: str) -> Any:
    return read_cells([["other", "name"], *(["0", cell] for cell in cells)])["name"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("1", "-2.5e1"), [1.0, -25.0]),
        (("1", "", " "), [1.0, None, None]),
        (("1", "NA", "null", "-"), [1.0, None, None, None]),
        (("NA", "DE", ""), ["NA", "DE", None]),  # a country, and none
        (("true", "False"), [True, False]),
        (("true", ""), [True, None]),
        (("2024-02-29", ""), [pandas.Timestamp("2024-02-29"), None]),
        (("2024-02-29T10:00+02:00",), [pandas.Timestamp("2024-02-29 08:00")]),
        (("2024-13-45", "2024-01-01"), ["2024-13-45", "2024-01-01"]),
        (("", ""), [None, None]),
    ],
)
def test_columns(cells: tuple[str, ...], expected: list[Any]) -> None:
    found = [None if pandas.isna(value) else value for value in column(*cells).tolist()]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


def test_a_header_names_the_columns() -> None:
    frame = read_cells([["b", "a"], ["1", "2"], ["3", ""]])
    assert list(frame.columns) == ["b", "a"]
    assert frame["b"].tolist() == [1, 3]
    assert np.isnan(frame["a"][1])


def test_without_a_header_columns_are_numbered() -> None:
    frame = read_cells([["1", "2"], ["3", "red"]])
    assert list(frame.columns) == [0, 1]
    assert frame[1].tolist() == ["2", "red"]
    assert list(read_cells([["1", ""], ["3", "4"]]).columns) == [0, 1]
    assert isinstance(read_cells([["1", "2"]]), np.ndarray)


@pytest.mark.parametrize(
    ("lines", "header"),
    [
        ([["city", "2019"], ["Ulm", "1"]], False),  # it reads like the line below
        ([["key", "2019"], ["7", "1"]], True),
        ([["city", "size"], ["Ulm", "big"]], True),
        ([["37.1", "dry", "true"], ["38", "none", "false"]], False),
        ([["2024-01-01", "dry"], ["2024-01-02", "none"]], False),
        ([["fever", "cough"], ["38", "none"], ["", "dry"]], True),
    ],
)
def test_which_first_line_is_a_header(lines: list[list[str]], header: bool) -> None:
    frame = read_cells(lines)
    assert (list(frame.columns) == lines[0]) == header
    assert len(frame) == len(lines) - header


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([["", "a"], ["0", "1"]], r"column 1 has no name in the header.*index=False"),
        ([["a", "b", "a"], ["0", "1", "2"]], "the header has 'a' more than once"),
        ([["a", "b"], ["0"]], "line 2 has 1 column and the first has 2"),
        ([["a", "b"]], "a header and no rows"),
    ],
)
def test_tables_that_cannot_be_read(lines: list[list[str]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_cells(lines)
