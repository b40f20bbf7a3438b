"""`Unifier.explain` and `Unifier.disagreements`: figures against those computed by hand."""

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from consilience import InvalidInputError, Unifier, as_teacher, estimate_soft_labels
from consilience.exceptions import NotFittedError
from consilience.methods import CE, Auto
from consilience.students import Network
from consilience.teachers import Sklearn

SETS = {"low": [0, 1, 2, 3], "middle": [2, 3, 4, 5], "high": [4, 5, 0]}


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    X, y = load_digits(n_class=6, return_X_y=True)
    X = StandardScaler().fit_transform(X)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    teachers = {}
    for i, (name, classes) in enumerate(SETS.items()):
        part = slice(60 * i, 60 * (i + 1))
        rows = np.isin(y[part], classes)
        teachers[name] = LogisticRegression(max_iter=1000, C=0.01).fit(X[part][rows], y[part][rows])
    return {"teachers": teachers, "X": X[180:700], "y": y[180:700]}


@pytest.fixture(scope="module")
def unified(digits: Any) -> Unifier:
    return Unifier(digits["teachers"], "logistic", random_state=0).fit(digits["X"])


@pytest.mark.parametrize("method", [Auto(n_neighbors=0), "ranks", CE(teacher_temperatures="agreement")])
def test_a_row_that_fit_has_seen_has_the_soft_label_it_had(digits: Any, method: Any) -> None:
    unified = Unifier(digits["teachers"], "logistic", method, random_state=0)
    found = unified.fit(digits["X"]).explain(digits["X"][17])
    soft = unified.soft_labels_[17]
    assert not any("neighbours" in remark for remark in found.remarks)
    # a new row has a rank of its own among those seen, so ranks differ a little
    atol = 0.02 if isinstance(method, Auto) else 0.01
    np.testing.assert_allclose(list(found.soft_label.values()), soft, atol=atol)
    proba = unified.predict_proba(digits["X"][17:18])[0]
    np.testing.assert_allclose(list(found.proba.values()), proba)
    assert found.decision == unified.predict(digits["X"][17:18])[0]
    assert found.pool_weights == unified.pool_weights_
    for i, said in enumerate(found.said):
        model, T = digits["teachers"][said.teacher], unified.temperatures_[i]
        assert said.temperature == T
        logits = np.log(model.predict_proba(digits["X"][17:18])[0])
        np.testing.assert_allclose(list(said.proba.values()), softmax(logits / T), rtol=1e-5)  # float32
        assert list(said.proba) == model.classes_.tolist()
        assert said.weight == pytest.approx(sum(found.soft_label[name] for name in model.classes_))


def test_new_rows_are_ranked_among_those_seen(digits: Any) -> None:
    X = digits["X"]
    teachers = {name: Sklearn(model, smoothing=0) for name, model in digits["teachers"].items()}
    unified = Unifier(teachers, "logistic", random_state=0).fit(X[:400])
    logits = unified.score_teachers(X)
    for row in (401, 402):
        expected = estimate_soft_labels(
            logits[row : row + 1], unified.label_space_, "auto", reference=logits[:400]
        )
        np.testing.assert_allclose(list(unified.explain(X[row]).soft_label.values()), expected[0])


def test_rows_come_in_many_forms(digits: Any, unified: Unifier) -> None:
    x = digits["X"][3]
    expected = unified.explain(x).to_dict()
    assert [unified.explain(form).to_dict() for form in (x[None], list(x), tuple(x))] == [expected] * 3
    with pytest.raises(InvalidInputError, match="x has 2 rows; explain takes one"):
        unified.explain(digits["X"][:2])
    with pytest.raises(NotFittedError):
        Unifier(digits["teachers"]).explain(x)


def test_texts_are_explained() -> None:
    def length(texts: Any) -> Any:
        return [
            {"short": 0.9, "long": 0.1} if len(text) < 5 else {"short": 0.2, "long": 0.8} for text in texts
        ]

    teachers = [
        as_teacher(length, ["short", "long"], name, output="probabilities") for name in ("one", "two")
    ]
    texts = ["a", "bb", "ccc", "dddddddd", "eeeeeeeee", "ffffffffff"] * 5
    unified = Unifier(teachers, random_state=0).fit(texts)
    assert unified.explain("a").decision == unified.explain(["a"]).decision == "short"


def test_who_abstains_says_nothing(digits: Any) -> None:
    def sometimes(X: Any) -> Any:
        proba = digits["teachers"]["low"].predict_proba(X)
        proba[np.asarray(X)[:, 20] > 0.5] = np.nan
        return proba

    teachers = [as_teacher(sometimes, SETS["low"], "low"), digits["teachers"]["middle"]]
    unified = Unifier(teachers, "logistic", random_state=0).fit(digits["X"])
    row = int(np.argmax(digits["X"][:, 20] > 0.5))
    found = unified.explain(digits["X"][row])
    assert found.said[0].proba == {}
    assert "abstains" in str(found)


def test_backprop_has_no_soft_label(digits: Any) -> None:
    pytest.importorskip("torch")
    unified = Unifier(digits["teachers"], Network(train="backprop"), random_state=0).fit(digits["X"][:60])
    found = unified.explain(digits["X"][0])
    assert found.soft_label is None
    assert np.isnan(found.said[0].weight)
    assert "own loss" in str(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_an_explanation_prints_and_exports(digits: Any, unified: Unifier) -> None:
    found = unified.explain(digits["X"][0])
    text = str(found)
    assert text.startswith(f"The student decides for {found.decision}.")
    assert f"with those of neighbours (weight {unified.neighbor_weight_:.2g})" in text
    assert "soft label (auto: ranks" in text
    view = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [said["teacher"] for said in view["said"]] == list(SETS)
    assert {entry["class"]: entry["probability"] for entry in view["proba"]} == found.proba
    pytest.importorskip("pandas")
    frame = found.to_frame()
    assert frame.index.tolist() == [*SETS, "soft label", "student"]
    assert frame.loc["student"].tolist() == list(found.proba.values())


def by_hand(unified: Unifier, X: Any) -> dict[str, dict[int, Any]]:
    """Find each row's worst contradiction, and the worst teacher that the student left, in plain loops."""
    worst: dict[str, dict[int, Any]] = {"teachers": {}, "student": {}}
    said = {name: model.predict_proba(X) for name, model in unified.teachers.items()}
    for x, proba in enumerate(unified.predict_proba(X)):
        q = dict(zip(unified.classes_.tolist(), proba, strict=True))
        rows = {name: dict(zip(SETS_SORTED[name], p[x], strict=True)) for name, p in said.items()}
        for (one, p), (other, r) in combinations([*rows.items(), ("student", q)], 2):
            shared = [c for c in p if c in r]
            if len(shared) < 2 or (other == "student" and max(q, key=q.get) not in p):
                continue
            a, b = max(shared, key=p.get), max(shared, key=r.get)
            sure = [w[c] / sum(w[s] for s in shared) for w, c in ((p, a), (r, b))]
            severity = min(sure) * sum(q[c] for c in shared)
            found = worst["student" if other == "student" else "teachers"]
            if a != b and severity > found.get(x, (0,))[0]:
                found[x] = (severity, one, a, other, b)
    return worst


SETS_SORTED = {name: sorted(classes) for name, classes in SETS.items()}


def test_disagreements_are_those_found_by_hand(digits: Any, unified: Unifier) -> None:
    found = unified.disagreements(digits["X"], max_rows=10_000)
    worst = by_hand(unified, digits["X"])
    assert found.n_contradicted == len(worst["teachers"]) > 5
    assert found.n_left == len(worst["student"]) > 5
    assert len(found.rows) == found.n_contradicted + found.n_left
    severities = [row.severity for row in found.rows]
    assert severities == sorted(severities, reverse=True)
    for row in found.rows:
        severity, *who = worst[row.kind][row.row]
        assert [row.one, row.one_says, row.other, row.other_says] == who
        assert row.severity == pytest.approx(severity)
    assert sum(pair.n_rows for pair in found.pairs) == len(found.rows)
    assert sum(pair.severity for pair in found.pairs) == pytest.approx(sum(severities))
    first = found.pairs[0]
    same = [
        r for r in found.rows if r.kind == first.kind and {r.one_says, r.other_says} == set(first.classes)
    ]
    assert first.n_rows == len(same)
    few = unified.disagreements(digits["X"], max_rows=3, logits=unified.score_teachers(digits["X"]))
    assert (few.rows, few.pairs) == (found.rows[:3], found.pairs)


def test_not_to_know_a_class_is_no_contradiction() -> None:
    X = np.arange(12.0)[:, None]
    cat = np.tile([0.9, 0.1], (12, 1))
    teachers = [as_teacher(cat, ["cat", "dog"], "pets"), as_teacher(cat, ["bird", "dog"], "birds")]
    unified = Unifier(teachers, "logistic", random_state=0).fit(X)
    assert unified.disagreements(X).n_contradicted == 0


def test_disagreements_print_and_export(digits: Any, unified: Unifier) -> None:
    found = unified.disagreements(digits["X"])
    assert "rows: teachers contradict each other on" in str(found)
    view = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(view["rows"]) == len(found.rows) <= 100
    pytest.importorskip("pandas")
    assert found.to_frame()["severity"].tolist() == [row.severity for row in found.rows]
    assert len(found.to_frame("pairs")) == len(found.pairs)
    with pytest.raises(InvalidInputError, match="of='row' is unknown"):
        found.to_frame("row")
    with pytest.raises(InvalidInputError, match="max_rows=0 must be"):
        unified.disagreements(digits["X"], max_rows=0)
    with pytest.raises(InvalidInputError, match="logits have 2 rows and X has 520"):
        unified.disagreements(digits["X"], logits=np.zeros((2, 11)))
