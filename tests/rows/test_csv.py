"""Tables in .csv files: what becomes a number, a date, a text, and what is missing."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from consilience.exceptions import InvalidInputError
from consilience.rows.csv import read_column
from consilience.rows.files import open_files


def read_cells(folder: Path, lines: list[list[str]], expected: Any = None) -> Any:
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    (folder / "rows.csv").write_text(text.getvalue())
    return open_files(folder / "rows.csv", "--data", expected).all(None)


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
        (
            ("2024-02-29 10:00:00.1234567Z", "2024-02-29", "2024-02-29T10:00:30"),
            [pandas.Timestamp(f"2024-02-29 {time}") for time in ("10:00:00.123456", "00:00", "10:00:30")],
        ),
        (("2024-13-45", "2024-01-01"), ["2024-13-45", "2024-01-01"]),
        (("", ""), [None, None]),
    ],
)
def test_columns(cells: tuple[str, ...], expected: list[Any], tmp_path: Path) -> None:
    column = read_cells(tmp_path, [["other", "name"], *(["0", cell] for cell in cells)])["name"]
    found = [None if pandas.isna(value) else value for value in column.tolist()]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]
    pandas.testing.assert_series_equal(read_column(cells), column, check_names=False)


def test_without_a_header_columns_are_numbered(tmp_path: Path) -> None:
    frame = read_cells(tmp_path, [["1", "2"], ["3", "red"]])
    assert list(frame.columns) == [0, 1]
    assert frame[1].tolist() == ["2", "red"]
    assert list(read_cells(tmp_path, [["1", ""], ["3", "4"]]).columns) == [0, 1]
    assert isinstance(read_cells(tmp_path, [["1", "2"]]), np.ndarray)


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
def test_which_first_line_is_a_header(lines: list[list[str]], header: bool, tmp_path: Path) -> None:
    frame = read_cells(tmp_path, lines)
    assert (list(frame.columns) == lines[0]) == header
    assert len(frame) == len(lines) - header


def test_what_a_model_takes_decides(tmp_path: Path) -> None:
    lines = [["ward", "seen", "age"], ["007", "", "1"], ["8", "", "2"]]
    found = read_cells(tmp_path, lines, {"ward": "text", "seen": "time", "age": "time"})
    assert found["ward"].tolist() == ["007", "8"]
    assert found["seen"].dtype.kind == "M"
    assert found["age"].tolist() == [1, 2]  # it is what it looks like
    assert read_cells(tmp_path, [["007", "1"]], {"a": "text", "b": "number"})[0].tolist() == ["007"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b",a\n0,1\n", r"column 1 has no name in the header.*index=False"),
        (b"a,b,a\n0,1,2\n", "the header has 'a' more than once"),
        (b"a,b\n0\n", "line 2 has 1 column and the first has 2"),
        (b"a,b\n", "a header and no rows"),
        ("ä,b\n1,2\n".encode("latin-1"), "it is no text in UTF-8"),
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (b"a;b\n1;2,3\n", "line 2 has 2 columns and the first has 1; separate columns by ','"),
        (b'a,b\n1,"x\n2,y\n3,z\n', r"its last cell has no end\. Is a quote left open\?"),
        (b'a,b\r1,"x\r2,y\r3,"z"\r', r"its last cell has no end\. Is a quote left open\?"),
        (b'a,b\n1,x\n"2,y\n3,z\n', r"has 1 column and the first has 2\. Is a quote left open\?"),
    ],
)
def test_files_that_are_no_tables(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(InvalidInputError, match=f"^--data: .*rows.csv cannot be read: .*{words}"):
        open_files(tmp_path / "rows.csv", "--data")


def test_plain_numbers_need_no_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_extra = read_cells(tmp_path, [["1", "2.5"], ["-3e2", "4"]])
    monkeypatch.setattr("consilience.rows.files.installed", lambda name: False)
    np.testing.assert_array_equal(open_files(tmp_path / "rows.csv").all(None), with_extra)


TABLES = {
    "plain": "a,b\n1,x\n2,y\n3,z\n4,u\n5,v\n6,w\n7,q\n",
    "no end": "a,b\n1,x\n2,y\n3,z\n4,u",
    "quoted": 'a,b\n1,"x\ny"\n2,"y,\n\nq"\n3,"z,"\n4,"""u"""\n5,v\n6,w\n7,"\n\n"\n8,r\n',
    "blank lines": "\n\na,b\n\n1,x\n2,y\n\n\n3,z\n\n4,u\n5,v\n\n\n6,w\n7,q\n\n\n",
    "not ascii": "ä,ö\n1,ßx\n2,日本\n3,z😀\n4,u\n5,v\n6,wé\n7,q\n",
    "mark": "\ufeffa,b\n1,ä\n2,y\n3,z\n4,u\n5,v\n",
    "mark, no header": "\ufeff1,2\n3,4\n5,6\n7,8\n9,10\n",
    "a quote in the last cell": 'a,b\n1,"x\ny"\n2,7" pipe\n3,"z\n""u"" "\n4,5" pipe\n',
    "no header": "1,x\n3,y\n5,z\n7,u\n9,v\n11,w\n13,q\n",
    "gaps": "a,b,c,d\n1,,true,2020-01-01\n,x,,\n3,y,false,2021-01-01\n4,na,true,\n5,,true,2022-01-01\n",
}


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, pandas.DataFrame):
        pandas.testing.assert_frame_equal(found.reset_index(drop=True), expected.reset_index(drop=True))
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", TABLES)
def test_blocks_are_those_of_the_whole(
    name: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(TABLES[name].replace("\n", end).encode())
    whole = open_files(path).all(None)
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 2)
    monkeypatch.setattr("consilience.rows.arrow.ROWS_READ", 3)
    monkeypatch.setattr("consilience.rows.csv._BYTES", 40)
    parts = open_files(path)
    assert len(parts) == len(whole)
    for block in parts.blocks(reversed(range(parts.n_blocks))):
        same(block.X, whole[block.rows])
