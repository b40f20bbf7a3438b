"""Files of rows, read in parts."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from consilience.exceptions import InvalidInputError
from consilience.files import streams
from consilience.files.arrays import ArrayFileError, open_npy
from consilience.files.readers import read_rows
from consilience.files.streams import ArrowCursor, open_rows, read_batches, read_texts_or_rows

TABLES = {
    "plain": "a,b\n1,x\n2,y\n3,z\n4,u\n5,v\n6,w\n7,q\n",
    "no end": "a,b\n1,x\n2,y\n3,z\n4,u",
    "quoted": 'a,b\n1,"x\ny"\n2,"y,\n\nq"\n3,"z,"\n4,"""u"""\n5,v\n6,w\n7,"\n\n"\n8,r\n',
    "blank lines": "\n\na,b\n\n1,x\n2,y\n\n\n3,z\n\n4,u\n5,v\n\n\n6,w\n7,q\n\n\n",
    "not ascii": "ä,ö\n1,ßx\n2,日本\n3,z😀\n4,u\n5,v\n6,wé\n7,q\n",
    "mark": "\ufeffa,b\n1,ä\n2,y\n3,z\n4,u\n5,v\n",
    "mark, no header": "\ufeff1,2\n3,4\n5,6\n7,8\n9,10\n",
    "no header": "1,x\n3,y\n5,z\n7,u\n9,v\n11,w\n13,q\n",
    "gaps": "a,b,c,d\n1,,true,2020-01-01\n,x,,\n3,y,false,2021-01-01\n4,na,true,\n5,,true,2022-01-01\n",
}


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found.reset_index(drop=True), expected.reset_index(drop=True))
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", TABLES)
def test_parts_of_a_csv_are_those_of_the_whole(
    name: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_LINES", 3)
    path = tmp_path / "rows.csv"
    path.write_bytes(TABLES[name].replace("\n", end).encode())
    whole, file = read_rows(path, "X"), open_rows(path, "X")
    assert file.n_rows == len(whole)
    for start in range(file.n_rows, -1, -1):
        for stop in range(start + 1, file.n_rows + 1):
            same(file.part(start, stop).X, whole[start:stop])


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"a\n\n\nb\n\nc\n", ["a", "", "", "b", "", "c"]),
        (b"a\r\nb\r\n\r\nc", ["a", "b", "", "c"]),
        (b"a\rb\rc", ["a", "b", "c"]),
        ("\ufeffä\nb\nç\nd".encode(), ["ä", "b", "ç", "d"]),
        ("a\u2028x\x0b\nb\x85c\nc\x1c\n \td ".encode(), ["a\u2028x\x0b", "b\x85c", "c\x1c", " \td "]),
        (b"\n", [""]),
    ],
)
def test_every_line_of_a_txt_file_is_a_text(
    content: bytes, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_LINES", 2)
    path = tmp_path / "texts.txt"
    path.write_bytes(content)
    file = open_rows(path, "X")
    for start in reversed(range(len(texts))):
        assert texts[start:] == file.part(start, len(texts)).X
        assert texts[start : start + 1] == file.part(start, start + 1).X
    assert read_texts_or_rows(path, "X") == texts


def test_a_text_file_that_is_read_in_part_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("1,2\n" * 50_000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_rows(path, "X").part(10, 12)
        gc.collect()
    assert caught == []


@pytest.mark.parametrize("size", [1, 4, 100])
def test_parts_of_parquet_in_any_order(size: int, tmp_path: Path) -> None:
    n = 23
    frame = pd.DataFrame(
        {
            "number": np.arange(n) / 7,
            "text": [f"ä{i % 5}" for i in range(n)],
            "category": pd.Categorical([f"k{i // 4}" for i in range(n)]),
            "true": np.arange(n) % 3 == 0,
            "when": pd.date_range("2020", periods=n, freq="h"),
            "gap": pd.array([None if i == 20 else i for i in range(n)], dtype="Int64"),
            "maybe": pd.array([None if i == 20 else i % 2 == 0 for i in range(n)], dtype="boolean"),
            "word": [None if i % 4 == 1 else "x" for i in range(n)],
        }
    )
    path = tmp_path / "rows.parquet"
    frame.to_parquet(path, row_group_size=size)
    whole, file = read_rows(path, "X"), open_rows(path, "X")
    names = list(frame.columns[::-1])
    for start, stop in [(17, 20), (0, 5), (5, 9), (9, 9), (2, 23), (22, 23), (19, 22)]:
        part = file.part(start, stop).X
        pd.testing.assert_frame_equal(
            part, whole[start:stop].reset_index(drop=True), check_categorical=False
        )  # with the types of the whole: an integer is a float where another row is missing
        other = file.part(start, stop, names, keep=["number"])
        pd.testing.assert_frame_equal(other.X, part[names], check_categorical=False)
        assert other.kept["number"].to_pylist() == frame["number"][start:stop].tolist()


def test_an_arrow_cursor_cuts_batches_anew() -> None:
    table = pa.table({"i": list(range(10))})
    reader = ArrowCursor(iter(table.to_batches(3)), table.schema.empty_table())
    parts = [reader.read(count)["i"].to_pylist() for count in (0, 4, 1, 3, 5, 2)]
    assert parts == [[], [0, 1, 2, 3], [4], [5, 6, 7], [8, 9], []]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(9, 4), (9, 2, 3), (9, 2, 3, 2), (9, 0)])
@pytest.mark.parametrize("kind", [np.uint8, np.float64, ">f4", bool])
def test_parts_of_an_npy_file(order: Any, shape: tuple[int, ...], kind: Any, tmp_path: Path) -> None:
    values = np.asarray(np.random.default_rng(0).integers(0, 200, shape).astype(kind), order=order)
    np.save(tmp_path / "X.npy", values)
    file = open_npy(tmp_path / "X.npy")
    for start, stop in [(0, 9), (3, 5), (8, 9), (4, 4)]:
        part = file.part(start, stop)
        assert part.dtype == values.dtype
        np.testing.assert_array_equal(part, values[start:stop])


def test_an_npy_file_that_became_another_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.zeros((9, 2)))
    file = open_npy(tmp_path / "X.npy")
    np.save(tmp_path / "X.npy", np.zeros((9, 3)))
    with pytest.raises(ArrayFileError, match=r"now holds float64 of shape \(9, 3\)"):
        file.part(0, 2)


def _csv(path: Path, values: Any) -> None:
    np.savetxt(path, values, delimiter=",")


WRITERS: dict[str, Callable[[Path, Any], Any]] = {
    "csv": _csv,
    "npy": lambda path, values: np.save(path, values),
    "npz": lambda path, values: np.savez(path, X=values),
    "txt": lambda path, values: path.write_text("\n".join(map(str, values[:, 0]))),
    "parquet": lambda path, values: pd.DataFrame(values, columns=["a", "b"]).to_parquet(path),
}


@pytest.mark.parametrize("change", ["shorter", "longer", "other", "gone"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_changes_while_it_is_read_is_refused(kind: str, change: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{kind}"
    values = np.arange(18.0).reshape(9, 2)
    WRITERS[kind](path, values)
    os.utime(path, ns=(0, 0))
    batches = read_batches(open_rows(path, "--data"), 2, None, (), "--data")
    next(batches)
    next(batches)
    if change == "shorter":
        path.write_bytes(path.read_bytes()[:-7])
    elif change == "gone":
        path.unlink()
    else:
        WRITERS[kind](path, np.vstack([values, values]) if change == "longer" else values + 1)
    expected = "No such file" if change == "gone" else "had 9 rows when it was opened, and has changed"
    with pytest.raises(InvalidInputError, match=f"--data: .*{expected}"):
        next(batches)
