"""Rows in blocks: what users give as X, rows that can be taken by position, and where arrays lie."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.sparse import csr_array, csr_matrix
from tests.rows.rows import check_source

from consilience.exceptions import InvalidInputError
from consilience.rows import HeldRows, as_rows, memory_budget, new_array, rows
from consilience.rows.rows import Rows, block_rows, bytes_of, cut, join_rows
from consilience.rows.tables import as_values
from consilience.run import Run

X = np.random.default_rng(0).normal(size=(57, 3))


@pytest.mark.parametrize(
    "rows",
    [
        X,
        np.asfortranarray(X),
        X.reshape(57, 3, 1).astype(np.uint8),
        csr_matrix(X),
        csr_array(X),
        pd.DataFrame(X, columns=list("abc"), index=np.arange(57)[::-1]),
        pl.DataFrame(X, schema=list("abc")),
        torch.tensor(X),
        [f"text {i}" for i in range(57)],
        X.tolist(),
        as_values(torch.utils.data.TensorDataset(torch.tensor(X), torch.zeros(57))),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_blocks_in_any_order_are_the_rows(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 8)
    found = HeldRows(rows)
    assert found.n_blocks == 8
    expected = torch.tensor(X) if isinstance(found.head, torch.Tensor) else rows
    check_source(found, expected)


def test_a_mapped_file_is_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 8)
    np.save(tmp_path / "X.npy", X)
    found = HeldRows(np.load(tmp_path / "X.npy", mmap_mode="r"))
    check_source(found, X)
    assert not isinstance(found.read(0), np.memmap)
    assert not isinstance(found.head, np.memmap)


def test_no_rows_are_no_blocks() -> None:
    empty = HeldRows(X[:0])
    assert (len(empty), empty.n_blocks, list(empty.blocks()), empty.n_bytes) == (0, 0, [], 0)


def test_blocks_are_cut_by_size_and_at_the_ends_of_files() -> None:
    assert cut([5, 2, 0, 4], 4).tolist() == [0, 4, 5, 7, 11]
    assert cut([], 4).tolist() == cut([0], 4).tolist() == [0]
    assert block_rows(8 * 64, 64) == rows.BLOCK_ROWS
    assert block_rows(64 * 3 * 2**20, 64) == 16  # images of 3 MB
    assert block_rows(2**40, 1) == 1
    assert block_rows(0, 0) == rows.BLOCK_ROWS


def test_random_rows_come_from_few_blocks_and_all_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 8)
    monkeypatch.setattr("consilience.rows.rows.SAMPLED_BLOCKS", 3)
    given = HeldRows(np.arange(800.0)[:, None])
    found = given.sample_rows(12)
    assert len(set(found.tolist())) == 12
    assert (np.diff(found) > 0).all()
    assert len(set((found // 8).tolist())) <= 3
    assert not np.array_equal(found, given.sample_rows(12, seed=1))
    assert len(given.sample_rows(500)) == 24  # the blocks have no more
    assert given.sample_rows(800).tolist() == list(range(800))


def test_only_the_blocks_of_wanted_rows_are_read() -> None:
    class Counted(Rows):
        borders = np.array([0, 10, 20, 30])
        asked: list[int] = []  # noqa: RUF012

        def read(self, block: int) -> Any:
            self.asked.append(block)
            return np.arange(10)[:, None] + 10 * block

    rows = Counted()
    assert rows.take(np.array([3, 5, 29])).ravel().tolist() == [3, 5, 29]
    assert rows.asked == [0, 2]
    assert rows.take(np.array([], dtype=int)).shape == (0, 1)


def test_sizes_are_about_those_in_memory() -> None:
    assert bytes_of(X) == X.nbytes == bytes_of(torch.tensor(X))
    frame = pd.DataFrame({"t": ["x" * 1000] * 10})
    assert 10_000 < bytes_of(frame) < 12_000
    assert 10_000 < bytes_of(["x" * 1000] * 10) < 12_000
    assert bytes_of(csr_array(np.eye(100))) == 100 * (8 + 4)
    assert 9_000 < bytes_of(pl.DataFrame({"t": ["x" * 1000] * 10})) < 12_000
    assert HeldRows(X).n_bytes == X.nbytes


def test_one_part_is_not_copied() -> None:
    assert join_rows([X]) is X


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
def test_kinds_of_rows(rows: Any, kind: str) -> None:
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
    found = as_rows(tmp_path / "X.npy", "--data")
    np.testing.assert_array_equal(found.all(Run(memory="10KB")), X)
    with pytest.raises(
        InvalidInputError, match=r"--data has 57 rows of about 1.*memory is 100 .* Give fewer"
    ):
        found.all(Run(memory=100))
    np.testing.assert_array_equal(found.all(None), X)


def test_the_budget_is_a_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_budget(Run(memory="2GB")) == 2 * 10**9
    assert memory_budget(Run(memory=17)) == 17
    everything = memory_budget(Run())
    monkeypatch.setattr(rows, "SHARE_OF_MACHINE", rows.SHARE_OF_MACHINE / 2)
    assert memory_budget(Run()) == pytest.approx(everything / 2, abs=2)
    assert 2**24 < everything < 2**44
    with pytest.raises(InvalidInputError, match="memory='much' must be a size"):
        memory_budget(Run(memory="much"))


@pytest.mark.parametrize(("size", "mapped"), [("1MB", False), ("1KB", True)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_an_array_lies_where_it_fits(size: str, mapped: bool, dtype: type) -> None:
    found = new_array((1000, 3), Run(memory=size), dtype)
    assert found.dtype == dtype
    assert isinstance(found, np.memmap) == mapped
    found[10:20] = 2
    assert found.sum() == 2 * 30  # zeros elsewhere
    assert new_array((0, 3), Run(memory=1)).shape == (0, 3)


def test_a_disk_that_is_too_small_is_said_before_any_work() -> None:
    with pytest.raises(InvalidInputError, match=r"temporary file cannot grow: .* Set .* TMPDIR"):
        new_array((2**50, 3), Run(memory=1))
