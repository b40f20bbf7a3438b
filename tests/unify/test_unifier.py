"""The Unifier: parameters, labels that are known, balancing, students of both kinds, saving."""

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.preprocessing import StandardScaler

from consilience import (
    ConvergenceWarning,
    CoverageWarning,
    DisconnectedWarning,
    InvalidInputError,
    LabelSpaceError,
    Run,
    Unifier,
    as_teacher,
    balance_weights,
    estimate_soft_labels,
    methods,
    students,
)
from consilience.files.card import card_path, read_card
from consilience.methods import METHODS
from consilience.students import Network
from consilience.teachers import Onnx

NAMES = np.array(["zero", "one", "two", "three", "four"])
SETS = ([0, 1, 2], [2, 3], [3, 4, 0])


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    """Five digits: rows for three sites, unlabelled rows, and rows to test on."""
    X, y = load_digits(n_class=5, return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = StandardScaler().fit_transform(X)[order], y[order]
    sites = []
    for i, classes in enumerate(SETS):
        part = slice(100 * i, 100 * (i + 1))
        rows = np.isin(y[part], classes)
        sites.append(LogisticRegression(max_iter=1000).fit(X[part][rows], NAMES[y[part][rows]]))
    return {
        "teachers": sites,
        "X": X[300:700],
        "y": NAMES[y[300:700]],
        "X_test": X[700:],
        "y_test": NAMES[y[700:]],
    }


def exact(digits: Any) -> list[Any]:
    """Return teachers whose outputs are taken as they are."""
    teachers = [as_teacher(teacher) for teacher in digits["teachers"]]
    for teacher in teachers:
        teacher.smoothing = 0.0
    return teachers


def saying(logits: list[float], classes: Any) -> Any:
    """Return a teacher that gives every row these logits."""
    return as_teacher(lambda X: np.tile(logits, (len(X), 1)), list(classes), output="logits")


def small_net(n_features: int, n_classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(n_features, 32), torch.nn.ReLU(), torch.nn.Linear(32, n_classes)
    )


def quick(module: Any = small_net, **options: Any) -> Network:
    return Network(module, **{"max_iter": 30, "lr": 0.01, "patience": None, **options})


STUDENTS = {
    "logistic": "logistic",
    "forest": RandomForestClassifier(50),
    "boosting": HistGradientBoostingClassifier(max_iter=15),
    "torch": quick(),
    "module": small_net(64, 5),
    "factory": small_net,
    "default": None,
}


def learner(name: str, **options: Any) -> Any:
    """Return a student with options."""
    return quick(**options) if name == "torch" else students.Logistic(**options)


@pytest.mark.parametrize("student", STUDENTS)
def test_every_kind_of_student_learns_all_classes_without_a_label(student: str, digits: Any) -> None:
    unified = Unifier(digits["teachers"], STUDENTS[student], random_state=0).fit(digits["X"])
    assert unified.classes_.tolist() == sorted(NAMES)
    best_single = max((t.predict(digits["X_test"]) == digits["y_test"]).mean() for t in digits["teachers"])
    assert unified.score(digits["X_test"], digits["y_test"]) > max(0.85, best_single + 0.15)
    proba = unified.predict_proba(digits["X_test"])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert unified.predict(digits["X_test"]).tolist() == [sorted(NAMES)[i] for i in proba.argmax(axis=1)]


@pytest.mark.filterwarnings("ignore:mf-p stopped:consilience.ConvergenceWarning")
@pytest.mark.parametrize("method", ["sd", "ce", "mf-p", "mf-lv", "mf-lf"])
def test_soft_labels_are_those_of_the_method(method: Any, digits: Any) -> None:
    unified = Unifier(exact(digits), "logistic", METHODS[method](2.0)).fit(digits["X"])
    packed = np.hstack([as_teacher(t).predict_logits(digits["X"]) for t in digits["teachers"]])
    packed = packed.astype(np.float32)  # what teachers say is kept in single precision
    expected = estimate_soft_labels(packed, unified.label_space_, METHODS[method](2.0))
    np.testing.assert_allclose(unified.soft_labels_, expected)
    np.testing.assert_allclose(unified.class_weights_, balance_weights(expected))


@pytest.mark.parametrize("method", ["ce", "mf-p", "mf-lv", "mf-lf"])
def test_backprop_learns_without_soft_labels(method: Any, digits: Any) -> None:
    unified = Unifier(digits["teachers"], quick(train="backprop"), method, random_state=0).fit(digits["X"])
    assert (unified.soft_labels_, unified.n_iter_) == (None, 30)
    assert unified.score(digits["X_test"], digits["y_test"]) > 0.85


def test_balance_auto_follows_the_label_sets(digits: Any) -> None:
    sites, same = digits["teachers"], [digits["teachers"][0]] * 2
    for teachers, balance, weighted in (
        (sites, "auto", True),
        (same, "auto", False),
        (same, True, True),
        (sites, False, False),
    ):
        unified = Unifier(teachers, "logistic", balance=balance).fit(digits["X"])
        assert (unified.class_weights_ is not None) == weighted


def test_balancing_leaves_the_mean_weight_of_a_row_at_one(digits: Any) -> None:
    masses = []

    class Weighed(LogisticRegression):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LogisticRegression:
            masses.append(sample_weight.sum())
            return super().fit(X, y, sample_weight)

    for balance in (True, "sqrt", False):
        Unifier(digits["teachers"], students.Classifier(Weighed(), min_label=0), balance=balance).fit(
            digits["X"]
        )
    np.testing.assert_allclose(masses, [len(digits["X"])] * 3)


@pytest.mark.parametrize("student", ["logistic", "torch"])
@pytest.mark.parametrize("balance", [True, False])
def test_self_labelling_trains_on_fair_labels_too(student: str, balance: bool, digits: Any) -> None:
    once, twice = (
        Unifier(digits["teachers"], learner(student, self_label=again), balance=balance, random_state=0).fit(
            digits["X"]
        )
        for again in (False, True)
    )
    labels = twice.pseudo_labels_
    np.testing.assert_allclose(labels.sum(axis=1), 1.0, atol=1e-6)
    share = np.full(5, 0.2) if balance else twice.soft_labels_.mean(axis=0)
    np.testing.assert_allclose(labels.mean(axis=0), share, atol=0.02)
    np.testing.assert_array_equal(twice.soft_labels_, once.soft_labels_)
    assert np.abs(twice.predict_proba(digits["X"]) - once.predict_proba(digits["X"])).max() > 0.01
    alone, again = (unified.score(digits["X_test"], digits["y_test"]) for unified in (once, twice))
    assert again > alone - 0.02


def boast(logits: Any, digits: Any) -> Any:
    """Return what the teachers say if the second is five times as sure of it, and the third a fifth."""
    return logits * np.repeat([1.0, 5.0, 0.2], [len(site.classes_) for site in digits["teachers"]])


@pytest.mark.parametrize("train", ["estimate", "backprop"])
def test_a_student_learns_from_calibrated_teachers(train: Any, digits: Any, tmp_path: Path) -> None:
    method = methods.CE(off_set=train == "estimate", teacher_temperatures="agreement")
    unifier = Unifier(digits["teachers"], quick(train=train), method, random_state=0)
    logits = unifier.score_teachers(digits["X"])
    proba = unifier.fit(digits["X"], logits=logits).predict_proba(digits["X_test"])
    boasted = unifier.fit(digits["X"], logits=boast(logits, digits)).predict_proba(digits["X_test"])
    np.testing.assert_allclose(boasted, proba, atol=1e-3)
    assert unifier.score(digits["X_test"], digits["y_test"]) > 0.85
    assert "calibration" in unifier.seconds_
    details = read_card(card_path(unifier.save(tmp_path / "unified.onnx"))).details
    assert details["teacher_temperatures"] == "agreement"
    assert details.get("off_set") == ("True" if train == "estimate" else None)


def test_self_labelling_keeps_known_labels_and_leaves_out_rows_nobody_speaks_of(digits: Any) -> None:
    logits = Unifier(digits["teachers"]).score_teachers(digits["X"])
    logits[:3] = np.nan
    y = np.full(len(logits), None, dtype=object)
    y[2:50] = digits["y"][2:50]
    unified = Unifier(digits["teachers"], students.Logistic(self_label=True))
    with pytest.warns(CoverageWarning, match="abstains on 2 of"):
        unified.fit(digits["X"], y, logits=logits)
    assert np.isnan(unified.pseudo_labels_[:2]).all()
    known = digits["y"][2:50, None] == unified.classes_
    np.testing.assert_array_equal(unified.pseudo_labels_[2:50], known)


@pytest.mark.parametrize("missing", [None, -1, np.nan])
def test_known_labels_are_pinned(missing: Any, digits: Any) -> None:
    y: list[Any] = [missing] * len(digits["X"])
    y[3], y[7] = "four", "one"
    unifier = Unifier(digits["teachers"], "logistic", method=methods.Auto(n_neighbors=0))
    expected = unifier.estimate(digits["X"]).copy()
    expected[[3, 7]] = np.array([["four"], ["one"]]) == sorted(NAMES)
    np.testing.assert_allclose(unifier.estimate(digits["X"], y), expected)


@pytest.mark.parametrize("method", ["ce", "mf-p"])
def test_known_labels_silence_loud_wrong_teachers_in_backprop(method: Any, digits: Any) -> None:
    """The teachers are as sure of a wrong class as they can be, on every row."""
    wrong = {"zero": "one", "one": "two", "two": "three", "three": "four", "four": "zero"}
    loud = [
        as_teacher(
            [[1000.0 * (name == wrong[truth]) for name in names] for truth in digits["y"]],
            names,
            output="logits",
        )
        for names in (NAMES.tolist(), NAMES[:3].tolist())
    ]
    unified = Unifier(loud, quick(train="backprop"), method, random_state=3).fit(digits["X"], digits["y"])
    assert unified.score(digits["X_test"], digits["y_test"]) > 0.75
    assert unified.predict_proba(digits["X"]).max(axis=1).mean() > 0.9  # a known label is nearly certain


def test_aliases_join_classes_and_are_understood_in_y(digits: Any) -> None:
    teachers = [saying([0.0, 0.0], classes) for classes in (["car", "bus"], ["automobile", "van"])]
    y = ["automobile"] + [None] * (len(digits["X"]) - 1)
    unified = Unifier(teachers, "logistic", aliases={"automobile": "car"}).fit(digits["X"], y)
    assert unified.classes_.tolist() == ["bus", "car", "van"]
    assert unified.soft_labels_[0].tolist() == [0, 1, 0]


def test_rows_nobody_speaks_of_are_left_out_and_counted(digits: Any) -> None:
    X, unifier = digits["X"], Unifier(digits["teachers"], "logistic", random_state=0)
    logits = unifier.score_teachers(X)
    expected = unifier.fit(X[5:], logits=logits[5:]).predict_proba(digits["X_test"])
    logits[:5] = np.nan
    with pytest.warns(CoverageWarning, match="abstains on 5 of 400 rows"):
        unifier.fit(X, logits=logits)
    np.testing.assert_allclose(unifier.predict_proba(digits["X_test"]), expected)
    with pytest.raises(InvalidInputError, match="abstains on every row"):
        unifier.fit(X[:5], logits=logits[:5])


def test_scores_can_be_used_again(digits: Any) -> None:
    first = Unifier(digits["teachers"], "logistic", random_state=0)
    logits = first.score_teachers(digits["X"])
    first.fit(digits["X"])
    assert set(first.seconds_) == {"scoring", "soft labels", "training"}

    def unheard(X: Any) -> np.ndarray:
        raise AssertionError("the teacher was asked again")

    silent = [as_teacher(unheard, t.classes_, output="logits") for t in digits["teachers"]]
    again = Unifier(silent, "logistic", random_state=0).fit(digits["X"], logits=logits)
    np.testing.assert_array_equal(again.soft_labels_, first.soft_labels_)
    np.testing.assert_array_equal(
        again.predict_proba(digits["X_test"]), first.predict_proba(digits["X_test"])
    )


def test_smoothing_keeps_ruled_out_classes_possible(digits: Any) -> None:
    sure, found = saying([0.0, -50.0, 3.0, -7.0], "abcd"), []
    for sure.smoothing in (0.04, 0.0):
        found.append(Unifier([sure], "logistic", methods.CE(1.0)).estimate(digits["X"])[0])
    smooth, plain = found
    np.testing.assert_allclose(plain, softmax([0.0, -50.0, 3.0, -7.0]), atol=1e-12)
    floored = np.maximum(plain, 0.04 / 4)
    np.testing.assert_allclose(smooth, floored / floored.sum(), atol=1e-8)


def test_soft_labels_without_a_student(digits: Any) -> None:
    y = ["four", *[None] * 399]
    unifier = Unifier(digits["teachers"], "logistic", "ce")
    Q = unifier.estimate(digits["X"], y)
    np.testing.assert_array_equal(Q, unifier.fit(digits["X"], y).soft_labels_)
    assert unifier.n_abstentions_.tolist() == [0, 0, 0]


@pytest.mark.parametrize("student", ["logistic", "forest", quick()], ids=["logistic", "forest", "torch"])
def test_a_seed_reproduces(student: Any, digits: Any) -> None:
    runs = [Unifier(digits["teachers"], student, random_state=7).fit(digits["X"]) for _ in range(2)]
    # a forest sums its trees in whatever order its threads finish
    np.testing.assert_allclose(*(u.predict_proba(digits["X_test"]) for u in runs), rtol=1e-12, atol=1e-15)


def test_probabilities_are_at_temperature_one(digits: Any) -> None:
    """A student that matches q at T must give the teacher's own probabilities back."""
    teacher, rows = digits["teachers"][0], digits["X_test"]
    own = teacher.predict_proba(rows)
    for student in ("logistic", quick(max_iter=150)):
        unified = Unifier([teacher], student, methods.CE(temperature=3.0), random_state=0)
        given = unified.fit(digits["X"]).predict_proba(rows)
        assert np.abs(given - own).mean() < 0.05
        assert abs(given.max(axis=1).mean() - own.max(axis=1).mean()) < 0.03


def test_a_student_that_missed_a_class_saves_all_columns(digits: Any, tmp_path: Path) -> None:
    never = saying([0.0, -60.0], ["zero", "unicorn"])
    never.smoothing = 0.0
    with pytest.warns(CoverageWarning, match="cannot predict"):
        unified = Unifier([*exact(digits), never], "logistic", random_state=0).fit(digits["X"])
    teacher = Onnx(unified.save(tmp_path / "u.onnx"), floor=1e-12)
    proba = unified.predict_proba(digits["X_test"])
    assert (proba[:, unified.classes_ == "unicorn"] == 0).all()
    np.testing.assert_allclose(softmax(teacher.predict_logits(digits["X_test"]), axis=1), proba, atol=1e-5)


def test_progress_tells_of_every_step(digits: Any) -> None:
    seen: list[Any] = []
    run = Run(progress=lambda *call: seen.append(call))
    Unifier(digits["teachers"], quick(max_iter=3), run=run).fit(digits["X"])
    last = {task: (done, total) for task, done, total in seen}
    same = dict.fromkeys(("neighbours", "soft labels"), (400, 400))
    assert last == {**same, "scoring": (1200, 1200), "training": (3, 3)}


def test_without_torch_the_default_is_a_scikit_learn_network(
    digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consilience.students.make.installed", lambda module: False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own, on 60 iterations
        unified = Unifier(digits["teachers"], random_state=0).fit(digits["X"])
    assert type(unified.student_.estimator_[-1]).__name__ == "MLPClassifier"
    assert unified.score(digits["X_test"], digits["y_test"]) > 0.85


BACKPROP = Network(train="backprop")
BAD: list[tuple[dict[str, Any], str]] = [
    ({"method": "mfp"}, "method='mfp' is unknown.*Did you mean 'mf-p'"),
    ({"student": Network(train="backpropagation")}, "train=.*Did you mean 'backprop'"),
    ({"balance": 1}, "balance=1 is unknown"),
    ({"method": methods.CE(0)}, "temperature=0 must be a finite number above 0"),
    ({"student": students.Logistic(loss="collison")}, "loss='collison' is unknown"),
    ({"student": Network(loss="collision", train="backprop")}, "has the method's own loss"),
    ({"student": students.Logistic(self_label=1)}, "self_label=1 is unknown"),
    ({"student": students.Logistic(min_label=1)}, "min_label=1 must be below 1"),
    ({"student": students.Logistic(min_label="0.1")}, "min_label='0.1' must be a finite number"),
    ({"student": Network(self_label=True, train="backprop")}, "needs train='estimate' and loss='cross-ent"),
    ({"student": Network(self_label=True, loss="collision")}, "they are 'estimate' and 'collision'"),
    ({"run": Run(rows_per_call=0)}, "rows_per_call=0 must be a whole number"),
    ({"run": {"memory": 3}}, "must be a consilience.Run or None"),
    ({"teachers": []}, "teachers is empty"),
    ({"teachers": "a.onnx"}, "a.onnx cannot be read"),
    ({"teachers": {7}}, "teachers is a set; give a list of teachers"),
    ({"student": "forrest"}, "Did you mean 'forest'"),
    ({"student": 3}, "student is a int"),
    ({"student": LogisticRegression}, "student is the class LogisticRegression"),
    ({"student": RidgeClassifier()}, "RidgeClassifier has no predict_proba"),
    ({"student": BACKPROP, "method": "sd"}, "method='sd' has no loss of its own"),
    ({"student": BACKPROP, "balance": True}, "balance=True needs soft labels"),
    ({"student": BACKPROP, "balance": "sqrt"}, "balance='sqrt' needs soft labels"),
    ({"student": BACKPROP, "method": methods.CE(off_set=True)}, "off_set=True needs soft labels"),
    ({"student": BACKPROP, "method": len}, "method='len' has no loss of its own"),
    ({"student": BACKPROP, "method": methods.CE(max_iter=5)}, "max_iter=5 needs soft labels"),
    ({"method": methods.MFLF(teacher_temperatures=True)}, "=True is unknown; use None or 'agreement'"),
    ({"method": methods.MFLF(teacher_temperatures="agreament")}, "Did you mean 'agreement'"),
    ({"method": methods.CE(off_set=1)}, "off_set=1 is unknown"),
    ({"method": methods.CE}, "is unknown; use 'auto'"),
    ({"method": methods.CE(max_iter=0)}, "max_iter=0 must be a whole number"),
    ({"method": methods.MFP(tol=0)}, "tol=0 must be a finite number above 0"),
    ({"method": methods.Own(len, temperature=1e308)}, r"temperature=1e\+308 must be from 1e-6 to 1e6"),
]


@pytest.mark.parametrize(("params", "says"), BAD, ids=[next(iter(p)) + "-" + s[:12] for p, s in BAD])
def test_bad_parameters_get_one_sentence(params: dict[str, Any], says: str, digits: Any) -> None:
    with pytest.raises(InvalidInputError, match=says):
        Unifier(**{"teachers": digits["teachers"], **params}).fit(digits["X"])


@pytest.mark.parametrize(
    ("part", "y", "logits", "says"),
    [
        (np.s_[:0], None, None, "X has no rows"),
        (np.s_[:], ["zero"] * 3, None, "y has 3 rows and X has 400"),
        (np.s_[:], None, np.zeros((3, 8)), "logits have 3 rows and X has 400"),
        (np.s_[:], None, np.zeros((400, 2)), r"logits have shape \(400, 2\)"),
        (np.s_[:], None, [[1.0], [1.0, 2.0]], "logits cannot be read as"),
        (np.s_[:], None, [["a"] * 8] * 400, "logits cannot be read as|logits have shape"),
        (np.s_[:], None, csr_array(np.ones((400, 8))), "logits cannot be read as"),
        (
            np.s_[:],
            ["seven"] * 400,
            None,
            r"y has 'seven' in row 0 \(400 such rows\)",
        ),
        (np.s_[:, :3], None, None, r"\(1 of 3\) failed on X of shape \(4, 3\)"),
    ],
)
def test_bad_data_gets_one_sentence(part: Any, y: Any, logits: Any, says: str, digits: Any) -> None:
    with pytest.raises(InvalidInputError, match=says):
        Unifier(digits["teachers"], "logistic").fit(digits["X"][part], y, logits=logits)


def test_groups_that_share_no_class_warn_or_stop(digits: Any) -> None:
    teachers = [saying([0.0, 0.0], classes) for classes in ("ab", "cd")]
    with pytest.warns(DisconnectedWarning, match=r"2 groups.*\{a, b\}; \{c, d\}.*by ranks"):
        Unifier(teachers, "logistic").fit(digits["X"])
    with pytest.raises(LabelSpaceError, match="share no class"):
        Unifier(teachers, "logistic", disconnected="error").fit(digits["X"])


def test_a_clone_keeps_its_teachers_fitted(digits: Any) -> None:
    again = clone(Unifier(digits["teachers"], LogisticRegression(max_iter=500), "ce", random_state=1))
    assert again.get_params()["method"] == "ce"
    assert again.fit(digits["X"]).score(digits["X_test"], digits["y_test"]) > 0.85


def frozen(unifier: Unifier) -> dict[str, Any]:
    """Return a deep copy of everything that the estimator holds, except teachers and student themselves."""
    held = {
        name: value for name, value in vars(unifier).items() if name not in ("teachers", "student", "method")
    }
    same = {
        name: held.pop(name) for name in ("teachers_", "label_space_", "student_", "method_", "fit_record_")
    }
    return {**copy.deepcopy(held), **{name: (id(value), value) for name, value in same.items()}}


def test_only_a_fit_that_succeeds_changes_a_fitted_estimator(digits: Any) -> None:
    unifier = Unifier(
        digits["teachers"], "logistic", random_state=0, method=methods.Auto(teacher_temperatures="agreement")
    ).fit(digits["X"])
    before, proba = frozen(unifier), unifier.predict_proba(digits["X_test"])
    logits = unifier.score_teachers(digits["X_test"])
    logits[:7, :3] = np.nan
    unifier.estimate(digits["X_test"], digits["y_test"], logits=logits)
    unifier.label_space()
    for student, y, error in (
        (LogisticRegression(C="fails at the very end"), digits["y_test"], InvalidInputError),
        ("logistic", ["seven"] * len(digits["X_test"]), LabelSpaceError),
    ):
        unifier.student = student
        with pytest.raises(error):
            unifier.fit(digits["X_test"], y, logits=logits)
    unifier.student = "logistic"
    after = frozen(unifier)
    unifier.balance = False  # an option for the next fit
    assert after.keys() == before.keys()
    for name in before:
        np.testing.assert_equal(after[name], before[name], err_msg=name)
    np.testing.assert_array_equal(unifier.predict_proba(digits["X_test"]), proba)


def test_another_fit_forgets_the_columns_of_the_first(digits: Any) -> None:
    counter = as_teacher(lambda X: np.array([[len(x), 8.0] for x in X]), ["long", "short"], output="logits")
    unifier = Unifier([counter], random_state=0)
    unifier.n_features_in_ = 64  # as after a fit on arrays
    assert not hasattr(unifier.fit(["short", "a long text"] * 20), "n_features_in_")


def mean_of_the_known(logits: Any, space: Any, temperature: float) -> Any:
    """Sum the probabilities of each class over the teachers, and normalise."""
    blocks = [softmax(logits[:, space.block(i)] / temperature, axis=1) for i in range(space.n_teachers)]
    Q = np.hstack(blocks) @ np.eye(space.n_classes)[space.columns]
    return Q / Q.sum(axis=1, keepdims=True)


def test_a_method_of_ones_own(digits: Any, tmp_path: Path) -> None:
    own = Unifier(digits["teachers"], "logistic", mean_of_the_known, random_state=0).fit(digits["X"])
    naive = Unifier(digits["teachers"], "logistic", "sd", random_state=0).fit(digits["X"])
    np.testing.assert_allclose(own.soft_labels_, naive.soft_labels_, atol=1e-12)
    card = read_card(card_path(own.save(tmp_path / "own.onnx")))
    assert card.details["method"] == "mean_of_the_known"
    assert clone(own).method is mean_of_the_known


def test_the_stopping_rule_reaches_the_method(digits: Any) -> None:
    unifier = Unifier(digits["teachers"], "logistic", methods.CE(tol=1e-12, max_iter=1))
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 .*\(tol 1.0e-12\). Raise it, or tol"):
        unifier.estimate(digits["X"])
    unifier.set_params(method__tol=1e-8, method__max_iter=200).estimate(digits["X"])
