"""Draw blocks of a page as SVG. Colours are classes of the page's style sheet, so they follow its scheme."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

Drawing = Callable[[Mapping[str, Any]], str]

WIDTH = 1040  # of a drawing that fills a wide window, in pixels
LETTER = 6.4  # width of a letter, on average
LABEL = 24  # letters of a label; the full name shows when you point at it
LEVELS = 10  # shades of a matrix
WRITTEN = 14  # columns of a matrix up to which its values are written into it
TILT, RISE, LEAN = 52, 0.8, 0.65  # labels of columns: their angle, and how much of them goes up and right
NAMED = 60  # columns up to which all of them are named


def draw(block: Mapping[str, Any]) -> str:
    """Return the SVG of a block."""
    return DRAWINGS[block["kind"]](block)


def draw_bar(share: float | None, most: float) -> str:
    """Return a small bar for the cell of a table; the share `most` fills it."""
    if share is None:
        return ""
    width = _number(48 * min(max(share / most, 0.0), 1.0))
    return f'<svg class="bar" width="48" height="8" aria-hidden="true"><path d="M0 4h{width}"/></svg>'


def draw_incidence(block: Mapping[str, Any]) -> str:
    """Draw who has what: a line for each run of columns, so that a large matrix stays small."""
    rows, columns, breaks = block["rows"], block["columns"], block["breaks"]
    left = _label_width(rows)
    wide = min(26.0, max(0.5, (WIDTH - left - 50) / max(1, len(columns))))
    high = 22 if len(rows) <= 20 else 14
    named = len(columns) <= NAMED and wide >= 12
    top = _label_width(columns) * RISE + 12 if named else 8.0
    right = max(50.0, LEAN * _label_width(columns)) if named else 50.0
    width, height = left + wide * len(columns) + right, top + high * len(rows) + 6
    runs = "".join(
        f"M{start} {i}h{length}" for i, row in enumerate(block["cells"]) for start, length in _runs(row)
    )
    scale = _in_cells(left, top, wide, high)
    parts = [
        _stripes(len(rows), left, top, wide * len(columns), high),
        f'<g {scale}><path class="ink run" d="{runs}"/></g>' if runs else "",
        "".join(
            f'<path class="break" d="M{_number(left + wide * at)} {_number(top)}v{high * len(rows)}"/>'
            for at in breaks
        ),
        _row_labels(rows, left - 8, top, high),
        _column_labels(columns, left, top - 6, wide) if named else "",
        "".join(
            _faint(left + wide * len(columns) + 6, _middle(i, top, high), str(len(row)), "")
            for i, row in enumerate(block["cells"])
        ),
    ]
    known = sum(map(len, block["cells"]))
    words = (
        f"{block['caption']}: {len(rows)} rows by {len(columns)} columns, {known} of the cells are filled."
    )
    return _svg(width, height, words, parts)


def draw_heat(block: Mapping[str, Any]) -> str:
    """Draw a matrix of shares: a path for each shade, and the values themselves if it is small."""
    rows, columns, values = block["rows"], block["columns"], block["values"]
    written = len(columns) <= WRITTEN
    left = _label_width(rows)
    wide = 46.0 if written else min(20.0, max(0.5, (WIDTH - left - 20) / len(columns)))
    high = 26.0 if written else max(wide, 12.0)
    named = len(columns) <= NAMED and wide >= 12
    top = _label_width(columns) * RISE + 12 if named else 8.0
    right = LEAN * _label_width(columns) if named else 12.0
    width, height = left + wide * len(columns) + right, top + high * len(rows) + 34
    scale = _in_cells(left, top, wide, high)
    parts = [f"<g {scale}>", *_shades(values), "</g>"]
    if written:
        parts += [
            f'<text class="t{_level(value)} cell" x="{_number(left + wide * (j + 0.5))}" '
            f'y="{_number(_middle(i, top, high))}">{100 * value:.0f}</text>'
            for i, row in enumerate(values)
            for j, value in enumerate(row)
            if value is not None
        ]
    parts += [
        _row_labels(rows, left - 8, top, high),
        _column_labels(columns, left, top - 6, wide) if named else "",
        _legend(left, top + high * len(rows) + 14),
    ]
    known = [value for row in values for value in row if value is not None]
    spread = f"from {min(known):.0%} to {max(known):.0%}" if known else "without values"
    words = f"{block['caption']}: {len(rows)} rows by {len(columns)} columns, {spread}."
    return _svg(max(width, left + 230), height, words, parts)


def draw_histogram(block: Mapping[str, Any]) -> str:
    """Draw how many rows are in each bin."""
    counts = block["counts"]
    most, total = max([1, *counts]), max(1, sum(counts))
    left, top, width, height = 56.0, 14.0, 400.0, 130.0
    wide = width / len(counts)
    bars = "".join(
        f"M{_number(left + wide * i + 1)} {_number(top + height)}"
        f"v{_number(-height * count / most)}h{_number(wide - 2)}v{_number(height * count / most)}z"
        for i, count in enumerate(counts)
        if count
    )
    parts = [
        *_horizontal_lines(left, top, width, height, [(0.0, "0"), (1.0, f"{most:,}")]),
        f'<path class="fill" d="{bars}"/>',
        *(
            _faint(left + width * share, top + height + 18, f"{share:.0%}")
            for share in (0.0, 0.25, 0.5, 0.75, 1.0)
        ),
    ]
    half = sum(counts[len(counts) // 2 :]) / total
    words = f"{block['caption']}: {sum(counts)} rows, {half:.0%} of them above one half."
    return _svg(left + width + 24, top + height + 28, words, parts)


def draw_dots(block: Mapping[str, Any]) -> str:
    """Draw values with their intervals, a row for each name. Series differ in colour and shape."""
    rows, form = block["rows"], block["form"]
    ends = [value for row in rows for point in row["points"] if point for value in point if value is not None]
    low, high = _reach(ends, form)
    several = len(block["series"]) > 1
    left, width, step = _label_width([row["name"] for row in rows]), 560.0, 26.0
    top = 30.0 if several else 6.0

    def place(value: float) -> float:
        return left + width * (value - low) / (high - low)

    bottom = top + step * len(rows)
    parts = [_stripes(len(rows), left, top, width, step)]
    for tick in _ticks(low, high):
        label = f"{100 * tick:g}%" if form == "percent" else f"{tick:.4g}"
        parts.append(f'<path class="rule" d="M{_number(place(tick))} {top}V{_number(bottom)}"/>')
        parts.append(_faint(place(tick), bottom + 16, label))
    for i, row in enumerate(rows):
        for k, point in enumerate(row["points"]):
            if point is not None:
                middle = _middle(i, top, step) - 4 + (5 * (2 * k - 1) if several else 0)
                parts.append(_dot(point, k, middle, place))
    parts.append(_row_labels([row["name"] for row in rows], left - 8, top, step))
    if several:
        parts.append(_series_names(block["series"], left))
    words = f"{block['caption']}: {len(rows)} rows, from {low:.3g} to {high:.3g}. The table has the values."
    return _svg(left + width + 34, bottom + 28, words, parts)


def draw_curve(block: Mapping[str, Any]) -> str:
    """Draw a number from step to step."""
    values = block["values"]
    low, high = min(values), max(values)
    reach = (high - low) or 1.0
    left, top, width, height = 74.0, 14.0, 400.0, 130.0
    across = width / max(1, len(values) - 1)
    points = " ".join(
        f"{_number(left + across * i)},{_number(top + height * (high - value) / reach)}"
        for i, value in enumerate(values)
    )
    last = top + height * (high - values[-1]) / reach
    parts = [
        *_horizontal_lines(left, top, width, height, [(0.0, f"{low:.4g}"), (1.0, f"{high:.4g}")]),
        f'<polyline class="ink line" points="{points}"/>',
        f'<circle class="fill" cx="{_number(left + width)}" cy="{_number(last)}" r="3"/>',
        _faint(left, top + height + 18, "0"),
        _faint(left + width, top + height + 18, str(len(values) - 1)),
        _faint(left + width / 2, top + height + 18, block["across"]),
    ]
    words = f"{block['caption']}: from {values[0]:.4g} to {values[-1]:.4g} over {len(values)} points."
    return _svg(left + width + 24, top + height + 28, words, parts)


DRAWINGS: dict[str, Drawing] = {
    "incidence": draw_incidence,
    "heat": draw_heat,
    "histogram": draw_histogram,
    "dots": draw_dots,
    "curve": draw_curve,
}


def _svg(width: float, height: float, words: str, parts: Sequence[str]) -> str:
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


def _in_cells(left: float, top: float, wide: float, high: float) -> str:
    """Return a transformation, so that whole numbers count the cells of a matrix."""
    place, size = f"{_number(left)} {_number(top + high / 2)}", f"{_number(wide)} {_number(high)}"
    return f'transform="translate({place}) scale({size})"'


def _faint(x: float, y: float, text: str, side: str = " cell") -> str:
    """Return a label of an axis, centred unless `side` is another class."""
    return f'<text class="faint{side}" x="{_number(x)}" y="{_number(y)}">{escape(text)}</text>'


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return runs of increasing numbers as (start, length).

    Examples
    --------
    >>> list(_runs([0, 1, 2, 5]))
    [(0, 3), (5, 1)]
    """
    start = previous = None
    for position in positions:
        if start is None or previous is None:
            start = position
        elif position != previous + 1:
            yield start, previous - start + 1
            start = position
        previous = position
    if start is not None and previous is not None:
        yield start, previous - start + 1


def _level(value: float) -> int:
    return min(LEVELS - 1, max(0, int(value * LEVELS)))


def _shades(values: Sequence[Sequence[float | None]]) -> Iterator[str]:
    """Return a path for each shade that occurs, in units of cells."""
    places: dict[int, list[list[int]]] = {}
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if value is not None:
                lines = places.setdefault(_level(value), [[] for _ in values])
                lines[i].append(j)
    for level, lines in sorted(places.items()):
        runs = "".join(
            f"M{start} {i}h{length}" for i, line in enumerate(lines) for start, length in _runs(line)
        )
        yield f'<path class="h{level} run" d="{runs}"/>'


def _legend(left: float, top: float) -> str:
    """Return the shades of a matrix, from 0 to 100 %."""
    boxes = "".join(
        f'<path class="h{level} key" d="M{_number(left + 34 + 14 * level)} {_number(top + 5)}h14"/>'
        for level in range(LEVELS)
    )
    x = left + 40 + 14 * LEVELS
    return f"{_faint(left, top + 9, '0%', '')}{boxes}{_faint(x, top + 9, '100%', '')}"


def _text_width(text: str) -> int:
    """Return how many letters wide a text is: those of East Asia and emoji count twice."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _shortened(text: str) -> str:
    """Return a label: a text without its end if it is long."""
    if _text_width(text) <= LABEL:
        return text
    while _text_width(text) > LABEL - 1:
        text = text[:-1]
    return text + "…"


def _label_width(names: Sequence[str]) -> float:
    return 16 + LETTER * max((_text_width(_shortened(name)) for name in names), default=0)


def _label(name: str, place: str) -> str:
    short = _shortened(name)
    full = "" if short == name else f"<title>{escape(name)}</title>"
    return f"<text {place}>{full}{escape(short)}</text>"


def _row_labels(names: Sequence[str], right: float, top: float, high: float) -> str:
    return "".join(
        _label(name, f'class="end" x="{_number(right)}" y="{_number(_middle(i, top, high))}"')
        for i, name in enumerate(names)
    )


def _column_labels(names: Sequence[str], left: float, bottom: float, wide: float) -> str:
    parts = []
    for j, name in enumerate(names):
        x, y = _number(left + wide * (j + 0.5) + 3), _number(bottom)
        parts.append(_label(name, f'x="{x}" y="{y}" transform="rotate(-{TILT} {x} {y})"'))
    return "".join(parts)


def _middle(i: int, top: float, high: float) -> float:
    """Return the base line of a text in the middle of row i."""
    return top + high * (i + 0.5) + 4


def _stripes(count: int, left: float, top: float, width: float, high: float) -> str:
    """Return a faint background for every second row."""
    lines = "".join(
        f"M{_number(left)} {_number(top + high * (i + 0.5))}h{_number(width)}" for i in range(0, count, 2)
    )
    return f'<path class="stripe" stroke-width="{_number(high)}" d="{lines}"/>' if lines else ""


def _horizontal_lines(
    left: float, top: float, width: float, height: float, marks: Sequence[tuple[float, str]]
) -> Iterator[str]:
    """Return lines with labels at shares of the height."""
    for share, label in marks:
        y = top + height * (1 - share)
        yield f'<path class="rule" d="M{_number(left)} {_number(y)}h{_number(width)}"/>'
        yield _faint(left - 8, y + 4, label, " end")


def _reach(ends: Sequence[float], form: str) -> tuple[float, float]:
    """Return the ends of an axis for these values."""
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = 0.04 * (high - low) or 0.05 * max(abs(low), 1.0)
    low, high = low - margin, high + margin
    if form == "percent":
        low, high = max(0.0, low), min(1.0, high)
    return low, high


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between two.

    Examples
    --------
    >>> _ticks(0.31, 0.97)
    [0.4, 0.6, 0.8]
    """
    step = 10.0 ** len(str(int(high - low)))
    while (high - low) / step < 3:
        for part in (0.5, 0.2, 0.1):
            if (high - low) / (step * part) >= 3 or part == 0.1:
                step *= part
                break
    first = int(low / step) - 1
    return [round(step * k, 12) for k in range(first, first + 40) if low <= step * k <= high]


def _dot(point: Sequence[float | None], series: int, middle: float, place: Callable[[float], float]) -> str:
    """Return a value and its interval."""
    value, low, high = point
    line = ""
    if low is not None and high is not None:
        ends = f"M{_number(place(low))} {_number(middle)}H{_number(place(high))}"
        line = f'<path class="s{series} whisker" d="{ends}"/>'
    if value is None:
        return line
    return line + _mark(series, place(value), middle)


def _mark(series: int, x: float, y: float) -> str:
    """Return a disc for the first series, a diamond for the second."""
    if series == 0:
        return f'<circle class="s0 mark" cx="{_number(x)}" cy="{_number(y)}" r="4.5"/>'
    return f'<path class="s1 mark" d="M{_number(x)} {_number(y - 5)}l5 5l-5 5l-5 -5z"/>'


def _series_names(names: Sequence[str], left: float) -> str:
    parts, x = [], left
    for k, name in enumerate(names):
        parts.append(f'{_mark(k, x + 6, 12)}<text x="{_number(x + 16)}" y="16">{escape(name)}</text>')
        x += 34 + LETTER * _text_width(name)
    return "".join(parts)
