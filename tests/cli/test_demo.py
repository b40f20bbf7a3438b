"""The demonstration: run once, with some of the variants, and its figure."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.running import done, view_of

from consilience import LabelSpace, Unifier
from consilience.cli import demo
from consilience.methods import METHODS

NAMES = ["SD", "AUTO", "MF-LF-BP", "MF-LF-BS", "SD-BS"]


@pytest.fixture(scope="module")
def result() -> tuple[dict[str, Any], Unifier, list[Any]]:
    """What a run finds, its best model, and its reports. A linear student and smaller forests are enough."""
    reports: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "models", lambda seed: [small(model) for model in MODELS(seed)])
        view, model = demo.run_demo(
            0, variants=NAMES, student="logistic", progress=lambda *report: reports.append(report)
        )
    return view, model, reports


MODELS = demo.models


def small(model: Any) -> Any:
    """Return a site's model that is trained quickly."""
    return model.set_params(n_estimators=30) if hasattr(model, "n_estimators") else model


def test_sites_overlap_and_are_connected_or_share_nothing() -> None:
    space = LabelSpace([digits for _, _, digits in demo.SITES])
    assert [group.tolist() for group in space.components()] == [list(range(10))]
    assert (space.mask.sum(axis=1) >= 2).all()
    apart = LabelSpace([digits for _, _, digits in demo.DISJOINT], disconnected="ignore")
    assert apart.classes.tolist() == list(range(10))
    assert (apart.mask.sum(axis=1) == 1).all()
    # they take the models of the first sites, in this order
    assert [kind for _, kind, _ in demo.DISJOINT] == [kind for _, kind, _ in demo.SITES[:3]]


def test_every_method_is_shown_and_the_default_is_that_of_the_unifier() -> None:
    assert {method for method, _ in demo.ALL.values()} == set(METHODS)
    assert demo.ALL[demo.DEFAULT] == (Unifier([]).method, "BS")
    assert set(demo.SOME) < set(demo.ALL)


def test_no_row_is_used_twice_and_the_seed_decides() -> None:
    rows, again, other = (demo.split_digits(seed) for seed in (0, 0, 1))
    assert sorted(np.concatenate([*rows.sites, rows.transfer, rows.test])) == list(range(len(rows.y)))
    assert len(set(rows.y[rows.transfer[:60]])) > 5  # a student does not see class by class
    for (_, _, digits), own in zip(demo.SITES, rows.sites, strict=True):
        names, counts = np.unique(rows.y[own], return_counts=True)
        assert set(names) == {demo.NAMES[digit] for digit in digits}
        assert (counts == demo.ROWS_PER_CLASS).all()
    assert np.array_equal(rows.test, again.test)
    assert not np.array_equal(rows.test, other.test)


def test_unified_beats_naive_and_every_site(result: Any) -> None:
    view, model, reports = result
    accuracy = {variant["name"]: variant["accuracy"] for variant in view["variants"]}
    assert list(accuracy) == ["SD", "AUTO", "MF-LF-BS", "SD-BS"]  # without torch, no backprop
    assert max(site["accuracy"] for site in view["sites"]) < accuracy["SD"] < accuracy["AUTO"]
    assert accuracy["AUTO"] < view["supervised"]
    assert accuracy[view["best"]] == max(accuracy.values())
    assert model.method == demo.ALL[view["best"]][0]
    rows = demo.split_digits(0)
    assert model.score(rows.X[rows.test], rows.y[rows.test]) == accuracy[view["best"]]
    for site in view["sites"]:
        assert site["own_accuracy"] > 0.85
        assert site["accuracy"] < len(site["classes"]) / 10 + 0.1
    tie_break, default = view["disjoint"]["variants"]
    assert tie_break["accuracy"] < default["accuracy"]
    ends = [report for report in reports if report[1] == report[2]]
    assert ends == [("sites", 5, 5), ("methods", 4, 4), ("sites", 3, 3), ("methods", 2, 2)]
    assert json.loads(json.dumps(view)) == view


def test_every_sentence_of_a_result() -> None:
    def site(name: str, n: int, rows: int, own: float, accuracy: float) -> dict[str, Any]:
        about = {"name": name, "model": f"model of {name}", "classes": list(range(n)), "rows": rows}
        return about | {"own_accuracy": own, "accuracy": accuracy}

    def variants(**accuracy: float) -> list[dict[str, Any]]:
        return [{"name": name.replace("_", "-"), "accuracy": value} for name, value in accuracy.items()]

    view = {
        "sites": [site("north", 3, 120, 0.953, 0.291), site("south", 5, 200, 0.912, 0.437)],
        "variants": variants(SD=0.8, AUTO=0.86, MF_LF_BS=0.89),
        "disjoint": {"sites": [], "variants": variants(MF_LF_BS=0.613, AUTO=0.784)},
        "supervised": 0.95, "student": "mlp", "n_transfer": 477, "n_test": 400, "best": "MF-LF-BS",
    }  # fmt: skip
    assert list(demo.sentences(view)) == [
        "2 sites trained on their own 320 labelled rows, and each knows 3 to 5 of 10 digits.",
        "The best single site, south (model of south), is right on 91.2% of its own 5 digits, "
        "and therefore on 43.7% of all.",
        "Naive distillation (SD) of all 2 into one network, on 477 unlabelled rows: 80.0%.",
        "Unified by the default (AUTO), without any further labels: 86.0%. "
        "Best on these test rows: MF-LF-BS, 89.0%.",
        "The same network, supervised on the pooled labelled rows of all sites (SPV), which the sites do not "
        "allow: 95.0%. AUTO closes 40% of the gap between SD and SPV.",
        "Three sites that share no digit, unified by MF-LF-BS, which cannot compare them: 61.3%. "
        "By the default (AUTO), which compares them by ranks: 78.4%.",
        "With 400 test rows, an accuracy of 89.0% is uncertain by about ±3.1 points; "
        "do not read much into smaller differences.",
        "The student is scikit-learn's network, and the backprop (BP) variants are left out: "
        "they need torch (pip install 'consilience[torch]').",
    ]
    closed = demo.sentences(view | {"variants": variants(SD=0.8, AUTO=0.7), "best": "SD"})
    assert closed[4].endswith("AUTO does not close the gap between SD and SPV.")


def test_the_command_prints_draws_and_saves(
    result: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("onnx")
    asked: dict[str, Any] = {}
    monkeypatch.setattr(demo, "run_demo", lambda *a, **given: (asked.update(given), result[:2])[1])
    shown = done("demo", "--all", "--plot", tmp_path / "d.svg", "--save", tmp_path / "m.onnx")
    assert asked["every"] is True
    text = " ".join(shown.stdout.split())
    best = result[0]["best"]
    for words in (
        "north logistic regression 200",
        "SPV supervised, all rows pooled",
        f"The model of {best} is in",
    ):
        assert words in text
    assert (tmp_path / "d.svg").read_bytes().startswith(b"<?xml")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".onnx", ".svg"]
    assert view_of("demo")["best"] == best
