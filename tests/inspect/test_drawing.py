"""Drawings: what is drawn is what the data say, names are escaped, and large matrices stay small."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from consilience.inspect.drawing import _ticks, bar, curve, dots, heat, histogram, incidence, shown_name

EVIL = "<script>alert(1)</script>"


def parsed(svg: str) -> ET.Element:
    """Return a drawing as a tree: it must be well formed."""
    return ET.fromstring(svg)  # noqa: S314  our own text


def texts(tree: ET.Element) -> list[str]:
    return ["".join(node.itertext()) for node in tree.iter("text")]


def paths(tree: ET.Element, kind: str) -> dict[str, str]:
    found = {node.get("class") or "": node.get("d") or "" for node in tree.iter("path")}
    return {name: path for name, path in found.items() if name.endswith(kind)}


def filled(path: str) -> set[tuple[int, int]]:
    """Return the cells (row, column) of a path such as ``M3 5h12``."""
    runs = re.findall(r"M(\d+) (\d+)h(\d+)", path)
    return {(int(row), int(start) + k) for start, row, length in runs for k in range(int(length))}


def test_the_runs_of_an_incidence_fill_its_cells_and_no_others() -> None:
    mask = np.random.default_rng(0).random((7, 30)) < 0.6
    cells = [np.flatnonzero(row).tolist() for row in mask]
    tree = parsed(incidence("who", [f"t{i}" for i in range(7)], list(range(30)), cells))
    expected = set(zip(*(axis.tolist() for axis in np.nonzero(mask)), strict=True))
    assert filled(paths(tree, "ink run")["ink run"]) == expected
    assert [str(len(row)) for row in cells] == texts(tree)[-7:]


def test_the_shades_of_a_matrix_follow_its_values() -> None:
    values = [[None, 0.0, 0.349], [0.35, 1.0, 0.99]]
    tree = parsed(heat("agreement", ["a", "b"], ["x", "y", "z"], values))
    shades = {int(name[1]): filled(path) for name, path in paths(tree, "run").items()}
    assert shades == {0: {(0, 1)}, 3: {(0, 2), (1, 0)}, 9: {(1, 1), (1, 2)}}
    assert {"0", "35", "100", "99"} <= set(texts(tree))


def test_bars_of_a_histogram_are_as_high_as_their_counts() -> None:
    tree = parsed(histogram("sure", [0, 5, 10]))
    heights = re.findall(r"v(-[\d.]+)h", paths(tree, "fill")["fill"])
    assert [-float(found) for found in heights] == [65.0, 130.0]
    assert "10" in texts(tree)


def test_dots_lie_in_the_order_of_their_values() -> None:
    rows: Any = [("a", [[0.9, 0.8, 0.95], [0.5, 0.4, 0.6]]), ("b", [None, [0.7, None, None]])]
    tree = parsed(dots("accuracy", ["model", "other"], rows))
    whiskers = paths(tree, "whisker")
    assert len(whiskers) == 2  # a value without an interval has none
    low, high = re.findall(r"M([\d.]+) .*H([\d.]+)", whiskers["s0 whisker"])[0]
    assert float(low) < float(next(tree.iter("circle")).get("cx") or 0) < float(high)
    assert {"a", "b", "model", "other"} <= set(texts(tree))


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.7, -0.55), (0.97, 0.98), (3.0, 4000.0)])
def test_an_axis_has_a_few_round_numbers_within_its_reach(low: float, high: float) -> None:
    ticks = _ticks(low, high)
    assert 2 <= len(ticks) <= 12
    assert all(low <= tick <= high for tick in ticks)


def test_a_curve_that_never_changes_and_dots_of_one_value_can_be_drawn() -> None:
    parsed(curve("objective", [1.5, 1.5], "rounds"))
    parsed(dots("score", ["score"], [("a", [[0.0, None, None]])], form="number"))
    parsed(dots("score", ["score"], [("a", [[1.0, 1.0, 1.0]])]))


def test_names_are_escaped_and_shortened_with_the_whole_name_at_hand() -> None:
    long = "a name that is too long for a label of a drawing"
    tree = parsed(incidence(EVIL, [EVIL, long], [EVIL, "b"], [[0], [1]]))
    assert not list(tree.iter("script"))
    assert {long, EVIL} <= {node.text for node in tree.iter("title")}
    assert tree.get("role") == "img"
    assert EVIL in (tree.get("aria-label") or "")


def test_a_matrix_of_50_by_300_takes_little_room() -> None:
    random = np.random.default_rng(0)
    cells = [np.flatnonzero(row).tolist() for row in random.random((50, 300)) < 0.2]
    names = [f"teacher {i}" for i in range(50)]
    assert len(incidence("who", names, list(range(300)), cells)) < 40_000
    assert len(heat("agreement", names, names, random.random((50, 50)).tolist())) < 60_000


def test_a_bar_never_leaves_its_box() -> None:
    widths = [re.findall(r"h([\d.]+)", bar(share, 0.5))[-1] for share in (-1.0, 0.25, 9.0)]
    assert widths == ["0", "24", "48"]
    assert bar(None, 1.0) == ""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cat\x1b[2J\n", "cat\\x1b[2J\\n"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800", "\\ud800"),
        ("", "''"),
        ("🐈\u200d⬛", "🐈\u200d⬛"),
        ("x\u200cy", "x\u200cy"),
        (3.5, "3.5"),
    ],
)
def test_names_show_what_is_in_them(name: Any, shown: str) -> None:
    assert shown_name(name) == shown
    parsed(heat("h", [name], [name], [[1.0]]))
