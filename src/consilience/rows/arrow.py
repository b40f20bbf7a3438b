"""Rows of Arrow datasets: those of pyarrow, and those of the Hugging Face library."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from consilience._optional import is_instance_of, require
from consilience.exceptions import InvalidInputError
from consilience.files.streams import ArrowCursor, as_frame, columns_with_gaps
from consilience.rows.rows import BLOCK_ROWS, Rows, block_rows, cut


class ArrowSource(Rows):
    """Rows of a ``pyarrow.dataset.Dataset``, fragment by fragment.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
        Without a filter: write what a filter leaves first.
    """

    def __init__(self, dataset: Any) -> None:
        require("pandas", extra="tables", purpose="An Arrow dataset")
        if getattr(dataset, "_scan_options", None):
            raise InvalidInputError(
                "X is an Arrow dataset with a filter, whose rows have no position. Write what it leaves to "
                "a folder first: pyarrow.dataset.write_dataset(X, folder, format='parquet')."
            )
        self._schema = dataset.schema
        self._fragments: list[Any] = []
        self._gaps: set[str] = set()
        for fragment in dataset.get_fragments():
            self._gaps |= _gaps(fragment, self._schema)
            split = hasattr(fragment, "split_by_row_group")
            self._fragments += fragment.split_by_row_group() if split else [fragment]
        counts = [_count(fragment) for fragment in self._fragments]
        self._starts = np.cumsum([0, *counts])
        if not self._starts[-1]:
            raise InvalidInputError("X is an Arrow dataset without rows; expected at least one.")
        few = dataset.head(64, batch_size=64, fragment_readahead=1)
        self.borders = cut(counts, block_rows(few.nbytes, len(few)))
        self._cursor: tuple[int, int, ArrowCursor] | None = None  # fragment, next row, reader

    def read(self, block: int) -> Any:
        """Return the rows of one block as a data frame."""
        rows = self.rows_of(block)
        number = int(np.searchsorted(self._starts, rows.start, side="right")) - 1
        start, count = rows.start - int(self._starts[number]), rows.stop - rows.start
        if self._cursor is None or self._cursor[:2] != (number, start):
            batches = self._fragments[number].to_batches(schema=self._schema, batch_size=BLOCK_ROWS)
            reader = ArrowCursor(batches, self._schema.empty_table())
            reader.read(start)
            self._cursor = (number, start, reader)
        reader = self._cursor[2]
        table = reader.read(count)
        if len(table) != count:
            raise InvalidInputError(
                "The files of the Arrow dataset have changed. Run again when nobody writes to them."
            )
        self._cursor = (number, start + count, reader)
        return as_frame(table, self._gaps)

    @property
    def stretches(self) -> Sequence[range]:
        """The blocks of a fragment."""
        places = np.searchsorted(self.borders, np.unique(self._starts))
        return [range(a, b) for a, b in pairwise(places.tolist())]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cursor": None}


def _gaps(fragment: Any, schema: Any) -> set[str]:
    """Return columns of whole numbers and booleans that miss a value in a file: pandas needs another type.

    Parquet files say so themselves. Of others, these columns are read once.
    """
    dataset = require("pyarrow.dataset", extra="tables", purpose="An Arrow dataset")
    names = [field.name for field in schema if str(field.type).startswith(("int", "uint", "bool"))]
    given = {*fragment.physical_schema.names, *dataset.get_partition_keys(fragment.partition_expression)}
    found = {name for name in names if name not in given}
    if hasattr(fragment, "metadata"):
        return found | columns_with_gaps(fragment.metadata) & {*names}
    if names:
        for batch in fragment.to_batches(schema=schema, columns=names, batch_size=BLOCK_ROWS):
            found |= {name for name in names if batch.column(name).null_count}
    return found


def _count(fragment: Any) -> int:
    groups = getattr(fragment, "row_groups", None)  # a part of a file counts the rows of the whole file
    return sum(group.num_rows for group in groups) if groups else int(fragment.count_rows())


class HuggingFaceSource(Rows):
    """Rows of a ``datasets.Dataset``: texts if it has a single column of texts, else a data frame.

    Parameters
    ----------
    dataset : datasets.Dataset
    """

    def __init__(self, dataset: Any) -> None:
        require("pandas", extra="tables", purpose="A Hugging Face dataset")
        if len(dataset) == 0:
            raise InvalidInputError("X is a dataset without rows; expected at least one.")
        self._dataset = dataset.with_format("arrow")
        few = self._dataset[: min(64, len(dataset))]
        strings = [str(kind) in ("string", "large_string") for kind in few.schema.types]
        self._texts = strings == [True]
        self._gaps = {name for name in few.schema.names if dataset.data.column(name).null_count}
        self.borders = cut([len(dataset)], block_rows(few.nbytes, len(few)))

    def read(self, block: int) -> Any:
        """Return the rows of one block."""
        table = self._dataset[self.rows_of(block)]
        return table.column(0).to_pylist() if self._texts else as_frame(table, self._gaps)


def as_arrow_source(X: Any) -> Rows | None:
    """Return the source of an Arrow dataset, or None if X is none; neither library is imported for this."""
    if is_instance_of(X, "pyarrow.dataset", "Dataset"):
        return ArrowSource(X)
    if is_instance_of(X, "datasets", "DatasetDict"):
        raise InvalidInputError(
            f"X is a DatasetDict with the parts {', '.join(map(repr, X))}; give one of them: X['train']."
        )
    if is_instance_of(X, "datasets", "IterableDataset"):
        raise InvalidInputError(
            "X is an IterableDataset, whose rows are read one by one and only once. Give a datasets.Dataset, "
            "or batches of rows: X.with_format('arrow').iter(1024)."
        )
    return HuggingFaceSource(X) if is_instance_of(X, "datasets", "Dataset") else None
