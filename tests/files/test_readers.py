"""Files that the command line reads and writes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import InvalidInputError
from consilience.files import readers
from consilience.rows.files import open_files, read_alike


def test_test_rows_have_the_columns_of_the_data(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    texts = {
        "X": "a,b\n1,2\n",
        "turned": "b,a\n4,3\n",
        "plain": "3,4\n",
        "other": "a,c\n3,4\n",
        "wide": "3,4,5\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    X = open_files(tmp_path / "X.csv", "--data").all(None)

    def read(name: str) -> Any:
        return read_alike(tmp_path / f"{name}.csv", "--test-data", X, "X.csv")

    assert np.asarray(read("turned")).tolist() == np.asarray(read("plain")).tolist() == [[3, 4]]
    with pytest.raises(
        InvalidInputError, match=r"--test-data: .*other.csv lacks the column 'b' and has .*'c'"
    ):
        read("other")
    with pytest.raises(InvalidInputError, match=r"wide.csv has rows of shape \(3,\), and X.csv of \(2,\)"):
        read("wide")


def test_labels_keep_their_kind_and_an_empty_line_is_none(tmp_path: Path) -> None:
    path = tmp_path / "y.csv"
    path.write_text('y\n3\n""\n7\n')
    assert readers.read_labels(path, 3, "--labels").tolist() == [3, None, 7]
    with pytest.raises(InvalidInputError, match=r"has shape \(3,\); expected \(4,\)"):
        readers.read_labels(path, 4, "--labels")
    path.write_text("label\n0\n\n\n2\n")
    assert readers.read_labels(path, 4, "--labels").tolist() == [0, None, None, 2]


def test_classes_from_files(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("cat\n\ndog\n")
    (tmp_path / "list.json").write_text('["1", "2"]')
    given = [f"a=@{tmp_path / 'lines.txt'}", f"b=@{tmp_path / 'list.json'}", "c=1, 2"]
    parsed = readers.parse_classes(given, ["a", "b", "c"])
    assert parsed == {"a": ["cat", "dog"], "b": ["1", "2"], "c": [1, 2]}


def test_names_that_are_one_number_stay_names() -> None:
    assert readers.numbers_or_text(["1", "01"]) == ["1", "01"]
    assert readers.numbers_or_text(["01", "02", "01"]) == [1, 2, 1]
