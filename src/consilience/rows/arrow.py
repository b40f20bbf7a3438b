"""Rows that are tables of Arrow: of parquet files, of datasets, or kept in a temporary file."""

from __future__ import annotations

import mmap
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Generator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as arrow
from pyarrow import dataset

from consilience._optional import is_instance_of
from consilience.exceptions import InvalidInputError
from consilience.rows.memory import growing
from consilience.rows.parts import FilePart, Part, TableRows
from consilience.rows.rows import Rows

ROWS_READ = 4096
"""Rows that Arrow reads together."""


class Fragment(Part):
    """A fragment of a ``pyarrow.dataset.Dataset``. Parts in order decode each group of rows once."""

    def __init__(self, fragment: Any, schema: Any) -> None:
        self._fragment, self._schema = fragment, schema
        self._in_groups = hasattr(fragment, "row_groups")
        groups = fragment.row_groups if self._in_groups else ()
        sizes = [group.num_rows for group in groups] if self._in_groups else [fragment.count_rows()]
        self._groups = list(accumulate(sizes, initial=0))  # where each group of rows begins
        self.n_rows = self._groups[-1]
        self._next: tuple[Any, ...] = ()  # the next row, columns, and what gives them

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Return some rows as a table."""
        if self._next[:2] != (start, columns):
            self._next = (start, columns, self._tables(start, columns))
            next(self._next[2])
        tables = self._next[2]
        table = tables.send(stop - start)
        if len(table) != stop - start:
            raise InvalidInputError(
                "The files of the Arrow dataset have changed. Run again when nobody writes to them."
            )
        self._next = () if stop == self.n_rows else (stop, columns, tables)
        return table

    def _tables(self, start: int, columns: Sequence[str] | None) -> Generator[Any, int, None]:
        """Give tables of as many rows as are asked for; the first are those before `start`."""
        group, fragment = bisect_right(self._groups, start) - 1, self._fragment
        if self._in_groups:
            fragment = fragment.subset(row_group_ids=range(group, len(self._groups) - 1))
        names = self._schema.names if columns is None else list(columns)
        batches = fragment.to_batches(
            schema=self._schema, columns=names, batch_size=ROWS_READ, batch_readahead=2, fragment_readahead=1
        )
        left, count = self._schema.empty_table().select(names), start - self._groups[group]
        while True:
            parts, found = [left], len(left)
            while found < count and (batch := next(batches, None)) is not None:
                parts.append(arrow.Table.from_batches([batch]))
                found += len(batch)
            table = arrow.concat_tables(parts) if len(parts) > 1 else left
            left = table.slice(count)
            count = yield table.slice(0, count)

    def stretch(self, row: int) -> int:
        return int(self._groups[bisect_right(self._groups, row) - 1])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_next": ()}


class KeptTable(Part):
    """A table in a temporary file without a name: it is gone with this object, also after a crash."""

    def __init__(self, schema: Any) -> None:
        self._file, self.schema = tempfile.TemporaryFile(), schema  # noqa: SIM115 (it lives as long as this)
        weakref.finalize(self, self._file.close)
        self._writer = arrow.ipc.new_file(self._file, schema)
        self.n_rows, self.gaps = 0, set[str]()

    def append(self, table: Any) -> None:
        """Write rows after the last."""
        with growing():
            self._writer.write_table(table, max_chunksize=ROWS_READ)
        self.n_rows += len(table)
        self.gaps |= {name for name in table.column_names if table.column(name).null_count}

    def close(self) -> None:
        """End writing; `read` works from now on."""
        with growing():
            self._writer.close()
            self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()
        self._table = arrow.ipc.open_file(arrow.py_buffer(mapped)).read_all()

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Return some rows as a table."""
        table = self._table.slice(start, stop - start)
        return table if columns is None else table.select(list(columns))


class _HuggingFace(Part):
    """A ``datasets.Dataset``."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.n_rows = dataset.with_format("arrow"), len(dataset)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Return some rows as a table."""
        table = self._dataset[start:stop]
        return table if columns is None else table.select(list(columns))


class ParquetFile(FilePart):
    """A .parquet file."""

    def __init__(self, path: Path, option: str) -> None:
        super().__init__(path, option)
        (found,) = dataset.dataset(path, format="parquet").get_fragments()
        self.schema = found.physical_schema.remove_metadata()
        self._fragment = Fragment(found, self.schema)
        # pandas writes its index as one more column
        self.names = [name for name in self.schema.names if not name.startswith("__index_level_")]
        if not self.names:
            raise ValueError("it has no columns")
        self.n_rows, self.gaps = self._fragment.n_rows, gaps_of(found, self.schema)

    def stretch(self, row: int) -> int:
        return self._fragment.stretch(row)

    def _read(self, start: int, stop: int, columns: Sequence[str] | None) -> Any:
        return self._fragment.read(start, stop, columns)


def unified(files: Sequence[ParquetFile], columns: Sequence[str], option: str) -> Any:
    """Return one schema for some columns of all files, or raise where a column has types of two kinds."""
    schemas = [arrow.schema([file.schema.field(name) for name in columns]) for file in files]
    together = schemas[0]
    for file, schema in zip(files, schemas, strict=True):
        try:
            if not schema.equals(together):
                plain = [_without_categories(one) for one in (together, schema)]
                together = arrow.unify_schemas(plain, promote_options="permissive")
        except arrow.ArrowTypeError as error:
            raise InvalidInputError(
                f"{option}: {file.path} does not fit {files[0].path.name}: {error}. Write the column in one "
                "type in all files."
            ) from error
    return together


def _without_categories(schema: Any) -> Any:
    kinds = [one.value_type if arrow.types.is_dictionary(one) else one for one in schema.types]
    return arrow.schema(list(zip(schema.names, kinds, strict=True)))


def rows_of_dataset(X: Any) -> Rows:
    """Return the rows of a dataset of Arrow or of Hugging Face."""
    if is_instance_of(X, "pyarrow.dataset", "Dataset"):
        if getattr(X, "_scan_options", None):
            raise InvalidInputError(
                "X is an Arrow dataset with a filter, whose rows have no position. Write what it leaves to "
                "a folder first: pyarrow.dataset.write_dataset(X, folder, format='parquet')."
            )
        fragments = list(X.get_fragments())
        parts = [Fragment(fragment, X.schema) for fragment in fragments]
        if not any(part.n_rows for part in parts):
            raise InvalidInputError("X is an Arrow dataset without rows; expected at least one.")
        return TableRows(parts, X.schema, set().union(*(gaps_of(one, X.schema) for one in fragments)))
    if is_instance_of(X, "datasets", "DatasetDict"):
        raise InvalidInputError(
            f"X is a DatasetDict with the parts {', '.join(map(repr, X))}; give one of them: X['train']."
        )
    if is_instance_of(X, "datasets", "IterableDataset"):
        raise InvalidInputError(
            "X is an IterableDataset, whose rows are read one by one and only once. Give a datasets.Dataset, "
            "or batches of rows: X.with_format('arrow').iter(1024)."
        )
    if len(X) == 0:
        raise InvalidInputError("X is a dataset without rows; expected at least one.")
    gaps = {name for name in X.column_names if X.data.column(name).null_count}
    return TableRows([_HuggingFace(X)], X.features.arrow_schema, gaps, texts=True)


def gaps_of(fragment: Any, schema: Any) -> set[str]:
    """Return the columns of whole numbers and booleans that miss a value: data frames need another type.

    The statistics of parquet files say so. Without them, these columns are read once.
    """
    names = [field.name for field in schema if str(field.type).startswith(("int", "uint", "bool"))]
    missing = {name: dataset.field(name).is_null() for name in names}
    return {name for name, rule in missing.items() if fragment.scanner(schema, filter=rule).count_rows()}
