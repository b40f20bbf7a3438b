"""Tables in .csv files: what their cells hold, and what becomes a number, a date, a text or a missing value.

A file is read once into a temporary table of texts. That shows what each column holds in all rows, so every
block is read as the whole file would be.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience._optional import require
from consilience._tables import from_arrow, quoted, separator_advice
from consilience._words import counted
from consilience.rows.arrow import KeptTable, TableRows
from consilience.rows.parts import Part

_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "-")
"""What stands for a missing number; in a column of texts, only an empty cell does."""
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))$"
_TRUTH = ("true", "false")
_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"
_ZONE = r"(Z|:.*[+-]\d{2}:?\d{2})$"
_VALUE = re.compile(f"{_NUMBER}|{_DATE}|^(?i:{'|'.join(_TRUTH)})$", re.ASCII)
_BYTES = 2**24  # that are read together: a row may not be longer
_PURPOSE = "Reading a .csv file with names, texts or missing values"


def read_column(cells: Sequence[str]) -> Any:
    """Return cells (n,) as a .csv file with such a column is read: as numbers, booleans, dates or texts.

    Examples
    --------
    >>> read_column(["1", "2.5"]).tolist()
    [1.0, 2.5]
    """
    arrow = require("pyarrow", extra="tables", purpose=_PURPOSE)
    compute = require("pyarrow.compute", extra="tables", purpose=_PURPOSE)
    column, guess = compute.utf8_trim_whitespace(arrow.array(cells, arrow.string())), _Guess()
    guess.see(column)
    maybe = ["x"] if guess.kind == "truth" and guess.gap else []
    return from_arrow(arrow.table({"x": _READ[guess.kind](column)}), maybe)["x"]


@dataclass(frozen=True)
class Layout:
    """What a table of cells holds: enough to read any part of it as the whole would be read.

    Attributes
    ----------
    names : list of str or int
        Of the header; numbers without one.
    kinds : list of str
        What each column holds: ``"number"``, ``"truth"``, ``"time"`` or ``"text"``.
    gaps, filled : list of bool
        Whether a column has a cell that is empty, and one that is not.
    header : bool
        Whether the first line names the columns.
    matrix : bool
        Whether it is read as an array of numbers.
    """

    names: list[Any]
    kinds: list[str]
    gaps: list[bool]
    filled: list[bool]
    header: bool
    matrix: bool

    def expecting(self, expected: Mapping[Any, str]) -> Layout:
        """Return a layout for a model that knows what columns hold, by name; without a header, by position.

        A few rows do not show that: a ward "007" looks like a number, and "none" like a missing one.
        ``"text"`` keeps the cells as they are. ``"time"`` makes an empty column one of dates. Other columns
        stay what they look like.
        """
        if not self.header:
            by_place = list(expected.values()) if len(expected) == len(self.names) else []
            expected = dict(zip(self.names, by_place, strict=False))
        changed = [
            wanted if wanted == "text" or (wanted == "time" and not filled) else kind
            for kind, filled, wanted in zip(
                self.kinds, self.filled, map(expected.get, self.names), strict=True
            )
        ]
        return replace(self, kinds=changed, matrix=self.matrix and changed == self.kinds)


class CsvTable(Part):
    """A .csv file as a table of texts, whose columns are numbered. `layout` says what they hold."""

    def __init__(self, path: Path) -> None:
        self.path, guesses, first = path, [], None
        for batch in _batches(path):
            if first is None:
                first = [column[0].as_py() for column in batch.columns]
                guesses = [_Guess() for _ in first]
                self._table = KeptTable(batch.schema)
            for guess, column in zip(guesses, batch.columns, strict=True):
                guess.see(column.slice(0 if self._table.n_rows else 1))
            self._table.append(batch)
        if first is None:
            raise ValueError("it is empty")
        self._table.close()
        header = _has_header(first, guesses)
        self.n_rows = self._table.n_rows - header
        if not self.n_rows:
            raise ValueError("it has a header and no rows")
        if not header:
            for guess, column in zip(guesses, self._table.read(0, 1).columns, strict=True):
                guess.see(column)
        self.layout = Layout(
            names=_check_names(first) if header else list(range(len(first))),
            kinds=[guess.kind for guess in guesses],
            gaps=[guess.gap for guess in guesses],
            filled=[guess.filled for guess in guesses],
            header=header,
            matrix=not header and all(guess.plain for guess in guesses),
        )

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Return some rows as a table of texts; columns by name."""
        table = self._table.read(start + self.layout.header, stop + self.layout.header)
        table = table.rename_columns([str(name) for name in self.layout.names])
        return table if columns is None else table.select(list(map(str, columns)))


class CsvRows(TableRows):
    """Rows of .csv files, read as one file would be: a column of texts in one file is one in all."""

    local = True  # the cells lie in temporary files

    def __init__(
        self, tables: Sequence[CsvTable], columns: list[str] | None, expected: Mapping[Any, str]
    ) -> None:
        self._tables, self.names = tables, columns
        self.chosen = tables[0].layout.names if columns is None else columns
        self.expect(expected)
        super(TableRows, self).__init__(tables)

    def expect(self, expected: Mapping[Any, str]) -> None:
        """Read columns as a model takes them; see `Layout.expecting`."""
        layouts = [table.layout.expecting(expected) for table in self._tables]
        self._kinds, self._gaps = dict[Any, str](), dict[Any, bool]()
        for name in self.chosen:
            columns = [(one, one.names.index(name)) for one in layouts]
            found = {one.kinds[i] for one, i in columns if one.filled[i]}
            first = layouts[0].kinds[columns[0][1]] if len(layouts) == 1 else "number"
            self._kinds[name] = found.pop() if len(found) == 1 else "text" if found else first
            self._gaps[name] = any(one.gaps[i] for one, i in columns)
        self._matrix = all(one.matrix for one in layouts)
        self.__dict__.pop("head", None)

    def _typed(self, table: Any) -> Any:
        values = [
            _READ[self._kinds[name]](column) for name, column in zip(self.chosen, table.columns, strict=True)
        ]
        if self._matrix:
            return np.column_stack([column.to_numpy() for column in values])
        arrow = require("pyarrow", extra="tables", purpose=_PURPOSE)
        maybe = {str(name) for name in self.chosen if self._kinds[name] == "truth" and self._gaps[name]}
        frame = from_arrow(arrow.table(values, names=list(map(str, self.chosen))), maybe)
        if self.names is None and hasattr(frame, "iloc"):
            frame.columns = self.chosen
        return frame


def _batches(path: Path) -> Iterator[Any]:
    """Yield the cells of a file as batches of texts, without white space around them."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = next((line for line in csv.reader(file) if line), None)
    if first is None:
        return
    arrow = require("pyarrow", extra="tables", purpose=_PURPOSE)
    reading = require("pyarrow.csv", extra="tables", purpose=_PURPOSE)
    compute = require("pyarrow.compute", extra="tables", purpose=_PURPOSE)
    names, wrong = [str(i) for i in range(len(first))], list[Any]()
    types = dict.fromkeys(names, arrow.string())

    def note(row: Any) -> str:
        wrong.append(row)
        return "error"

    try:
        batches = reading.open_csv(
            path,
            reading.ReadOptions(use_threads=False, column_names=names, block_size=_BYTES),
            reading.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
            reading.ConvertOptions(column_types=types, strings_can_be_null=False),
        )
        for batch in batches:
            longest = max(compute.max(compute.binary_length(one)).as_py() or 0 for one in batch.columns)
            if longest > csv.field_size_limit():
                raise csv.Error(f"field larger than {csv.field_size_limit():,} bytes")
            if len(batch):
                yield arrow.table([compute.utf8_trim_whitespace(one) for one in batch.columns], names=names)
    except arrow.ArrowInvalid:
        if not wrong:
            raise
        raise ValueError(
            f"line {wrong[0].number} has {counted(wrong[0].actual_columns, 'column')} and the first has "
            f"{len(first)}{separator_advice(first)}"
        ) from None


def _has_header(first: Sequence[str], guesses: Sequence[_Guess]) -> bool:
    """Tell whether the first line names the columns."""
    texts = [i for i, cell in enumerate(first) if cell and not _VALUE.search(cell)]
    # a name may be a number, such as a year: then some other name stands above numbers
    every = not any(_VALUE.search(cell) for cell in first)
    return bool(texts) and (every or any(guesses[i].values for i in texts))


def _check_names(names: list[str]) -> list[str]:
    if "" in names:
        raise ValueError(
            f"column {names.index('') + 1} has no name in the header; give it one, or leave the column out "
            "(pandas: to_csv(..., index=False))"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"the header has {quoted(twice)} more than once")
    return names


@dataclass
class _Guess:
    """What a column may still be, after the cells seen so far."""

    number: bool = True  # numbers, and words for missing ones
    plain: bool = True  # numbers alone
    truth: bool = True
    time: bool = True
    values: bool = True  # numbers, booleans and dates, or empty
    filled: bool = False
    gap: bool = False

    def see(self, cells: Any) -> None:
        """Take some more cells into account."""
        from pyarrow import compute

        empty = compute.equal(cells, "")
        self.gap = self.gap or _any(empty)
        self.filled = self.filled or not _all(empty)
        if not (self.number or self.truth or self.time or self.values):
            return
        number = compute.match_substring_regex(cells, _NUMBER)
        self.plain = self.plain and _all(number)
        if self.plain:  # what most columns are
            self.truth, self.time = self.truth and not len(cells), self.time and not len(cells)
            return
        words = compute.utf8_lower(cells)
        missing, truth = _in(words, _MISSING), compute.or_(empty, _in(words, _TRUTH))
        date = compute.or_(empty, compute.match_substring_regex(cells, _DATE))
        self.number = self.number and _all(compute.or_(number, missing))
        self.values = self.values and _all(compute.or_(compute.or_(number, truth), date))
        self.truth = self.truth and _all(truth)
        self.time = self.time and _all(date) and _are_times(cells)

    @property
    def kind(self) -> str:
        if self.number:
            return "number"
        if self.filled and self.truth:
            return "truth"
        return "time" if self.filled and self.time else "text"


def _any(flags: Any) -> bool:
    from pyarrow import compute

    return bool(compute.any(flags).as_py())


def _all(flags: Any) -> bool:
    from pyarrow import compute

    return bool(compute.all(flags, min_count=0).as_py())


def _in(cells: Any, words: Sequence[str]) -> Any:
    import pyarrow as arrow
    from pyarrow import compute

    return compute.is_in(cells, arrow.array(words))


def _are_times(cells: Any) -> bool:
    try:
        _times(cells)
    except ValueError:  # 2024-13-45
        return False
    return True


def _numbers(cells: Any) -> Any:
    from pyarrow import compute

    return compute.if_else(compute.match_substring_regex(cells, _NUMBER), cells, None).cast("float64")


def _truths(cells: Any) -> Any:
    from pyarrow import compute

    return compute.if_else(compute.equal(cells, ""), None, compute.equal(compute.utf8_lower(cells), "true"))


def _times(cells: Any) -> Any:
    """Return dates in UTC, without a time zone."""
    import pyarrow as arrow
    from pyarrow import compute

    cells = compute.replace_substring_regex(_texts(cells), r"(\.\d{6})\d+", r"\1")  # to microseconds
    zoned = compute.match_substring_regex(cells, _ZONE)
    plain = compute.if_else(zoned, None, cells).cast(arrow.timestamp("us"))
    moved = compute.if_else(zoned, cells, None).cast(arrow.timestamp("us", "UTC")).cast(arrow.timestamp("us"))
    return compute.coalesce(moved, plain)


def _texts(cells: Any) -> Any:
    from pyarrow import compute

    return compute.if_else(compute.equal(cells, ""), None, cells)


_READ = {"number": _numbers, "truth": _truths, "time": _times, "text": _texts}
