"""Draw curves as SVG, with the same bytes on every machine, in colours for light and for dark screens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720.0, 400.0
LEFT, TOP, RIGHT, BOTTOM = 64.0, 44.0, 190.0, 56.0
LINE_HEIGHT = 22.0
# of Okabe and Ito, which people with colour blindness tell apart; darker on white, lighter on black
LIGHT = ("#0072b2", "#b34d00", "#007a5a", "#a8467d", "#6b6b00", "#4a4a4a", "#7a3db8")
DARK = ("#56b4e9", "#f0a04b", "#2fc79a", "#e39ac4", "#e5d94a", "#c4c4c4", "#b99af0")
DASHES = ("", "7 4", "2 3", "10 3 2 3")


@dataclass(frozen=True)
class Curve:
    """A line of a figure: points (x, y, deviation of y)."""

    name: str
    points: Sequence[tuple[float, float, float]]


def draw(title: str, across: str, up: str, curves: Sequence[Curve], *, log: bool = False) -> str:
    """Return a figure of curves with error bars as SVG.

    Parameters
    ----------
    title, across, up : str
        Title of the figure and names of its axes.
    curves : sequence of Curve
        In the order of the legend.
    log : bool
        Whether the horizontal axis is logarithmic.
    """
    xs = sorted({x for curve in curves for x, _, _ in curve.points})
    low = min(y - spread for curve in curves for _, y, spread in curve.points)
    high = max(y + spread for curve in curves for _, y, spread in curve.points)
    ticks = nice_ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    scale = math.log10 if log else float
    first, last = scale(xs[0]), scale(xs[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        share = (scale(x) - first) / ((last - first) or 1.0)
        return LEFT + 14 + (wide - 28) * share, TOP + tall * (high - y) / ((high - low) or 1.0)

    parts = [f'<text class="title" x="{LEFT:g}" y="26">{escape(title)}</text>']
    for tick in ticks:
        y = at(xs[0], tick)[1]
        parts.append(f'<path class="rule" d="M{LEFT:g} {y:.1f}h{wide:g}"/>')
        parts.append(f'<text class="faint end" x="{LEFT - 8:g}" y="{y + 4:.1f}">{tick:g}</text>')
    for x in xs:
        place = at(x, low)[0]
        parts.append(f'<text class="faint middle" x="{place:.1f}" y="{HEIGHT - 34:g}">{x:,g}</text>')
    centre = LEFT + wide / 2
    parts.append(f'<text class="faint middle" x="{centre:g}" y="{HEIGHT - 12:g}">{escape(across)}</text>')
    turned = f"translate(16 {TOP + tall / 2:g}) rotate(-90)"
    parts.append(f'<text class="faint middle" transform="{turned}">{escape(up)}</text>')
    for number, curve in enumerate(curves):
        places = [at(x, y) for x, y, _ in curve.points]
        bars = [(at(x, y - spread), at(x, y + spread)) for x, y, spread in curve.points if spread]
        parts += _curve(number, places, bars)
        parts += _name(number, curve.name)
    words = f"{title}. {up} by {across}: " + "; ".join(_words(curve) for curve in curves)
    return _svg(words, parts)


def nice_ticks(low: float, high: float) -> list[float]:
    """Return four to eight round numbers from `low` or below to `high` or above.

    Examples
    --------
    >>> nice_ticks(52.3, 71.0)
    [50.0, 55.0, 60.0, 65.0, 70.0, 75.0]
    """
    if low == high:  # a flat curve still needs room
        low, high = low - 0.5, high + 0.5
    reach = high - low
    step = 10.0 ** math.floor(math.log10(reach))
    for factor in (0.2, 0.5, 1.0, 2.0):
        if reach / (step * factor) <= 6:
            step *= factor
            break
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * i, 10) for i in range(first, last + 1)]


def _curve(
    number: int,
    places: Sequence[tuple[float, float]],
    bars: Sequence[tuple[tuple[float, float], tuple[float, float]]],
) -> Iterator[str]:
    """Yield a line, its error bars and its marks."""
    style = f"c{number % len(LIGHT)}"
    dash = DASHES[number % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline class="line {style}" points="{points}"{dashed}/>'
    for (x, bottom), (_, top) in bars:
        yield f'<path class="bar {style}" d="M{x:.1f} {bottom:.1f}V{top:.1f}"/>'
    for x, y in places:
        yield _mark(number, x, y)


def _mark(number: int, x: float, y: float) -> str:
    """Return a mark whose shape tells curves apart where colours do not."""
    style = f"f{number % len(LIGHT)}"
    shape = number % 3
    if shape == 0:
        return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    if shape == 1:
        return f'<rect class="{style}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    return f'<path class="{style}" d="M{x:.1f} {y - 5:.1f}l5 9h-10z"/>'


def _name(number: int, name: str) -> Iterator[str]:
    """Yield a line of the legend."""
    left, y = WIDTH - RIGHT + 14, TOP + 10 + LINE_HEIGHT * number
    dash = DASHES[number % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    yield f'<path class="line c{number % len(LIGHT)}" d="M{left:g} {y:g}h26"{dashed}/>'
    yield _mark(number, left + 13, y)
    yield f'<text x="{left + 34:g}" y="{y + 4:g}">{escape(name)}</text>'


def _words(curve: Curve) -> str:
    (first, begin, _), (last, end, _) = curve.points[0], curve.points[-1]
    return f"{curve.name} from {begin:.3g} at {first:g} to {end:.3g} at {last:g}"


def _svg(words: str, parts: Sequence[str]) -> str:
    size = f'width="{WIDTH:g}" height="{HEIGHT:g}" viewBox="0 0 {WIDTH:g} {HEIGHT:g}"'
    label = escape(words, {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">\n'
        f"<style>{_style()}</style>\n"
        f'<rect class="back" width="{WIDTH:g}" height="{HEIGHT:g}" rx="6"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _style() -> str:
    light = {"back": "#ffffff", "ink": "#1c2530", "faint": "#4d5966", "rule": "#dde2e8"}
    dark = {"back": "#161b22", "ink": "#e4e8ee", "faint": "#a9b4c1", "rule": "#313a46"}
    shape = (
        "text{font:13px system-ui,sans-serif}.title{font-size:15px;font-weight:600}"
        ".middle{text-anchor:middle}.end{text-anchor:end}.line{fill:none;stroke-width:2}"
        ".bar{stroke-width:1;opacity:.55}.rule{stroke-width:1}"
    )
    return f"{shape}{_colours(light, LIGHT)}@media(prefers-color-scheme:dark){{{_colours(dark, DARK)}}}"


def _colours(plain: Mapping[str, str], palette: Sequence[str]) -> str:
    rules = f".back{{fill:{plain['back']}}}text{{fill:{plain['ink']}}}.faint{{fill:{plain['faint']}}}"
    rules += f".rule{{stroke:{plain['rule']}}}"
    return rules + "".join(f".c{i}{{stroke:{c}}}.f{i}{{fill:{c}}}" for i, c in enumerate(palette))
