"""`Unifier.report`: what is on the page is what the library computes, and rows never leave."""

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jinja2")

from consilience import InvalidInputError, LabelSpace, Unifier, as_teacher, suggest_aliases
from consilience.exceptions import NotFittedError
from consilience.inspect.report import model_page
from consilience.methods import Auto
from consilience.run import Run
from consilience.soft_labels.agreement import teacher_agreement
from consilience.students import Network
from consilience.teachers import Function

NAMES = ["ant", "bee", "cat", "dog", "elk", "fox"]
SETS = {"north": [0, 1, 2, 3], "east": [2, 3, 4], "south": [0, 3, 4, 5]}


class Counted:
    """A teacher that counts how many rows it is asked about."""

    def __init__(self, name: str, own: list[int], W: Any) -> None:
        self.name, self.classes, self.W, self.asked = name, [NAMES[k] for k in own], W[:, own], 0

    def predict_logits(self, X: Any) -> Any:
        self.asked += len(X)
        return 3 * np.asarray(X) @ self.W


@pytest.fixture(scope="module")
def case() -> dict[str, Any]:
    """A unified model of three teachers, and labelled rows; the values of rows are easy to find in a text."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(4, 6))
    X = rng.normal(size=(400, 4)).round(6)
    y = np.array(NAMES)[(X @ W).argmax(axis=1)]
    teachers = [Counted(name, own, W + 0.2 * rng.normal(size=W.shape)) for name, own in SETS.items()]
    method = Auto(teacher_temperatures="agreement")
    unified = Unifier(teachers, "logistic", method, random_state=0).fit(X[:200])
    return {"unified": unified, "teachers": teachers, "X": X[200:], "y": y[200:], "fitted": X[:200]}


@pytest.fixture(scope="module")
def page(case: Any) -> Any:
    return model_page(case["unified"], case["X"], case["y"], labels_only=False)


def blocks_of(page: Any, kind: str) -> dict[str, Any]:
    return {
        block["caption"]: block
        for section in page["sections"]
        for block in section["blocks"]
        if block["kind"] == kind
    }


def records(block: Any) -> list[dict[str, Any]]:
    heads = [head["title"] for head in block["columns"]]
    return [dict(zip(heads, row, strict=True)) for row in block["rows"]]


def drawn_agreement(page: Any) -> Any:
    (matrix,) = blocks_of(page, "heat").values()
    return np.array(matrix["values"], dtype=float)  # None is NaN


def test_the_page_is_plain_data_with_all_sections(page: Any) -> None:
    json.dumps(page, allow_nan=False)
    assert [section["title"] for section in page["sections"]] == [
        "Who knows what?",
        "Do teachers agree?",
        "Soft labels",
        "How good is it?",
        "Which classes are hard?",
        "Which rows are hard?",
        "Do the names fit?",
        "Settings and versions",
    ]
    figures = {figure["name"]: figure["value"] for figure in page["figures"]}
    assert (figures["teachers"], figures["classes"]) == ("3", "6")
    assert figures["unlabelled rows"] == "200"


def test_who_knows_what_is_the_label_space(page: Any, case: Any) -> None:
    (matrix,) = blocks_of(page, "incidence").values()
    known = {
        name: {matrix["columns"][j] for j in row}
        for name, row in zip(matrix["rows"], matrix["cells"], strict=True)
    }
    assert known == {name: {NAMES[k] for k in own} for name, own in SETS.items()}
    rows = records(blocks_of(page, "table")["Teachers"])
    assert [row["classes"] for row in rows] == [4, 3, 4]
    assert [row["only it knows"] for row in rows] == [1, 0, 1]
    assert [row["temperature"] for row in rows] == case["unified"].temperatures_.tolist()
    assert [row["answers"] for row in rows] == [1.0, 1.0, 1.0]


def test_agreement_is_that_of_a_plain_loop() -> None:
    space = LabelSpace([["a", "b", "c"], ["b", "c", "d"], ["d", "e"]])
    logits = np.random.default_rng(1).normal(size=(60, 8))
    logits[:9, 3:6] = np.nan
    found = teacher_agreement(logits, space)
    said = [("abc"[row[:3].argmax()], "bcd"[row[3:6].argmax()]) for row in logits[9:]]
    same = [one == other for one, other in said if one in "bcd" and other in "abc"]
    assert found.n_rows[0, 1] == found.n_rows[1, 0] == len(same) > 0
    assert found.share[0, 1] == found.share[1, 0] == pytest.approx(np.mean(same))
    assert np.isnan(found.share[1, 2])  # one shared class leaves no choice
    assert np.isnan(found.share[0, 2])
    assert found.n_shared[1, 2] == 1


def test_agreement_on_the_page_is_about_the_rows_given(page: Any, case: Any) -> None:
    unified = case["unified"]
    found = teacher_agreement(unified.score_teachers(case["X"]), unified.label_space_)
    np.testing.assert_allclose(drawn_agreement(page), found.share, atol=1e-4)
    first = records(blocks_of(page, "table")["Pairs that agree least"])[0]
    assert first["agree"] == np.nanmin(found.share)
    assert first["rows"] in found.n_rows


def test_balance_is_that_of_the_soft_labels(page: Any, case: Any) -> None:
    unified = case["unified"]
    rows = records(blocks_of(page, "table")["Balance of classes"])
    shares = dict(zip(unified.classes_.tolist(), unified.soft_labels_.mean(axis=0), strict=True))
    assert {row["class"]: pytest.approx(row["share"]) for row in rows} == shares
    assert [row["share"] for row in rows] == sorted(shares.values())
    assert [row["after balancing"] for row in rows] == pytest.approx([1 / 6] * 6)
    counts = blocks_of(page, "histogram")["Soft labels: probability of the likeliest class"]["counts"]
    assert counts == np.histogram(unified.soft_labels_.max(axis=1), 20, (0, 1))[0].tolist()


def test_the_evaluation_is_that_of_evaluate(page: Any, case: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        view = case["unified"].evaluate(case["X"], case["y"], labels_only=False).to_dict()
    rows = records(blocks_of(page, "table")["All figures"])
    assert [(row["beside"], row["accuracy"]) for row in rows] == [
        (row["name"], row["other"]["accuracy"]) for row in view["compared"]
    ]
    (drawn,) = blocks_of(page, "dots").values()
    assert drawn["rows"][0][1][0] == [view["accuracy"], *view["interval"]]
    classes = records(blocks_of(page, "table")["Classes"])
    assert {row["class"]: row["recall"] for row in classes} == {
        row["name"]: row["recall"] for row in view["by_class"]
    }


def test_hard_rows_are_named_by_their_position(page: Any, case: Any) -> None:
    unified, X, y = case["unified"], case["X"], case["y"]
    tables, proba = blocks_of(page, "table"), unified.predict_proba(X)
    worst = unified.disagreements(X).rows
    assert [row["row"] for row in records(tables["Contradictions, worst first"])] == [
        row.row for row in worst[:30]
    ]
    unsure = records(tables["Rows that the model is least sure of"])
    assert [row["row"] for row in unsure] == np.argsort(proba.max(axis=1), kind="stable")[:30].tolist()
    wrong = records(tables["Wrong, and sure of it"])
    assert wrong
    for row in wrong:
        assert row["label"] == y[row["row"]] != row["the model says"] == unified.predict(X)[row["row"]]
    sure = [row["how sure"] for row in wrong]
    assert sure == sorted(sure, reverse=True)


def test_teachers_are_asked_once_and_rows_never_leave(case: Any, tmp_path: Path) -> None:
    before = [teacher.asked for teacher in case["teachers"]]
    path = case["unified"].report(tmp_path / "r.html", case["X"], case["y"])
    assert [teacher.asked - old for teacher, old in zip(case["teachers"], before, strict=True)] == [200] * 3
    text = path.read_text(encoding="utf8")
    values = {f"{abs(value):.4f}" for value in [*case["X"].ravel(), *case["fitted"].ravel()]}
    assert len([value for value in values if value in text]) < 5  # figures of the page that look like one


def test_without_rows_the_page_is_about_what_fit_kept(case: Any) -> None:
    unified = case["unified"]
    before = [teacher.asked for teacher in case["teachers"]]
    page = model_page(unified)
    assert [teacher.asked for teacher in case["teachers"]] == before
    found = teacher_agreement(unified.score_teachers(case["fitted"]), unified.label_space_)
    np.testing.assert_allclose(drawn_agreement(page), found.share, atol=1e-4)
    tables = blocks_of(page, "table")
    unsure = records(tables["Rows whose soft labels are least sure"])[0]
    assert unsure["row"] == unified.soft_labels_.max(axis=1).argmin()
    kinds = {row["another"] for row in records(tables["Contradictions, worst first"])}
    assert "the model" not in kinds
    assert "How good is it?" not in {section["title"] for section in page["sections"]}


def test_teachers_with_stored_outputs_leave_the_page_to_what_fit_kept(case: Any) -> None:
    X, space = case["fitted"], case["unified"].label_space_
    logits = case["unified"].score_teachers(X)
    stored = [
        as_teacher(logits[:, space.block(i)], space.class_lists[i].tolist(), name, output="logits")
        for i, name in enumerate(space.names)
    ]
    unified = Unifier(stored, "logistic", random_state=0).fit(X)
    page = model_page(unified, case["X"][:50], case["y"][:50], labels_only=False)
    assert "its outputs are stored" in page["sections"][0]["blocks"][0]["lines"][0]
    assert blocks_of(page, "heat")
    assert records(blocks_of(page, "table")["Wrong, and sure of it"])


def test_suggested_aliases_are_those_of_suggest_aliases() -> None:
    rng = np.random.default_rng(0)
    W, X = rng.normal(size=(6, 5)), rng.normal(size=(600, 6))
    one, other = ["ant", "bee", "cat", "dog", "elk"], ["ant", "bee", "chat", "chien", "elk"]
    noisy = [W + 0.05 * rng.normal(size=W.shape) for _ in range(2)]
    teachers = [
        as_teacher(lambda A, V=V: 3 * A @ V, names, name, output="logits")
        for V, name, names in zip(noisy, ("english", "french"), (one, other), strict=True)
    ]
    found = suggest_aliases(teachers, X).same_class
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unified = Unifier(teachers, "logistic", random_state=0).fit(X)
    page = model_page(unified, X)
    shown = records(blocks_of(page, "table")["Names that are likely one class"])
    names = [(row["alias"], row["is likely"]) for row in shown]
    assert names == [(pair.alias, pair.name) for pair in found] != []


def test_groups_without_a_shared_class_are_told_first() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    teachers = [
        as_teacher(lambda A, k=k: A[:, 2 * k : 2 * k + 2], names, output="logits")
        for k, names in enumerate((["a", "b"], ["c", "d"]))
    ]
    unified = Unifier(teachers, "logistic", disconnected="ignore", random_state=0).fit(X)
    page = model_page(unified)
    assert page["sections"][0]["title"] == "Before you read on"
    assert "2 groups" in page["sections"][0]["blocks"][0]["lines"][0]
    (matrix,) = blocks_of(page, "incidence").values()
    assert matrix["breaks"] == [2]
    assert [row["classes"] for row in records(blocks_of(page, "table")["Components"])] == [2, 2]


def test_settings_name_no_place_on_a_disk(case: Any, tmp_path: Path) -> None:
    teachers = [Function(lambda A: A[:, :2], ["a", "b"], output="logits", fingerprint="one")]
    run = Run(cache=tmp_path / "secret")
    text = json.dumps(model_page(Unifier(teachers, "logistic", random_state=7, run=run).fit(case["fitted"])))
    assert "secret" not in text
    assert '["random_state", "7"]' in text


def test_mistakes_are_told_before_teachers_are_asked(case: Any, tmp_path: Path) -> None:
    unified, X, path = case["unified"], case["X"], tmp_path / "r.html"
    before = [teacher.asked for teacher in case["teachers"]]
    mistakes: list[tuple[str, dict[str, Any]]] = [
        (r"writes \.html; 'r\.pdf' has another ending", {"path": tmp_path / "r.pdf", "X": X}),
        ("give their X, too", {"y": case["y"]}),
        ("y has 3 labels and X has 200 rows", {"X": X, "y": case["y"][:3]}),
        ("logits have 2 rows and X has 200", {"X": X, "logits": np.zeros((2, 11))}),
        ("labels_only", {"X": X, "labels_only": "always"}),
        ("X has no rows", {"X": X[:0]}),
    ]
    for message, options in mistakes:
        with pytest.raises(InvalidInputError, match=message):
            unified.report(**{"path": path, **options})
    with pytest.raises(NotFittedError):
        Unifier(case["teachers"]).report(path)
    assert [teacher.asked for teacher in case["teachers"]] == before
    assert not path.exists()


def test_a_student_of_the_loss_itself_has_a_page_without_soft_labels(case: Any) -> None:
    unified = copy.copy(case["unified"])  # as fit leaves it with train="backprop", without training a network
    unified.student_ = Network(train="backprop")
    unified.soft_labels_ = unified.class_weights_ = unified.pool_weights_ = None
    page = model_page(unified)
    assert "no soft labels" in next(s["text"] for s in page["sections"] if s["title"] == "Soft labels")
    json.dumps(page, allow_nan=False)


def test_abstentions_leave_no_gaps_in_the_data(case: Any) -> None:
    logits = case["unified"].score_teachers(case["fitted"])
    logits[:100, :4] = np.nan
    logits[5] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unified = Unifier(case["teachers"], "logistic", Auto(n_neighbors=0), random_state=0)
        unified.fit(case["fitted"], logits=logits)
        page = model_page(unified)
    json.dumps(page, allow_nan=False)
    rows = records(blocks_of(page, "table")["Teachers"])
    assert rows[0]["answers"] == pytest.approx(0.5)
    assert 5 not in {
        row["row"] for row in records(blocks_of(page, "table")["Rows whose soft labels are least sure"])
    }
