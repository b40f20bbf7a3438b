"""Figures: turn a result into figure data, and figure data into a drawing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience._optional import require
from consilience.exceptions import InvalidInputError

if TYPE_CHECKING:
    from consilience.transport.distance import ConvergenceCurves

FORMATS = (".png", ".svg", ".pdf")

# Okabe and Ito's colours are distinct for people with any kind of colour vision. The shapes differ too.
_STYLES = {
    "E": ("#E69F00", "o", "estimated soft labels (E)"),
    "BS": ("#0072B2", "D", "estimated and balanced (BS)"),
    "BP": ("#009E73", "s", "backprop through the loss (BP)"),
}
_INK, _FAINT = "#222222", "#8A8A8A"
_LINES = ("#8A8A8A", "#0072B2", "#E69F00")
_LEAST_ERROR = 1e-10
_TOP, _BOTTOM = 1.52, 0.78  # inches above and below the rows
_OFFSETS = {"E": -0.26, "BS": 0.0, "BP": 0.26}


@dataclass(frozen=True)
class Point:
    """One variant: the row of its method, its family and its accuracy."""

    row: int
    family: str
    accuracy: float


@dataclass(frozen=True)
class DemoFigure:
    """The data of the demonstration's figure: a row per method, a point per variant, two lines."""

    methods: tuple[str, ...]
    points: tuple[Point, ...]
    supervised: float
    best_site: float
    best_site_label: str
    title: str
    subtitle: str


def demo_figure(result: Mapping[str, Any]) -> DemoFigure:
    """Return the figure data of a demonstration.

    Parameters
    ----------
    result : mapping
        The result of `consilience.cli.demo.DemoResult.to_dict`.
    """
    methods = list(dict.fromkeys(variant["method"] for variant in result["variants"]))
    # worst first, so that the best is at the bottom
    score = {
        method: max(v["accuracy"] for v in result["variants"] if v["method"] == method) for method in methods
    }
    methods.sort(key=lambda method: score[method])
    points = tuple(
        Point(methods.index(variant["method"]), variant["family"], variant["accuracy"])
        for variant in result["variants"]
    )
    site = max(result["sites"], key=lambda site: site["accuracy"])
    n_classes = len(result["classes"])
    return DemoFigure(
        methods=tuple(method.upper() for method in methods),
        points=points,
        supervised=result["supervised"],
        best_site=site["accuracy"],
        best_site_label=f"best single site,\nwhich knows {len(site['classes'])} of {n_classes} digits",
        title="One classifier out of five that never share their data",
        subtitle=(
            f"Accuracy on {result['n_test']} test rows of all {n_classes} digits; five sites with different "
            f"models and classes,\nunified on {result['n_transfer']} unlabelled rows (seed {result['seed']})"
        ),
    )


def check_figure_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a figure, or raise if it cannot be drawn there. Call it before the long work."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise InvalidInputError(
            f"A figure's file must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {target.name!r}."
        )
    require("matplotlib", extra="report", purpose="Drawing a figure")
    return target


def draw_demo(data: DemoFigure, path: str | os.PathLike[str]) -> Path:
    """Draw the demonstration's figure into a file, atomically: a reader sees the old file or the new one.

    Parameters
    ----------
    data : DemoFigure
    path : path
        A file name that ends in ``.png``, ``.svg`` or ``.pdf``.
    """
    target = check_figure_path(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # not pyplot, which has global state and windows
    height = _TOP + 0.66 * len(data.methods) + _BOTTOM
    figure = Figure(figsize=(8.4, height), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.1, _BOTTOM / height, 0.86, 1 - (_TOP + _BOTTOM) / height))
    _draw_points(axes, data)
    _draw_lines(axes, data)
    figure.text(0.02, 1 - 0.16 / height, data.title, fontsize=15, weight="bold", color=_INK, va="top")
    figure.text(
        0.02, 1 - 0.5 / height, data.subtitle, fontsize=9.5, color="#555555", va="top", linespacing=1.35
    )
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=figure.transFigure,
        ncols=3,
        frameon=False,
        fontsize=9.5,
        handletextpad=0.3,
        columnspacing=1.6,
    )
    return _save(figure, target)


@dataclass(frozen=True)
class ConvergenceFigure:
    """The data of Fig. 3 of "Selective Cross-Task Distillation": named curves over iterations."""

    curves: Mapping[str, tuple[float, ...]]
    title: str
    subtitle: str


def convergence_figure(curves: ConvergenceCurves) -> ConvergenceFigure:
    """Return the figure data of the convergence of gradients.

    Parameters
    ----------
    curves : ConvergenceCurves
        The result of `consilience.transport.convergence_curves`.
    """
    # below this error, the limit itself is not exact
    named = {
        "bound of Prop. 4.3": curves.bound,
        "variation seminorm": curves.variation,
        "2-norm": curves.euclidean,
    }
    return ConvergenceFigure(
        {name: tuple(float(max(value, _LEAST_ERROR)) for value in values) for name, values in named.items()},
        "Gradients of the Sinkhorn distance converge at least as fast as Prop. 4.3 states",
        f"Error of the gradient after each plain iteration, mean of {curves.n_rows} pairs of predictions, "
        f"epsilon = {curves.epsilon:.3g}",
    )


def draw_convergence(data: ConvergenceFigure, path: str | os.PathLike[str]) -> Path:
    """Draw the convergence of gradients into a file.

    Parameters
    ----------
    data : ConvergenceFigure
    path : path
        A file name that ends in ``.png``, ``.svg`` or ``.pdf``.
    """
    target = check_figure_path(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.6), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.1, 0.13, 0.86, 0.67))
    for (name, values), colour, line in zip(data.curves.items(), _LINES, ("--", "-", ":"), strict=True):
        axes.semilogy(range(len(values)), values, line, color=colour, linewidth=2, label=name)
    figure.text(0.02, 0.965, data.title, fontsize=13, weight="bold", color=_INK, va="top")
    figure.text(0.02, 0.895, data.subtitle, fontsize=9.5, color="#555555", va="top")
    axes.set_xlabel("iterations", color=_INK)
    axes.grid(color="#DDDDDD", linewidth=0.7)
    axes.tick_params(length=0, labelcolor=_INK)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=9.5)
    return _save(figure, target)


def _save(figure: Any, target: Path) -> Path:
    """Write a figure atomically: a reader sees the old file or the new one."""
    temporary = target.with_name(f".{target.stem}.{os.getpid()}.tmp{target.suffix}")
    try:
        figure.savefig(temporary, dpi=200)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _draw_points(axes: Any, data: DemoFigure) -> None:
    for row in range(len(data.methods)):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color="#F5F5F3", zorder=0, linewidth=0)
    for family, (colour, marker, label) in _STYLES.items():
        chosen = [point for point in data.points if point.family == family]
        if not chosen:
            continue
        heights = [point.row + _OFFSETS[family] for point in chosen]
        values = [100 * point.accuracy for point in chosen]
        axes.hlines(heights, 100 * data.best_site, values, color=colour, alpha=0.35, linewidth=2, zorder=1)
        axes.scatter(
            values, heights, s=62, color=colour, marker=marker, edgecolor="white", label=label, zorder=3
        )
        for value, height in zip(values, heights, strict=True):
            axes.annotate(
                f"{value:.1f}",
                (value, height),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=_INK,
                zorder=4,
            )


def _draw_lines(axes: Any, data: DemoFigure) -> None:
    bottom = len(data.methods) - 0.5
    supervised, site = 100 * data.supervised, 100 * data.best_site
    axes.axvline(supervised, color=_INK, linestyle=(0, (4, 2)), linewidth=1.4, zorder=2)
    axes.axvline(site, color=_FAINT, linewidth=1.4, zorder=2)
    style = {"fontsize": 9, "va": "bottom", "linespacing": 1.2}
    axes.text(supervised, -0.58, f"supervised (SPV)\n{supervised:.1f}", ha="center", color=_INK, **style)
    axes.text(site, -0.58, f"{data.best_site_label}: {site:.1f}", ha="left", color="#555555", **style)
    low = min([site, *(100 * point.accuracy for point in data.points)])
    high = max([supervised, *(100 * point.accuracy for point in data.points)])
    axes.set_xlim(low - 1, min(high + 3.5, 101))
    axes.set_ylim(bottom, -0.5)
    axes.set_yticks(range(len(data.methods)), data.methods, fontsize=11.5, weight="bold", color=_INK)
    axes.tick_params(length=0, labelcolor=_INK)
    axes.xaxis.set_major_formatter("{x:.0f}%")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
