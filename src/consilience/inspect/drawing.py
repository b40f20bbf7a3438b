"""Draw what a page shows as SVG. Colours are classes of the page's style sheet, so they follow its scheme."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from consilience.exceptions import visible

Block = dict[str, Any]
Names = Sequence[Any]

WIDTH = 1040  # of a drawing that fills a wide window, in pixels
LETTER = 6.4  # width of a letter, on average
LABEL = 24  # letters of a label; the full name shows when you point at it
LONGEST_NAME = 80  # characters of that full name
LEVELS = 10  # shades of a matrix
WRITTEN = 14  # columns of a matrix up to which its values are written into it
TILT, RISE, LEAN = 52, 0.8, 0.65  # labels of columns: their angle, and how much of them goes up and right
NAMED = 60  # columns up to which all of them are named
CHART, HIGH, TOP = 400.0, 130.0, 14.0  # a histogram or a curve: its width, height and place
# Joiners make one letter or emoji of several characters. Other invisible characters are written out.
JOINERS = "\u200c\u200d"


def drawing(draw: Callable[..., str], caption: str, **data: Any) -> Block:
    """Return a block of a page: what it shows, which are the arguments of `draw`, and its SVG."""
    return {"kind": draw.__name__, "caption": caption, **data, "svg": draw(caption, **data)}


def shown_name(value: Any) -> str:
    """Return a name from data as one line that shows everything in it; a long one loses its middle.

    Examples
    --------
    >>> shown_name("cat\\n"), shown_name(7), shown_name(" "), len(shown_name("x" * 999))
    ('cat\\\\n', '7', "' '", 80)
    """
    text = "".join(c if c in JOINERS else visible(c) for c in without_middle(str(value)))
    return without_middle(text if text.strip() else repr(text))


def without_middle(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a text without its middle if it is long: the ends of names tell more."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[: half - 1]}…{text[-half:]}"


def bar(share: float | None, most: float) -> str:
    """Return a small bar for the cell of a table; the share `most` fills it."""
    if share is None:
        return ""
    width = _number(48 * min(max(share / most, 0.0), 1.0))
    return f'<svg class="bar" width="48" height="8" aria-hidden="true"><path d="M0 4h{width}"/></svg>'


class _Grid(NamedTuple):
    """Where the cells of a matrix are."""

    left: float
    top: float
    wide: float
    high: float
    rows: Names
    columns: Names

    @property
    def right(self) -> float:
        return self.left + self.wide * len(self.columns)

    @property
    def bottom(self) -> float:
        return self.top + self.high * len(self.rows)

    @property
    def named(self) -> bool:
        return self.top > 8.0

    def runs(self, paths: Mapping[str, Sequence[Sequence[int]]]) -> str:
        """Return a path for each class: lines through the columns given for each row, in units of cells."""
        place = f"{_number(self.left)} {_number(self.top + self.high / 2)}"
        scale = f"{_number(self.wide)} {_number(self.high)}"
        lines = [
            f'<path class="{name} run" d="{"".join(_runs(cells))}"/>'
            for name, cells in paths.items()
            if any(cells)
        ]
        return f'<g transform="translate({place}) scale({scale})">{"".join(lines)}</g>'

    def labels(self) -> str:
        """Return the names of rows, and of columns if there is room for them."""
        columns = [
            (name, _number(self.left + self.wide * (j + 0.5) + 3), _number(self.top - 6))
            for j, name in enumerate(self.columns)
        ]
        tilted = [
            _label(name, f'x="{x}" y="{y}" transform="rotate(-{TILT} {x} {y})"') for name, x, y in columns
        ]
        return _row_labels(self) + ("".join(tilted) if self.named else "")


def _grid(rows: Names, columns: Names, wide: float, high: float, margin: float) -> _Grid:
    """Return a grid whose columns are `wide`, or narrower if they would not fit beside the `margin`."""
    left = _label_width(rows)
    wide = min(wide, max(0.5, (WIDTH - left - margin) / max(1, len(columns))))
    named = len(columns) <= NAMED and wide >= 12
    return _Grid(left, _label_width(columns) * RISE + 12 if named else 8.0, wide, high, rows, columns)


def incidence(
    caption: str, rows: Names, columns: Names, cells: Sequence[Sequence[int]], breaks: Sequence[int] = ()
) -> str:
    """Draw who has what: for each row the positions of the columns that it has, in increasing order.

    A run of columns is one line, so a large matrix stays small. A dashed line is drawn before the columns in
    `breaks`.
    """
    grid = _grid(rows, columns, 26.0, 22.0 if len(rows) <= 20 else 14.0, 50.0)
    right = max(50.0, LEAN * _label_width(columns) if grid.named else 0.0)
    dashed = [
        f'<path class="break" d="M{_number(grid.left + grid.wide * at)} {_number(grid.top)}'
        f'v{_number(grid.bottom - grid.top)}"/>'
        for at in breaks
    ]
    counts = [_faint(grid.right + 6, _middle(i, grid), str(len(row)), "") for i, row in enumerate(cells)]
    parts = [
        _stripes(grid, grid.right - grid.left),
        grid.runs({"ink": cells}),
        *dashed,
        grid.labels(),
        *counts,
    ]
    size = f"{len(rows)} rows by {len(columns)} columns"
    words = f"{caption}: {size}, {sum(map(len, cells))} of the cells are filled."
    return _svg(grid.right + right, grid.bottom + 6, words, parts)


def heat(caption: str, rows: Names, columns: Names, values: Sequence[Sequence[float | None]]) -> str:
    """Draw a matrix of shares, a path for each shade; None is left empty. A small one has its values, too."""
    written = len(columns) <= WRITTEN
    narrow = min(20.0, max(0.5, (WIDTH - _label_width(rows) - 20) / max(1, len(columns))))
    grid = _grid(rows, columns, 46.0 if written else 20.0, 26.0 if written else max(narrow, 12.0), 20.0)
    shaded = [[None if value is None else _level(value) for value in row] for row in values]
    shades = {
        f"h{level}": [[j for j, one in enumerate(row) if one == level] for row in shaded]
        for level in range(LEVELS)
    }
    cells = [
        f'<text class="t{_level(value)} cell" x="{_number(grid.left + grid.wide * (j + 0.5))}" '
        f'y="{_number(_middle(i, grid))}">{100 * value:.0f}</text>'
        for i, row in enumerate(values)
        for j, value in enumerate(row)
        if value is not None and written
    ]
    first, y = grid.left + 34, _number(grid.bottom + 19)
    keys = "".join(
        f'<path class="h{level} key" d="M{_number(first + 14 * level)} {y}h14"/>' for level in range(LEVELS)
    )
    legend = [
        _faint(grid.left, grid.bottom + 23, "0%", ""),
        keys,
        _faint(grid.left + 40 + 14 * LEVELS, grid.bottom + 23, "100%", ""),
    ]
    known = [value for row in values for value in row if value is not None]
    spread = f"from {min(known):.0%} to {max(known):.0%}" if known else "without values"
    words = f"{caption}: {len(rows)} rows by {len(columns)} columns, {spread}."
    width = grid.right + (LEAN * _label_width(columns) if grid.named else 12.0)
    parts = [grid.runs(shades), *cells, grid.labels(), *legend]
    return _svg(max(width, grid.left + 230), grid.bottom + 34, words, parts)


def histogram(caption: str, counts: Sequence[int]) -> str:
    """Draw how many rows have a share in each of several bins of equal width between 0 and 1."""
    left, most = 56.0, max([1, *counts])
    wide, heights = CHART / len(counts), [HIGH * count / most for count in counts]
    bars = "".join(
        f"M{_number(left + wide * i + 1)} {_number(TOP + HIGH)}v{_number(-height)}h{_number(wide - 2)}"
        f"v{_number(height)}z"
        for i, height in enumerate(heights)
        if height
    )
    half = sum(counts[len(counts) // 2 :]) / max(1, sum(counts))
    words = f"{caption}: {sum(counts)} rows, {half:.0%} of them above one half."
    below = [(share, f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return _chart(words, left, ("0", f"{most:,}"), [f'<path class="fill" d="{bars}"/>'], below)


def curve(caption: str, values: Sequence[float], across: str) -> str:
    """Draw a number from step to step; `across` says what a step is."""
    left, low, high = 74.0, min(values), max(values)
    step, reach = CHART / max(1, len(values) - 1), (high - low) or 1.0
    points = [
        (_number(left + step * i), _number(TOP + HIGH * (high - v) / reach)) for i, v in enumerate(values)
    ]
    line = " ".join(",".join(point) for point in points)
    marks = [
        f'<polyline class="ink line" points="{line}"/>',
        f'<circle class="fill" cx="{points[-1][0]}" cy="{points[-1][1]}" r="3"/>',
    ]
    words = f"{caption}: from {values[0]:.4g} to {values[-1]:.4g} over {len(values)} points."
    below = [(0.0, "0"), (0.5, across), (1.0, str(len(values) - 1))]
    return _chart(words, left, (f"{low:.4g}", f"{high:.4g}"), marks, below)


def _chart(
    words: str,
    left: float,
    ends: tuple[str, str],
    marks: Iterable[str],
    below: Iterable[tuple[float, str]],
) -> str:
    """Return marks between lines at the lowest and the highest value, with labels below."""
    parts = []
    for share, label in enumerate(ends):
        y = TOP + HIGH * (1 - share)
        parts.append(f'<path class="rule" d="M{_number(left)} {_number(y)}h{_number(CHART)}"/>')
        parts.append(_faint(left - 8, y + 4, label, " end"))
    labels = [_faint(left + CHART * share, TOP + HIGH + 18, label) for share, label in below]
    return _svg(left + CHART + 24, TOP + HIGH + 28, words, [*parts, *marks, *labels])


def dots(
    caption: str,
    series: Sequence[str],
    rows: Sequence[tuple[Any, Sequence[Sequence[float | None] | None]]],
    form: str = "percent",
) -> str:
    """Draw values with intervals: for each row a name, and (value, low, high) or None for each series.

    Series differ in colour and shape.
    """
    ends = [value for _, points in rows for point in points for value in point or () if value is not None]
    low, high = _reach(ends, form)
    several, width = len(series) > 1, 560.0
    names = [name for name, _ in rows]
    grid = _Grid(_label_width(names), 30.0 if several else 6.0, width, 26.0, names, [""])

    def place(value: float) -> float:
        return grid.left + width * (value - low) / (high - low)

    parts = [_stripes(grid, width)]
    for tick in _ticks(low, high):
        label = f"{100 * tick:g}%" if form == "percent" else f"{tick:.4g}"
        parts.append(f'<path class="rule" d="M{_number(place(tick))} {grid.top}V{_number(grid.bottom)}"/>')
        parts.append(_faint(place(tick), grid.bottom + 16, label))
    for i, (_, points) in enumerate(rows):
        for k, point in enumerate(points):
            middle = _middle(i, grid) - 4 + (5 * (2 * k - 1) if several else 0)
            parts.append(_dot(point or (None, None, None), k, middle, place))
    parts.append(_row_labels(grid))
    x = grid.left
    for k, name in enumerate(series if several else ()):
        parts.append(f'{_mark(k, x + 6, 12)}<text x="{_number(x + 16)}" y="16">{escape(name)}</text>')
        x += 34 + LETTER * _text_width(name)
    words = f"{caption}: {len(rows)} rows, from {low:.3g} to {high:.3g}. The table has the values."
    return _svg(grid.left + width + 34, grid.bottom + 28, words, parts)


def _dot(point: Sequence[float | None], series: int, middle: float, place: Callable[[float], float]) -> str:
    """Return a value and its interval."""
    value, low, high = point
    line = ""
    if low is not None and high is not None:
        ends = f"M{_number(place(low))} {_number(middle)}H{_number(place(high))}"
        line = f'<path class="s{series} whisker" d="{ends}"/>'
    return line if value is None else line + _mark(series, place(value), middle)


def _mark(series: int, x: float, y: float) -> str:
    """Return a disc for the first series, a diamond for the second."""
    if series == 0:
        return f'<circle class="s0 mark" cx="{_number(x)}" cy="{_number(y)}" r="4.5"/>'
    return f'<path class="s1 mark" d="M{_number(x)} {_number(y - 5)}l5 5l-5 5l-5 -5z"/>'


def _reach(ends: Sequence[float], form: str) -> tuple[float, float]:
    """Return the ends of an axis for these values."""
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = 0.04 * (high - low) or 0.05 * max(abs(low), 1.0)
    if form == "percent":
        return max(0.0, low - margin), min(1.0, high + margin)
    return low - margin, high + margin


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between two.

    Examples
    --------
    >>> _ticks(0.31, 0.97)
    [0.4, 0.6, 0.8]
    """
    power = 10.0 ** math.floor(math.log10(high - low))
    step = next(part * power for part in (2.0, 1.0, 0.5, 0.2) if (high - low) / (part * power) >= 3)
    return [round(step * k, 12) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _svg(width: float, height: float, words: str, parts: Iterable[str]) -> str:
    """Return a picture with a text for those who do not see it."""
    wide, high = _number(width), _number(height)
    size = f'width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"'
    return f'<svg {size} role="img" aria-label="{escape(words)}">{"".join(parts)}</svg>'


def _number(value: float) -> str:
    """Return a coordinate in as few characters as a picture needs.

    Examples
    --------
    >>> _number(3.0), _number(0.123456)
    ('3', '0.12')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _runs(cells: Sequence[Sequence[int]]) -> list[str]:
    """Return a line for each run of neighbouring columns in each row.

    Examples
    --------
    >>> _runs([[0, 1, 2, 5], [], [3]])
    ['M0 0h3', 'M5 0h1', 'M3 2h1']
    """
    lines = []
    for i, row in enumerate(cells):
        starts = [k for k, column in enumerate(row) if k == 0 or column != row[k - 1] + 1]
        ends = [*starts[1:], len(row)]
        lines += [f"M{row[start]} {i}h{end - start}" for start, end in zip(starts, ends, strict=False)]
    return lines


def _level(value: float) -> int:
    return min(LEVELS - 1, max(0, int(value * LEVELS)))


def _faint(x: float, y: float, text: str, side: str = " cell") -> str:
    """Return a label of an axis, centred unless `side` is another class."""
    return f'<text class="faint{side}" x="{_number(x)}" y="{_number(y)}">{escape(text)}</text>'


def _text_width(text: str) -> int:
    """Return how many letters wide a text is: those of East Asia and emoji count twice."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _shortened(text: str) -> str:
    """Return a label: a text without its end if it is long."""
    cut = text
    while _text_width(cut) > LABEL - (cut != text):
        cut = cut[:-1]
    return cut if cut == text else cut + "…"


def _label_width(names: Names) -> float:
    return 16 + LETTER * max((_text_width(_shortened(shown_name(name))) for name in names), default=0)


def _label(name: Any, place: str) -> str:
    shown = shown_name(name)
    short = _shortened(shown)
    full = "" if short == shown else f"<title>{escape(shown)}</title>"
    return f"<text {place}>{full}{escape(short)}</text>"


def _row_labels(grid: _Grid) -> str:
    right = _number(grid.left - 8)
    places = [f'class="end" x="{right}" y="{_number(_middle(i, grid))}"' for i in range(len(grid.rows))]
    return "".join(map(_label, grid.rows, places))


def _middle(i: int, grid: _Grid) -> float:
    """Return the base line of a text in the middle of row i."""
    return grid.top + grid.high * (i + 0.5) + 4


def _stripes(grid: _Grid, width: float) -> str:
    """Return a faint background for every second row."""
    lines = "".join(
        f"M{_number(grid.left)} {_number(grid.top + grid.high * (i + 0.5))}h{_number(width)}"
        for i in range(0, len(grid.rows), 2)
    )
    return f'<path class="stripe" stroke-width="{_number(grid.high)}" d="{lines}"/>' if lines else ""
