"""The terminal: results are tables on stdout, or JSON of the same values. Text from outside is made safe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
import rich.box
import rich.console
import rich.table
from rich.markup import escape as escape_markup

from consilience.exceptions import visible

WIDTH = 110
"""Width of a table, in columns, if it goes to a file or a pipe."""


def escape(text: object) -> str:
    """Return text from outside in a form that is safe to print: it shows markup and control characters.

    A class name or a path may contain escape sequences that move the cursor, or set colours or a title.

    Examples
    --------
    >>> escape("cat\x1b[2J")
    'cat\\\\x1b[2J'
    """
    return escape_markup(visible("" if text is None else str(text)))


def console(*, stderr: bool = False) -> rich.console.Console:
    """Return a console on stdout or stderr."""
    made = rich.console.Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = max(made.width, WIDTH)
    return made


def show(view: Mapping[str, Any], parts: str | Iterable[Any]) -> None:
    """Print a result: as JSON if ``--json`` was given, else its parts, which are tables and lines.

    A text that is no list of parts is what the library's own object says of itself, line by line. JSON also
    has the warnings so far.
    """
    ctx, out = click.get_current_context(), console()
    if ctx.params.get("as_json"):
        values = {**view, "warnings": ctx.obj.warnings}
        text = json.dumps(values, indent=2, ensure_ascii=False, default=str)
        # json escapes only the control characters below 32; plain print wraps no lines
        print("".join(f"\\u{ord(c):04x}" if "\x7f" <= c <= "\x9f" else c for c in text), flush=True)
        return
    for part in map(escape, parts.split("\n")) if isinstance(parts, str) else parts:
        out.print(part, soft_wrap=isinstance(part, str))


def plain_table(*headers: str) -> rich.table.Table:
    """Return an empty table. Headers that begin with ">" are right-aligned."""
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        justify: Any = "right" if header.startswith(">") else "left"
        table.add_column(escape_markup(header.removeprefix(">")), justify=justify)
    return table


def table(
    columns: Mapping[str, str | Callable[[Any], object]], rows: Iterable[Any], bold: Sequence[Any] = ()
) -> rich.table.Table:
    """Return a table; some rows may be bold.

    A column is a function of a row, or a text with slots such as ``"{accuracy:.1%}"``: a cell without a value
    is empty.
    """
    drawn = plain_table(*columns)
    for row in rows:
        cells = [_cell(column, row) for column in columns.values()]
        drawn.add_row(*map(escape, cells), style="bold" if row in bold else None)
    return drawn


def _cell(column: str | Callable[[Any], object], row: Any) -> object:
    if callable(column):
        return column(row)
    try:
        return column.format_map(row)
    except TypeError:  # None has no format
        return ""


def facts_table(facts: Mapping[str, object]) -> rich.table.Table:
    """Return names and facts as a table without lines; leave out names without a fact."""
    grid = rich.table.Table.grid(padding=(0, 2))
    for name, fact in facts.items():
        if fact is not None:
            grid.add_row(f"[bold]{name}[/]", escape(fact))
    return grid
