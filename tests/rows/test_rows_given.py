"""What users give as X."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from consilience.exceptions import InvalidInputError
from consilience.rows import as_rows
from consilience.run import Run

X = np.arange(40.0).reshape(20, 2)


@pytest.mark.parametrize("rows", [X, X.tolist(), ["a", "b"], [], ("a.csv",), ["rows.csv"]])
def test_rows_in_memory_are_held(rows: Any) -> None:
    found = as_rows(rows)
    assert found.held
    assert len(found) == len(rows)
    assert found.n_blocks == (len(rows) > 0)
    assert found.given is found.all(Run(memory=1)) is rows
    assert as_rows(found) is found


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (X, "array"),
        (X.tolist(), "array"),
        (csr_array(X), "sparse"),
        (["a"], "texts"),
        ([np.zeros((2, 3), np.uint8), np.zeros((3, 3), np.uint8)], "images"),
        (pd.DataFrame(X), "table"),
        ([], "array"),
    ],
)
def test_kinds(rows: Any, kind: str) -> None:
    assert as_rows(rows).kind == kind


@pytest.mark.parametrize("text", ["a whole sentence.", "a\0b", "a" * 10_000, "what[ is this?", "rows/*.csv"])
def test_a_text_that_names_no_file_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidInputError, match=r"is a single text.*give a list of texts\. If it is meant as a path"
    ):
        as_rows(text)


def test_paths_are_given_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="a list of paths and other things"):
        as_rows([tmp_path, 3])


def test_rows_that_do_not_fit_are_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    rows = as_rows(tmp_path / "X.npy", "--data")
    np.testing.assert_array_equal(rows.all(Run(memory="1KB")), X)
    with pytest.raises(
        InvalidInputError, match=r"--data has 20 rows of about 320 .*memory is 100 .* Give fewer"
    ):
        rows.all(Run(memory=100))
    np.testing.assert_array_equal(rows.all(None), X)
