"""FileRows of files that may not fit in memory, batch by batch.

A file is looked at once before its first batch. So a fault in its last line is found before any work, and
every batch is read as the whole file would be.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from consilience._optional import require
from consilience._tables import column_names, in_order, is_table, kind_of
from consilience._validation import n_rows
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.files import readers
from consilience.files.arrays import open_npy
from consilience.files.cells import Scan

Kinds = Sequence[str] | None
_LINES = 4096  # that are looked at together
_ARROW_KINDS = {
    **dict.fromkeys(("int", "uint", "float", "double", "half", "decimal"), "numbers"),
    **dict.fromkeys(("string", "large_string", "string_view"), "texts"),
    **dict.fromkeys(("timestamp", "date"), "times"),
    "bool": "booleans",
    "null": "nothing",
}
_BOM = "\ufeff"  # the mark with which some editors begin a file


class FileRows(NamedTuple):
    """Some rows of a file."""

    X: Any  # what a model takes
    kept: dict[str, Any]  # columns that are only passed on: texts, or Arrow arrays


class RowFile(ABC):
    """A file of rows. It holds the path and what the file looks like, and opens the file to read.

    Attributes
    ----------
    path : Path
    n_rows : int
    names : list of str or None
        The names of its columns, if they have any.
    width : int or None
        How many columns it has, if it has columns.
    """

    names: list[str] | None = None
    width: int | None = None
    n_rows: int

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = _stamp(path)

    @abstractmethod
    def _part(
        self, start: int, stop: int, columns: Sequence[str] | None, keep: Sequence[str], kinds: Kinds
    ) -> FileRows:
        """Return what `part` does."""

    def part(
        self,
        start: int,
        stop: int,
        columns: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        kinds: Kinds = None,
    ) -> FileRows:
        """Return the rows from `start` to `stop`; raise where the file has changed since it was opened.

        Parts in order are read quickest.

        Parameters
        ----------
        start, stop : int
        columns : sequence of str, optional
            The columns for the model, in its order; by default all.
        keep : sequence of str
            Columns to pass on.
        kinds : sequence of str, optional
            What each column for the model should hold, for a file that does not say: a .csv.
        """
        if _stamp(self.path) == self._stamp:
            rows = self._part(start, stop, columns, keep, kinds)
            if n_rows(rows.X) == stop - start and _stamp(self.path) == self._stamp:
                return rows
        raise ValueError(
            f"it had {counted(self.n_rows, 'row')} when it was opened, and has changed since. Run again when "
            "nobody writes to it"
        )

    def batches(
        self, size: int, columns: Sequence[str] | None = None, keep: Sequence[str] = (), kinds: Kinds = None
    ) -> Iterator[FileRows]:
        """Yield up to `size` rows at a time; see `part`."""
        for start in range(0, self.n_rows, size):
            yield self.part(start, min(start + size, self.n_rows), columns, keep, kinds)

    @property
    def row_type(self) -> str:
        """What a row is, in words."""
        return "texts" if self.width is None else counted(self.width, "column")

    def stretch(self, row: int) -> int:
        """Return the first row from which reading can begin to get at this one."""
        return row


def open_rows(path: Path, option: str) -> RowFile:
    """Look at a file of rows: .csv, .parquet, .npy, .npz (key ``X``), or .txt with a text per line.

    Parameters
    ----------
    path : Path
    option : str
        What named the file, for messages.
    """
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise InvalidInputError(f"{option} reads {', '.join(_KINDS)}; {path.name!r} ends in none of these.")
    with readers.reading(path, option):
        found = kind(path)
    if found.n_rows == 0:
        raise InvalidInputError(f"{option}: {path} has no rows; expected at least one.")
    return found


class _Lines:
    """The lines of a text file, with the places where every few thousandth begins.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marks = [0]  # where line 0, _LINES, 2 * _LINES, ... begins

    def scan(self) -> Iterator[str]:
        """Yield the lines, each with its end. Call `mark` between them."""
        self._position = 0
        for number, line in enumerate(self._from(0)):
            self._position += len(line) if line.isascii() else len(line.encode())
            yield line if number else line.removeprefix(_BOM)

    def mark(self) -> None:
        """Remember that the next line begins a part of `_LINES`."""
        self._marks.append(self._position)

    def beginning_at(self, part: int) -> Iterator[str]:
        """Yield the lines from the beginning of a part on."""
        lines = self._from(self._marks[part])
        if not part:
            yield next(lines, "").removeprefix(_BOM)
        yield from lines

    def _from(self, place: int) -> Iterator[str]:
        # every end of a line counts, and is kept, so that places can be added up
        with TextIOWrapper(self._path.open("rb"), newline="", encoding="utf-8") as file:
            file.buffer.seek(place)  # before anything is read
            yield from file


class CsvFile(RowFile):
    """A table of cells. `layout` says what its columns hold."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lines, scan = _Lines(path), Scan()
        lines = (line for line in csv.reader(self._lines.scan()) if line)
        while part := list(islice(lines, _LINES)):
            scan.add(part)
            self._lines.mark()
        self.layout = scan.layout()
        self.n_rows, self.width = self.layout.n_rows, len(self.layout.names)
        self.names = self.layout.names if self.layout.header else None

    def _part(
        self, start: int, stop: int, columns: Sequence[str] | None, keep: Sequence[str], kinds: Kinds
    ) -> FileRows:
        layout = self.layout
        chosen = None if columns is None else [layout.names.index(name) for name in columns]
        if kinds is not None:
            expected: list[str | None] = [None] * len(layout.names)
            for i, kind in zip(range(len(expected)) if chosen is None else chosen, kinds, strict=True):
                expected[i] = kind
            layout = layout.expecting(expected)
        first = start + layout.header
        lines = (line for line in csv.reader(self._lines.beginning_at(first // _LINES)) if line)
        rows = list(islice(lines, first % _LINES, first % _LINES + stop - start))
        kept = {name: [row[layout.names.index(name)] for row in rows] for name in keep}
        return FileRows(layout.read(rows, chosen), kept)


class ParquetFile(RowFile):
    """A table in groups of rows.

    Attributes
    ----------
    kinds : dict
        What each column holds, in a word.
    gaps : set of str
        Columns with missing values in some row. Numbers and booleans in them have one type in all parts.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        require("pandas", extra="tables", purpose="Reading parquet")
        parquet = require("pyarrow.parquet", extra="tables", purpose="Reading parquet")
        with parquet.ParquetFile(path) as file:
            about, schema = file.metadata, file.schema_arrow
            self.n_rows = about.num_rows
            self.names = readers.without_index(schema.names)
            sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
            self.gaps = columns_with_gaps(about) & set(self.names)
        self.kinds = {name: _arrow_kind(schema.field(name).type) for name in self.names}
        self.width = len(self.names)
        self._groups = list(accumulate(sizes, initial=0))  # where each group of rows begins
        self._cursor: tuple[int, list[str], ArrowCursor] | None = None  # next row, columns, reader

    def _part(
        self, start: int, stop: int, columns: Sequence[str] | None, keep: Sequence[str], kinds: Kinds
    ) -> FileRows:
        chosen = list(self.names or ()) if columns is None else list(columns)
        names = list(dict.fromkeys([*chosen, *keep]))
        if self._cursor is None or self._cursor[:2] != (start, names):
            self._cursor = (start, names, self._reader(start, names))
        table = self._cursor[2].read(stop - start)
        self._cursor = None if stop == self.n_rows else (stop, names, self._cursor[2])
        kept = {name: table.column(name) for name in keep}
        return FileRows(as_frame(table.select(chosen), self.gaps), kept)

    def _reader(self, start: int, names: list[str]) -> ArrowCursor:
        """Return a reader from some row on: parts in order decode each group of rows once."""
        parquet = require("pyarrow.parquet", extra="tables", purpose="Reading parquet")
        file = parquet.ParquetFile(self.path)
        group = bisect_right(self._groups, start) - 1
        groups = list(range(group, len(self._groups) - 1))
        batches = file.iter_batches(_LINES, row_groups=groups, columns=names)
        reader = ArrowCursor(batches, file.schema_arrow.empty_table().select(names))
        reader.read(start - self._groups[group])
        return reader

    def stretch(self, row: int) -> int:
        return int(self._groups[bisect_right(self._groups, row) - 1])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cursor": None}


def as_frame(table: Any, gaps: set[str]) -> Any:
    """Return some rows of Arrow as pandas would read all of them: `gaps` are columns with missing values."""
    frame = table.to_pandas(ignore_metadata=True)
    for name in gaps.intersection(frame.columns):
        if frame[name].dtype.kind in "iub":
            frame[name] = frame[name].astype(object if frame[name].dtype.kind == "b" else np.float64)
    return frame


def columns_with_gaps(about: Any) -> set[str]:
    """Return the columns of which the metadata of a parquet file count missing values."""
    found = set()
    for group in map(about.row_group, range(about.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            counted_values = column.statistics if column.is_stats_set else None
            if counted_values is not None and counted_values.has_null_count and counted_values.null_count:
                found.add(column.path_in_schema)
    return found


def _arrow_kind(kind: Any) -> str:
    """Return what a column of an Arrow type holds: numbers, texts, ..."""
    text = str(getattr(kind, "value_type", kind))  # of a dictionary: its values
    for start, name in _ARROW_KINDS.items():
        if text.startswith(start):
            return name
    return text


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
        arrow = require("pyarrow", extra="tables", purpose="Reading parquet")
        parts, found = [self._left], len(self._left)
        while found < count and (batch := next(self._batches, None)) is not None:
            parts.append(arrow.Table.from_batches([batch]))
            found += len(batch)
        table = arrow.concat_tables(parts) if len(parts) > 1 else self._left
        self._left = table.slice(count)
        return table.slice(0, count)


class _Npy(RowFile):
    @property
    def row_type(self) -> str:
        return _array_type(self._file)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = open_npy(path)
        readers.check_numbers(self._file)
        self.n_rows, self.width = len(self._file), self._file.shape[1] if self._file.ndim == 2 else None

    def _part(
        self, start: int, stop: int, columns: Sequence[str] | None, keep: Sequence[str], kinds: Kinds
    ) -> FileRows:
        return FileRows(self._file.part(start, stop), {})


class _Npz(RowFile):
    """An archive, which may be compressed: it is read at once."""

    @property
    def row_type(self) -> str:
        return _array_type(self._values)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._values = readers.read_npz_rows(path, "X")
        readers.check_numbers(self._values)
        self.n_rows = len(self._values)
        self.width = self._values.shape[1] if self._values.ndim == 2 else None

    def _part(
        self, start: int, stop: int, columns: Sequence[str] | None, keep: Sequence[str], kinds: Kinds
    ) -> FileRows:
        return FileRows(self._values[start:stop], {})


def _array_type(values: Any) -> str:
    return f"{values.dtype} of shape (n, {', '.join(map(str, values.shape[1:]))})"


class TextLines(RowFile):
    """A text per line; an empty line is an empty text."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lines, self.n_rows = _Lines(path), 0
        for _ in self._lines.scan():
            self.n_rows += 1
            if self.n_rows % _LINES == 0:
                self._lines.mark()

    def _part(
        self, start: int, stop: int, columns: Sequence[str] | None, keep: Sequence[str], kinds: Kinds
    ) -> FileRows:
        lines = self._lines.beginning_at(start // _LINES)
        found = islice(lines, start % _LINES, start % _LINES + stop - start)
        return FileRows([line.rstrip("\r\n") for line in found], {})


_KINDS: dict[str, type[RowFile]] = {
    ".csv": CsvFile,
    ".parquet": ParquetFile,
    ".npy": _Npy,
    ".npz": _Npz,
    ".txt": TextLines,
}


ENDINGS = tuple(_KINDS)
"""The endings of files of rows."""


def read_batches(
    source: RowFile,
    size: int,
    columns: Sequence[str] | None,
    keep: Sequence[str],
    option: str,
    kinds: Kinds = None,
) -> Iterator[FileRows]:
    """Yield the batches of a file; an error names it."""
    with readers.reading(source.path, option):
        yield from source.batches(size, columns, keep, kinds)


def read_texts_or_rows(path: Path, option: str, expected: Mapping[Any, str] | None = None) -> Any:
    """Return all rows of a file, as `readers.read_rows` does, or the texts of a .txt file as a list."""
    if path.suffix.lower() != ".txt":
        return readers.read_rows(path, option, expected)
    parts = read_batches(open_rows(path, option), _LINES, None, (), option)
    return [text for rows in parts for text in rows.X]


def read_test_rows(path: Path, option: str, X: Any, data: str, drop: Sequence[str] = ()) -> Any:
    """Return rows like those of X, of the file `data`: their columns in the same order, without `drop`."""
    expected = {name: kind_of(column) for name, column in X.items()} if is_table(X) else None
    rows = read_texts_or_rows(path, option, expected)
    if is_table(rows):
        rows = rows.drop(columns=[name for name in drop if name in rows.columns])
    rows = in_order(rows, column_names(X), f"{option}: {path}")
    # texts have no shape of their own; NumPy would pad all of them to the longest
    got, wanted = (() if isinstance(one, list) else np.shape(one)[1:] for one in (rows, X))
    if got != wanted:
        raise InvalidInputError(
            f"{option}: {path} has rows of shape {got}, and {data} of {wanted}. Give rows of one kind."
        )
    return rows


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes where a file is written anew."""
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns


__all__ = [
    "ENDINGS",
    "ArrowCursor",
    "CsvFile",
    "FileRows",
    "ParquetFile",
    "RowFile",
    "TextLines",
    "as_frame",
    "columns_with_gaps",
    "open_rows",
    "read_batches",
    "read_texts_or_rows",
]
