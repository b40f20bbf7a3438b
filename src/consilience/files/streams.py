"""Rows of files that may not fit in memory, batch by batch.

A file is looked at once before its first batch. So a fault in its last line is found before any work, and
every batch is read as the whole file would be.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from consilience._optional import require
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.files import readers
from consilience.files.arrays import open_npy
from consilience.files.cells import Scan

_LINES = 4096  # that are looked at together


class Rows(NamedTuple):
    """Some rows of a file."""

    X: Any  # what a model takes
    kept: dict[str, Any]  # columns that are only passed on: texts, or Arrow arrays


class RowFile(ABC):
    """A file of rows.

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

    @abstractmethod
    def batches(
        self,
        size: int,
        columns: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
    ) -> Iterator[Rows]:
        """Yield up to `size` rows at a time.

        Parameters
        ----------
        size : int
        columns : sequence of str, optional
            The columns for the model, in its order; by default all.
        keep : sequence of str
            Columns to pass on.
        kinds : sequence of str, optional
            What each column for the model should hold, for a file that does not say: a .csv.
        """


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


class _Csv(RowFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        scan = Scan()
        for lines in self._parts(_LINES):
            scan.add(lines)
        self._layout = scan.layout()
        self.n_rows, self.width = self._layout.n_rows, len(self._layout.names)
        self.names = self._layout.names if self._layout.header else None

    def _parts(self, size: int) -> Iterator[list[list[str]]]:
        with self.path.open(newline="", encoding="utf-8-sig") as file:
            lines = (line for line in csv.reader(file) if line)
            while part := list(islice(lines, size)):
                yield part

    def batches(
        self,
        size: int,
        columns: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
    ) -> Iterator[Rows]:
        layout, left = self._layout, self._layout.header
        chosen = None if columns is None else [layout.names.index(name) for name in columns]
        if kinds is not None:
            expected: list[str | None] = [None] * len(layout.names)
            for i, kind in zip(range(len(expected)) if chosen is None else chosen, kinds, strict=True):
                expected[i] = kind
            layout = layout.expecting(expected)
        places = {name: layout.names.index(name) for name in keep}
        for lines in self._parts(size):
            rows, left = lines[left:], False
            if rows:
                kept = {name: [row[i] for row in rows] for name, i in places.items()}
                yield Rows(layout.read(rows, chosen), kept)


class _Parquet(RowFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        require("pandas", extra="tables", purpose="Reading parquet")
        self._parquet = require("pyarrow.parquet", extra="tables", purpose="Reading parquet")
        with self._parquet.ParquetFile(path) as file:
            self.n_rows = file.metadata.num_rows
            self.names = readers.without_index(file.schema_arrow.names)
        self.width = len(self.names)

    def batches(
        self,
        size: int,
        columns: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
    ) -> Iterator[Rows]:
        pyarrow = require("pyarrow", extra="tables", purpose="Reading parquet")
        chosen = list(self.names or ()) if columns is None else list(columns)
        with self._parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(size, columns=list(dict.fromkeys([*chosen, *keep]))):
                table = pyarrow.Table.from_batches([batch])
                kept = {name: table.column(name) for name in keep}
                yield Rows(table.select(chosen).to_pandas(ignore_metadata=True), kept)


class _Npy(RowFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = open_npy(path)
        readers.check_numbers(self._file)
        self.n_rows, self.width = len(self._file), self._file.shape[1] if self._file.ndim == 2 else None

    def batches(
        self,
        size: int,
        columns: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
    ) -> Iterator[Rows]:
        for values in self._file.blocks(size):
            yield Rows(values, {})


class _Npz(RowFile):
    """An archive, which may be compressed: it is read at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._values = readers.read_npz_rows(path, "X")
        readers.check_numbers(self._values)
        self.n_rows = len(self._values)
        self.width = self._values.shape[1] if self._values.ndim == 2 else None

    def batches(
        self,
        size: int,
        columns: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
    ) -> Iterator[Rows]:
        for start in range(0, self.n_rows, size):
            yield Rows(self._values[start : start + size], {})


class TextLines(RowFile):
    """A text per line; an empty line is an empty text."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with path.open(encoding="utf-8-sig") as file:
            self.n_rows = sum(1 for _ in file)

    def batches(
        self,
        size: int,
        columns: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
    ) -> Iterator[Rows]:
        with self.path.open(encoding="utf-8-sig") as file:
            while part := [line.removesuffix("\n") for line in islice(file, size)]:
                yield Rows(part, {})


_KINDS: dict[str, type[RowFile]] = {
    ".csv": _Csv,
    ".parquet": _Parquet,
    ".npy": _Npy,
    ".npz": _Npz,
    ".txt": TextLines,
}


def read_batches(
    source: RowFile,
    size: int,
    columns: Sequence[str] | None,
    keep: Sequence[str],
    option: str,
    kinds: Sequence[str] | None = None,
) -> Iterator[Rows]:
    """Yield the batches of a file; an error names it. Raise where it has changed since it was opened."""
    done = 0
    with readers.reading(source.path, option):
        for rows in source.batches(size, columns, keep, kinds):
            done += len(rows.X)
            yield rows
    if done != source.n_rows:
        raise InvalidInputError(
            f"{option}: {source.path} had {counted(source.n_rows, 'row')} when it was opened and has {done} "
            "now. Run again when nobody writes to it."
        )


def read_texts_or_rows(path: Path, option: str, expected: Mapping[Any, str] | None = None) -> Any:
    """Return all rows of a file, as `readers.read_rows` does, or the texts of a .txt file as a list."""
    if path.suffix.lower() != ".txt":
        return readers.read_rows(path, option, expected)
    parts = read_batches(open_rows(path, option), _LINES, None, (), option)
    return [text for rows in parts for text in rows.X]


__all__ = ["RowFile", "Rows", "TextLines", "open_rows", "read_batches", "read_texts_or_rows"]
