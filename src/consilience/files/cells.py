"""The cells of a .csv file as numbers, or as the columns of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience._optional import require
from consilience._tables import quoted, separator_advice
from consilience._words import counted

_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "-"}
"""What stands for a missing number; in a column of texts, only an empty cell does."""
_CELLS = 1024  # that are looked at together
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")


def read_cells(lines: list[list[str]], expected: Mapping[Any, str] | None = None) -> Any:
    """Return the lines of a table as an array (n, d) of numbers, or as a data frame.

    The first line is a header, unless it holds numbers, dates or booleans as the lines below do. Without a
    header, a table of numbers is an array. Empty cells are missing values.

    Parameters
    ----------
    lines : list of list of str
        n lines of d cells.
    expected : mapping, optional
        What columns should hold, by name; see `Layout.expecting`. Without a header, its order is that of the
        columns.

    Examples
    --------
    >>> read_cells([["1", "2"], ["3", "4"]]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    >>> read_cells([["age", "city"], ["30", "Ulm"], ["", "Bonn"]])["age"].tolist()
    [30.0, nan]
    >>> read_cells([["ward"], ["007"]], {"ward": "text"})["ward"].tolist()
    ['007']
    """
    scan = Scan()
    scan.add(lines)
    layout = scan.layout().expecting_by_name(expected or {})
    return layout.read(lines[layout.header :])


def read_column(cells: Sequence[str]) -> Any:
    """Return cells (n,) as `read_cells` reads a column of them: as numbers, booleans, dates or texts."""
    pandas = require("pandas", extra="tables", purpose="A table with names or texts")
    cells, guess = [cell.strip() for cell in cells], _Guess()
    for start in range(0, len(cells), _CELLS):
        guess.see(cells[start : start + _CELLS])
        if not (guess.number or guess.truth or guess.time):
            break
    return pandas.Series(_read_as(pandas, guess.kind, guess.gap, cells))


@dataclass(frozen=True)
class Layout:
    """What a table of cells holds: enough to read any part of it as the whole would be read.

    Attributes
    ----------
    names : list of str or int
        Of the header; numbers without one.
    kinds : list of str
        What each column holds: ``"number"``, ``"truth"``, ``"time"`` or ``"text"``.
    gaps : list of bool
        Whether a column has a missing value.
    filled : list of bool
        Whether a column has a cell that is not empty.
    header : bool
        Whether the first line names the columns.
    matrix : bool
        Whether it is read as an array of numbers.
    n_rows : int
        Lines without the header.
    """

    names: list[Any]
    kinds: list[str]
    gaps: list[bool]
    filled: list[bool]
    header: bool
    matrix: bool
    n_rows: int

    def expecting(self, kinds: Sequence[str | None]) -> Layout:
        """Return a layout for a model that knows what its columns hold.

        A few rows do not show that: a ward "007" looks like a number, and "none" like a missing one.

        Parameters
        ----------
        kinds : sequence of str or None
            For each column what it should hold. ``"text"`` keeps the cells as they are. ``"time"`` makes an
            empty column one of dates. Other columns stay what they look like.
        """
        pairs = zip(self.kinds, self.filled, kinds, strict=True)
        changed = [
            expected if expected == "text" or (expected == "time" and not filled) else kind
            for kind, filled, expected in pairs
        ]
        return replace(self, kinds=changed, matrix=self.matrix and changed == self.kinds)

    def expecting_by_name(self, expected: Mapping[Any, str]) -> Layout:
        """Return a layout for a model that knows what columns of some names hold.

        Without a header, the order of the names is that of the columns.
        """
        if expected and self.header:
            return self.expecting([expected.get(name) for name in self.names])
        if expected and len(expected) == len(self.names):
            return self.expecting(list(expected.values()))
        return self

    def read(self, rows: Sequence[Sequence[str]], columns: Sequence[int] | None = None) -> Any:
        """Return lines (n,) as numbers (n, d) or as a data frame; only some columns, if these are given."""
        if self.matrix:
            return np.array(rows, dtype=np.float64)
        chosen = range(len(self.names)) if columns is None else columns
        pandas = require("pandas", extra="tables", purpose="A table with names or texts")
        names = [self.names[i] for i in chosen]
        parts = [
            _read_as(pandas, self.kinds[i], self.gaps[i], [row[i].strip() for row in rows]) for i in chosen
        ]
        if all(isinstance(part, np.ndarray) for part in parts):
            return pandas.DataFrame(np.column_stack(parts), columns=names)
        return pandas.DataFrame(dict(zip(names, parts, strict=True)))


class Scan:
    """Finds out what a table of cells holds, part by part: its lines need not be in memory at once."""

    def __init__(self) -> None:
        self._first: Sequence[str] = ()
        self._guesses: list[_Guess] = []
        self._count = 0

    def add(self, lines: Sequence[Sequence[str]]) -> None:
        """Look at the next lines, none of them empty."""
        if lines and not self._count:
            self._first, self._guesses = lines[0], [_Guess() for _ in lines[0]]
        for number, line in enumerate(lines, start=self._count + 1):
            if len(line) != len(self._first):
                raise ValueError(
                    f"line {number} has {counted(len(line), 'column')} and the first has {len(self._first)}"
                    f"{separator_advice(self._first)}"
                )
        rest = lines if self._count else lines[1:]
        self._count += len(lines)
        for guess, cells in zip(self._guesses, zip(*rest, strict=True), strict=bool(rest)):
            guess.see([cell.strip() for cell in cells])

    def layout(self) -> Layout:
        """Return what was found."""
        if not self._count:
            raise ValueError("it is empty")
        header = self._has_header()
        if header and self._count == 1:
            raise ValueError("it has a header and no rows")
        if not header:
            for guess, cell in zip(self._guesses, self._first, strict=True):
                guess.see([cell.strip()])
        return Layout(
            names=_check_names(self._first) if header else list(range(len(self._first))),
            kinds=[guess.kind for guess in self._guesses],
            gaps=[guess.gap for guess in self._guesses],
            filled=[guess.filled for guess in self._guesses],
            header=header,
            matrix=not header and all(guess.plain for guess in self._guesses),
            n_rows=self._count - header,
        )

    def _has_header(self) -> bool:
        """Tell whether the first line names the columns."""
        texts = [i for i, cell in enumerate(self._first) if cell.strip() and not _is_value(cell)]
        if not texts:
            return False
        if not any(_is_value(cell) for cell in self._first):
            return True
        # a name may be a number, such as a year: then some other name stands above numbers
        return any(self._guesses[i].values for i in texts)


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

    def see(self, cells: list[str]) -> None:
        """Take some more cells into account."""
        if cells and _as_numbers(cells) is not None:
            self.filled, self.truth, self.time = True, False, False
            return
        filled = [cell for cell in cells if cell]
        self.filled = self.filled or bool(filled)
        self.gap = self.gap or len(filled) < len(cells)
        self.plain = self.plain and not cells
        if self.number or self.values:
            others = [cell for cell in cells if not _is_number(cell)]
            self.number = self.number and all(cell.lower() in _MISSING for cell in others)
            self.values = self.values and all(not cell or _is_value(cell) for cell in others)
        self.truth = self.truth and all(cell.lower() in ("true", "false") for cell in filled)
        self.time = self.time and _are_dates(filled)

    @property
    def kind(self) -> str:
        if self.number:
            return "number"
        if self.filled and self.truth:
            return "truth"
        return "time" if self.filled and self.time else "text"


def _read_as(pandas: Any, kind: str, gap: bool, cells: list[str]) -> Any:
    """Return cells as numbers, booleans, dates or texts; `gap` tells whether some of the file are empty."""
    if kind == "number":
        numbers = _as_numbers(cells)
        if numbers is None:
            numbers = [float(cell) if _is_number(cell) else np.nan for cell in cells]
        return np.array(numbers)
    if kind == "truth":
        values = [cell.lower() == "true" if cell else None for cell in cells]
        return pandas.Series(values, dtype=object if gap else bool)
    if kind == "time":
        return _moments(pandas, cells)
    return pandas.Series([cell or None for cell in cells], dtype=object)


def _are_dates(cells: list[str]) -> bool:
    if not all(_DATE.fullmatch(cell) for cell in cells):
        return False
    if cells:
        try:
            _moments(require("pandas", extra="tables", purpose="A table with dates"), cells)
        except ValueError:  # 2024-13-45
            return False
    return True


def _moments(pandas: Any, cells: list[str]) -> Any:
    """Return dates in UTC, without a time zone; NaT for empty cells."""
    texts = pandas.Series(cells, dtype=object).replace("", None)
    moments = pandas.to_datetime(texts, format="ISO8601", utc=True)
    return moments.dt.tz_localize(None).dt.as_unit("us")  # else a part of empty cells has another unit


def _is_value(cell: str) -> bool:
    """Tell whether a cell is a number, a boolean or a date."""
    text = cell.strip()
    return _is_number(text) or text.lower() in ("true", "false") or _DATE.fullmatch(text) is not None


def _check_names(line: Sequence[str]) -> list[str]:
    names = [cell.strip() for cell in line]
    if "" in names:
        raise ValueError(
            f"column {names.index('') + 1} has no name in the header; give it one, or leave the column out "
            "(pandas: to_csv(..., index=False))"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"the header has {quoted(twice)} more than once")
    return names


def _as_numbers(cells: list[str]) -> list[float] | None:
    """Return cells as numbers, or None if one of them is no number."""
    try:
        return list(map(float, cells))
    except ValueError:
        return None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
