"""Rows that are tables of Arrow: of parquet files, of datasets, or kept in a temporary file."""

from __future__ import annotations

import mmap
import tempfile
from bisect import bisect_right
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from consilience._optional import require
from consilience.exceptions import InvalidInputError
from consilience.rows.files import FilePart, PartRows
from consilience.rows.rows import Rows, growing
from consilience.rows.tables import from_arrow, is_instance_of

arrow = require("pyarrow", extra="tables", purpose="Reading tables of Arrow")
dataset = require("pyarrow.dataset", extra="tables", purpose="Reading tables of Arrow")

ROWS_READ = 4096
"""Rows that Arrow reads together."""
_NO_ROWS = "X is a dataset without rows; expected at least one."


class TableRows(PartRows):
    """Rows of tables, as data frames, or as texts where there is a single column of these.

    Parameters
    ----------
    parts : sequence of parts
        Of tables of Arrow.
    schema : pyarrow.Schema
        Of all rows.
    gaps : set of str
        Columns with a missing value in some row: they have one type in all blocks.
    texts : bool
        Whether a single column of texts is a list.

    Attributes
    ----------
    chosen : list
        The columns that are read.
    """

    def __init__(self, parts: Sequence[Any], schema: Any, gaps: set[str], *, texts: bool = False) -> None:
        whole = {name for name in gaps if arrow.types.is_integer(schema.field(name).type)}
        self._types = {field.name: arrow.float64() if field.name in whole else field.type for field in schema}
        self._maybe = {name for name in gaps if arrow.types.is_boolean(schema.field(name).type)}
        self.names = self.chosen = list(schema.names)
        self._texts = texts and [str(kind) for kind in schema.types] in (["string"], ["large_string"])
        super().__init__(parts)

    def expect(self, expected: Mapping[Any, str]) -> None:
        """Read columns as a model takes them: of files that do not say themselves what they hold."""

    def choose(self, columns: Sequence[str]) -> None:
        """Read these columns alone, in this order."""
        self.chosen = list(columns)
        self.__dict__.pop("head", None)

    def read_with(self, block: int, keep: Sequence[str]) -> tuple[Any, dict[str, Any]]:
        """Return the rows of one block, and columns as the file has them."""
        columns = list(dict.fromkeys([*self.chosen, *keep]))
        part, start, stop = self._place(block)
        table = part.read(start, stop, columns)
        return self._typed(table.select(self.chosen)), {name: table.column(name) for name in keep}

    def _rows(self, part: Any, start: int, stop: int) -> Any:
        return self._typed(part.read(start, stop, self.chosen))

    def _typed(self, table: Any) -> Any:
        """Return some rows of Arrow as all rows would be."""
        if self._texts:
            return table.column(0).to_pylist()
        schema = arrow.schema([(name, self._types[name]) for name in table.column_names])
        return from_arrow(table.cast(schema, safe=False), self._maybe)


class Fragment:
    """A fragment of a ``pyarrow.dataset.Dataset``. Parts in order decode each group of rows once."""

    kind = "a table"

    def __init__(self, fragment: Any, schema: Any) -> None:
        self._fragment, self.schema = fragment, schema
        # pandas writes its index as one more column
        self.names = [name for name in schema.names if not name.startswith("__index_level_")]
        groups = getattr(fragment, "row_groups", None)
        sizes = [fragment.count_rows()] if groups is None else [group.num_rows for group in groups]
        self._groups = list(accumulate(sizes, initial=0))  # where each group of rows begins
        self.n_rows = self._groups[-1]
        self._next: tuple[Any, ...] = ()  # the next row, columns, and what gives them

    @classmethod
    def of_file(cls, path: Path) -> Fragment:
        """Open a .parquet file."""
        (found,) = dataset.dataset(path, format="parquet").get_fragments()
        made = cls(found, found.physical_schema.remove_metadata())
        if not made.names:
            raise ValueError("it has no columns")
        return made

    @property
    def gaps(self) -> set[str]:
        """The columns of whole numbers and booleans that miss a value: data frames need another type.

        The statistics of parquet files say so. Without them, these columns are read once.
        """
        kinds = ("int", "uint", "bool")
        names = [field.name for field in self.schema if str(field.type).startswith(kinds)]
        missing = {name: dataset.field(name).is_null() for name in names}
        return {
            name for name in names if self._fragment.scanner(self.schema, filter=missing[name]).count_rows()
        }

    def read(self, start: int, stop: int, columns: Sequence[str]) -> Any:
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

    def _tables(self, start: int, columns: Sequence[str]) -> Generator[Any, int, None]:
        """Give tables of as many rows as are asked for; the first are those before `start`."""
        group, fragment = bisect_right(self._groups, start) - 1, self._fragment
        if len(self._groups) > 2:
            fragment = fragment.subset(row_group_ids=range(group, len(self._groups) - 1))
        batches = fragment.to_batches(
            schema=self.schema,
            columns=list(columns),
            batch_size=ROWS_READ,
            batch_readahead=2,
            fragment_readahead=1,
        )
        left, count = self.schema.empty_table().select(list(columns)), start - self._groups[group]
        while True:
            parts, found = [left], len(left)
            while found < count and (batch := next(batches, None)) is not None:
                parts.append(arrow.Table.from_batches([batch]))
                found += len(batch)
            table = arrow.concat_tables(parts) if len(parts) > 1 else left
            left = table.slice(count)
            count = yield table.slice(0, count)

    def stretch(self, row: int) -> int:
        """Return where the group of a row begins."""
        return int(self._groups[bisect_right(self._groups, row) - 1])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_next": ()}


class Sliced:
    """A table of Arrow, or a ``datasets.Dataset`` whose slices are such tables."""

    def __init__(self, table: Any) -> None:
        self._table, self.n_rows = table, len(table)

    def read(self, start: int, stop: int, columns: Sequence[str]) -> Any:
        """Return some rows as a table."""
        return self._table[start:stop].select(list(columns))


def kept_table(tables: Iterable[Any]) -> Any:
    """Return tables as one that is mapped from a temporary file without a name.

    The file is gone with the table, also after a crash.
    """
    with tempfile.TemporaryFile() as file:
        writer = None
        for table in tables:
            with growing():
                writer = writer or arrow.ipc.new_file(file, table.schema)
                writer.write_table(table, max_chunksize=ROWS_READ)
        if writer is None:
            raise ValueError("it is empty")
        with growing():
            writer.close()
            file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return arrow.ipc.open_file(arrow.py_buffer(mapped)).read_all()


def gaps_of(table: Any) -> set[str]:
    """Return the columns of a table that miss a value."""
    return {name for name in table.column_names if table.column(name).null_count}


def parquet_rows(files: Sequence[FilePart], columns: Sequence[str], option: str) -> TableRows:
    """Return the rows of .parquet files; raise where a column has types of two kinds."""
    schemas = [arrow.schema([file.part.schema.field(name) for name in columns]) for file in files]
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
    gaps = set[str]().union(*(file.part.gaps for file in files))
    return TableRows(files, together, gaps.intersection(columns))


def _without_categories(schema: Any) -> Any:
    kinds = [one.value_type if arrow.types.is_dictionary(one) else one for one in schema.types]
    return arrow.schema(list(zip(schema.names, kinds, strict=True)))


def open_rows(X: Any) -> Rows:
    """Return the rows of a dataset of Arrow or of Hugging Face."""
    if is_instance_of(X, "datasets", "DatasetDict"):
        parts = ", ".join(map(repr, X))
        raise InvalidInputError(f"X is a DatasetDict with the parts {parts}; give one of them: X['train'].")
    if is_instance_of(X, "datasets", "IterableDataset"):
        raise InvalidInputError(
            "X is an IterableDataset, whose rows are read one by one and only once. Give a datasets.Dataset, "
            "or batches of rows: X.with_format('arrow').iter(1024)."
        )
    if is_instance_of(X, "datasets", "Dataset"):
        if not len(X):
            raise InvalidInputError(_NO_ROWS)
        tables = [Sliced(X.with_format("arrow"))]
        return TableRows(tables, X.features.arrow_schema, gaps_of(X.data), texts=True)
    if getattr(X, "_scan_options", None):
        raise InvalidInputError(
            "X is an Arrow dataset with a filter, whose rows have no position. Write what it leaves to "
            "a folder first: pyarrow.dataset.write_dataset(X, folder, format='parquet')."
        )
    fragments = [Fragment(fragment, X.schema) for fragment in X.get_fragments()]
    if not any(one.n_rows for one in fragments):
        raise InvalidInputError(_NO_ROWS)
    return TableRows(fragments, X.schema, set[str]().union(*(one.gaps for one in fragments)))
