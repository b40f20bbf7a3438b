"""What users give as X."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.exceptions import InvalidInputError
from consilience.rows import (
    ArraySource,
    as_rows_or_source,
    as_source,
    given,
    memory_budget,
    rows_in_memory,
)

X = np.arange(40.0).reshape(20, 2)


@pytest.mark.parametrize("rows", [X, X.tolist(), ["a", "b"], [], ("a.csv",), ["rows.csv"], {}])
def test_rows_are_no_source(rows: Any) -> None:
    assert as_source(rows) is None


def test_a_source_is_itself() -> None:
    found = ArraySource(X)
    assert as_source(found) is as_rows_or_source(found) is found


@pytest.mark.parametrize("text", ["a whole sentence.", "a\0b", "a" * 10_000, "what[ is this?", "rows/*.csv"])
def test_a_text_that_names_no_file_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidInputError, match=r"is a single text.*give a list of texts\. If it is meant as a path"
    ):
        as_source(text)


def test_paths_are_given_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="a list of paths and other things"):
        as_source([tmp_path, 3])


def test_rows_that_do_not_fit_are_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    np.testing.assert_array_equal(rows_in_memory(tmp_path / "X.npy", "1KB"), X)
    with pytest.raises(
        InvalidInputError, match=r"--data has 20 rows of about 320 .*memory is 100 .* Give fewer"
    ):
        rows_in_memory(tmp_path / "X.npy", 100, "--data")
    assert rows_in_memory(X, 1) is X  # they are there already


def test_the_budget_is_a_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_budget("2GB") == 2 * 10**9
    assert memory_budget(17) == 17
    everything = memory_budget()
    monkeypatch.setattr(given, "SHARE_OF_MACHINE", given.SHARE_OF_MACHINE / 2)
    assert memory_budget() == pytest.approx(everything / 2, abs=2)
    assert 2**24 < everything < 2**44
    with pytest.raises(InvalidInputError, match="memory='much' must be a size"):
        memory_budget("much")
