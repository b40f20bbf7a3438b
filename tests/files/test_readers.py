"""Files that the command line reads and writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import InvalidInputError
from consilience.files import readers
from consilience.rows.files import open_files, read_alike


@pytest.mark.parametrize("header", ["", "a,b\n"])
def test_csv_with_and_without_header(header: str, tmp_path: Path) -> None:
    path = tmp_path / "X.csv"
    path.write_text(f"{header}1,2.5\n3,-4e2\n")
    rows = open_files(path, "--data").all(None)
    assert np.asarray(rows).tolist() == [[1, 2.5], [3, -400]]
    assert isinstance(rows, np.ndarray) == (not header)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2\n3\n", "line 2 has 1 column and the first has 2"),
        (",b\n1,2\n", "column 1 has no name in the header"),
        ("a,b\n", "a header and no rows"),
        ("", "it is empty"),
    ],
)
def test_csv_that_is_no_table(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "X.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=expected):
        open_files(path, "--data").all(None)


def test_parquet_rows(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=["r", "s"])
    frame.to_parquet(tmp_path / "X.parquet")
    rows = open_files(tmp_path / "X.parquet", "--data").all(None)
    assert rows.to_numpy().tolist() == [[1, 3], [2, 4]]
    assert list(rows.columns) == ["a", "b"]


def test_test_rows_have_the_columns_of_the_data(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (tmp_path / "X.csv").write_text("a,b\n1,2\n")
    (tmp_path / "turned.csv").write_text("b,a\n4,3\n")
    (tmp_path / "plain.csv").write_text("3,4\n")
    (tmp_path / "other.csv").write_text("a,c\n3,4\n")
    (tmp_path / "wide.csv").write_text("3,4,5\n")
    X = open_files(tmp_path / "X.csv", "--data").all(None)

    def read(name: str) -> Any:
        return read_alike(tmp_path / name, "--test-data", X, "X.csv")

    for name in ("turned.csv", "plain.csv"):
        assert np.asarray(read(name)).tolist() == [[3, 4]]
    with pytest.raises(
        InvalidInputError, match=r"--test-data: .*other.csv lacks the column 'b' and has .*'c'"
    ):
        read("other.csv")
    with pytest.raises(InvalidInputError, match=r"wide.csv has rows of shape \(3,\), and X.csv of \(2,\)"):
        read("wide.csv")


def test_npz_without_rows_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "X.npz", a=[1.0], b=[2.0])
    with pytest.raises(InvalidInputError, match="it has a, b; expected an array X"):
        open_files(tmp_path / "X.npz", "--data").all(None)


def test_an_empty_line_is_a_row_without_a_label(tmp_path: Path) -> None:
    path = tmp_path / "y.csv"
    path.write_text("label\n0\n\n\n2\n")
    assert readers.read_labels(path, 4, "--labels").tolist() == [0, None, None, 2]


def test_no_rows_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.empty((0, 2)))
    with pytest.raises(InvalidInputError, match=r"--data: .*has shape \(0, 2\); expected at least one row"):
        open_files(tmp_path / "X.npy", "--data").all(None)


def test_labels_keep_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "y.csv"
    path.write_text('y\n3\n""\n7\n')
    assert readers.read_labels(path, 3, "--labels").tolist() == [3, None, 7]
    with pytest.raises(InvalidInputError, match=r"has shape \(3,\); expected \(4,\)"):
        readers.read_labels(path, 4, "--labels")


def test_classes_from_files(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("cat\n\ndog\n")
    (tmp_path / "list.json").write_text('["1", "2"]')
    given = [f"a=@{tmp_path / 'lines.txt'}", f"b=@{tmp_path / 'list.json'}", "c=1, 2"]
    parsed = readers.parse_classes(given, ["a", "b", "c"])
    assert parsed == {"a": ["cat", "dog"], "b": ["1", "2"], "c": [1, 2]}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "q.npy"
    path.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        readers.write_soft_labels(path, np.ones((1, 1)), np.array(["a"]))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "aliases.json"
    path.write_text('{"auto": "car", "auto": "truck"}')
    with pytest.raises(
        InvalidInputError, match=r"aliases.json cannot be used: the key 'auto' is given twice"
    ):
        readers.read_aliases(path)


def test_names_that_are_one_number_stay_names() -> None:
    assert readers.numbers_or_text(["1", "01"]) == ["1", "01"]
    assert readers.numbers_or_text(["01", "02", "01"]) == [1, 2, 1]
