"""Figure data, and that they can be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import InvalidInputError
from consilience.cli.figures import (
    Point,
    check_figure_path,
    convergence_figure,
    demo_figure,
    draw_convergence,
    draw_demo,
)
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
    assert "400 test rows" in data.subtitle
    assert "seed 3" in data.subtitle


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


def test_fig_3_shows_the_curves_and_can_be_drawn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b, cost = rng.dirichlet(np.ones(6), 8), rng.dirichlet(np.ones(4), 8), rng.random((6, 4))
    curves = convergence_curves(a, b, cost, 0.3, n_iter=12)
    data = convergence_figure(curves)
    assert list(data.curves) == ["bound of Prop. 4.3", "variation seminorm", "2-norm"]
    assert data.curves["variation seminorm"][3] == pytest.approx(curves.variation[3])
    assert all(len(values) == 13 for values in data.curves.values())
    assert min(data.curves["2-norm"]) >= 1e-10
    assert "8 pairs" in data.subtitle
    assert draw_convergence(data, tmp_path / "fig3.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["fig3.png"]
