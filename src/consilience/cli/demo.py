"""The demonstration: five sites that may not share their data, and one classifier made from their models.

Then the same for three sites that do not even share a class.
Everything comes with the package: the data are scikit-learn's handwritten digits.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from consilience import Unifier, as_teacher, students
from consilience._optional import installed
from consilience._words import percent
from consilience.methods import MFLF
from consilience.run import Progress, silent

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# Each site, its model and the digits it has seen: 23 of the 50 pairs. At least two sites know each digit, and
# a chain of shared digits connects any two sites.
SITES = (
    ("north", "logistic regression", (0, 1, 2, 3, 4)),
    ("east", "random forest", (3, 4, 5, 6)),
    ("centre", "boosting", (5, 6, 7, 8, 9)),
    ("west", "SVM", (1, 4, 7, 9)),
    ("south", "MLP", (0, 2, 6, 8, 9)),
)
# The sites of the second part: the first three models. They have the same labelled rows and share no digit.
DISJOINT = (
    ("low", "logistic regression", (0, 1, 2)),
    ("middle", "random forest", (3, 4, 5)),
    ("high", "boosting", (6, 7, 8, 9)),
)
ROWS_PER_CLASS = 40
TEST_ROWS = 400
DEFAULT = "AUTO"
"""The default of `Unifier`."""
TIE_BREAK = "MF-LF-BS"
"""The paper's best-known way. Groups that share no class get mass by their number of classes."""
ALL: dict[str, tuple[str, str]] = {
    "SD": ("sd", "E"),  # plain SD has no suffix, and no loss of its own
    "SD-BS": ("sd", "BS"),
    **{f"{m}-{how}".upper(): (m, how) for m in ("ce", "mf-p", "mf-lv", "mf-lf") for how in ("E", "BS", "BP")},
    # ranks have no loss of their own, and what the default does has no suffix
    "RANKS-E": ("ranks", "E"),
    "RANKS-BS": ("ranks", "BS"),
    "AUTO-E": ("auto", "E"),
    DEFAULT: ("auto", "BS"),
}
"""Every way to unify, by the paper's names and ours: its method, and what is done with it.

E estimates soft labels, BS balances them too, BP trains on the method's own loss."""
SOME = ("SD", TIE_BREAK, DEFAULT)
"""What the demonstration compares unless all is asked for: naive distillation and two methods, balanced."""


class Rows(NamedTuple):
    """All digits, and whose rows are which: no row is in two parts, or at two sites."""

    X: NDArray[np.float64]
    y: NDArray[np.str_]
    sites: list[NDArray[np.intp]]
    transfer: NDArray[np.intp]
    test: NDArray[np.intp]


def split_digits(seed: int) -> Rows:
    """Give each site its labelled rows; what is left are test rows and unlabelled ones."""
    digits = load_digits()
    X, y = np.asarray(digits.data, dtype=np.float64), np.array(NAMES)[digits.target]
    order = np.random.RandomState(seed).permutation(len(y)).astype(np.intp)
    test, rest = order[:TEST_ROWS], order[TEST_ROWS:]
    left = {name: rest[y[rest] == name] for name in NAMES}
    sites = []
    for _, _, known in SITES:
        names = [NAMES[digit] for digit in known]
        sites.append(np.concatenate([left[name][:ROWS_PER_CLASS] for name in names]))
        left |= {name: left[name][ROWS_PER_CLASS:] for name in names}
    # sorted, because otherwise the student would see the transfer set class by class
    return Rows(X, y, sites, np.sort(np.concatenate(list(left.values()))), test)


def models(seed: int) -> list[Any]:
    """Return the five unfitted models, in the order of `SITES`."""
    return [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        RandomForestClassifier(200, random_state=seed),
        GradientBoostingClassifier(n_estimators=150, subsample=0.5, max_features="sqrt", random_state=seed),
        make_pipeline(StandardScaler(), CalibratedClassifierCV(SVC(), ensemble=False)),
        make_pipeline(StandardScaler(), MLPClassifier((64,), max_iter=300, random_state=seed)),
    ]


def train_site(
    name: str, kind: str, model: Any, own: NDArray[np.intp], rows: Rows
) -> tuple[dict[str, Any], Any]:
    """Train the model of one site on its rows, and measure it on the test rows."""
    X, y, *_, test = rows
    teacher = as_teacher(model.fit(X[own], y[own]), name=name)
    right = teacher.classes[teacher.predict_logits(X[test]).argmax(axis=1)] == y[test]
    known = np.isin(y[test], teacher.classes)
    about = {
        "name": name,
        "model": kind,
        "classes": [digit for digit in NAMES if digit in teacher.classes],
        "rows": len(own),
        "own_accuracy": float(right[known].mean()),
        "accuracy": float(right.mean()),
    }
    return about, teacher


def unify(
    name: str, teachers: Sequence[Any], logits: Any, rows: Rows, student: str, seed: int
) -> tuple[dict[str, Any], Unifier]:
    """Unify the teachers in one way, and measure the result on the test rows."""
    X, y, _, transfer, test = rows
    method, family = ALL[name]
    learner = students.Network(train="backprop") if family == "BP" else student
    started = time.perf_counter()
    # the demonstration itself says what disjoint label sets mean
    model = Unifier(
        teachers, learner, method, balance=family == "BS", disconnected="ignore", random_state=seed
    ).fit(X[transfer], logits=logits)
    Q = model.soft_labels_
    about = {
        "name": name,
        "method": method,
        "family": family,
        "accuracy": float((model.predict(X[test]) == y[test]).mean()),
        "label_accuracy": None
        if Q is None
        else float((model.classes_[Q.argmax(axis=1)] == y[transfer]).mean()),
        "seconds": time.perf_counter() - started,
    }
    return about, model


def learn_supervised(rows: Rows, student: str, seed: int) -> float:
    """Return the accuracy of SPV: the same student, trained on all sites' labelled rows."""
    own = np.sort(np.concatenate(rows.sites))
    # every row has a label, which fixes its soft label: the teacher's output has no effect
    teacher = as_teacher(np.zeros((len(own), len(NAMES))), NAMES, "nobody", output="logits")
    model = Unifier([teacher], student, MFLF(temperature=1.0), balance=False, random_state=seed)
    return float(model.fit(rows.X[own], rows.y[own]).score(rows.X[rows.test], rows.y[rows.test]))


def run_demo(
    seed: int = 0,
    *,
    every: bool = False,
    variants: Sequence[str] = SOME,
    student: str = "auto",
    progress: Progress = silent,
) -> tuple[dict[str, Any], Unifier]:
    """Train the sites' models, unify them in several ways and compare the results.

    Then do so with the sites of `DISJOINT`, by `TIE_BREAK` and by `DEFAULT`.

    Parameters
    ----------
    seed : int
        Makes everything reproducible: the split of the data, the sites' models and the student.
    every : bool
        Compare all.
    variants : sequence of str
        Which of `ALL` to compare otherwise.
    student : {"auto", "torch", "mlp"}
        The student: a small network in torch or in scikit-learn. ``"auto"`` takes torch if it is installed.
        Without torch, the backprop variants are left out.
    progress : callable
        Called with ("sites", done, total) and ("methods", done, total), and again for the sites that share
        no digit.

    Returns
    -------
    (dict, Unifier)
        Everything that was measured, and the fitted model with the highest accuracy on the test rows.
    """
    started = time.perf_counter()
    if student == "auto":
        student = "torch" if installed("torch") else "mlp"
    names = [name for name in (ALL if every else variants) if student == "torch" or ALL[name][1] != "BP"]
    rows = split_digits(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # networks stop at max_iter; here they should
        sites = _train_sites(SITES, rows.sites, rows, seed, progress)
        compared = _compare([one for _, one in sites], names, rows, student, seed, progress)
        before = time.perf_counter()
        supervised = learn_supervised(rows, student, seed)
        ended = time.perf_counter()
        labelled = np.concatenate(rows.sites)
        own = [labelled[np.isin(rows.y[labelled], np.array(NAMES)[list(known)])] for _, _, known in DISJOINT]
        apart = _train_sites(DISJOINT, own, rows, seed, progress)
        pair = _compare([one for _, one in apart], (TIE_BREAK, DEFAULT), rows, student, seed, progress)
    best, best_model = max(compared, key=lambda one: one[0]["accuracy"])
    view = {
        "sites": [site for site, _ in sites],
        "variants": [variant for variant, _ in compared],
        "disjoint": {"sites": [site for site, _ in apart], "variants": [variant for variant, _ in pair]},
        "supervised": supervised,
        "supervised_seconds": ended - before,
        "student": student,
        "n_transfer": len(rows.transfer),
        "n_test": len(rows.test),
        "seed": seed,
        "seconds": time.perf_counter() - started,
        "best": best["name"],
        "classes": list(NAMES),
    }
    return view | {"sentences": sentences(view)}, best_model


def _train_sites(
    sites: Any, own: Sequence[NDArray[np.intp]], rows: Rows, seed: int, progress: Progress
) -> list[tuple[dict[str, Any], Any]]:
    trained = []
    for (name, kind, _), model, mine in zip(sites, models(seed), own, strict=False):
        trained.append(train_site(name, kind, model, mine, rows))
        progress("sites", len(trained), len(sites))
    return trained


def _compare(
    teachers: Sequence[Any], names: Sequence[str], rows: Rows, student: str, seed: int, progress: Progress
) -> list[tuple[dict[str, Any], Unifier]]:
    # only once: every method starts from the same outputs of the teachers on the transfer set
    logits = Unifier(teachers, disconnected="ignore").score_teachers(rows.X[rows.transfer])
    found: list[tuple[dict[str, Any], Unifier]] = []
    for name in names:
        found.append(unify(name, teachers, logits, rows, student, seed))
        progress("methods", len(found), len(names))
    return found


def sentences(view: Mapping[str, Any]) -> list[str]:
    """Describe the results in plain words."""
    sites, by_name = view["sites"], {variant["name"]: variant["accuracy"] for variant in view["variants"]}
    best, supervised, naive = by_name[view["best"]], view["supervised"], by_name["SD"]
    default, top = by_name[DEFAULT], max(sites, key=lambda site: site["accuracy"])
    sizes = sorted({len(site["classes"]) for site in sites})
    better = "" if best == default else f" Best on these test rows: {view['best']}, {percent(best)}."
    gap = (default - naive) / (supervised - naive) if supervised > naive else 0.0
    closes = f"closes {100 * gap:.0f}% of" if gap > 0 else "does not close"
    tie_break, ranked = (percent(variant["accuracy"]) for variant in view["disjoint"]["variants"])
    margin = 1.96 * float(np.sqrt(best * (1 - best) / view["n_test"]))
    without_torch = (
        "The student is scikit-learn's network, and the backprop (BP) variants are left out: "
        "they need torch (pip install 'consilience[torch]')."
    )
    return [
        f"{len(sites)} sites trained on their own {sum(site['rows'] for site in sites)} labelled rows, and "
        f"each knows {' to '.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))} of {len(NAMES)} digits.",
        f"The best single site, {top['name']} ({top['model']}), is right on {percent(top['own_accuracy'])} "
        f"of its own {len(top['classes'])} digits, and therefore on {percent(top['accuracy'])} of all.",
        f"Naive distillation (SD) of all {len(sites)} into one network, on {view['n_transfer']} unlabelled "
        f"rows: {percent(naive)}.",
        f"Unified by the default ({DEFAULT}), without any further labels: {percent(default)}.{better}",
        "The same network, supervised on the pooled labelled rows of all sites (SPV), which the sites do not "
        f"allow: {percent(supervised)}. {DEFAULT} {closes} the gap between SD and SPV.",
        f"Three sites that share no digit, unified by {TIE_BREAK}, which cannot compare them: {tie_break}. "
        f"By the default ({DEFAULT}), which compares them by ranks: {ranked}.",
        f"With {view['n_test']} test rows, an accuracy of {percent(best)} is uncertain by about "
        f"±{100 * margin:.1f} points; do not read much into smaller differences.",
        *([] if view["student"] == "torch" else [without_torch]),
    ]
