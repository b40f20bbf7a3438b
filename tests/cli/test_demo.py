"""The demonstration: run once, with some of the variants."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consilience import InvalidInputError, Unifier, as_teacher
from consilience._progress import silent
from consilience.cli import console
from consilience.cli.demo import (
    ALL,
    DEFAULT,
    DISJOINT,
    NAMES,
    ROWS_PER_CLASS,
    SITES,
    SOME,
    TEST_ROWS,
    DemoResult,
    _Data,
    _digits,
    _disjoint,
    _quiet_students,
    _sentences,
    _split,
    run_demo,
)
from consilience.labels import LabelSpace
from consilience.unify.soft_labels import METHOD_NAMES


@pytest.fixture(scope="module")
def reports() -> list[tuple[str, int, int]]:
    return []


@pytest.fixture(scope="module")
def result(reports: list[tuple[str, int, int]]) -> DemoResult:
    return run_demo(
        0,
        variants=["SD", "SD-BS", "MF-LF-BS", "MF-LF-BP", "AUTO"],
        student="mlp",
        progress=lambda *report: reports.append(report),
    )


def test_sites_overlap_and_are_connected() -> None:
    space = LabelSpace([digits for _, _, digits in SITES])
    assert space.classes.tolist() == list(range(10))
    assert len(space.components()) == 1
    assert all(4 <= len(digits) <= 6 for _, _, digits in SITES)
    assert (space.mask.sum(axis=1) >= 2).all()


def test_disjoint_sites_share_no_digit_and_know_all() -> None:
    space = LabelSpace([digits for _, _, digits in DISJOINT], disconnected="ignore")
    assert space.classes.tolist() == list(range(10))
    assert (space.mask.sum(axis=1) == 1).all()
    # they take the models of the first sites, in this order
    assert [kind for _, kind, _ in DISJOINT] == [kind for _, kind, _ in SITES[: len(DISJOINT)]]


def test_every_method_is_shown_and_the_default_is_that_of_the_unifier() -> None:
    assert {method for method, _ in ALL.values()} == set(METHOD_NAMES)
    assert DEFAULT in SOME
    assert ALL[DEFAULT] == (Unifier([]).method, "BS")


@pytest.mark.parametrize("seed", range(5))
def test_no_row_is_used_twice(seed: int) -> None:
    _, y = _digits()
    split = _split(y, seed)
    rows = np.concatenate([*split.sites, split.transfer, split.test])
    assert sorted(rows.tolist()) == list(range(len(y)))
    assert len(split.test) == TEST_ROWS
    for (_, _, digits), own in zip(SITES, split.sites, strict=True):
        names, counts = np.unique(y[own], return_counts=True)
        assert set(names) == {NAMES[digit] for digit in digits}
        assert (counts == ROWS_PER_CLASS).all()


def test_unified_beats_naive_and_every_site(result: DemoResult) -> None:
    accuracy = {variant.name: variant.accuracy for variant in result.variants}
    assert list(accuracy) == ["SD", "SD-BS", "MF-LF-BS", "AUTO"]
    assert max(site.accuracy for site in result.sites) < accuracy["SD"]
    assert accuracy["SD"] < min(accuracy["MF-LF-BS"], accuracy["AUTO"])
    assert max(accuracy["MF-LF-BS"], accuracy["AUTO"]) < result.supervised
    assert result.best.accuracy == max(accuracy.values())


def test_a_site_is_good_at_its_own_digits_only(result: DemoResult) -> None:
    for site in result.sites:
        assert site.own_accuracy > 0.85
        assert site.accuracy < len(site.classes) / 10 + 0.1


def test_sentences_say_what_the_figures_say(result: DemoResult) -> None:
    text = " ".join(result.sentences)
    accuracy = {variant.name: variant.accuracy for variant in result.variants}
    assert f"{result.n_transfer} unlabelled rows: {100 * accuracy['SD']:.1f}%" in text
    assert f"(AUTO), without any further labels: {100 * accuracy['AUTO']:.1f}%" in text
    tie_break, default = result.disjoint.variants
    assert f"MF-LF-BS, which cannot compare them: {100 * tie_break.accuracy:.1f}%" in text
    assert f"(AUTO), which compares them by ranks: {100 * default.accuracy:.1f}%" in text
    assert f"{100 * result.supervised:.1f}%" in text
    assert "need torch" in text


@pytest.mark.parametrize(
    ("unified", "says"),
    [
        (0.7, "AUTO closes 50% of the gap between SD and SPV."),
        (0.4, "AUTO does not close the gap between SD and SPV."),
    ],
)
def test_sentences_say_how_much_of_the_gap_is_closed(unified: float, says: str, result: DemoResult) -> None:
    variants = tuple(
        replace(variant, accuracy={"SD": 0.5, "AUTO": unified}[variant.name])
        for variant in result.variants
        if variant.name in ("SD", "AUTO")
    )
    sentences = list(_sentences(replace(result, variants=variants, supervised=0.9, n_test=400)))
    assert any(sentence.endswith(says) for sentence in sentences)
    best = max(unified, 0.5)
    margin = 196 * np.sqrt(best * (1 - best) / 400)
    assert any(f"{100 * best:.1f}% is uncertain by about ±{margin:.1f} points" in text for text in sentences)


def test_result_is_json(result: DemoResult) -> None:
    values = json.loads(json.dumps(result.to_dict()))
    assert values["best"] == result.best.name
    assert len(values["sites"]) == 5
    assert "best_model" not in values
    assert [site["rows"] for site in values["disjoint"]["sites"]] == [240, 280, 400]  # all 920 labelled rows
    assert [variant["name"] for variant in values["disjoint"]["variants"]] == ["MF-LF-BS", "AUTO"]
    assert {*values["disjoint"]["variants"][0]} == {*values["variants"][0]}


def test_disjoint_sites_are_shown(result: DemoResult, capsys: pytest.CaptureFixture[str]) -> None:
    console.show_demo(result.to_dict())
    shown = capsys.readouterr().out.partition("Three sites that share no digit, unified on")[2]
    for variant in result.disjoint.variants:
        assert f"{variant.name} " in shown
        assert f"{100 * variant.accuracy:.1f}%" in shown.partition("In plain words")[0]


@pytest.mark.parametrize("seed", [2, 4])
def test_the_default_compares_sites_that_share_no_digit(seed: int) -> None:
    X, y = _digits()
    with _quiet_students():  # any other warning is an error
        disjoint = _disjoint(_Data(X, y, _split(y, seed), seed), "mlp", silent)
    tie_break, default = disjoint.variants
    assert default.accuracy > tie_break.accuracy + 0.12  # 0.14 to 0.23 over seeds 0 to 4, torch and mlp


def test_progress_is_told(result: DemoResult, reports: list[tuple[str, int, int]]) -> None:
    assert ("sites", 5, 5) in reports
    assert ("methods", 5, 5) in reports
    assert reports[-1] == ("disjoint sites", 3, 3)


def test_the_model_of_the_best_variant_is_kept_and_can_be_saved(result: DemoResult, tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    assert result.best_model is not None
    X, y = _digits()
    test = _split(y, result.seed).test
    assert (result.best_model.predict(X[test]) == y[test]).mean() == result.best.accuracy
    teacher = as_teacher(result.best_model.save(tmp_path / "digits.onnx"))
    assert sorted(teacher.classes) == sorted(NAMES)


def test_torch_adds_backprop_and_leaves_the_threads() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("skorch")
    run = run_demo(1, variants=["MF-LF-E", "MF-LF-BS", "MF-LF-BP"], student="torch")
    assert [variant.name for variant in run.variants] == ["MF-LF-E", "MF-LF-BS", "MF-LF-BP"]
    assert min(variant.accuracy for variant in run.variants) > 0.75
    assert not any("need torch" in sentence for sentence in run.sentences)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        again = run_demo(1, variants=["MF-LF-E", "MF-LF-BS", "MF-LF-BP"], student="torch")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert [v.accuracy for v in again.variants] == [v.accuracy for v in run.variants]


def test_bad_arguments() -> None:
    with pytest.raises(InvalidInputError, match="variants='mfp' is unknown"):
        run_demo(variants=("mfp",))
    with pytest.raises(InvalidInputError, match="seed=-1"):
        run_demo(-1)
