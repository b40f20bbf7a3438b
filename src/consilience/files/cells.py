"""The cells of a .csv file as numbers, or as the columns of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._tables import quoted

_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "-"}
"""What stands for a missing number; in a column of texts, only an empty cell does."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")


def read_cells(lines: list[list[str]]) -> Any:
    """Return the lines of a table as an array (n, d) of numbers, or as a data frame.

    The first line is a header, unless it holds numbers, dates or booleans as the lines below do. Without a
    header, a table of numbers is an array. Empty cells are missing values.

    Examples
    --------
    >>> read_cells([["1", "2"], ["3", "4"]]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    >>> read_cells([["age", "city"], ["30", "Ulm"], ["", "Bonn"]])["age"].tolist()
    [30.0, nan]
    """
    for number, row in enumerate(lines, start=1):
        if len(row) != len(lines[0]):
            raise ValueError(f"line {number} has {len(row)} columns and the first has {len(lines[0])}")
    header = _has_header(lines)
    rows = lines[header:]
    if not rows:
        raise ValueError("it has a header and no rows")
    if not header and all(_is_number(cell) for row in rows for cell in row):
        return np.array(rows, dtype=np.float64)
    names = _check_names(lines[0]) if header else list(range(len(rows[0])))
    pandas = require("pandas", extra="tables", purpose="A table with names or texts")
    cells = [[row[i].strip() for row in rows] for i in range(len(names))]
    columns = [_column(pandas, column) for column in cells]
    if all(isinstance(column, np.ndarray) for column in columns):
        return pandas.DataFrame(np.column_stack(columns), columns=names)
    return pandas.DataFrame(dict(zip(names, columns, strict=True)))


def _has_header(lines: list[list[str]]) -> bool:
    """Tell whether the first line names the columns."""
    texts = [i for i, cell in enumerate(lines[0]) if cell.strip() and not _is_value(cell)]
    if not texts:
        return False
    if not any(_is_value(cell) for cell in lines[0]):
        return True
    # a name may be a number, such as a year: then some other name stands above numbers
    return any(all(_is_value(row[i]) or not row[i].strip() for row in lines[1:]) for i in texts)


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


def _column(pandas: Any, cells: list[str]) -> Any:
    """Return cells as numbers, booleans, dates or texts."""
    numbers = _numbers(cells)
    if numbers is not None:
        return numbers
    filled = [cell for cell in cells if cell]
    if filled and all(cell.lower() in ("true", "false") for cell in filled):
        values = [cell.lower() == "true" if cell else None for cell in cells]
        return pandas.Series(values, dtype=bool if len(filled) == len(cells) else object)
    if filled and all(_DATE.fullmatch(cell) for cell in filled):
        try:
            moments = pandas.to_datetime(pandas.Series(cells).replace("", None), format="ISO8601", utc=True)
            return moments.dt.tz_localize(None)
        except ValueError:  # 2024-13-45
            pass
    return pandas.Series([cell or None for cell in cells], dtype=object)


def _numbers(cells: list[str]) -> NDArray[np.float64] | None:
    """Return cells as numbers, or None where one is neither a number nor missing."""
    values = np.full(len(cells), np.nan)
    for i, cell in enumerate(cells):
        try:
            values[i] = float(cell)
        except ValueError:
            if cell.lower() not in _MISSING:
                return None
    return values


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
