"""Tables in .csv files: what their cells hold, and what becomes a number, a date, a text or a missing value.

A file is read once into a temporary table of texts. That shows what each column holds in all rows, so every
block is read as the whole file would be.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
from pyarrow import compute
from pyarrow import csv as reading

from consilience._words import counted
from consilience.rows.arrow import TableRows, kept_table
from consilience.rows.files import PartRows
from consilience.rows.tables import from_arrow, quoted, separator_advice

_MISSING = ("na", "n/a", "#n/a", "null", "none", "-")
"""What stands for a missing number, besides an empty cell; in a column of texts, only that does."""
_ZONE = r"(Z|:.*[+-]\d{2}:?\d{2})$"
_BYTES = 2**24  # that are read together: a row may not be longer
_FACTS = frozenset({"number", "truth", "time", "value", "empty", "full"})
"""What may hold for all cells of a column: they are numbers, booleans, dates; any of these, without words for
missing ones; only empty cells; no empty cell."""
_PLAIN = {"number", "value", "full"}
"""Numbers alone."""


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
    names : list of str or None
        Of the columns; None without a header.
    kind : str
        What files that are read together must have in common.
    columns : list of str
        Their names; numbers without a header.
    facts : list of set of str
        What holds for all cells of each column.
    """

    def __init__(self, path: Path) -> None:
        table = kept_table(_batches(path))
        first, self.facts = [column[0].as_py() for column in table.columns], _all_facts(table[1:])
        header = _is_header(first, self.facts)
        if not header:
            self.facts = _all_facts(table)
        self.names = _check_names(first) if header else None
        self.columns = self.names or table.column_names
        self.kind = "a table" if header else counted(len(first), "column")
        self._table = table[int(header) :].rename_columns(self.columns)
        self.n_rows = len(self._table)
        if not self.n_rows:
            raise ValueError("it has a header and no rows")

    def read(self, start: int, stop: int, columns: Sequence[str]) -> Any:
        """Return some rows as a table of texts."""
        return self._table[start:stop].select(columns)


class CsvRows(TableRows):
    """Rows of .csv files, read as one file would be: a column of texts in one file is one in all."""

    local = True  # the cells lie in temporary files

    def __init__(
        self, tables: Sequence[CsvTable], columns: list[str] | None, expected: Mapping[Any, str]
    ) -> None:
        self.names, self.chosen = columns, columns or tables[0].columns
        self._facts = {
            name: set.intersection(*(table.facts[table.columns.index(name)] for table in tables))
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
        self._maybe = {name for name, facts in self._facts.items() if _may_miss(self._kinds[name], facts)}
        plain = all(facts >= _PLAIN for facts in self._facts.values())
        self._matrix = self.names is None and plain and "text" not in self._kinds.values()
        self.__dict__.pop("head", None)

    def _typed(self, table: Any) -> Any:
        columns = zip(table.column_names, table.columns, strict=True)
        values = [_READ[self._kinds[name]](column) for name, column in columns]
        if self._matrix:
            return np.column_stack([column.to_numpy() for column in values])
        frame = from_arrow(arrow.table(values, names=table.column_names), self._maybe)
        if self.names is None and hasattr(frame, "iloc"):
            frame.columns = range(len(values))
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
        last = ""
        for batch in batches:
            if len(batch):
                last = batch.columns[-1][-1].as_py()
                yield arrow.table([compute.utf8_trim_whitespace(one) for one in batch.columns], names=names)
    except arrow.ArrowInvalid:
        if not wrong:
            raise
        kind = csv.Error if _has_line_break(wrong[0].text) else ValueError
        raise kind(
            f"line {wrong[0].number} has {counted(wrong[0].actual_columns, 'column')} and the first has "
            f"{len(first)}{separator_advice(first)}"
        ) from None
    # Arrow takes the end of the file for the end of a quote: then the last cell holds all lines after it
    if _has_line_break(last):
        with path.open("rb") as content:
            n_quotes = sum(line.count(b'"') for line in content)
        if n_quotes % 2:
            raise csv.Error("its last cell has no end")


def _has_line_break(text: str) -> bool:
    return "\n" in text or "\r" in text


def _is_header(first: Sequence[str], facts: Sequence[set[str]]) -> bool:
    """Tell whether the first line names the columns."""
    values = ["value" in _facts(arrow.array([cell])) for cell in first]
    # a name may be a number, such as a year: then some other name stands above numbers
    every = not any(value and cell for value, cell in zip(values, first, strict=True))
    above = any("value" in below for value, below in zip(values, facts, strict=True) if not value)
    return not all(values) and (every or above)


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


def _all_facts(table: Any) -> list[set[str]]:
    """Return what holds for all cells of each column, chunk by chunk."""
    return [set(_FACTS).intersection(*map(_facts, column.chunks)) for column in table.columns]


def _facts(cells: Any) -> set[str]:
    """Return what holds for all of some cells; all of it where there are none."""
    if not len(cells):
        return set(_FACTS)
    empty = compute.sum(compute.equal(cells, "")).as_py()
    found = {fact for fact, count in (("empty", len(cells)), ("full", 0)) if empty == count}
    for kind in ("number", "truth", "time"):
        with suppress(arrow.ArrowInvalid):
            _READ[kind](cells[:64])  # most columns of other kinds show it at once
            missing = _READ[kind](cells).null_count
            found |= {kind, "value"} if missing == empty else {kind}
            if "empty" not in found:  # no cell is of two kinds
                break
    return found


def _kind(facts: set[str], expected: str = "") -> str:
    """Return what a column is read as."""
    if expected == "text" or (expected == "time" and "empty" in facts):
        return expected
    order = ["number"] if "empty" in facts else ["number", "truth", "time"]
    return next((kind for kind in order if kind in facts), "text")


def _may_miss(kind: str, facts: set[str]) -> bool:
    return kind == "truth" and "full" not in facts


def _numbers(cells: Any) -> Any:
    missing = compute.is_in(compute.utf8_lower(cells), arrow.array(_MISSING))
    return compute.if_else(missing, None, _texts(cells)).cast("float64")


def _truths(cells: Any) -> Any:
    # "1" is a number, though Arrow would read it as true
    return compute.if_else(compute.utf8_is_digit(cells), "?", _texts(cells)).cast("bool")


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
