"""A page is plain dicts: sections of tables, facts, remarks and drawings. It becomes HTML, or text.

As HTML it is one file that needs no network, escapes all data, and works without its script.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from consilience._optional import require
from consilience._version import __version__
from consilience._words import aligned, percent
from consilience.exceptions import visible
from consilience.files.disk import as_path, replacing
from consilience.files.made import date_now
from consilience.files.readers import check_target
from consilience.inspect.drawing import Block, bar, shown_name, without_middle
from consilience.kernels.arrays import Floats, Ints

Form = Literal["name", "text", "count", "place", "percent", "bar", "number"]
"""What a column has: names from data, our words, how many, positions, shares (with a bar), or numbers."""
Column = tuple[str, str, Any]
"""The title of a column, its `Form`, and a sequence or an array with a value for each row."""
NUMERIC = ("count", "place", "percent", "bar", "number")  # sorted by number, right-aligned
MOST_ROWS = 400  # rows of a table
LONG = 40  # characters of a name in plain text


def table(
    caption: str,
    columns: Sequence[Column],
    *,
    order: Sequence[int] | Ints | None = None,
    note: str = "",
    marked: Collection[int] = (),
    printed: int = MOST_ROWS,
) -> Block:
    """Return a table; readers can sort and filter it.

    Parameters
    ----------
    caption : str
    columns : sequence of Column
        None and NaN are empty cells. The first 400 rows are kept.
    order : sequence of int, optional
        The rows to show, in this order; by default all.
    note : str
        A sentence below the table.
    marked : collection of int
        Rows that stand out, by their position in the columns.
    printed : int
        How many rows to print as text.
    """
    order = range(len(columns[0][2])) if order is None else order
    if len(order) > MOST_ROWS:
        note = f"{note} The first {MOST_ROWS} of {len(order):,} rows.".strip()
    places = [int(place) for place in order[:MOST_ROWS]]
    heads, cells = list[Block](), list[list[Any]]()
    for title, form, values in columns:
        own = [plain(values[place]) for place in places]
        heads.append({"title": title, "form": form, "most": _longest(own) if form == "bar" else 1.0})
        cells.append([shown_name(one) if form == "name" and one is not None else one for one in own])
    return {
        "kind": "table",
        "caption": caption,
        "columns": heads,
        "rows": [list(row) for row in zip(*cells, strict=True)],
        "note": note,
        "marked": [row for row, place in enumerate(places) if place in marked],
        "printed": printed,
    }


def columns_of(records: Collection[Any], *heads: tuple[str, str, str]) -> list[Column]:
    """Return the columns of objects; `heads` are titles, forms, and names of attributes, also of parts."""
    return [(title, form, [*map(attrgetter(name), records)]) for title, form, name in heads]


def _longest(shares: Sequence[Any]) -> float:
    """Return the share that fills a bar: 1, or the largest share of a column if all are small."""
    most = max((share for share in shares if share is not None), default=1.0)
    return most if 0 < most < 0.5 else 1.0


def least_sure(
    caption: str, proba: Floats, rows: Ints, names: Sequence[Any], most: int, form: Form = "name"
) -> Block:
    """Return a table of the rows with the smallest probability of what is likeliest, and what is next.

    `rows` (k,) says which of the n rows of `proba` (n, K) may be listed, and `names` what the K columns are.
    """
    rows = rows[np.argsort(proba.max(axis=1)[rows], kind="stable")[:most]]
    ranked = np.argsort(-proba[rows], axis=1, kind="stable")
    columns: list[Column] = [("row", "place", rows)]
    titles = ("likeliest", "probability", "bar"), ("next", "its", "percent")
    for (who, its, figure), chosen in zip(titles, ranked.T, strict=False):
        columns += [(who, form, [names[k] for k in chosen]), (its, figure, proba[rows, chosen])]
    return table(caption, columns)


def binned(proba: Floats) -> list[int]:
    """Return how many rows of probabilities (n, K) have their largest one in each of 20 bins."""
    counts: list[int] = np.histogram(proba.max(axis=1), bins=20, range=(0, 1))[0].tolist()
    return counts


def facts(pairs: Mapping[str, Any]) -> Block:
    """Return names and facts; those without a fact are left out."""
    told = [[shown_name(name), visible(str(fact))] for name, fact in pairs.items() if fact not in (None, "")]
    return {"kind": "facts", "pairs": told}


def remarks(lines: Sequence[str]) -> Block | None:
    """Return sentences that a reader should not overlook; None without any."""
    return {"kind": "remarks", "lines": [visible(line) for line in lines]} if lines else None


def section(title: str, text: str, *parts: Block | None) -> Block:
    """Return a section: a title, sentences that say how to read it, and its blocks."""
    return {"title": title, "text": text, "blocks": [one for one in parts if one is not None]}


def page(
    title: str, lead: str, figures: Sequence[tuple[str, str]], sections: Sequence[Block | None]
) -> Block:
    """Return a page: what it is in a sentence or two, key figures (value and name), and its sections."""
    return {
        "title": title,
        "lead": lead,
        "figures": [{"value": value, "name": name} for value, name in figures],
        "sections": [one for one in sections if one and (one["text"] or one["blocks"])],
        "made": f"{date_now()[:16].replace('T', ' ')} UTC",
        "version": __version__,
    }


def setting(value: Any) -> str:
    """Return a setting as text: numbers and words as they are, objects by the name of their class.

    Examples
    --------
    >>> setting(0.5), setting("auto"), setting(len), setting([1, 2])
    ('0.5', 'auto', 'len', 'list')
    """
    if isinstance(value, bool | int | float | str | np.number):
        return str(value)
    return str(getattr(value, "__name__", type(value).__name__))


def versions(*more: str) -> Block:
    """Return the versions of what a result depends on, as far as they are installed."""
    found = {"consilience": __version__, "Python": platform.python_version()}
    for name in ("numpy", "scipy", "scikit-learn", "numba", *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return facts(found)


def as_text(value: Any, form: str) -> str:
    """Return the value of a cell as text.

    Examples
    --------
    >>> as_text(0.1234, "percent"), as_text(1234, "count"), as_text(None, "number")
    ('12.3%', '1,234', '')
    """
    if value is None or value != value:
        return ""
    if form in ("percent", "bar"):
        return percent(value)
    if form == "count":
        return f"{value:,}"
    if form == "name":
        return without_middle(str(value), LONG)
    return f"{value:.4g}" if form == "number" else str(value)


def as_lines(block: Block) -> list[str]:
    """Return a table in plain text; nothing if it has no rows."""
    heads = [f">{one['title']}" if one["form"] in NUMERIC else one["title"] for one in block["columns"]]
    forms = [one["form"] for one in block["columns"]]
    cells = [
        [
            without_middle(as_text(value, form), LONG if form == "name" else 999)
            for value, form in zip(row, forms, strict=True)
        ]
        for row in block["rows"][: block["printed"]]
    ]
    more = len(block["rows"]) - len(cells)
    return [*aligned(heads, cells), *([f"and {more:,} more"] if more else [])] if cells else []


def as_html(block: Block) -> str:
    """Return a table for a notebook."""
    columns = block["columns"]
    heads = "".join(f"<th>{escape(one['title'])}</th>" for one in columns)
    rows = [
        "".join(
            f"<td>{bar(value, one['most']) if one['form'] == 'bar' else ''}"
            f"{escape(as_text(value, one['form']))}</td>"
            for value, one in zip(row, columns, strict=True)
        )
        for row in block["rows"]
    ]
    body = "".join(f"<tr>{cells}</tr>" for cells in rows)
    return f"<table><caption>{escape(block['caption'])}</caption><tr>{heads}</tr>{body}</table>"


def plain(value: Any) -> Any:
    """Return dataclasses, mappings and sequences as dicts and lists, ready for JSON; None replaces NaN."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [plain(part) for part in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def frame(records: Iterable[Mapping[str, Any]], **options: Any) -> Any:
    """Return records as a pandas data frame; options are those of pandas."""
    return require("pandas", extra="tables", purpose="A data frame").DataFrame(list(records), **options)


class Told:
    """What a verb found, a dataclass: it prints, shows in a notebook, and becomes plain data."""

    def told(self) -> list[str | Block]:
        """Return paragraphs and tables, in the order in which they are read."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON. None replaces NaN."""
        found: dict[str, Any] = plain(self)
        return found

    def __repr__(self) -> str:
        parts = [part if isinstance(part, str) else "\n".join(as_lines(part)) for part in self.told()]
        return "\n\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        parts = [
            as_html(part)
            if not isinstance(part, str)
            else "".join(f"<p>{escape(part)}</p>" for part in part.splitlines())
            for part in self.told()
        ]
        return "".join(parts)


def check_report(path: str | os.PathLike[str], option: str = "report") -> Path:
    """Return the path of a page, or raise if it could not be written there. Call this before long work.

    The file name ends in ``.html``, in a folder that exists. An error calls it `option`.
    """
    target = as_path(path)
    check_target(target, (".html",), option)
    require("jinja2", extra="report", purpose="A report")
    return target


def write_page(path: Path, page: Mapping[str, Any]) -> Path:
    """Write a page atomically, and return its path."""
    text = render_page(page)
    with replacing(path) as file:
        file.write(text.encode())
    return path


def render_page(page: Mapping[str, Any]) -> str:
    """Return a page as HTML.

    Jinja escapes every text. Only the drawings, the style sheet and the script are put in as they are: the
    first escape what they draw, the others are ours. A policy in the page allows these two by their hashes,
    and nothing else.
    """
    jinja2 = require("jinja2", extra="report", purpose="A report")
    folder = files("consilience.inspect") / "templates"
    style, script = ((folder / name).read_text(encoding="utf8") for name in ("page.css", "page.js"))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = as_text
    found: str = environment.get_template("page.html").render(
        page=page, numeric=NUMERIC, draw_bar=bar, style=style, script=script, hashes=hashes
    )
    return found
