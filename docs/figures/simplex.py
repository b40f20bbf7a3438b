"""Two losses on the simplex of three classes: where they are low, for one uncertain label."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from docs.figures.canvas import Canvas

from consilience import collision_cross_entropy
from consilience.collision.entropy import shannon_cross_entropy

LABEL = np.array([0.6, 0.3, 0.1])
_CORNERS = np.array([[0.0, 0.0], [300.0, 0.0], [150.0, -260.0]])
STEPS = np.array([0.04, 0.12, 0.26, 0.46, 0.72, 1.05, 1.5])  # nats above the lowest loss


def draw() -> str:
    """Return the SVG."""
    canvas = Canvas(
        760,
        430,
        "Contours of two losses over all predictions for three classes, with the label 0.6, 0.3, 0.1. "
        "Shannon's contours are closed curves around the label. The collision's are straight lines, "
        "and it is lowest in a corner.",
    )
    panels = (
        (40, "Shannon: copy the label", shannon_cross_entropy, LABEL),
        (420, "Collision: decide", collision_cross_entropy, np.array([1.0, 0.0, 0.0])),
    )
    for left, title, loss, best in panels:
        origin = np.array([left, 340.0])
        canvas.text(left, 40, title, size=22, bold=True)
        for curve in _contours(loss, best):
            canvas.line((curve @ _CORNERS + origin).tolist(), kind="blue-line", width=1.8)
        canvas.line((_CORNERS + origin).tolist(), closed=True)
        label, lowest = LABEL @ _CORNERS + origin, best @ _CORNERS + origin
        canvas.dot(*lowest, 8, kind="orange")
        if not np.array_equal(label, lowest):
            canvas.dot(*label, 6, kind="ink")
        for corner, word, (dx, dy) in zip(
            _CORNERS + origin, "ABC", ((-18, 8), (18, 8), (0, -12)), strict=True
        ):
            canvas.text(corner[0] + dx, corner[1] + dy, word, size=20, anchor="middle")
    canvas.dot(48, 384, 8, kind="orange")
    canvas.text(66, 391, "best prediction", size=20)
    canvas.dot(428, 384, 6, kind="ink")
    canvas.text(446, 391, "the label: 0.6, 0.3, 0.1", size=20)
    return canvas.svg()


def _contours(loss: Callable[..., np.ndarray], best: np.ndarray) -> list[np.ndarray]:
    """Return curves of equal loss. Along each ray from the best prediction the loss grows, so bisect."""
    angle = np.linspace(0, 2 * np.pi, 361)[:, None]
    rays = np.cos(angle) * [1, -0.5, -0.5] + np.sin(angle) * [0, 1, -1] * np.sqrt(0.75)
    shrinks = rays < -1e-12  # a ray ends where the first probability that shrinks is zero
    reach = np.where(shrinks, best / np.where(shrinks, -rays, 1.0), np.inf).min(axis=1)

    def values(length: np.ndarray) -> np.ndarray:
        points = np.clip(best + length[:, None] * rays, 1e-12, None)
        return loss(points / points.sum(axis=1, keepdims=True), np.tile(LABEL, (len(rays), 1)))

    edge, lowest = values(reach), float(loss([np.clip(best, 1e-12, None)], [LABEL])[0])
    curves: list[np.ndarray] = []
    for level in lowest + STEPS:
        low, high = np.zeros(len(rays)), reach.copy()
        for _ in range(40):
            middle = (low + high) / 2
            below = values(middle) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        curves += _runs(best + low[:, None] * rays, edge > level)
    return curves


def _runs(points: np.ndarray, inside: np.ndarray) -> list[np.ndarray]:
    """Return the parts of a curve that lie inside the triangle."""
    if inside.all():
        return [points]
    start = int(np.flatnonzero(~inside)[0])  # begin outside, so that no part is cut in two
    points, inside = np.roll(points[:-1], -start, axis=0), np.roll(inside[:-1], -start)
    borders = np.flatnonzero(np.diff(inside.astype(int), append=0))
    parts = zip(borders[::2] + 1, borders[1::2] + 1, strict=True)
    return [points[begin:end] for begin, end in parts if end - begin > 1]
