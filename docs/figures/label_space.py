"""Who knows which class: label spaces of one component and of two."""

from __future__ import annotations

from collections.abc import Sequence

from docs.figures.canvas import Canvas

from consilience import LabelSpace

CONNECTED = {"A": ["cat", "dog"], "B": ["dog", "horse", "fox"], "C": ["cat", "tram"]}
APART = {"A": ["cat", "dog"], "B": ["dog", "fox"], "C": ["bus", "tram"]}
_COLOURS = ("blue", "orange", "green")
_CELL = 58


def draw() -> str:
    """Return the SVG."""
    canvas = Canvas(
        760,
        400,
        "Two label spaces as matrices of teachers by classes. In the first, shared classes connect all "
        "teachers. In the second, teacher C shares no class with the others, so there are two components.",
    )
    _matrix(canvas, 20, CONNECTED, "One component")
    _matrix(canvas, 400, APART, "Two components")
    return canvas.svg()


def _matrix(canvas: Canvas, left: float, teachers: dict[str, list[str]], title: str) -> None:
    space = LabelSpace(list(teachers.values()), disconnected="ignore")
    components = [set(map(str, component)) for component in space.components()]
    canvas.text(left, 40, title, size=20, bold=True)
    top, start = 130, left + 46
    for j, name in enumerate(map(str, space.classes)):
        x = start + _CELL * j + _CELL / 2
        canvas.text(x, top - 16 - 24 * (j % 2), name, size=20, anchor="middle", kind="dim")
    column = 0
    for i, name in enumerate(teachers):
        y = top + _CELL * i
        canvas.text(left, y + 37, name, size=22, bold=True)
        known = list(map(str, space.classes[space.columns[space.block(i)]]))
        for j, word in enumerate(map(str, space.classes)):
            canvas.box(start + _CELL * j + 2, y + 2, _CELL - 4, _CELL - 4, kind="grey", round_by=5)
            if word in known:
                kind = _COLOURS[_component(components, word)]
                x = start + _CELL * j
                canvas.box(x + 2, y + 2, _CELL - 4, _CELL - 4, kind=kind, round_by=5)
                canvas.text(
                    x + _CELL / 2, y + 37, str(column + known.index(word)), kind="on", anchor="middle"
                )
        column += len(known)
    canvas.text(left, top + 3 * _CELL + 36, "Numbers: columns of the", size=19, kind="dim")
    canvas.text(left, top + 3 * _CELL + 60, f"packed array (n, {space.n_columns})", size=19, kind="dim")


def _component(components: Sequence[set[str]], word: str) -> int:
    return next(i for i, component in enumerate(components) if word in component)
