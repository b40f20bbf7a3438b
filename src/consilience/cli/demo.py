"""The demonstration: five sites that may not share their data, and one classifier made from their models.

Then the same for three sites that do not even share a class.
Everything comes with the package: the data are scikit-learn's handwritten digits.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._optional import installed
from consilience._progress import Progress, silent
from consilience._validation import check_choice, check_count
from consilience.methods import MFLF
from consilience.soft_labels.methods import SOLVERS
from consilience.teachers import Teacher, as_teacher
from consilience.unify.unifier import Unifier

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# Each site, its model and the digits it has seen: 23 of the 50 pairs. At least two sites know each digit, and
# a chain of shared digits connects any two sites.
SITES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("north", "logistic regression", (0, 1, 2, 3, 4)),
    ("east", "random forest", (3, 4, 5, 6)),
    ("centre", "boosting", (5, 6, 7, 8, 9)),
    ("west", "SVM", (1, 4, 7, 9)),
    ("south", "MLP", (0, 2, 6, 8, 9)),
)
# The sites of the second part: the first three models. They have the same labelled rows and share no digit.
DISJOINT: tuple[tuple[str, str, tuple[int, ...]], ...] = (
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

Family = Literal["E", "BS", "BP"]
ALL: dict[str, tuple[str, Family]] = {
    # plain SD has no suffix, and no loss of its own
    "SD": ("sd", "E"),
    "SD-BS": ("sd", "BS"),
    **{
        f"{method.upper()}-{family}": (method, family)
        for method in SOLVERS
        if method != "sd"
        for family in ("E", "BS", "BP")
    },
    # ranks have no loss of their own, and what the default does has no suffix
    "RANKS-E": ("ranks", "E"),
    "RANKS-BS": ("ranks", "BS"),
    "AUTO-E": ("auto", "E"),
    DEFAULT: ("auto", "BS"),
}  # fmt: skip
"""Every way to unify, by the paper's names and ours: its method, and what is done with it."""
SOME = ("SD", TIE_BREAK, DEFAULT)
"""What the demonstration compares unless all is asked for: naive distillation and two methods, balanced."""


@dataclass(frozen=True)
class Site:
    """One site: the classes it knows, and the accuracy of its own model.

    `own_accuracy` is over the test rows of its own classes, `accuracy` over all test rows.
    """

    name: str
    model: str
    classes: tuple[str, ...]
    rows: int
    own_accuracy: float
    accuracy: float


@dataclass(frozen=True)
class Variant:
    """One way to unify: E estimates soft labels, BS balances them too, BP trains on the method's own loss.

    `label_accuracy` is the share of unlabelled rows whose largest soft label is right; None with BP.
    """

    name: str
    method: str
    family: Family
    accuracy: float
    label_accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class Disjoint:
    """Sites that share no class, unified by `TIE_BREAK` and by `DEFAULT`."""

    sites: tuple[Site, ...]
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class DemoResult:
    """The results of the demonstration; `best_model` is the fitted Unifier of `best`."""

    sites: tuple[Site, ...]
    variants: tuple[Variant, ...]
    disjoint: Disjoint
    supervised: float
    supervised_seconds: float
    student: str
    n_transfer: int
    n_test: int
    seed: int
    seconds: float
    sentences: tuple[str, ...]
    best_model: Unifier | None = field(repr=False, compare=False)

    @property
    def best(self) -> Variant:
        """The variant with the highest accuracy on the test rows, or the first if several share it."""
        return max(self.variants, key=lambda variant: variant.accuracy)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the model, ready for JSON."""
        values = asdict(replace(self, best_model=None))  # asdict would deep-copy the model
        del values["best_model"]
        return {**values, "best": self.best.name, "classes": list(NAMES)}


class _Split(NamedTuple):
    """Row numbers. No row is in two parts, or at two sites."""

    sites: list[NDArray[np.intp]]
    transfer: NDArray[np.intp]
    test: NDArray[np.intp]


class _Data(NamedTuple):
    """All digits, their split, and the seed of the split."""

    X: NDArray[np.float64]
    y: NDArray[np.str_]
    split: _Split
    seed: int


def run_demo(
    seed: int = 0,
    *,
    variants: Sequence[str] = SOME,
    student: Literal["auto", "torch", "mlp"] = "auto",
    progress: Progress = silent,
) -> DemoResult:
    """Train the sites' models, unify them in several ways and compare the results.

    Then do so with the sites of `DISJOINT`, by `TIE_BREAK` and by `DEFAULT`.

    Parameters
    ----------
    seed : int
        Makes everything reproducible: the split of the data, the sites' models and the student. The student
        starts from the same weights every time.
    variants : sequence of str
        Which of `ALL` to compare.
    student : {"auto", "torch", "mlp"}
        The student: a small network in torch or in scikit-learn. ``"auto"`` takes torch if it is installed.
        Without torch, the backprop variants are left out.
    progress : callable
        Called with ("sites", done, 5), ("methods", done, total) and ("disjoint sites", done, 3).
    """
    check_count("seed", seed, at_least=0)
    check_choice("student", student, ("auto", "torch", "mlp"))
    for name in variants:
        check_choice("variants", name, ALL)
    if student == "auto":
        student = "torch" if installed("torch") else "mlp"
    names = [name for name in variants if student == "torch" or ALL[name][1] != "BP"]
    started = time.perf_counter()
    X, y = _digits()
    data = _Data(X, y, _split(y, seed), seed)
    with _quiet_students():
        sites, teachers = _train_sites(data, progress)
        compared, models = _compare(teachers, data, names, student, progress)
        supervised, seconds = _supervised(data, student)
        progress("methods", len(names) + 1, len(names) + 1)
        disjoint = _disjoint(data, student, progress)
    best = int(np.argmax([variant.accuracy for variant in compared]))
    result = DemoResult(
        sites=sites,
        variants=compared,
        disjoint=disjoint,
        supervised=supervised,
        supervised_seconds=seconds,
        student=student,
        n_transfer=len(data.split.transfer),
        n_test=len(data.split.test),
        seed=seed,
        seconds=time.perf_counter() - started,
        sentences=(),
        best_model=models[best],
    )
    return replace(result, sentences=tuple(_sentences(result)))


def _digits() -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.asarray(digits.data, dtype=np.float64), np.array(NAMES)[digits.target]


def _split(y: NDArray[np.str_], seed: int) -> _Split:
    order = np.random.RandomState(seed).permutation(len(y)).astype(np.intp)
    test, rest = order[:TEST_ROWS], order[TEST_ROWS:]
    left = {name: rest[y[rest] == name] for name in NAMES}
    sites = []
    for _, _, digits in SITES:
        known = [NAMES[digit] for digit in digits]
        sites.append(np.concatenate([left[name][:ROWS_PER_CLASS] for name in known]))
        left.update({name: left[name][ROWS_PER_CLASS:] for name in known})
    # sorted, because otherwise the student would see the transfer set class by class
    return _Split(sites, np.sort(np.concatenate(list(left.values()))), test)


def _models(seed: int) -> list[Any]:
    """Return the five unfitted models, in the order of `SITES`."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    return [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        RandomForestClassifier(200, random_state=seed),
        GradientBoostingClassifier(n_estimators=150, subsample=0.5, max_features="sqrt", random_state=seed),
        make_pipeline(StandardScaler(), CalibratedClassifierCV(SVC(), ensemble=False)),
        make_pipeline(StandardScaler(), MLPClassifier((64,), max_iter=300, random_state=seed)),
    ]


def _train_sites(data: _Data, progress: Progress) -> tuple[tuple[Site, ...], list[Teacher]]:
    trained = []
    for i, ((name, kind, _), model) in enumerate(zip(SITES, _models(data.seed), strict=True)):
        trained.append(_train(name, kind, model, data.split.sites[i], data))
        progress("sites", i + 1, len(SITES))
    return tuple(site for site, _ in trained), [teacher for _, teacher in trained]


def _train(name: str, kind: str, model: Any, rows: NDArray[np.intp], data: _Data) -> tuple[Site, Teacher]:
    """Train the model of one site on its rows, and measure it on the test rows."""
    X, y, split, _ = data
    teacher = as_teacher(model.fit(X[rows], y[rows]), name=name)
    truth = y[split.test]
    right = teacher.classes[teacher.predict_logits(X[split.test]).argmax(axis=1)] == truth
    own = np.isin(truth, teacher.classes)
    classes = tuple(digit for digit in NAMES if digit in teacher.classes)
    site = Site(name, kind, classes, len(rows), float(right[own].mean()), float(right.mean()))
    return site, teacher


def _compare(
    teachers: Sequence[Teacher], data: _Data, names: Sequence[str], student: str, progress: Progress
) -> tuple[tuple[Variant, ...], list[Unifier]]:
    # only once: every method starts from the same outputs of the teachers on the transfer set
    logits = Unifier(teachers).score_teachers(data.X[data.split.transfer])
    found: list[tuple[Variant, Unifier]] = []
    for name in names:
        # one extra step for the supervised benchmark that follows
        progress("methods", len(found), len(names) + 1)
        found.append(_unify(name, teachers, logits, data, student))
    progress("methods", len(names), len(names) + 1)
    return tuple(variant for variant, _ in found), [model for _, model in found]


def _unify(
    name: str, teachers: Sequence[Teacher], logits: NDArray[np.float64], data: _Data, student: str
) -> tuple[Variant, Unifier]:
    """Unify the teachers in one way, and measure the result on the test rows."""
    X, y, split, seed = data
    method, family = ALL[name]
    learner: Any = student
    if family == "BP":
        from consilience.students import Network

        learner = Network(train="backprop")
    started = time.perf_counter()
    model = Unifier(
        teachers,
        learner,
        method,
        balance=family == "BS",
        disconnected="ignore",  # the demonstration itself says what disjoint label sets mean
        random_state=seed,
    ).fit(X[split.transfer], logits=logits)
    seconds = time.perf_counter() - started
    labels = None
    if model.soft_labels_ is not None:
        guessed = model.classes_[model.soft_labels_.argmax(axis=1)]
        labels = float((guessed == y[split.transfer]).mean())
    accuracy = float((model.predict(X[split.test]) == y[split.test]).mean())
    return Variant(name, method, family, accuracy, labels, seconds), model


def _disjoint(data: _Data, student: str, progress: Progress) -> Disjoint:
    """Unify sites that share no class, on the same unlabelled rows and with the same student."""
    y, labelled = data.y, np.concatenate(data.split.sites)
    trained = []
    for (name, kind, digits), model in zip(DISJOINT, _models(data.seed), strict=False):
        rows = labelled[np.isin(y[labelled], [NAMES[digit] for digit in digits])]
        trained.append(_train(name, kind, model, rows, data))
    teachers = [teacher for _, teacher in trained]
    progress("disjoint sites", 1, 3)
    logits = Unifier(teachers, disconnected="ignore").score_teachers(data.X[data.split.transfer])
    variants = []
    for name in (TIE_BREAK, DEFAULT):
        variants.append(_unify(name, teachers, logits, data, student)[0])
        progress("disjoint sites", 1 + len(variants), 3)
    return Disjoint(tuple(site for site, _ in trained), tuple(variants))


def _supervised(data: _Data, student: str) -> tuple[float, float]:
    """Return the accuracy and seconds of SPV: the same student, trained on all sites' labelled rows."""
    X, y, split, seed = data
    rows = np.sort(np.concatenate(split.sites))
    # every row has a label, which fixes its soft label: the teacher's output has no effect
    teacher = as_teacher(np.zeros((len(rows), len(NAMES))), NAMES, "nobody", output="logits")
    started = time.perf_counter()
    model = Unifier([teacher], student, MFLF(temperature=1.0), balance=False, random_state=seed)
    model.fit(X[rows], y[rows])
    seconds = time.perf_counter() - started
    return float((model.predict(X[split.test]) == y[split.test]).mean()), seconds


@contextmanager
def _quiet_students() -> Iterator[None]:
    """Hide scikit-learn's warning that networks stop at max_iter; here they should."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _sentences(result: DemoResult) -> Iterator[str]:
    """Describe the results in plain words."""
    yield from _single_sites(result)
    by_name = {variant.name: variant for variant in result.variants}
    naive, default, best = by_name.get("SD"), by_name.get(DEFAULT), result.best
    if naive is not None:
        yield (
            f"Naive distillation (SD) of all {len(result.sites)} into one network, on {result.n_transfer} "
            f"unlabelled rows: {_percent(naive.accuracy)}."
        )
    if default is not None:
        yield (
            f"Unified by the default ({DEFAULT}), without any further labels: {_percent(default.accuracy)}."
            + (
                ""
                if best is default
                else f" Best on these test rows: {best.name}, {_percent(best.accuracy)}."
            )
        )
    else:
        yield f"Best unified, without any further labels: {best.name} with {_percent(best.accuracy)}."
    yield _benchmark(result, naive, default or best)
    yield _disjoint_sites(result.disjoint)
    p = best.accuracy
    margin = 1.96 * float(np.sqrt(p * (1 - p) / result.n_test))
    yield (
        f"With {result.n_test} test rows, an accuracy of {_percent(p)} is uncertain by about "
        f"±{100 * margin:.1f} points; do not read much into smaller differences."
    )
    if result.student != "torch":
        yield (
            "The student is scikit-learn's network, and the backprop (BP) variants are left out: "
            "they need torch (pip install 'consilience[torch]')."
        )


def _single_sites(result: DemoResult) -> Iterator[str]:
    sizes = [len(site.classes) for site in result.sites]
    few, most = min(sizes), max(sizes)
    span = str(few) if few == most else f"{few} to {most}"
    site = max(result.sites, key=lambda site: site.accuracy)
    yield (
        f"{len(result.sites)} sites trained on their own {sum(s.rows for s in result.sites)} labelled rows, "
        f"and each knows {span} of {len(NAMES)} digits."
    )
    yield (
        f"The best single site, {site.name} ({site.model}), is right on {_percent(site.own_accuracy)} of its "
        f"own {len(site.classes)} digits, and therefore on {_percent(site.accuracy)} of all."
    )


def _benchmark(result: DemoResult, naive: Variant | None, unified: Variant) -> str:
    sentence = (
        f"The same network, supervised on the pooled labelled rows of all sites (SPV), which "
        f"the sites do not allow: {_percent(result.supervised)}."
    )
    if naive is None or result.supervised <= naive.accuracy:
        return sentence
    closed = (unified.accuracy - naive.accuracy) / (result.supervised - naive.accuracy)
    if closed <= 0:
        return f"{sentence} {unified.name} does not close the gap between SD and SPV."
    return f"{sentence} {unified.name} closes {100 * closed:.0f}% of the gap between SD and SPV."


def _disjoint_sites(disjoint: Disjoint) -> str:
    tie_break, default = disjoint.variants
    return (
        f"Three sites that share no digit, unified by {tie_break.name}, which cannot compare them: "
        f"{_percent(tie_break.accuracy)}. By the default ({default.name}), which compares them by ranks: "
        f"{_percent(default.accuracy)}."
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"
