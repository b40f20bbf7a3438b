"""Rows that are tables of Arrow: of parquet files, of datasets, or kept in a temporary file."""

from __future__ import annotations

import mmap
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from consilience._optional import is_instance_of, require
from consilience._tables import from_arrow
from consilience.exceptions import InvalidInputError
from consilience.rows.parts import Part, PartRows
from consilience.rows.rows import Rows

ROWS_READ = 4096
"""Rows that Arrow reads together."""
_PURPOSE = "Reading tables of Arrow"


class TableRows(PartRows):
    """Rows of tables, as data frames, or as texts where there is a single column of these.

    Parameters
    ----------
    parts : sequence of Part
        Of tables of Arrow.
    schema : pyarrow.Schema
        Of all rows.
    gaps : set of str
        Columns with a missing value in some row: they have one type in all blocks.
    texts : bool
        Whether a single column of texts is a list.

    Attributes
    ----------
    names : list of str or None
        The columns of the files; None where they have no names.
    chosen : list
        Those that are read.
    """

    names: list[str] | None

    def __init__(self, parts: Sequence[Part], schema: Any, gaps: set[str], *, texts: bool = False) -> None:
        arrow = require("pyarrow", extra="tables", purpose=_PURPOSE)
        whole = {name for name in gaps if arrow.types.is_integer(schema.field(name).type)}
        self._types = {field.name: arrow.float64() if field.name in whole else field.type for field in schema}
        self._maybe = {name for name in gaps if arrow.types.is_boolean(schema.field(name).type)}
        self.names = self.chosen = list(schema.names)
        kinds = [str(kind) for kind in schema.types]
        self._texts = texts and kinds in (["string"], ["large_string"])
        super().__init__(parts)

    def choose(self, columns: Sequence[str]) -> None:
        """Read these columns alone, in this order."""
        self.chosen = list(columns)
        self.__dict__.pop("head", None)

    def read_with(self, block: int, keep: Sequence[str]) -> tuple[Any, dict[str, Any]]:
        """Return the rows of one block, and columns as the file has them."""
        columns = list(dict.fromkeys([*self.chosen, *keep]))
        part, start, stop = self._place(block)
        table = self._parts[part].read(start, stop, columns)
        return self._typed(table.select(self.chosen)), {name: table.column(name) for name in keep}

    def _finished(self, part: int, start: int, stop: int) -> Any:
        return self._typed(self._parts[part].read(start, stop, self.chosen))

    def _typed(self, table: Any) -> Any:
        """Return some rows of Arrow as all rows would be."""
        if self._texts:
            return table.column(0).to_pylist()
        arrow = require("pyarrow", extra="tables", purpose=_PURPOSE)
        schema = arrow.schema([(name, self._types[name]) for name in table.column_names])
        return from_arrow(table.cast(schema, safe=False), self._maybe)


class Fragment(Part):
    """A fragment of a ``pyarrow.dataset.Dataset``. Parts in order decode each group of rows once."""

    def __init__(self, fragment: Any, schema: Any) -> None:
        self._fragment, self._schema = fragment, schema
        self._in_groups = hasattr(fragment, "row_groups")
        groups = fragment.row_groups if self._in_groups else ()
        sizes = [group.num_rows for group in groups] if self._in_groups else [fragment.count_rows()]
        self._groups = list(accumulate(sizes, initial=0))  # where each group of rows begins
        self.n_rows = self._groups[-1]
        self._cursor: tuple[int, Sequence[str] | None, ArrowCursor] | None = None  # next row, columns, reader

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Return some rows as a table."""
        if self._cursor is None or self._cursor[:2] != (start, columns):
            self._cursor = (start, columns, self._reader(start, columns))
        reader = self._cursor[2]
        table = reader.read(stop - start)
        if len(table) != stop - start:
            raise InvalidInputError(
                "The files of the Arrow dataset have changed. Run again when nobody writes to them."
            )
        self._cursor = None if stop == self.n_rows else (stop, columns, reader)
        return table

    def _reader(self, start: int, columns: Sequence[str] | None) -> ArrowCursor:
        group, fragment = bisect_right(self._groups, start) - 1, self._fragment
        if self._in_groups:
            fragment = fragment.subset(row_group_ids=range(group, len(self._groups) - 1))
        names = self._schema.names if columns is None else list(columns)
        batches = fragment.to_batches(
            schema=self._schema, columns=names, batch_size=ROWS_READ, batch_readahead=2, fragment_readahead=1
        )
        reader = ArrowCursor(batches, self._schema.empty_table().select(names))
        reader.read(start - self._groups[group])
        return reader

    def stretch(self, row: int) -> int:
        return int(self._groups[bisect_right(self._groups, row) - 1])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cursor": None}


class ArrowCursor:
    """Reads batches of Arrow in parts of another size.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
    empty : pyarrow.Table
        A table like theirs, without rows.
    """

    def __init__(self, batches: Iterator[Any], empty: Any) -> None:
        self._batches, self._left = batches, empty

    def read(self, count: int) -> Any:
        """Return the next rows as an Arrow table; fewer where there are no more."""
        arrow = require("pyarrow", extra="tables", purpose=_PURPOSE)
        parts, found = [self._left], len(self._left)
        while found < count and (batch := next(self._batches, None)) is not None:
            parts.append(arrow.Table.from_batches([batch]))
            found += len(batch)
        table = arrow.concat_tables(parts) if len(parts) > 1 else self._left
        self._left = table.slice(count)
        return table.slice(0, count)


class KeptTable(Part):
    """A table in a temporary file without a name: it is gone with this object, also after a crash."""

    def __init__(self, schema: Any) -> None:
        arrow = require("pyarrow", extra="tables", purpose=_PURPOSE)
        self._file, self.schema = tempfile.TemporaryFile(), schema  # noqa: SIM115 (it lives as long as this)
        weakref.finalize(self, self._file.close)
        self._writer = arrow.ipc.new_file(self._file, schema)
        self.n_rows, self.gaps = 0, set[str]()

    def append(self, table: Any) -> None:
        """Write rows after the last."""
        try:
            self._writer.write_table(table, max_chunksize=ROWS_READ)
        except OSError as error:
            raise InvalidInputError(
                f"A temporary file cannot grow: {error}. Set the environment variable TMPDIR to a folder "
                "with more space."
            ) from error
        self.n_rows += len(table)
        self.gaps |= {name for name in table.column_names if table.column(name).null_count}

    def close(self) -> None:
        """End writing; `read` works from now on."""
        arrow = require("pyarrow", extra="tables", purpose=_PURPOSE)
        self._writer.close()
        self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()
        self._batches = arrow.ipc.open_file(arrow.py_buffer(mapped))
        sizes = (self._batches.get_batch(i).num_rows for i in range(self._batches.num_record_batches))
        self._starts = list(accumulate(sizes, initial=0))

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Return some rows as a table."""
        arrow = require("pyarrow", extra="tables", purpose=_PURPOSE)
        first = bisect_right(self._starts, start) - 1
        last = max(first + 1, bisect_right(self._starts, stop - 1))
        batches = [self._batches.get_batch(i) for i in range(first, min(last, len(self._starts) - 1))]
        table = arrow.Table.from_batches(batches, self.schema).slice(
            start - self._starts[first], stop - start
        )
        return table if columns is None else table.select(list(columns))


class _HuggingFace(Part):
    """A ``datasets.Dataset``."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.n_rows = dataset.with_format("arrow"), len(dataset)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Return some rows as a table."""
        table = self._dataset[start:stop]
        return table if columns is None else table.select(list(columns))


def as_arrow_rows(X: Any) -> Rows | None:
    """Return the rows of an Arrow dataset, or None if X is none; neither library is imported for this."""
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
    if not is_instance_of(X, "datasets", "Dataset"):
        return None
    if len(X) == 0:
        raise InvalidInputError("X is a dataset without rows; expected at least one.")
    gaps = {name for name in X.column_names if X.data.column(name).null_count}
    return TableRows([_HuggingFace(X)], X.features.arrow_schema, gaps, texts=True)


def gaps_of(fragment: Any, schema: Any) -> set[str]:
    """Return the columns of whole numbers and booleans that miss a value: data frames need another type.

    Parquet files say so themselves. Of others, these columns are read once.
    """
    dataset = require("pyarrow.dataset", extra="tables", purpose=_PURPOSE)
    names = [field.name for field in schema if str(field.type).startswith(("int", "uint", "bool"))]
    given = {*fragment.physical_schema.names, *dataset.get_partition_keys(fragment.partition_expression)}
    found = {name for name in names if name not in given}
    unsaid = set(names) - found
    if hasattr(fragment, "metadata"):
        columns = [
            group.column(i)
            for group in map(fragment.metadata.row_group, range(fragment.metadata.num_row_groups))
            for i in range(group.num_columns)
        ]
        said = {one.path_in_schema: True for one in columns}
        for one in columns:
            known = one.is_stats_set and one.statistics.has_null_count
            said[one.path_in_schema] &= known
            if known and one.statistics.null_count:
                found.add(one.path_in_schema)
        unsaid -= {name for name, known in said.items() if known}
    unsaid &= {*fragment.physical_schema.names}
    if unsaid:
        for batch in fragment.to_batches(schema=schema, columns=sorted(unsaid), batch_size=ROWS_READ):
            found |= {name for name in unsaid if batch.column(name).null_count}
    return found & set(names)
