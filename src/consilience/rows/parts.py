"""Rows of parts that follow each other: files, fragments of a dataset."""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from consilience._optional import require
from consilience._tables import from_arrow
from consilience._validation import n_rows
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.files.arrays import ArrayFileError
from consilience.rows.rows import LOOKED_AT, Rows, block_rows, bytes_of, cut

PURPOSE = "Reading tables of Arrow"


class Part(ABC):
    """Rows that are read by their positions.

    Attributes
    ----------
    n_rows : int
    """

    n_rows: int

    @abstractmethod
    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Return the rows from `start` to `stop`; only some columns, of a part that is a table of Arrow."""

    def stretch(self, row: int) -> int:
        """Return the first row from which reading can begin to get at this one."""
        return row


class FilePart(Part):
    """A file of rows, which must stay as it was when it was opened."""

    def __init__(self, path: Path, option: str) -> None:
        self.path, self.option, self._stamp = path, option, _stamp(path)

    @abstractmethod
    def _read(self, start: int, stop: int, columns: Sequence[str] | None) -> Any:
        """Do what `read` does."""

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Return the rows from `start` to `stop`; raise where the file has changed."""
        with reading(self.path, self.option):
            if _stamp(self.path) == self._stamp:
                rows = self._read(start, stop, columns)
                if n_rows(rows) == stop - start and _stamp(self.path) == self._stamp:
                    return rows
            raise ValueError(
                f"it had {counted(self.n_rows, 'row')} when it was opened, and has changed since. Run again "
                "when nobody writes to it"
            )


class PartRows(Rows):
    """Rows of parts. No block holds rows of two of them."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = [part for part in parts if part.n_rows]
        counts = [part.n_rows for part in self._parts]
        self._starts = np.cumsum([0, *counts])
        few = self._finished(0, 0, min(LOOKED_AT, counts[0]))
        self.borders = cut(counts, block_rows(bytes_of(few), n_rows(few)))

    def read(self, block: int) -> Any:
        """Return the rows of one block."""
        return self._finished(*self._place(block))

    def _place(self, block: int) -> tuple[int, int, int]:
        """Return the part of a block, and the rows of that part."""
        rows = self.rows_of(block)
        part = int(np.searchsorted(self._starts, rows.start, side="right")) - 1
        start = int(self._starts[part])
        return part, rows.start - start, rows.stop - start

    def _finished(self, part: int, start: int, stop: int) -> Any:
        """Return rows of a part as a teacher takes them."""
        return self._parts[part].read(start, stop)

    @property
    def stretches(self) -> Sequence[range]:
        """Blocks that begin in the same group of rows of a part."""

        def begin(block: int) -> tuple[int, int]:
            part, start, _ = self._place(block)
            return part, self._parts[part].stretch(start)

        grouped = (list(blocks) for _, blocks in groupby(range(self.n_blocks), begin))
        return [range(blocks[0], blocks[-1] + 1) for blocks in grouped]


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
        arrow = require("pyarrow", extra="tables", purpose=PURPOSE)
        whole = {name for name in gaps if arrow.types.is_integer(schema.field(name).type)}
        self._types = {field.name: arrow.float64() if field.name in whole else field.type for field in schema}
        self._maybe = {name for name in gaps if arrow.types.is_boolean(schema.field(name).type)}
        self.names = self.chosen = list(schema.names)
        kinds = [str(kind) for kind in schema.types]
        self._texts = texts and kinds in (["string"], ["large_string"])
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
        table = self._parts[part].read(start, stop, columns)
        return self._typed(table.select(self.chosen)), {name: table.column(name) for name in keep}

    def _finished(self, part: int, start: int, stop: int) -> Any:
        return self._typed(self._parts[part].read(start, stop, self.chosen))

    def _typed(self, table: Any) -> Any:
        """Return some rows of Arrow as all rows would be."""
        if self._texts:
            return table.column(0).to_pylist()
        arrow = require("pyarrow", extra="tables", purpose=PURPOSE)
        schema = arrow.schema([(name, self._types[name]) for name in table.column_names])
        return from_arrow(table.cast(schema, safe=False), self._maybe)


@contextmanager
def reading(path: Path, option: str) -> Iterator[None]:
    """Say which file of which option cannot be read, and why."""
    if not path.is_file():
        raise InvalidInputError(f"{option}: {path} does not exist, or is no file.")
    try:
        yield
    except ArrayFileError as error:
        raise InvalidInputError(f"{option}: {error}") from error
    except InvalidInputError:
        raise
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, csv.Error) as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if isinstance(error, UnicodeDecodeError):
            reason = f"it is no text in UTF-8 (byte {error.start}). Save it in UTF-8"
        elif "invalid UTF8" in reason:
            reason = "it is no text in UTF-8. Save it in UTF-8"
        hint = " Is a quote left open?" if isinstance(error, csv.Error) or "straddling" in reason else ""
        raise InvalidInputError(f"{option}: {path} cannot be read: {reason}.{hint}") from error


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes where a file is written anew."""
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns
