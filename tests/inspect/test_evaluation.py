"""`Unifier.evaluate`: metrics against scikit-learn's, what it is compared with, lost classes, speed."""

import json
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm
from sklearn import metrics as theirs
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from consilience import CoverageWarning, InvalidInputError, LabelSpace, Unifier, as_teacher
from consilience.inspect.evaluate import beside_teachers, evaluate_teacher
from consilience.inspect.evaluation import Scores


@pytest.fixture(scope="module")
def digits(sites: Any, unified: Any) -> dict[str, Any]:
    """A unified model of three teachers, and labelled rows that it has not seen."""
    return {
        "unified": unified,
        "teachers": sites["teachers"],
        "X": sites["X_test"],
        "y": sites["y_test"],
    }


@pytest.fixture(scope="module")
def evaluation(digits: Any) -> Any:
    return digits["unified"].evaluate(digits["X"], digits["y"])


def ece(confidence: Any, right: Any, n_bins: int) -> float:
    """Compute the expected calibration error with scikit-learn's curve, which drops empty bins."""
    share, mean = calibration_curve(right, confidence, n_bins=n_bins, strategy="uniform")
    edges = np.linspace(0, 1, n_bins + 1)
    counts = np.histogram(confidence, edges)[0]
    return float((counts[counts > 0] * np.abs(share - mean)).sum() / len(right))


def agrees(scores: Any, proba: Any, y: Any, classes: Any) -> None:
    """Compare scores with scikit-learn's for probabilities (k, c) in the order of sorted `classes`."""
    guesses = np.asarray(classes)[proba.argmax(axis=1)]
    assert scores.n_rows == len(y)
    assert scores.accuracy == pytest.approx(theirs.accuracy_score(y, guesses))
    with warnings.catch_warnings():  # scikit-learn warns of predictions that never occur in y
        warnings.simplefilter("ignore", UserWarning)
        assert scores.balanced_accuracy == pytest.approx(theirs.balanced_accuracy_score(y, guesses))
    assert scores.log_loss == pytest.approx(theirs.log_loss(y, proba, labels=classes))
    assert scores.calibration_error == pytest.approx(ece(proba.max(axis=1), guesses == y, 15))


def test_the_model_is_measured_as_scikit_learn_does(evaluation: Any, digits: Any) -> None:
    unified, X, y = digits["unified"], digits["X"], digits["y"]
    agrees(evaluation.scores, unified.predict_proba(X), y, unified.classes_)
    guesses, classes = unified.predict(X), unified.classes_
    np.testing.assert_array_equal(evaluation.confusion, theirs.confusion_matrix(y, guesses, labels=classes))
    precision, recall, _, counts = theirs.precision_recall_fscore_support(y, guesses, labels=classes)
    assert [row.name for row in evaluation.by_class] == classes.tolist()
    np.testing.assert_allclose([row.precision for row in evaluation.by_class], precision)
    np.testing.assert_allclose([row.recall for row in evaluation.by_class], recall)
    assert [row.n_rows for row in evaluation.by_class] == counts.tolist()
    assert [row.n_predicted for row in evaluation.by_class] == [(guesses == c).sum() for c in classes]


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_interval_is_wilsons(digits: Any, level: float) -> None:
    found = digits["unified"].evaluate(
        digits["X"], digits["y"], teachers=False, labels_only=False, confidence=level
    )
    p, n, z = found.scores.accuracy, found.scores.n_rows, norm.ppf((1 + level) / 2)
    middle, reach = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    expected = (middle - reach) / (1 + z**2 / n), (middle + reach) / (1 + z**2 / n)
    assert found.scores.interval == pytest.approx(expected)
    assert found.confidence == level
    assert found.compared == ()


def test_each_teacher_is_compared_on_its_own_classes(evaluation: Any, digits: Any) -> None:
    unified, X, y = digits["unified"], digits["X"], digits["y"]
    found = {row.name: row for row in evaluation.compared if row.kind == "teacher"}
    for name, model in digits["teachers"].items():
        rows = np.isin(y, model.classes_)
        agrees(found[name].other, model.predict_proba(X[rows]), y[rows], model.classes_)
        own = unified.predict_proba(X[rows])[:, np.isin(unified.classes_, model.classes_)]
        agrees(found[name].model, own / own.sum(axis=1, keepdims=True), y[rows], model.classes_)
    for row in evaluation.by_class:
        recall = {
            name: (model.predict(X[y == row.name]) == row.name).mean()
            for name, model in digits["teachers"].items()
            if row.name in model.classes_
        }
        assert row.teacher_recall == pytest.approx(max(recall.values()))
        assert recall[row.teacher] == max(recall.values())


def test_the_vote_leaves_out_who_abstains() -> None:
    space = LabelSpace([["a", "b"], ["a", "b"], ["b", "c"]])
    gone = [np.nan, np.nan]
    logits = np.array([[0, 2, *gone, *gone], [0, 2, 0, 1, *gone], [2, 0, 0, 9, *gone], [*gone * 3]])
    vote, _ = beside_teachers(logits, space, np.full((4, 3), 1 / 3), np.array([0, 1, 0, 2]))
    decided, confidence, likelihood = vote
    assert decided.tolist() == [1, 1, 1, 0]  # the third is a tie, and the second teacher is surer
    np.testing.assert_allclose(confidence, [(1 + 1 / 3) / 2, (2 + 1 / 3) / 3, (1 + 1 / 3) / 3, 1 / 3])
    np.testing.assert_allclose(likelihood, [1 / 6, (2 + 1 / 3) / 3, (1 + 1 / 3) / 3, 1 / 3])


def test_rows_on_which_a_teacher_abstains_do_not_count_beside_it() -> None:
    random = np.random.default_rng(0)
    space = LabelSpace([["a", "b", "c"], ["b", "c", "d"]])
    logits, truth = 60 * random.standard_normal((2_000, 6)), random.integers(4, size=2_000)
    logits[::7, 3:] = np.nan
    proba = random.dirichlet(np.full(4, 0.1), size=2_000)
    _, sides = beside_teachers(logits, space, proba, truth)
    for i, own in enumerate(([0, 1, 2], [1, 2, 3])):
        rows = np.isin(truth, own) & ~np.isnan(logits[:, 3 * i])
        p = softmax(logits[rows, 3 * i : 3 * i + 3], axis=1)
        q = proba[rows][:, own] / proba[rows][:, own].sum(axis=1, keepdims=True)
        np.testing.assert_array_equal(sides[i].truth, truth[rows] - i)
        for share, answers in ((p, sides[i].teacher), (q, sides[i].model)):
            agrees(Scores.of(answers, truth[rows] - i, 0.95, 15), share, truth[rows], own)


def test_the_student_of_the_labels_alone_is_cross_validated(evaluation: Any, digits: Any) -> None:
    (found,) = [row for row in evaluation.compared if row.kind == "labels only"]
    assert found.name == "labels alone (5 folds)"
    assert found.other.n_rows == 500
    assert 0.88 < found.other.accuracy < 1  # a student that had seen the rows would be right on all
    seen = LogisticRegression(max_iter=1000).fit(digits["X"], digits["y"])
    assert seen.score(digits["X"], digits["y"]) == 1


def test_many_labels_are_not_learnt_unless_asked_for(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.inspect.evaluate.MOST_LABELS", 100)
    found = digits["unified"].evaluate(digits["X"], digits["y"])
    assert "labels_only=True" in found.remarks[0]
    assert {row.kind for row in found.compared} == {"vote", "teacher"}
    found = digits["unified"].evaluate(digits["X"][:120], digits["y"][:120], labels_only=True, n_folds=2)
    assert found.compared[1].name == "labels alone (2 folds)"


def test_given_logits_ask_no_teacher(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    unified, X, y = digits["unified"], digits["X"], digits["y"]
    logits = unified.score_teachers(X)
    y = y.astype(object)
    y[::5] = None  # the logits of rows without a label are left out, too
    monkeypatch.setattr(unified, "teachers_", None)
    found = unified.evaluate(X, y, logits=logits, labels_only=False)
    for row in found.compared[1:]:
        model = digits["teachers"][row.name]
        rows = np.isin(digits["y"], model.classes_) & (np.arange(len(y)) % 5 > 0)
        assert row.other.accuracy == pytest.approx(model.score(X[rows], digits["y"][rows]))


def test_lost_classes_are_named() -> None:
    """A class with no row in the transfer set is lost, and its teacher would know it."""
    X, y = load_digits(n_class=4, return_X_y=True)
    teachers = [LogisticRegression(max_iter=5000).fit(X[y != k], y[y != k]) for k in (0, 3)]
    some = y != 1
    with pytest.warns(CoverageWarning, match="the student cannot predict them"):  # labels are pinned
        unified = Unifier(teachers, "logistic", "sd", balance=False, random_state=0).fit(X[some], y[some])
    with pytest.warns(CoverageWarning, match=r"1 class nearly lost: 1 \(.* of 182 rows found; .* finds 100"):
        found = unified.evaluate(X, y, labels_only=False)
    assert found.lost == (1,)
    assert "nearly lost" in str(found)
    assert found.to_dict()["lost"] == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert unified.evaluate(X[some], y[some], labels_only=False).lost == ()  # nothing is missed there


@pytest.mark.parametrize(("n_rows", "n_found", "lost"), [(4, 0, False), (5, 0, True), (20, 2, False)])
def test_few_rows_do_not_make_a_lost_class(n_rows: int, n_found: int, lost: bool) -> None:
    answers = ["b"] * (n_rows - n_found) + ["a"] * n_found + ["a", "b"]
    proba = np.array([[0.9, 0.1] if answer == "a" else [0.1, 0.9] for answer in answers])
    model = as_teacher(proba, ["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        found = evaluate_teacher(model, np.zeros((len(proba), 1)), ["a"] * n_rows + ["b", "b"])
    assert found.by_class[0].lost is lost


def test_most_confused_pairs_come_first(evaluation: Any) -> None:
    pairs, names = evaluation.confused, [row.name for row in evaluation.by_class]
    assert [pair.n_rows for pair in pairs] == sorted((pair.n_rows for pair in pairs), reverse=True)
    assert sum(pair.n_rows for pair in pairs) == round(500 * (1 - evaluation.scores.accuracy))
    i, j = names.index(pairs[0].truth), names.index(pairs[0].predicted)
    assert evaluation.confusion[i, j] == pairs[0].n_rows
    assert pairs[0].share == pytest.approx(pairs[0].n_rows / evaluation.by_class[i].n_rows)


def test_it_prints_and_exports(evaluation: Any) -> None:
    text = str(evaluation)
    assert "95% interval" in text
    assert all(f"\n{name} " in text for name in ("vote", "low", "middle", "high", "labels alone (5 folds)"))
    assert max(map(len, text.splitlines())) <= 125
    view = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    assert view["accuracy"] == evaluation.scores.accuracy
    assert [row["name"] for row in view["compared"]] == [row.name for row in evaluation.compared]
    pytest.importorskip("pandas")
    assert evaluation.to_frame()["name"].tolist() == ["model", *(row.name for row in evaluation.compared)]
    assert [len(evaluation.to_frame(of)) for of in ("classes", "confused")] == [10, len(evaluation.confused)]
    with pytest.raises(InvalidInputError, match="of='class' is unknown"):
        evaluation.to_frame("class")


def test_stored_outputs_for_other_rows_are_left_out(digits: Any) -> None:
    X, y = digits["X"], digits["y"]
    models = digits["teachers"]
    stored = as_teacher(models["low"].predict_proba(X[:300]), models["low"].classes_, "stored")
    unified = Unifier([stored, models["middle"], models["high"]], "logistic", random_state=0).fit(X[:300])
    found = unified.evaluate(X[300:], y[300:], labels_only=False)
    assert found.remarks == ("stored is left out: its outputs are stored, for other rows.",)
    assert [row.kind for row in found.compared] == ["vote", "teacher", "teacher"]
    y = y.astype(object)
    y[::7] = None  # which does not change what rows they belong to
    same = unified.evaluate(X[:300], y[:300], labels_only=False)
    rows = [label in models["low"].classes_ for label in y[:300]]
    assert same.compared[1].other.accuracy == models["low"].score(X[:300][rows], list(y[:300][rows]))
    assert same.remarks == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": ["zero"] * 3}, "y has 3 labels and X has 500 rows"),
        ({"y": [None] * 500}, "y has no labels"),
        ({"y": ["ten"] * 500}, r"y has 'ten' in row 0 \(500 such rows\), which is none of the classes"),
        ({"y": iter([3] * 500)}, "The labels are numbers and the classes are text"),
        ({"labels_only": "yes"}, "labels_only='yes' is unknown"),
        ({"n_bins": 0}, "n_bins=0 must be"),
        ({"n_folds": 1}, "n_folds=1 must be"),
        ({"confidence": 1.0}, "confidence=1.0 must be below 1"),
        ({"teachers": "no"}, "teachers='no' is unknown"),
        ({"logits": np.zeros((2, 2))}, "logits have shape"),
        ({"logits": np.zeros((2, 13))}, "logits have 2 rows and X has 500"),
    ],
)
def test_bad_input_is_named(digits: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        digits["unified"].evaluate(digits["X"], **{"y": digits["y"], **options})


def test_rows_of_a_class_that_the_model_does_not_know_are_errors() -> None:
    model = as_teacher(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), ["a", "b"], "model")
    other = as_teacher(np.array([[0.9, 0.1], [0.2, 0.8], [0.1, 0.9]]), ["a", "c"], "other")
    with pytest.warns(CoverageWarning, match=r"c \(0 of 1 row found; other finds 100.0%\)"):
        found = evaluate_teacher(model, np.zeros((3, 1)), ["a", "b", "c"], teachers=[other])
    assert found.scores.accuracy == pytest.approx(2 / 3)
    vote, beside = found.compared
    assert (vote.name, beside.name, beside.other.n_rows) == ("vote", "other", 2)
    assert vote.other.accuracy == pytest.approx(2 / 3)  # the model itself has none: it would be right on "b"


def test_rows_of_a_class_that_nobody_knows_are_errors(digits: Any) -> None:
    """As scikit-learn counts them: with a column of zeros for each such class."""
    unified, X, y = digits["unified"], digits["X"], digits["y"].astype(object)
    y[:30], y[30] = "ten", "eleven"
    found = unified.evaluate(X, y)
    classes = sorted([*unified.classes_, "ten", "eleven"])
    proba = np.zeros((len(X), 12))
    proba[:, np.searchsorted(classes, unified.classes_)] = unified.predict_proba(X)
    agrees(found.scores, proba, y.astype(str), classes)
    assert found.scores.accuracy == unified.score(X, y)
    remark = "2 classes that nobody knows, whose rows count as errors: 'ten' (30 rows), 'eleven' (1 row)."
    assert found.remarks == (remark,)
    assert remark in str(found)
    assert [row.name for row in found.by_class] == unified.classes_.tolist()
    assert found.confusion.sum() == 469
    guesses = unified.predict(X)
    assert [row.n_predicted for row in found.by_class] == [(guesses == c).sum() for c in unified.classes_]
    vote, alone, *teachers = found.compared
    others = unified.evaluate(X[31:], y[31:], logits=unified.score_teachers(X[31:]), n_folds=5)
    assert vote.other.n_rows == 500
    assert vote.other.accuracy == pytest.approx(others.compared[0].other.accuracy * 469 / 500)
    assert alone == others.compared[1]  # it is asked about the rest only, and learns nothing else
    assert teachers == list(others.compared[2:])


def test_a_model_that_abstains_is_measured_where_it_answers() -> None:
    proba = np.array([[0.9, 0.1], [np.nan, np.nan], [0.2, 0.8]])
    found = evaluate_teacher(as_teacher(proba, ["a", "b"], "model"), np.zeros((3, 1)), ["a", "b", "b"])
    assert found.scores.n_rows == 2
    assert found.remarks == ("model abstains on 1 rows, which are left out.",)
