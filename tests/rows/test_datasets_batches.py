"""Rows that come in batches, and only once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from tests.rows.rows import check_source
from torch.utils.data import DataLoader, TensorDataset

from consilience.exceptions import InvalidInputError
from consilience.rows import as_rows

X = np.random.default_rng(0).normal(size=(57, 3))
TEXTS = [f"ü {i}\n" for i in range(57)]
FRAME = pd.DataFrame({"x": X[:, 0], "t": TEXTS, "b": X[:, 1] > 0, "w": pd.date_range("2020", periods=57)})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, which have no name there."""
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 8)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def cut(rows: Any, size: int = 10) -> Iterator[Any]:
    return (rows[i : i + size] for i in range(0, len(rows), size))


TENSOR = torch.tensor(X)


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        (lambda: cut(X), X),
        (lambda: cut(X.astype(np.uint8).reshape(57, 3, 1)), X.astype(np.uint8).reshape(57, 3, 1)),
        (lambda: cut(TENSOR), X),
        (lambda: cut(torch.tensor(X, requires_grad=True)), X),
        (lambda: ((part, "label") for part in cut(X)), X),
        (lambda: cut(X.tolist()), X),
        (lambda: cut(TEXTS), TEXTS),
        (lambda: cut(np.array(TEXTS)), TEXTS),
        (lambda: cut(FRAME["t"]), TEXTS),
        (lambda: iter(pa.Table.from_pandas(FRAME).to_batches(10)), FRAME),
        (lambda: (part if i else part[part.columns[::-1]] for i, part in enumerate(cut(FRAME))), None),
        (lambda: (pl.from_pandas(part) for part in cut(FRAME)), FRAME),
        (lambda: DataLoader(TensorDataset(TENSOR), batch_size=19), X),  # batches are lists [x]
        (lambda: DataLoader(TensorDataset(TENSOR, torch.arange(57)), batch_size=10), X),  # and [x, y]
        (lambda: DataLoader(TEXTS, batch_size=10), TEXTS),  # type: ignore[arg-type]
        (lambda: DataLoader(list(zip(TEXTS, range(57), strict=True)), batch_size=10), TEXTS),  # type: ignore[arg-type]
    ],
)
def test_batches_are_rows_that_can_be_read_again(batches: Any, expected: Any) -> None:
    found = as_rows(batches())
    assert found is not None
    expected = FRAME[FRAME.columns[::-1]] if expected is None else expected
    check_source(found, expected, sent=False)
    assert found.n_blocks >= 8


def test_a_loader_with_workers_is_read_once() -> None:
    found = as_rows(DataLoader(TensorDataset(TENSOR), batch_size=10, shuffle=True))
    assert found is not None
    first, again = found.all(None), found.all(None)
    np.testing.assert_array_equal(first, again)  # whatever order the loader has the next time
    np.testing.assert_array_equal(np.sort(first, axis=0), np.sort(X, axis=0))


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "X has no batches; expected at least one"),
        (
            [X, X, X, X.astype(np.float32)],
            r"Batch 3 of X has rows of float32 \(3,\), and the first of float64",
        ),
        (
            [X, X[:, :2]],
            r"Batch 1 .* float64 \(2,\), and the first of float64 \(3,\). Give batches of one kind",
        ),
        ([X, TEXTS], "Batch 1 of X is a list"),
        ([X[0]], r"Batch 0 of X is a ndarray \(float64, shape \(3,\)\); expected an array \(n, ...\)"),
        ([{"x": X}], "dictionaries with the keys 'x'"),
        ([TEXTS, [3]], "Batch 1 of X does not fit the first"),
        ([TEXTS, X], "Batch 1 of X does not fit the first"),
        ([FRAME, FRAME.rename(columns={"x": "y"})], "Batch 1 of X does not fit the first"),
        ([FRAME, FRAME, FRAME.assign(x="text")], "Batch 2 of X does not fit the first"),
        ([FRAME.assign(t=None), FRAME], "Batch 1 of X does not fit the first"),
        ([FRAME, X], "Batch 1 of X does not fit the first"),
    ],
)
def test_batches_that_do_not_fit_are_named(batches: list[Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        as_rows(iter(batches))
    del caught
