"""Transport: plans between two label sets, and how fast Sinkhorn's iteration converges."""

from __future__ import annotations

import numpy as np
from docs.figures.canvas import Canvas

from consilience import sinkhorn
from consilience.transport import convergence_curves

SOURCE, TARGET = ("cat", "dog", "horse", "lorry"), ("tiger", "wolf", "van")
TEACHER, STUDENT = np.array([0.45, 0.3, 0.1, 0.15]), np.array([0.4, 0.35, 0.25])
COST = np.array([[0.2, 0.7, 1.2], [0.7, 0.2, 1.2], [0.8, 0.8, 1.1], [1.4, 1.4, 0.2]])
_COLOURS = ("blue", "orange", "green", "dim")
_HEIGHT = 250


def draw_plans() -> str:
    """Return the SVG of two plans: one follows the costs, the other hardly looks at them."""
    canvas = Canvas(
        760,
        380,
        "Two transport plans from the teacher's classes cat, dog, horse and lorry to the student's tiger, "
        "wolf and van. With a small epsilon nearly all of cat goes to tiger. With a large one every class "
        "goes everywhere.",
    )
    for left, epsilon in ((20, 0.05), (400, 2.0)):
        canvas.text(left, 40, f"epsilon = {epsilon:g}", size=22, bold=True)
        canvas.text(left, 358, "the teacher's", size=19, kind="dim")
        canvas.text(left + 340, 358, "the student's", size=19, kind="dim", anchor="end")
        _plan(canvas, left, 66, sinkhorn([TEACHER], [STUDENT], COST, epsilon).plan(0))
    return canvas.svg()


def _plan(canvas: Canvas, left: float, top: float, plan: np.ndarray) -> None:
    gap = 14
    scale = (_HEIGHT - gap * (len(SOURCE) - 1)) / plan.sum()
    start, end = left + 74, left + 262
    out = top + np.concatenate([[0.0], np.cumsum(plan.sum(axis=1) * scale + gap)])
    into = top + np.concatenate([[0.0], np.cumsum(plan.sum(axis=0) * scale + gap)]) + gap / 2
    for n, word in enumerate(TARGET):
        high = plan[:, n].sum() * scale
        canvas.box(end, into[n], 8, high, kind="grey", round_by=2)
        canvas.text(end + 16, into[n] + high / 2 + 7, word, size=20)
    filled = into.copy()
    for m, word in enumerate(SOURCE):
        y = out[m]
        canvas.text(
            start - 12, y + plan[m].sum() * scale / 2 + 7, word, size=20, anchor="end", kind=_COLOURS[m]
        )
        for n in range(len(TARGET)):
            high, middle = plan[m, n] * scale, (start + end) / 2
            z = filled[n]
            there = f"C{middle:.1f} {y:.1f} {middle:.1f} {z:.1f} {end:.1f} {z:.1f}"
            back = f"C{middle:.1f} {z + high:.1f} {middle:.1f} {y + high:.1f} {start:.1f} {y + high:.1f}"
            canvas.path(f"M{start:.1f} {y:.1f}{there}V{z + high:.1f}{back}Z", kind=_COLOURS[m], opacity=0.75)
            y, filled[n] = y + high, filled[n] + high


def draw_convergence() -> str:
    """Return the SVG of the gradient's error by iteration, for three values of epsilon."""
    canvas = Canvas(
        760,
        420,
        "The error of Sinkhorn's gradient falls by a constant factor in each iteration: a straight line on a "
        "logarithmic scale. It falls faster if epsilon is larger. The bound of the paper lies above.",
    )
    left, top, width, height, iterations, floor = 110, 30, 500, 310, 40, -8

    def place(i: float, error: float) -> tuple[float, float]:
        return left + width * i / iterations, top + height * (np.log10(error) - 1) / (floor - 1)

    for power in range(1, floor - 1, -3):
        y = place(0, 10.0**power)[1]
        canvas.line([(left, y), (left + width, y)], kind="rule", width=1)
        canvas.text(
            left - 12, y + 7, f"1e{power}" if power < 0 else f"{10**power}", size=19, anchor="end", kind="dim"
        )
    for i in range(0, iterations + 1, 10):
        canvas.text(place(i, 1)[0], top + height + 28, str(i), size=19, anchor="middle", kind="dim")
    canvas.text(left + width / 2, top + height + 62, "iterations", size=20, anchor="middle")
    canvas.text(left + 8, top + 4, "error of the gradient", size=20)
    for epsilon, colour in ((0.5, "green"), (0.2, "blue"), (0.1, "orange")):
        curves = convergence_curves([TEACHER], [STUDENT], COST, epsilon, n_iter=iterations)
        for values, dashes, thick in ((curves.variation, "", 3), (curves.bound, "4 6", 2)):
            shown = [place(i, v) for i, v in enumerate(values) if v > 10.0**floor]
            canvas.line(shown, kind=f"{colour}-line", width=thick, dashes=dashes)
            if not dashes:
                x, y = shown[-1]
                canvas.text(
                    min(x, left + width) + 8,
                    y + (0 if x < left + width else 7),
                    f"epsilon {epsilon:g}",
                    size=19,
                    kind=colour,
                )
    canvas.line([(left, top), (left, top + height), (left + width, top + height)])
    canvas.text(left + width + 8, top + 40, "dotted: the", size=18, kind="dim")
    canvas.text(left + width + 8, top + 62, "bound of", size=18, kind="dim")
    canvas.text(left + width + 8, top + 84, "Prop. 4.3", size=18, kind="dim")
    return canvas.svg()
