"""Datasets of Arrow and of the Hugging Face library."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.rows.rows import check_source

from consilience.exceptions import InvalidInputError
from consilience.rows import arrow, as_rows

FRAME = pd.DataFrame(
    {
        "i": np.arange(57),
        "x": np.arange(57) / 7,
        "t": [f"ä{i % 5}" for i in range(57)],
        "b": np.arange(57) > 9,
    }
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 8)
    monkeypatch.setattr(arrow, "ROWS_READ", 5)  # rows that are read together


@pytest.mark.parametrize("size", [3, 20, 1000])
def test_fragments_and_groups_of_rows_follow_each_other(size: int, tmp_path: Path) -> None:
    FRAME[:30].to_parquet(tmp_path / "a.parquet", row_group_size=size, index=False)
    FRAME[:0].to_parquet(tmp_path / "b.parquet", index=False)
    FRAME[30:][FRAME.columns[::-1]].to_parquet(tmp_path / "c.parquet", row_group_size=size, index=False)
    found = as_rows(ds.dataset(tmp_path, format="parquet"))
    check_source(found, FRAME)


@pytest.mark.parametrize("flavour", [None, "hive"])
def test_a_partition_is_a_column(flavour: str | None, tmp_path: Path) -> None:
    ds.write_dataset(
        pa.Table.from_pandas(FRAME),
        tmp_path,
        format="parquet",
        partitioning=["t"],
        partitioning_flavor=flavour,
    )
    found = as_rows(ds.dataset(tmp_path, format="parquet", partitioning=flavour or ["t"]))
    check_source(found, FRAME.sort_values(["t", "i"])[["i", "x", "b", "t"]])


def test_tables_of_csv_and_in_memory(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    for dataset in (ds.dataset(tmp_path, format="csv"), ds.dataset(pa.Table.from_pandas(FRAME))):
        found = as_rows(dataset)
        check_source(found, FRAME, sent=False)


@pytest.mark.parametrize("kind", ["parquet", "csv", "in memory", "missing column"])
def test_a_column_has_one_type_in_all_blocks(kind: str, tmp_path: Path) -> None:
    whole = pa.table({"i": [*range(20)], "b": [True, False] * 10, "x": [0.5] * 20, "t": ["a"] * 20})
    gaps = pa.table({"i": [3, None], "b": [None, True], "x": [None, 1.5], "t": [None, "b"]})
    if kind == "in memory":
        dataset = ds.dataset(pa.concat_tables([whole, gaps]))
    else:
        last = gaps.select(["x", "t"]) if kind == "missing column" else gaps
        for name, table in (("0", whole), ("1", last)):
            ds.write_dataset(table, tmp_path / name, format="csv" if kind == "csv" else "parquet")
        dataset = ds.dataset(tmp_path, format="csv" if kind == "csv" else "parquet")
    found = as_rows(dataset)
    want = dataset.to_table().to_pandas()
    for block in found.blocks():
        pd.testing.assert_series_equal(block.X.dtypes, want.dtypes)
    pd.testing.assert_frame_equal(found.all(None), want)


def test_what_has_no_rows_or_a_filter_is_refused(tmp_path: Path) -> None:
    dataset = ds.dataset(pa.Table.from_pandas(FRAME))
    with pytest.raises(InvalidInputError, match=r"with a filter, .* Write what it leaves .*write_dataset"):
        as_rows(dataset.filter(ds.field("i") > 3))
    with pytest.raises(InvalidInputError, match="without rows; expected at least one"):
        as_rows(ds.dataset(pa.Table.from_pandas(FRAME[:0])))


def test_files_that_changed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    FRAME.to_csv(path, index=False)
    found = as_rows(ds.dataset(path, format="csv"))
    path.write_text("\n".join(path.read_text().splitlines()[:20]))
    with pytest.raises(InvalidInputError, match=r"have changed\. Run again when nobody writes"):
        found.read(found.n_blocks - 1)


def hugging_face() -> Any:
    return pytest.importorskip("datasets", reason="pip install datasets to test Hugging Face datasets")


def test_hugging_face_texts_and_tables() -> None:
    made = hugging_face().Dataset.from_pandas(FRAME)
    found = as_rows(made)
    check_source(found, FRAME)
    texts = as_rows(made.select_columns(["t"]).select(range(5, 50)))
    check_source(texts, FRAME["t"][5:50].tolist())


def test_hugging_face_datasets_that_are_refused() -> None:
    datasets = hugging_face()
    made = datasets.Dataset.from_pandas(FRAME)
    for X, message in [
        (
            datasets.DatasetDict({"train": made, "test": made}),
            r"'train', 'test'; give one of them: X\['train'\]",
        ),
        (made.to_iterable_dataset(), r"read one by one .* X.with_format\('arrow'\).iter"),
        (made.select([]), "without rows"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            as_rows(X)
    batches = as_rows(made.to_iterable_dataset().with_format("arrow").iter(8))
    check_source(batches, FRAME)
