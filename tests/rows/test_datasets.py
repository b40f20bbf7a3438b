"""Rows of a torch dataset, read when needed; rows that come in batches, and only once."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")

from sklearn.linear_model import LogisticRegression  # noqa: E402
from tests.rows.rows import check_source  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset  # noqa: E402

from consilience import SoftLabelClassifier, Unifier, methods  # noqa: E402
from consilience.exceptions import InvalidInputError  # noqa: E402
from consilience.rows import as_rows  # noqa: E402
from consilience.rows.datasets import TorchRows  # noqa: E402
from consilience.students import Network  # noqa: E402


class Items(Dataset):  # type: ignore[misc]
    """A dataset that remembers which items were read."""

    def __init__(self, items: Any) -> None:
        self.items, self.seen = items, []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        self.seen.append(i)
        return self.items[i]


@pytest.fixture(scope="module")
def task() -> tuple[Any, Any, list[Any]]:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=150)
    X = (rng.normal(size=(150, 4)) + 4 * rng.normal(size=(3, 4))[y]).astype(np.float32)
    return X, y, [LogisticRegression().fit(X[y != k], y[y != k]) for k in (0, 2)]


def pairs(X: Any) -> list[Any]:
    return [(torch.tensor(x), "anything") for x in X]


def test_only_what_is_taken_is_read() -> None:
    data = Items([[float(i), 0.0] for i in range(10)])
    rows = as_rows(data)
    data.seen.clear()
    np.testing.assert_array_equal(rows.take(np.array([3, 5])), [[3.0, 0.0], [5.0, 0.0]])
    assert data.seen == [3, 5]
    assert rows.shape == (10, 2)


@pytest.mark.parametrize(
    ("items", "kind"),
    [
        ([np.zeros(2), np.ones(2)], np.ndarray),
        ([torch.zeros(2), torch.ones(2)], torch.Tensor),
        ([(torch.zeros(2), 0), (torch.ones(2), 1)], torch.Tensor),
        (["a", "b"], list),
        ([("a", 1), ("b", 2)], list),
    ],
)
def test_items_are_rows_or_tuples_that_begin_with_one(items: Any, kind: type) -> None:
    rows = as_rows(Items(items))
    assert isinstance(rows.all(None), kind)
    assert rows.shape == ((2,) if kind is list else (2, 2))


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([{"ids": 1, "mask": 2}], "dictionaries with the keys 'ids', 'mask'. Wrap it"),
        ([()], "an empty tuple"),
        ([torch.zeros(2), torch.zeros(3)], r"their shapes are \(2,\), \(3,\)"),
        ([object()], "cannot be joined to a batch"),
    ],
)
def test_items_that_are_no_rows(items: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        as_rows(Items(items)).read(0)


def test_datasets_that_cannot_be_read_by_number(task: Any) -> None:
    class Stream(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(())

    class Endless(Dataset):  # type: ignore[misc]
        pass

    with pytest.raises(InvalidInputError, match="Stream, an IterableDataset, whose rows cannot be read by"):
        Unifier(task[2]).fit(Stream())
    with pytest.raises(InvalidInputError, match="Endless without a length"):
        Unifier(task[2]).fit(Endless())


@pytest.mark.parametrize("student", ["logistic", Network(max_iter=2)])
def test_a_dataset_gives_what_its_rows_give(task: Any, student: Any) -> None:
    X, y, teachers = task
    data = Items(pairs(X))
    plain = Unifier(teachers, student, random_state=0, method=methods.Auto(n_neighbors=0)).fit(X)
    read = Unifier(teachers, student, random_state=0, method=methods.Auto(n_neighbors=0)).fit(data)
    np.testing.assert_allclose(read.predict_proba(data), plain.predict_proba(X), atol=1e-4)
    np.testing.assert_array_equal(read.predict(Subset(data, range(7))), plain.predict(X[:7]))
    assert read.n_features_in_ == 4
    if student == "logistic":
        assert str(read.evaluate(data, y)) == str(plain.evaluate(X, y))
    assert read.score(TensorDataset(torch.tensor(X)), y) == plain.score(X, y)


def test_fit_reads_a_dataset_by_blocks(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, teachers = task
    sizes, take = [], TorchRows.take
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 32)
    monkeypatch.setattr(TorchRows, "take", lambda self, rows: sizes.append(len(rows)) or take(self, rows))
    student = Network(lambda: torch.nn.Linear(4, 3), max_iter=2, batch_size=50)
    data = Items(pairs(X))
    Unifier(teachers, student, method="ce", random_state=0).fit(data)
    assert sum(size > 64 for size in sizes) <= 2  # samples of rows, which are kept in memory
    # once for both teachers, once an epoch, and a few rows to look at
    assert 3 * len(X) <= len(data.seen) < 6 * len(X)


def test_a_row_that_is_not_finite_is_named(task: Any) -> None:
    X = task[0].copy()
    X[140, 2] = np.nan
    with pytest.raises(InvalidInputError, match="not finite in row 140"):
        SoftLabelClassifier(Network(max_iter=1, batch_size=20)).fit(Items(pairs(X)), task[1])


X = np.random.default_rng(0).normal(size=(57, 3))
TEXTS = [f"ü {i}\n" for i in range(57)]
FRAME = pd.DataFrame({"x": X[:, 0], "t": TEXTS, "b": X[:, 1] > 0, "w": pd.date_range("2020", periods=57)})


@pytest.fixture
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
@pytest.mark.usefixtures("folder")
def test_batches_are_rows_that_can_be_read_again(batches: Any, expected: Any) -> None:
    found = as_rows(batches())
    expected = FRAME[FRAME.columns[::-1]] if expected is None else expected
    check_source(found, expected, sent=False)
    assert found.n_blocks >= 8


def test_a_loader_with_workers_is_read_once() -> None:
    found = as_rows(DataLoader(TensorDataset(TENSOR), batch_size=10, shuffle=True))
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
@pytest.mark.usefixtures("folder")
def test_batches_that_do_not_fit_are_named(batches: list[Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        as_rows(iter(batches))
    del caught
