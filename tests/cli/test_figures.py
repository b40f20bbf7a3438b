"""Figure data, and that they can be drawn."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import InvalidInputError
from consilience.cli.figures import (
    ConvergenceFigure,
    Point,
    check_figure_path,
    convergence_figure,
    demo_figure,
    draw_convergence,
    draw_demo,
)
from consilience.exceptions import MissingDependencyError
from consilience.transport.distance import convergence_curves


@pytest.fixture
def result() -> dict[str, Any]:
    variants = [("sd", "E", 0.8), ("sd", "BS", 0.85), ("mf-lf", "E", 0.9), ("mf-lf", "BP", 0.88)]
    variants += [("auto", "BS", 0.92)]
    return {
        "variants": [{"method": m, "family": f, "accuracy": a} for m, f, a in variants],
        "sites": [
            {"name": "a", "classes": ["x"], "accuracy": 0.3},
            {"name": "b", "classes": ["x", "y"], "accuracy": 0.5},
        ],
        "classes": ["x", "y", "z"],
        "supervised": 0.97,
        "n_test": 400,
        "n_transfer": 500,
        "seed": 3,
    }


def test_figure_data(result: dict[str, Any]) -> None:
    data = demo_figure(result)
    assert data.methods == ("SD", "MF-LF", "AUTO")
    assert data.points[0] == Point(0, "E", 0.8)
    assert data.points[3] == Point(1, "BP", 0.88)
    assert data.points[4] == Point(2, "BS", 0.92)
    assert data.best_site == 0.5
    assert "knows 2 of 3" in data.best_site_label
    assert data.supervised == 0.97
    assert "400 test rows of all 3 digits" in data.subtitle
    assert "500 unlabelled rows (seed 3)" in data.subtitle


def test_methods_are_sorted_by_their_best_variant(result: dict[str, Any]) -> None:
    result["variants"][1]["accuracy"] = 0.95
    data = demo_figure(result)
    assert data.methods == ("MF-LF", "AUTO", "SD")
    assert data.points[0].row == 2


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_drawing_writes_one_file(result: dict[str, Any], suffix: str, magic: bytes, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = draw_demo(demo_figure(result), tmp_path / f"demo{suffix}")
    assert path.read_bytes().startswith(magic)
    assert list(tmp_path.iterdir()) == [path]


def test_other_endings_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"\.png, \.svg or \.pdf, not 'demo\.gif'"):
        check_figure_path("demo.gif")


def test_an_ending_in_capitals_is_one_too() -> None:
    pytest.importorskip("matplotlib")
    assert check_figure_path("DEMO.PNG") == Path("DEMO.PNG")


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        MissingDependencyError, match=r"needs matplotlib: pip install 'consilience\[report\]'"
    ):
        check_figure_path("demo.png")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved. They are not rendered here."""
    figure = pytest.importorskip("matplotlib.figure")
    saved: list[Any] = []

    def save(self: Any, path: Path, **_: object) -> None:
        saved.append(self)
        Path(path).touch()

    monkeypatch.setattr(figure.Figure, "savefig", save)
    return saved


def test_points_and_lines_are_where_the_figures_say(
    result: dict[str, Any], drawn: list[Any], tmp_path: Path
) -> None:
    result["variants"][3]["accuracy"] = 0.45  # worse than the best site
    data = demo_figure(result)
    draw_demo(data, tmp_path / "demo.png")
    (figure,) = drawn
    (axes,) = figure.axes
    points = {c.get_label(): c.get_offsets() for c in axes.collections if "(" in str(c.get_label())}
    assert {label: [x for x, _ in offsets] for label, offsets in points.items()} == {
        "estimated soft labels (E)": pytest.approx([80, 90]),
        "estimated and balanced (BS)": pytest.approx([85, 92]),
        "backprop through the loss (BP)": pytest.approx([45]),
    }
    assert {label: [round(y) for _, y in offsets] for label, offsets in points.items()} == {
        "estimated soft labels (E)": [0, 1],
        "estimated and balanced (BS)": [0, 2],
        "backprop through the loss (BP)": [1],
    }
    heights = [y for offsets in points.values() for _, y in offsets]
    assert len({round(y, 3) for y in heights}) == 5  # variants of one method do not hide each other
    marks = {text.xy: text.get_text() for text in axes.texts if hasattr(text, "xy")}
    assert len(marks) == 5
    assert all(label == f"{x:.1f}" for (x, _), label in marks.items())
    assert [line.get_xdata()[0] for line in axes.lines] == pytest.approx([97, 50])
    words = [text.get_text() for text in axes.texts if not hasattr(text, "xy")]
    assert words == ["supervised (SPV)\n97.0", "best single site,\nwhich knows 2 of 3 digits: 50.0"]
    assert [text.get_text() for text in figure.texts] == [data.title, data.subtitle]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(points)


def test_the_axes_show_every_point_and_the_best_method_at_the_bottom(
    result: dict[str, Any], drawn: list[Any], tmp_path: Path
) -> None:
    result["variants"][3]["accuracy"] = 0.45
    draw_demo(demo_figure(result), tmp_path / "demo.png")
    result["variants"][3]["accuracy"] = 0.88
    result["supervised"] = 0.9  # less than the best variant
    draw_demo(demo_figure(result), tmp_path / "demo.png")
    first, second = (figure.axes[0] for figure in drawn)
    for axes, least, most in ((first, 45, 97), (second, 50, 92)):
        left, right = axes.get_xlim()
        assert left < least < most < right <= 101
        bottom, top = axes.get_ylim()
        assert (bottom, top) == (2.5, -0.5)
    assert [label.get_text() for label in first.get_yticklabels()] == ["SD", "MF-LF", "AUTO"]
    assert list(first.get_yticks()) == [0, 1, 2]
    assert first.xaxis.get_major_formatter()(80) == "80%"


def test_a_family_without_a_variant_is_not_in_the_legend(
    result: dict[str, Any], drawn: list[Any], tmp_path: Path
) -> None:
    result["variants"] = [variant for variant in result["variants"] if variant["family"] != "BP"]
    draw_demo(demo_figure(result), tmp_path / "demo.png")
    legend = [text.get_text() for text in drawn[0].axes[0].get_legend().get_texts()]
    assert legend == ["estimated soft labels (E)", "estimated and balanced (BS)"]


def test_a_drawing_that_fails_leaves_the_old_file(
    result: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figure = pytest.importorskip("matplotlib.figure")

    def fail(_: Any, path: Path, **__: object) -> None:
        Path(path).write_text("half")
        raise OSError("full")

    monkeypatch.setattr(figure.Figure, "savefig", fail)
    (tmp_path / "demo.png").write_text("old")
    with pytest.raises(OSError, match="full"):
        draw_demo(demo_figure(result), tmp_path / "demo.png")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"demo.png": "old"}


def test_who_reads_the_old_file_reads_it_to_the_end(
    result: dict[str, Any], drawn: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "demo.png"
    path.write_text("old")
    with path.open() as file:
        draw_demo(demo_figure(result), path)
        assert file.read() == "old"
    assert path.read_text() == ""
    assert len(drawn) == 1


def test_convergence_is_drawn_on_a_logarithmic_axis(drawn: list[Any], tmp_path: Path) -> None:
    curves = {"bound": (1.0, 0.5, 0.25), "variation": (0.9, 0.3, 0.1), "2-norm": (0.8, 0.2, 0.05)}
    draw_convergence(ConvergenceFigure(curves, "A title", "Below it"), tmp_path / "fig3.png")
    (axes,) = drawn[0].axes
    assert axes.get_yscale() == "log"
    assert {line.get_label(): tuple(line.get_ydata()) for line in axes.lines} == curves
    assert all(list(line.get_xdata()) == [0, 1, 2] for line in axes.lines)
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 3
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(curves)
    assert [text.get_text() for text in drawn[0].texts] == ["A title", "Below it"]
    assert axes.get_xlabel() == "iterations"


def test_fig_3_shows_the_curves_and_can_be_drawn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b, cost = rng.dirichlet(np.ones(6), 8), rng.dirichlet(np.ones(4), 8), rng.random((6, 4))
    curves = convergence_curves(a, b, cost, 0.3, n_iter=12)
    data = convergence_figure(curves)
    assert list(data.curves) == ["bound of Prop. 4.3", "variation seminorm", "2-norm"]
    assert data.curves["variation seminorm"][3] == pytest.approx(curves.variation[3])
    assert all(len(values) == 13 for values in data.curves.values())
    assert data.curves["2-norm"][3] == pytest.approx(curves.euclidean[3])
    assert data.curves["bound of Prop. 4.3"][3] == pytest.approx(curves.bound[3])
    exact = replace(curves, euclidean=0 * curves.euclidean)  # a logarithmic axis has no place for 0
    assert set(convergence_figure(exact).curves["2-norm"]) == {1e-10}
    assert "8 pairs" in data.subtitle
    assert data.subtitle.endswith("epsilon = 0.3")
    assert draw_convergence(data, tmp_path / "fig3.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["fig3.png"]
