"""`Unifier.compare`: held-out figures, the criterion without labels, and what it recommends."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from consilience import InvalidInputError, LabelSpace, Unifier, as_teacher
from consilience.inspect.comparison import agreements, coverages
from consilience.methods import CE
from consilience.students import Logistic

ONE: Any = {"methods": ["sd"], "teacher_temperatures": [None], "self_label": [False]}


@pytest.fixture(scope="module")
def digits(sites: Any) -> dict[str, Any]:
    """The sites, and few of their rows: figures need not be good."""
    return {"teachers": sites["teachers"], "X": sites["X"][:300], "y": sites["y"][:300]}


@pytest.fixture(scope="module")
def unlabelled(digits: Any) -> Any:
    unifier = Unifier(digits["teachers"], random_state=0)
    return unifier.compare(digits["X"], methods=["auto", "sd"], self_label=[False])


@pytest.fixture(scope="module")
def labelled(digits: Any) -> Any:
    unifier = Unifier(digits["teachers"], random_state=0)
    return unifier.compare(digits["X"], digits["y"], methods=["auto", "sd"], self_label=[False])


def test_labels_measure_and_teach_nothing(unlabelled: Any, labelled: Any) -> None:
    assert unlabelled.criterion == "support"
    assert labelled.criterion == "accuracy"
    assert len(unlabelled) == len(labelled) == 8
    by_name = {row.name: row for row in labelled}
    for row in unlabelled:
        assert np.isnan(row.accuracy)
        assert by_name[row.name].support == row.support
        assert by_name[row.name].agreement == row.agreement
    assert [row.support for row in unlabelled] == sorted((r.support for r in unlabelled), reverse=True)
    assert unlabelled.rows[-1].name.startswith("sd")
    assert unlabelled.recommended.name == "auto, balanced"
    assert "label some rows" in unlabelled.recommendation
    assert [row.accuracy for row in labelled] == sorted((r.accuracy for r in labelled), reverse=True)


def test_rows_of_a_class_that_nobody_knows_are_errors(digits: Any) -> None:
    y = digits["y"][:200].astype(object)
    options: Any = ONE | {"balance": [False]}
    unifier = Unifier(digits["teachers"], method="sd", balance=False, random_state=0)
    before = unifier.compare(digits["X"][:200], y, **options).rows[0].accuracy
    y[:8] = [*3 * ["ten"], *"abcde"]
    found = unifier.compare(digits["X"][:200], y, **options)
    assert found.n_labels == 200
    assert before - 8 / 200 <= found.rows[0].accuracy < before
    assert found.remarks == (
        "6 classes that nobody knows, whose rows count as errors: "
        "'ten' (3 rows), 'a' (1 row), 'b' (1 row), 'c' (1 row), 'd' (1 row) and 1 more.",
    )
    assert found.remarks[0] in str(found)


def test_agreement_weighs_answers_by_who_is_likely_to_know() -> None:
    space = LabelSpace([["a", "b"], ["b", "c"]])
    packed = np.array([[2, 0, 1, 0], [0, 1, 0, 3], [np.nan, np.nan, 0, 1.0]])  # a b | b c | - c
    decided = np.array([[0, 2, 2], [0, 1, 1]])
    # row 0: both settings say a: the first teacher weighs 1, the second 0. Row 1: c and b. Row 2: c and b.
    weights = {(0, 0): 1.0, (0, 1): 0.0, (1, 0): 0.5, (1, 1): 1.0, (2, 1): 1.0}
    said = {(0, 0): 0, (0, 1): 1, (1, 0): 1, (1, 1): 2, (2, 1): 2}
    expected = [
        sum(w for (x, i), w in weights.items() if row[x] == said[x, i]) / sum(weights.values())
        for row in decided
    ]
    np.testing.assert_allclose(agreements(decided, packed, space), expected)
    failed = np.vstack([decided, [[-1, -1, -1]]])  # changes nothing for the others
    np.testing.assert_allclose(agreements(failed, packed, space), [*expected, np.nan])


def test_coverage_is_the_effective_share_of_classes() -> None:
    decided = np.array([[0, 1, 2, 3], [0, 0, 1, 1], [3, 3, 3, 3], [-1, -1, -1, -1]])
    np.testing.assert_allclose(coverages(decided, 4), [1.0, 0.5, 0.25, np.nan])


def test_your_settings_are_kept_unless_others_are_clearly_better(labelled: Any) -> None:
    best, other = labelled.rows[0], labelled.rows[-1]
    mine = replace(labelled, current=other.name)
    assert best.accuracy > other.interval[1]
    assert mine.recommended is best
    assert f"Take {best.name}: accuracy" in mine.recommendation
    near = replace(other, accuracy=best.accuracy - 0.01, interval=(0.1, best.accuracy + 0.01))
    close = replace(mine, rows=(best, near))
    assert close.recommended is near
    assert "not clearly better" in close.recommendation
    assert "the best" in replace(labelled, current=best.name).recommendation


@pytest.mark.parametrize(("gain", "kept"), [(1.009, True), (1.011, False)])
def test_without_labels_one_per_cent_decides(unlabelled: Any, gain: float, kept: bool) -> None:
    mine = unlabelled.rows[1]
    rows = (replace(unlabelled.rows[0], support=gain * mine.support), mine)
    found = replace(unlabelled, rows=rows, current=mine.name)
    assert (found.recommended is mine) is kept


def test_settings_in_use_are_compared_too(digits: Any) -> None:
    unifier = Unifier(digits["teachers"], method="mf-lf", balance="sqrt", random_state=0)
    found = unifier.compare(digits["X"], balance=[True], **ONE)
    assert found.current == "mf-lf, balanced by roots"
    assert sorted(row.name for row in found) == ["mf-lf, balanced by roots", "sd, balanced"]
    assert not hasattr(unifier, "student_")


def test_teachers_are_asked_once(digits: Any) -> None:
    calls, (low, *others) = [], digits["teachers"].values()

    def counted(X: Any) -> Any:
        calls.append(len(X))
        return low.predict_proba(X)

    teachers = [as_teacher(counted, low.classes_, "low"), *others]
    options: Any = ONE | {"methods": ["auto", "sd"], "max_rows": 100}
    logits = Unifier(digits["teachers"]).score_teachers(digits["X"])
    found, again = (
        Unifier(teachers, random_state=0).compare(digits["X"], logits=one, **options)
        for one in (None, logits)
    )
    assert (found.n_rows, sum(calls)) == (100, 100)
    assert [row.support for row in again] == [row.support for row in found]


def decided_alone(digits: Any, unifier: Unifier, half: Any, learner: Any, **chosen: Any) -> Any:
    """What fits on either half decide about the other, without `compare`."""
    X = digits["X"]
    decided = np.empty(len(X), dtype=object)
    for part in (0, 1):
        model = clone(unifier).set_params(student=learner, **chosen).fit(X[half != part])
        decided[half == part] = model.predict(X[half == part])
    return decided


def test_figures_are_those_of_fits_on_either_half(digits: Any) -> None:
    unifier = Unifier(digits["teachers"], method="sd", random_state=0)
    found = unifier.compare(digits["X"], digits["y"], methods=["sd", "ce"])
    assert len(found) == 16
    half = np.random.RandomState(0).permutation(len(digits["X"])) % 2
    for row in found:
        if row.method == "ce" and row.self_label:
            method = CE(teacher_temperatures=row.teacher_temperatures)
            learner = Logistic(self_label=True)
            chosen = {"method": method, "balance": row.balance}
            right = decided_alone(digits, unifier, half, learner, **chosen) == digits["y"]
            assert row.accuracy == right.mean(), row.name


def test_rows_without_an_answer_are_left_out(digits: Any) -> None:
    X, teachers = digits["X"][:80], digits["teachers"].values()
    outputs = [(model.predict_proba(X), model.classes_) for model in teachers]
    for proba, _ in outputs:
        proba[::4] = np.nan
    stored = [as_teacher(proba, classes) for proba, classes in outputs]
    found = Unifier(stored, random_state=0).compare(X, **ONE)
    assert found.n_rows == 60


def test_own_methods_and_failures_are_named(digits: Any) -> None:
    def broken(logits: Any, space: Any, temperature: float) -> Any:
        return np.ones((len(logits), space.n_classes))  # rows do not sum to 1

    found = Unifier(digits["teachers"], random_state=0).compare(
        digits["X"], methods=[broken], balance=[True], teacher_temperatures=[None], self_label=[False]
    )
    assert [row.name for row in found] == ["auto, balanced", "broken, balanced"]
    assert "broken" in found.rows[1].error or "sum" in found.rows[1].error
    assert np.isnan(found.rows[1].support)
    assert "broken, balanced failed" in str(found)


def test_groups_that_share_no_class_are_remarked(digits: Any) -> None:
    X, y = digits["X"], digits["y"]
    pairs = ["zero", "one"], ["two", "three"]
    teachers = [LogisticRegression(max_iter=1000).fit(X[np.isin(y, c)], y[np.isin(y, c)]) for c in pairs]
    found = Unifier(teachers, random_state=0).compare(
        X[np.isin(y, np.ravel(pairs))], methods=["auto"], teacher_temperatures=[None], self_label=[False]
    )
    assert found.n_groups == 2
    assert "2 groups of classes share no teacher" in str(found)


def test_it_prints_and_exports(labelled: Any) -> None:
    text = str(labelled)
    assert text.startswith("8 ways to unify by accuracy, best first (300 rows of 10 classes)")
    assert "\n*  auto, balanced " in text
    assert labelled.table()["marked"] == [labelled.rows.index(labelled.recommended)]
    view = json.loads(json.dumps(labelled.to_dict(), allow_nan=False))
    assert view["recommended"] == labelled.recommended.name
    assert [row["name"] for row in view["rows"]] == [row.name for row in labelled]
    pytest.importorskip("pandas")
    assert labelled.to_frame()["accuracy"].tolist() == [row.accuracy for row in labelled]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": "auto"}, "methods='auto' must be a list"),
        ({"methods": ["mfp"]}, "method='mfp' is unknown"),
        ({"balance": []}, "balance=.* must be a list"),
        ({"balance": ["no"]}, "balance='no' is unknown"),
        ({"teacher_temperatures": [True]}, "teacher_temperatures=True is unknown"),
        ({"max_rows": 2}, "max_rows=2 must be"),
        ({"y": [0, 1]}, "y has 2 labels and X has 300 rows"),
        ({"y": ["ten"] * 300}, r"y has 'ten' in row 0 \(300 such rows\), which is none of the classes"),
        ({"X": np.zeros((3, 64))}, "X has 3 rows; comparing needs"),
        ({"logits": np.zeros((2, 13))}, "logits have 2 rows"),
    ],
)
def test_bad_input_is_named(digits: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Unifier(digits["teachers"]).compare(**{"X": digits["X"], **options})
