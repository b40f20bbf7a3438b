"""The figure of the demonstration: a row per method, a point per variant, and two lines to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consilience.files.disk import replacing

# Okabe and Ito's colours are distinct for people with any kind of colour vision. The shapes differ too.
_STYLES = {
    "E": ("#E69F00", "o", "estimated soft labels (E)", -0.26),
    "BS": ("#0072B2", "D", "estimated and balanced (BS)", 0.0),
    "BP": ("#009E73", "s", "backprop through the loss (BP)", 0.26),
}


def draw_demo(view: Mapping[str, Any], target: Path) -> None:
    """Draw the result of `run_demo` into a file; a reader sees the old file or the new one."""
    from matplotlib.figure import Figure  # not pyplot, which has global state and windows

    by_accuracy = sorted(view["variants"], key=lambda one: one["accuracy"], reverse=True)
    methods = list(dict.fromkeys(one["method"] for one in by_accuracy))[::-1]  # the best is at the bottom
    site = max(view["sites"], key=lambda one: one["accuracy"])
    supervised, alone = 100 * view["supervised"], 100 * site["accuracy"]
    figure = Figure(figsize=(8.4, 2.3 + 0.66 * len(methods)), layout="constrained")
    axes = figure.subplots()
    for family, (colour, marker, label, offset) in _STYLES.items():
        shown = [one for one in view["variants"] if one["family"] == family]
        values = [100 * one["accuracy"] for one in shown]
        rows = [methods.index(one["method"]) + offset for one in shown]
        if not shown:
            continue
        axes.hlines(rows, alone, values, color=colour, alpha=0.35, linewidth=2)
        axes.scatter(values, rows, s=62, c=colour, marker=marker, edgecolor="white", label=label, zorder=3)
        for value, row in zip(values, rows, strict=True):
            axes.text(value + 0.8, row, f"{value:.1f}", va="center", fontsize=9)
    axes.axvline(supervised, color="black", linestyle="--")
    axes.axvline(alone, color="grey")
    known = f"which knows {len(site['classes'])} of {len(view['classes'])} digits"
    axes.text(supervised, -0.58, f"supervised (SPV)\n{supervised:.1f}", ha="center", fontsize=9)
    axes.text(alone, -0.58, f"best single site,\n{known}: {alone:.1f}", fontsize=9)
    axes.set_xlim(min(alone, 100 * by_accuracy[-1]["accuracy"]) - 1, 101)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.set_yticks(range(len(methods)), [name.upper() for name in methods], fontsize=11.5, weight="bold")
    axes.tick_params(length=0)
    axes.xaxis.set_major_formatter("{x:.0f}%")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7)
    axes.spines[:].set_visible(False)
    about = (
        f"Accuracy on {view['n_test']} rows of all {len(view['classes'])} digits; five sites with different "
        f"models and classes,\nunified on {view['n_transfer']} unlabelled rows (seed {view['seed']})"
    )
    figure.suptitle("One classifier out of five that never share their data", fontsize=15, weight="bold")
    axes.set_title(about, fontsize=9.5, color="#555555", pad=38)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    with replacing(target) as file:
        figure.savefig(file, dpi=200, format=target.suffix.lower().removeprefix("."))
