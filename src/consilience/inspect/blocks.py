"""What a page is made of: plain dicts, ready for JSON. `drawing` and the template show them."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from consilience._version import __version__
from consilience._words import visible
from consilience.files.card import date_now

Block = dict[str, Any]
Form = Literal["name", "text", "count", "place", "percent", "number"]

MOST_ROWS = 400  # rows of a table
LONGEST_NAME = 80  # characters of a name
# Joiners make one letter or emoji of several characters. Other invisible characters are written out.
_JOINERS = "\u200c\u200d"


def shown_name(value: Any) -> str:
    """Return a name from data as one line that shows everything in it; a long one loses its middle.

    Examples
    --------
    >>> shown_name("cat\\n"), shown_name(7), shown_name(" "), len(shown_name("x" * 999))
    ('cat\\\\n', '7', "' '", 80)
    """
    text = "".join(c if c in _JOINERS else visible(c) for c in _without_middle(str(value)))
    return _without_middle(text if text.strip() else repr(text))


def _without_middle(text: str) -> str:
    half = LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[: half - 1]}…{text[-half:]}"


def column(title: str, form: Form = "text", *, bar: bool = False) -> Block:
    """Return the head of a column.

    Parameters
    ----------
    title : str
    form : str
        ``"name"`` for names from data, ``"text"`` for ours, ``"count"``, ``"place"`` (the position of a row,
        the number of a cluster), ``"percent"`` for shares, or ``"number"``.
    bar : bool
        Whether to draw a bar beside each share.
    """
    return {"title": title, "form": form, "bar": bar}


def table(
    caption: str,
    columns: Sequence[Block],
    rows: Sequence[Sequence[Any]],
    *,
    note: str = "",
    marked: Sequence[int] = (),
) -> Block:
    """Return a table; readers can sort and filter it.

    Parameters
    ----------
    caption : str
    columns : sequence of `column`
    rows : sequence of rows
        A value for each column; None for an empty cell. The first 400 rows are kept.
    note : str
        A sentence below the table.
    marked : sequence of int
        Rows that stand out.
    """
    if len(rows) > MOST_ROWS:
        note = f"{note} The first {MOST_ROWS} of {len(rows):,} rows.".strip()
    forms = [one["form"] for one in columns]
    cells = [
        [
            shown_name(value) if form == "name" and value is not None else value
            for value, form in zip(row, forms, strict=True)
        ]
        for row in rows[:MOST_ROWS]
    ]
    return {
        "kind": "table",
        "caption": caption,
        "columns": [
            {**head, "most": _longest_bar([row[i] for row in cells])} if head["bar"] else dict(head)
            for i, head in enumerate(columns)
        ],
        "rows": cells,
        "note": note,
        "marked": [row for row in marked if row < MOST_ROWS],
    }


def _longest_bar(shares: Sequence[Any]) -> float:
    """Return the share that fills a bar: 1, or the largest share of a column if all are small."""
    most = max((share for share in shares if share is not None), default=1.0)
    return most if 0 < most < 0.5 else 1.0


def facts(pairs: Mapping[str, Any]) -> Block:
    """Return names and facts; those without a fact are left out."""
    return {
        "kind": "facts",
        "pairs": [
            [shown_name(name), visible(str(fact))] for name, fact in pairs.items() if fact not in (None, "")
        ],
    }


def remarks(lines: Sequence[str]) -> Block:
    """Return sentences that a reader should not overlook."""
    return {"kind": "remarks", "lines": [visible(line) for line in lines]}


def incidence(
    caption: str,
    rows: Sequence[Any],
    columns: Sequence[Any],
    cells: Sequence[Sequence[int]],
    *,
    breaks: Sequence[int] = (),
) -> Block:
    """Return who has what: for each row the columns that it has, in increasing order.

    Parameters
    ----------
    caption : str
    rows, columns : sequences
        Their names.
    cells : sequence of sequences of int
        For each row, positions of columns.
    breaks : sequence of int
        Columns before which a line is drawn.
    """
    return {
        "kind": "incidence",
        "caption": caption,
        "rows": [shown_name(name) for name in rows],
        "columns": [shown_name(name) for name in columns],
        "cells": [list(map(int, row)) for row in cells],
        "breaks": list(map(int, breaks)),
    }


def heat(
    caption: str,
    rows: Sequence[Any],
    columns: Sequence[Any],
    values: Sequence[Sequence[float | None]],
) -> Block:
    """Return a matrix of shares, from 0 to 1; None where there is none."""
    return {
        "kind": "heat",
        "caption": caption,
        "rows": [shown_name(name) for name in rows],
        "columns": [shown_name(name) for name in columns],
        "values": [list(row) for row in values],
    }


def histogram(caption: str, counts: Sequence[int]) -> Block:
    """Return how many rows have a share in each of several bins of equal width between 0 and 1."""
    return {"kind": "histogram", "caption": caption, "counts": list(map(int, counts))}


def dots(
    caption: str,
    series: Sequence[str],
    rows: Sequence[tuple[Any, Sequence[Sequence[float | None] | None]]],
    *,
    form: Form = "percent",
) -> Block:
    """Return values with intervals: for each row a name, and (value, low, high) or None for each series."""
    return {
        "kind": "dots",
        "caption": caption,
        "series": list(series),
        "rows": [
            {"name": shown_name(name), "points": [None if one is None else list(one) for one in points]}
            for name, points in rows
        ],
        "form": form,
    }


def curve(caption: str, values: Sequence[float], across: str) -> Block:
    """Return a number that changes from step to step; `across` says what a step is."""
    return {"kind": "curve", "caption": caption, "values": list(map(float, values)), "across": across}


def section(title: str, text: str, *parts: Block | None) -> Block:
    """Return a section: a title, sentences that say how to read it, and its blocks."""
    return {"title": title, "text": text, "blocks": [one for one in parts if one is not None]}


def page(
    title: str,
    lead: str,
    figures: Sequence[tuple[str, str]],
    sections: Sequence[Block | None],
) -> Block:
    """Return a page.

    Parameters
    ----------
    title : str
    lead : str
        What it is, in a sentence or two.
    figures : sequence of (str, str)
        The key figures: value and name.
    sections : sequence of `section`
        None is left out.
    """
    return {
        "title": title,
        "lead": lead,
        "figures": [{"value": value, "name": name} for value, name in figures],
        "sections": [one for one in sections if one is not None],
        "made": f"{date_now()[:16].replace('T', ' ')} UTC",
        "version": __version__,
    }


def versions(*more: str) -> dict[str, str]:
    """Return the versions of what a result depends on, as far as they are installed."""
    found = {"consilience": __version__, "Python": platform.python_version()}
    for name in ("numpy", "scipy", "scikit-learn", "numba", *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
