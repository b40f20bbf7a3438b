"""Why ranks undo the softmax: a teacher of cats and dogs is asked about birds."""

from __future__ import annotations

import numpy as np
from docs.figures.canvas import Canvas

# where a class lies on the only axis that the teacher looks at: cats far left, dogs far right, birds between
PLACES = {"cat": -3.0, "bird": -1.6, "dog": 3.0}
_COLOURS = {"cat": "blue", "bird": "orange", "dog": "dim"}
_ROWS = 40


def draw() -> str:
    """Return the SVG."""
    canvas = Canvas(
        760,
        330,
        "What a teacher of cats and dogs says about cats, birds and dogs. Its probability of cat is near one "
        "for cats and for birds alike. Ranked among all rows, cats come first and birds come after them.",
    )
    random = np.random.default_rng(0)
    x = {name: place + 0.55 * random.standard_normal(_ROWS) for name, place in PLACES.items()}
    every = np.sort(np.concatenate(list(x.values())))
    panels = (
        (90, "probability of cat", ("0", "1"), lambda v: 1 / (1 + np.exp(2 * v))),
        (470, "rank as a cat", ("last", "first"), lambda v: 1 - np.searchsorted(every, v) / len(every)),
    )
    for left, title, ends, score in panels:
        canvas.text(left, 40, title, size=22, bold=True)
        for i, (name, values) in enumerate(x.items()):
            y = 92 + 72 * i
            canvas.line([(left, y), (left + 250, y)], kind="rule", width=1)
            if left < 200:
                canvas.text(left - 20, y + 7, name, size=20, anchor="end")
            for value, lift in zip(score(values), random.uniform(-16, 16, _ROWS), strict=True):
                canvas.dot(left + 250 * value, y + lift, 4.5, kind=_COLOURS[name])
        canvas.text(left, 296, ends[0], size=19, kind="dim")
        canvas.text(left + 250, 296, ends[1], size=19, kind="dim", anchor="end")
    return canvas.svg()
