"""Tables in .csv files: what their cells hold, and what becomes a number, a date, a text or a missing value.

A file is read once into a temporary table of texts. That shows what each column holds in all rows, so every
block is read as the whole file would be.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
from pyarrow import compute
from pyarrow import csv as reading

from consilience._words import counted
from consilience.rows.arrow import KeptTable, TableRows
from consilience.rows.files import PartRows
from consilience.rows.tables import from_arrow, quoted, separator_advice

_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "-")
"""What stands for a missing number; in a column of texts, only an empty cell does."""
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))$"
_TRUTH = ("true", "false")
_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"
_ZONE = r"(Z|:.*[+-]\d{2}:?\d{2})$"
_VALUE = re.compile(f"{_NUMBER}|{_DATE}|^(?i:{'|'.join(_TRUTH)})$", re.ASCII)
_BYTES = 2**24  # that are read together: a row may not be longer
_FACTS = frozenset({"plain", "number", "truth", "time", "value", "empty", "full"})
"""What may hold for all cells of a column: numbers alone; numbers and words for missing ones; booleans,
dates, or all of these, with empty cells; only empty cells; no empty one."""


def read_column(cells: Sequence[str]) -> Any:
    """Return cells (n,) as a .csv file with such a column is read: as numbers, booleans, dates or texts.

    Examples
    --------
    >>> read_column(["1", "2.5"]).tolist()
    [1.0, 2.5]
    """
    column = compute.utf8_trim_whitespace(arrow.array(cells, arrow.string()))
    facts = _facts(column)
    kind = _kind(facts)
    return from_arrow(arrow.table({"x": _READ[kind](column)}), ["x"] if _may_miss(kind, facts) else [])["x"]


class CsvTable:
    """A .csv file as a table of texts.

    Attributes
    ----------
    names : list of str or int
        Of the header; numbers without one.
    header : bool
        Whether the first line names the columns.
    facts : list of set of str
        What holds for all cells of each column.
    """

    def __init__(self, path: Path) -> None:
        first, table = list[str](), None
        for batch in _batches(path):
            start = 0 if first else 1
            if table is None:
                first, table = [column[0].as_py() for column in batch.columns], KeptTable(batch.schema)
                self.facts = [set(_FACTS) for _ in first]
            for facts, column in zip(self.facts, batch.columns, strict=True):
                facts &= _facts(column.slice(start))
            table.append(batch)
        if table is None:
            raise ValueError("it is empty")
        table.close()
        self._table, self.header = table, _is_header(first, self.facts)
        self.names: list[Any] = _check_names(first) if self.header else list(range(len(first)))
        self.n_rows = table.n_rows - self.header
        if not self.n_rows:
            raise ValueError("it has a header and no rows")
        if not self.header:
            self.facts = [a & _facts(arrow.array([b])) for a, b in zip(self.facts, first, strict=True)]

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Return some rows as a table of texts; columns by name."""
        table = self._table.read(start + self.header, stop + self.header)
        table = table.rename_columns([str(name) for name in self.names])
        return table if columns is None else table.select(list(map(str, columns)))


class CsvRows(TableRows):
    """Rows of .csv files, read as one file would be: a column of texts in one file is one in all."""

    local = True  # the cells lie in temporary files

    def __init__(
        self, tables: Sequence[CsvTable], columns: list[str] | None, expected: Mapping[Any, str]
    ) -> None:
        self.names, self.chosen = columns, tables[0].names if columns is None else columns
        self._facts = {
            name: set.intersection(*(table.facts[table.names.index(name)] for table in tables))
            for name in self.chosen
        }
        self.expect(expected)
        PartRows.__init__(self, tables)

    def expect(self, expected: Mapping[Any, str]) -> None:
        """Read columns as a model takes them, by name; without a header, by position.

        A few rows do not show that: a ward "007" looks like a number, and "none" like a missing one.
        ``"text"`` keeps the cells as they are. ``"time"`` makes an empty column one of dates. Other columns
        stay what they look like.
        """
        if self.names is None:
            fits = len(expected) == len(self.chosen)
            expected = dict(zip(self.chosen, expected.values(), strict=True)) if fits else {}
        self._kinds = {name: _kind(facts, expected.get(name, "")) for name, facts in self._facts.items()}
        plain = all("plain" in facts for facts in self._facts.values())
        self._matrix = self.names is None and plain and "text" not in self._kinds.values()
        self.__dict__.pop("head", None)

    def _typed(self, table: Any) -> Any:
        kinds = [self._kinds[name] for name in self.chosen]
        values = [_READ[kind](column) for kind, column in zip(kinds, table.columns, strict=True)]
        if self._matrix:
            return np.column_stack([column.to_numpy() for column in values])
        maybe = {str(name) for name in self.chosen if _may_miss(self._kinds[name], self._facts[name])}
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
    names, wrong = [str(i) for i in range(len(first))], list[Any]()

    def note(row: Any) -> str:
        wrong.append(row)
        return "error"

    try:
        batches = reading.open_csv(
            path,
            reading.ReadOptions(use_threads=False, column_names=names, block_size=_BYTES),
            reading.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
            reading.ConvertOptions(
                column_types=dict.fromkeys(names, arrow.string()), strings_can_be_null=False
            ),
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


def _is_header(first: Sequence[str], facts: Sequence[set[str]]) -> bool:
    """Tell whether the first line names the columns."""
    texts = [i for i, cell in enumerate(first) if cell and not _VALUE.search(cell)]
    # a name may be a number, such as a year: then some other name stands above numbers
    every = not any(_VALUE.search(cell) for cell in first)
    return bool(texts) and (every or any("value" in facts[i] for i in texts))


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


def _facts(cells: Any) -> set[str]:
    """Return what holds for all of some cells."""
    number = compute.match_substring_regex(cells, _NUMBER)
    if not len(cells):
        return set(_FACTS)
    if _all(number):  # as in most columns
        return {"plain", "number", "value", "full"}
    empty, words = compute.equal(cells, ""), compute.utf8_lower(cells)
    truth = compute.or_(empty, compute.is_in(words, arrow.array(_TRUTH)))
    time = compute.or_(empty, compute.match_substring_regex(cells, _DATE))
    flags = {
        "number": compute.or_(number, compute.is_in(words, arrow.array(_MISSING))),
        "truth": truth,
        "time": time,
        "value": compute.or_(compute.or_(number, truth), time),
        "empty": empty,
        "full": compute.invert(empty),
    }
    found = {fact for fact, holds in flags.items() if _all(holds)}
    try:
        _READ["time"](cells if "time" in found else cells.slice(0, 0))
    except ValueError:  # 2024-13-45
        found.remove("time")
    return found


def _all(flags: Any) -> bool:
    return bool(compute.all(flags, min_count=0).as_py())


def _kind(facts: set[str], expected: str = "") -> str:
    """Return what a column is read as."""
    if expected == "text" or (expected == "time" and "empty" in facts):
        return expected
    order = ["number"] if "empty" in facts else ["number", "truth", "time"]
    return next((kind for kind in order if kind in facts), "text")


def _may_miss(kind: str, facts: set[str]) -> bool:
    return kind == "truth" and "full" not in facts


def _numbers(cells: Any) -> Any:
    return compute.if_else(compute.match_substring_regex(cells, _NUMBER), cells, None).cast("float64")


def _truths(cells: Any) -> Any:
    return compute.if_else(compute.equal(cells, ""), None, compute.equal(compute.utf8_lower(cells), "true"))


def _times(cells: Any) -> Any:
    """Return dates in UTC, without a time zone."""
    cells = compute.replace_substring_regex(_texts(cells), r"(\.\d{6})\d+", r"\1")  # to microseconds
    zoned = compute.match_substring_regex(cells, _ZONE)
    plain = compute.if_else(zoned, None, cells).cast(arrow.timestamp("us"))
    moved = compute.if_else(zoned, cells, None).cast(arrow.timestamp("us", "UTC")).cast(arrow.timestamp("us"))
    return compute.coalesce(moved, plain)


def _texts(cells: Any) -> Any:
    return compute.if_else(compute.equal(cells, ""), None, cells)


_READ = {"number": _numbers, "truth": _truths, "time": _times, "text": _texts}
