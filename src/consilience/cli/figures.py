"""The figure of the demonstration: a row per method, a point per variant, and two lines to compare with."""

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
    """Draw the result of `run_demo` into a file; a reader sees the old file or the new one."""
    from matplotlib.figure import Figure  # not pyplot, which has global state and windows

    best: dict[str, float] = {}
    for variant in view["variants"]:
        best[variant["method"]] = max(variant["accuracy"], best.get(variant["method"], 0.0))
    methods = sorted(best, key=lambda name: best[name])  # worst first, so that the best is at the bottom
    height = _TOP + 0.66 * len(methods) + _BOTTOM
    figure = Figure(figsize=(8.4, height), facecolor="white")
    axes = figure.add_axes((0.1, _BOTTOM / height, 0.86, 1 - (_TOP + _BOTTOM) / height))
    _draw(axes, view, methods)
    about = (
        f"Accuracy on {view['n_test']} rows of all {len(view['classes'])} digits; five sites with different "
        f"models and classes,\nunified on {view['n_transfer']} unlabelled rows (seed {view['seed']})"
    )
    title = "One classifier out of five that never share their data"
    figure.text(0.02, 1 - 0.16 / height, title, fontsize=15, weight="bold", color=_INK, va="top")
    figure.text(0.02, 1 - 0.5 / height, about, fontsize=9.5, color="#555555", va="top", linespacing=1.35)
    figure.legend(loc="lower center", ncols=3, frameon=False, fontsize=9.5, handletextpad=0.3)
    temporary = target.with_name(f".{target.stem}.{os.getpid()}.tmp{target.suffix}")
    try:
        figure.savefig(temporary, dpi=200)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _draw(axes: Any, view: Mapping[str, Any], methods: list[str]) -> None:
    site = max(view["sites"], key=lambda one: one["accuracy"])
    supervised, alone = 100 * view["supervised"], 100 * site["accuracy"]
    known = f"which knows {len(site['classes'])} of {len(view['classes'])} digits"
    style = {"fontsize": 9, "va": "bottom", "linespacing": 1.2}
    axes.axvline(supervised, color=_INK, linestyle=(0, (4, 2)), linewidth=1.4, zorder=2)
    axes.axvline(alone, color=_FAINT, linewidth=1.4, zorder=2)
    axes.text(supervised, -0.58, f"supervised (SPV)\n{supervised:.1f}", ha="center", color=_INK, **style)
    axes.text(alone, -0.58, f"best single site,\n{known}: {alone:.1f}", ha="left", color="#555555", **style)
    labels = {family: label for family, (_, _, label, _) in _STYLES.items()}
    for variant in view["variants"]:
        colour, marker, _, offset = _STYLES[variant["family"]]
        value, row = 100 * variant["accuracy"], methods.index(variant["method"]) + offset
        label = labels.pop(variant["family"], None)  # once in the legend
        axes.hlines(row, alone, value, color=colour, alpha=0.35, linewidth=2, zorder=1)
        axes.scatter(value, row, s=62, color=colour, marker=marker, edgecolor="white", label=label, zorder=3)
        axes.text(value + 0.8, row, f"{value:.1f}", va="center", fontsize=9, color=_INK, zorder=4)
    axes.set_xlim(min(alone, 100 * min(one["accuracy"] for one in view["variants"])) - 1, 101)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    names = [name.upper() for name in methods]
    axes.set_yticks(range(len(methods)), names, fontsize=11.5, weight="bold", color=_INK)
    axes.tick_params(length=0, labelcolor=_INK)
    axes.xaxis.set_major_formatter("{x:.0f}%")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7, zorder=0)
    axes.spines[:].set_visible(False)
