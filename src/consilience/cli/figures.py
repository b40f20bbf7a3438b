"""The figure of the demonstration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Okabe and Ito's colours are distinct for people with any kind of colour vision. The shapes differ too.
_STYLES = {
    "E": ("#E69F00", "o", "estimated soft labels (E)", -0.26),
    "BS": ("#0072B2", "D", "estimated and balanced (BS)", 0.0),
    "BP": ("#009E73", "s", "backprop through the loss (BP)", 0.26),
}
_INK, _FAINT = "#222222", "#8A8A8A"
_TOP, _BOTTOM = 1.52, 0.78  # inches above and below the rows


def draw_demo(view: Mapping[str, Any], target: Path) -> None:
    """Draw the result of `run_demo` into a file, atomically: a row per method, and a point per variant."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    variants, names = view["variants"], [variant["method"] for variant in view["variants"]]
    best = {name: max(v["accuracy"] for v in variants if v["method"] == name) for name in names}
    methods = sorted(best, key=lambda name: best[name])  # worst first, so that the best is at the bottom
    site = max(view["sites"], key=lambda one: one["accuracy"])
    # not pyplot, which has global state and windows
    height = _TOP + 0.66 * len(methods) + _BOTTOM
    figure = Figure(figsize=(8.4, height), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.1, _BOTTOM / height, 0.86, 1 - (_TOP + _BOTTOM) / height))
    for row in range(0, len(methods), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#F5F5F3", zorder=0, linewidth=0)
    for family in _STYLES:
        chosen = [v for v in variants if v["family"] == family]
        _draw_points(axes, family, [(100 * v["accuracy"], methods.index(v["method"])) for v in chosen], site)
    _draw_lines(axes, view, site, methods)
    about = (
        f"Accuracy on {view['n_test']} rows of all {len(view['classes'])} digits; five sites with "
        f"different models and classes,\nunified on {view['n_transfer']} rows (seed {view['seed']})"
    )
    title = "One classifier out of five that never share their data"
    figure.text(0.02, 1 - 0.16 / height, title, fontsize=15, weight="bold", color=_INK, va="top")
    figure.text(0.02, 1 - 0.5 / height, about, fontsize=9.5, color="#555555", va="top", linespacing=1.35)
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": figure.transFigure}
    axes.legend(**place, ncols=3, frameon=False, fontsize=9.5, handletextpad=0.3, columnspacing=1.6)
    temporary = target.with_name(f".{target.stem}.{os.getpid()}.tmp{target.suffix}")
    try:
        figure.savefig(temporary, dpi=200)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _draw_points(axes: Any, family: str, points: list[tuple[float, int]], site: Mapping[str, Any]) -> None:
    colour, marker, label, offset = _STYLES[family]
    if not points:
        return
    values, heights = [value for value, _ in points], [row + offset for _, row in points]
    axes.hlines(heights, 100 * site["accuracy"], values, color=colour, alpha=0.35, linewidth=2, zorder=1)
    axes.scatter(values, heights, s=62, color=colour, marker=marker, edgecolor="white", label=label, zorder=3)
    style = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 9, "color": _INK}
    for value, height in zip(values, heights, strict=True):
        axes.annotate(f"{value:.1f}", (value, height), **style, zorder=4)


def _draw_lines(axes: Any, view: Mapping[str, Any], site: Mapping[str, Any], methods: list[str]) -> None:
    supervised, alone = 100 * view["supervised"], 100 * site["accuracy"]
    axes.axvline(supervised, color=_INK, linestyle=(0, (4, 2)), linewidth=1.4, zorder=2)
    axes.axvline(alone, color=_FAINT, linewidth=1.4, zorder=2)
    style = {"fontsize": 9, "va": "bottom", "linespacing": 1.2}
    known = f"which knows {len(site['classes'])} of {len(view['classes'])} digits"
    axes.text(supervised, -0.58, f"supervised (SPV)\n{supervised:.1f}", ha="center", color=_INK, **style)
    axes.text(alone, -0.58, f"best single site,\n{known}: {alone:.1f}", ha="left", color="#555555", **style)
    values = [100 * variant["accuracy"] for variant in view["variants"]]
    axes.set_xlim(min(alone, *values) - 1, min(max(supervised, *values) + 3.5, 101))
    axes.set_ylim(len(methods) - 0.5, -0.5)
    names = [name.upper() for name in methods]
    axes.set_yticks(range(len(methods)), names, fontsize=11.5, weight="bold", color=_INK)
    axes.tick_params(length=0, labelcolor=_INK)
    axes.xaxis.set_major_formatter("{x:.0f}%")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7, zorder=0)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
