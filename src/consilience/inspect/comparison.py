"""Would other settings be better? Compare some on rows that their students have not seen."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import entropy
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from consilience._validation import as_random_state, check_choice, check_count, n_rows, take_rows
from consilience._words import counted, percent
from consilience.exceptions import ConsilienceError, ConsilienceWarning, InvalidInputError
from consilience.inspect.drawing import Block
from consilience.inspect.evaluate import ask, read_truth, unknown_classes
from consilience.inspect.evaluation import wilson
from consilience.inspect.page import Told, columns_of, frame, plain, table
from consilience.kernels.arrays import Floats
from consilience.labels import LabelSpace
from consilience.methods import Method, as_method
from consilience.rows import as_rows
from consilience.rows.tables import as_values
from consilience.run import Run, resolve_run
from consilience.soft_labels.solvers import spread_out
from consilience.students.make import as_student, holds_texts, make_student

METHODS = ("auto", "ranks", "mf-lf", "ce", "sd")
"""What is compared by default: the default, its parts, and naive distillation."""
CHOICES: dict[str, tuple[Any, ...]] = {
    "methods": METHODS,
    "balance": (True, False, "sqrt"),
    "teacher_temperatures": (None, "agreement"),
    "self_label": (False, True),
}
MARGIN = 0.01  # the settings in use are kept unless others are better by more than this share
Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Configuration:
    """One way to unify, and how good it is on rows that its student has not seen.

    Attributes
    ----------
    method, balance, teacher_temperatures, self_label
        The settings of `Unifier`, its method and its student. A method of your own has the name of its
        function.
    agreement : float
        How often the student decides as the teachers do, where it is likely that they know the class; see
        `compare`.
    coverage : float
        Over how many of the classes its decisions spread: the exponential of their entropy over L.
    support : float
        Agreement times coverage: the criterion without labels.
    accuracy : float
        The share of labelled rows that are right. NaN without labels.
    interval : (float, float)
        Wilson's interval of the accuracy, for 95 %.
    seconds : float
        How long both fits took, soft labels included.
    error : str or None
        Why there are no figures.
    """

    method: str
    balance: bool | str
    teacher_temperatures: str | None
    self_label: bool
    agreement: float
    coverage: float
    support: float
    accuracy: float
    interval: tuple[float, float]
    seconds: float
    error: str | None = None

    @property
    def name(self) -> str:
        """The settings in a few words."""
        notes = {
            "balanced": self.balance is True,
            "balanced by roots": self.balance == "sqrt",
            "calibrated": self.teacher_temperatures is not None,
            "self-labelled": self.self_label,
        }
        return ", ".join([self.method, *(note for note, holds in notes.items() if holds)])


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Told):
    """Settings of a `Unifier`, best first.

    Attributes
    ----------
    rows : tuple of Configuration
        Those that failed come last.
    criterion : {"accuracy", "support"}
        What decides the order: accuracy if there are labels.
    current : str
        The name of the settings in use.
    student : str
        What learnt.
    n_rows, n_labels, n_classes : int
    n_groups : int
        Groups of classes that share no teacher. With more than one, agreement says nothing about how well a
        row's group is found.
    remarks : tuple of str
        Classes that nobody knows: their rows count as errors.
    """

    rows: tuple[Configuration, ...]
    criterion: Literal["accuracy", "support"]
    current: str
    student: str
    n_rows: int
    n_labels: int
    n_classes: int
    n_groups: int
    remarks: tuple[str, ...] = ()

    @property
    def recommended(self) -> Configuration:
        """The settings in use, unless others are clearly better; then the best of these.

        Clearly means beyond the upper end of the interval of the accuracy; without labels, by more than 1 %.
        """
        best, current = self.rows[0], self._in_use
        enough = (1 + MARGIN) * current.support
        better = (
            best.accuracy > current.interval[1] if self.criterion == "accuracy" else best.support > enough
        )
        return best if better or current.error is not None else current

    @property
    def recommendation(self) -> str:
        """What to do, in a sentence."""
        best, chosen, current = self.rows[0], self.recommended, self._in_use
        if best.error is not None:
            return f"No settings could be compared. The first failed: {best.error}"

        def figure(row: Configuration) -> str:
            return percent(getattr(row, self.criterion))

        doubt = "" if self.criterion == "accuracy" else " Without labels this is a guess: label some rows."
        said = f"{self.criterion} {figure(chosen)}"
        if chosen is not current:
            beside = f", against {figure(current)} of yours" if current.error is None else ""
            return f"Take {chosen.name}: {said}{beside} ({self.current}).{doubt}"
        lead = f"; {best.name} has {figure(best)}, which is not clearly better."
        return (
            f"Keep your settings ({self.current}): {said}{', the best.' if best is chosen else lead}{doubt}"
        )

    @property
    def _in_use(self) -> Configuration:
        return next(row for row in self.rows if row.name == self.current)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Configuration]:
        return iter(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON. None replaces NaN."""
        rows = [{"name": row.name, **plain(row)} for row in self.rows]
        recommended = {"recommended": self.recommended.name, "recommendation": self.recommendation}
        return {**plain(self), **recommended, "rows": rows}

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row for each configuration."""
        records = [
            {"name": row.name, **asdict(row), "low": row.interval[0], "high": row.interval[1]}
            for row in self.rows
        ]
        return frame(records).drop(columns="interval")

    def table(self) -> Block:
        """Return all settings as a table; a star marks those in use."""
        rows, figures = self.rows, ("support", "agreement", "coverage")
        ends = [" to ".join(filter(None, map(percent, row.interval))) for row in rows]
        measured = [*columns_of(rows, ("accuracy", "percent", "accuracy")), ("interval", "text", ends)]
        columns = [
            ("", "text", ["*" if row.name == self.current else "" for row in rows]),
            *columns_of(rows, ("settings", "text", "name")),
            *(measured if self.n_labels else []),
            *columns_of(rows, *((name, "percent", name) for name in figures)),
            ("seconds", "place", ["failed" if row.error else f"{row.seconds:.1f}" for row in rows]),
        ]
        over = f"{counted(self.n_rows, 'row')} of {counted(self.n_classes, 'class')}"
        title = f"{counted(len(rows), 'way')} to unify by {self.criterion}, best first ({over})"
        return table(title, columns, marked=[rows.index(self.recommended)])

    def notes(self) -> list[str]:
        """Return what to know about the table, and what to do."""
        groups = f"{self.n_groups} groups of classes share no teacher: agreement does not tell them apart."
        return [
            f"*: your settings. The student is {self.student}. Figures are of rows that it has not seen.",
            *([groups] if self.n_groups > 1 else []),
            *self.remarks,
            *(f"{row.name} failed: {row.error}" for row in self.rows if row.error is not None),
            self.recommendation,
        ]

    def told(self) -> list[str | Block]:
        """Return the table with its caption, and the notes."""
        found = self.table()
        return [found["caption"], found, "\n".join(self.notes())]


Settings = tuple[Method, Any, bool]
"""What is compared: a method, balancing, and whether the student learns its own labels."""


def compare(
    unified: Any,
    X: Any,
    y: Any = None,
    *,
    methods: Sequence[Any] = METHODS,
    balance: Sequence[Any] = (True, False),
    teacher_temperatures: Sequence[Any] = (None, "agreement"),
    self_label: Sequence[Any] = (False, True),
    student: Any = "auto",
    max_rows: int = 2000,
    logits: ArrayLike | None = None,
) -> Comparison:
    """Compare settings on rows that their students have not seen; fit need not have been called.

    Teachers are asked once. For each combination, a student learns the soft labels of either half of the
    rows and decides about the other half.

    With labels, the most accurate settings come first. Without, those with the largest *support*:
    agreement times coverage. A teacher's answer about a row weighs as much as the settings, taken
    together, believe that the row is one of its classes; agreement is the weighted share of answers that
    the student gives, too. Coverage is over how many of the classes its decisions spread: settings that
    lose classes have less. docs/evaluate.md has how well this ranks settings.

    Parameters
    ----------
    X : array, sparse matrix, data frame or list
        n rows, such as those that `fit` gets.
    y : (n,) sequence, optional
        Labels where they are known, as in `evaluate`. They only measure; no student learns them.
    methods, balance, teacher_temperatures, self_label : sequences
        What to combine; methods as in `Unifier`, by name or with options. The settings in use are always
        compared, too.
    student : classifier, name, "auto" or None
        What learns. ``"auto"`` is cheap: ``"logistic"`` for numbers, ``"ngrams"`` for texts, and this
        Unifier's own otherwise. None and others as in `Unifier`.
    max_rows : int
        Use at most this many rows, evenly spaced.
    logits : (n, m) array, optional
        The teachers' outputs for X, from `score_teachers`.

    Returns
    -------
    Comparison
        It prints well, has `to_dict` and `to_frame`, and a `recommendation`.
    """
    unified.check_options()
    grid = _grid(methods, balance, teacher_temperatures, self_label)
    check_count("max_rows", max_rows, at_least=4)
    run, told = resolve_run(unified.run), list[str]()
    X = as_rows(X).all(run)
    n = n_rows(X)
    if n < 4:
        raise InvalidInputError(f"X has {n} rows; comparing needs at least 4 to hold some out.")
    with _quiet():
        teachers, space = unified.open_teachers()
    truth = read_truth(np.full(n, -1) if y is None else y, n, space, at_least=0)
    learner = _learner(unified, student, X)
    used = np.isin(np.arange(n), spread_out(np.arange(n), max_rows))
    with _quiet():
        packed = ask(teachers, space, X, run, told, known=used, logits=logits)
    answered = ~np.isnan(packed[:, space.offsets[:-1]]).all(axis=1)
    if answered.sum() < 4:
        raise InvalidInputError("Teachers answer on fewer than 4 rows of X; comparing needs more.")
    rows, packed = np.flatnonzero(used)[answered], packed[answered]
    X, truth = take_rows(X, rows), truth._replace(codes=truth.codes[rows])
    balanced = not space.identical if unified.balance == "auto" else unified.balance
    own = bool(getattr(unified.student, "self_label", False))
    current: Settings = (unified.resolved("method"), balanced, own)
    settings = [current, *(other for other in grid if repr(other) != repr(current))]
    tried = [
        _decide(unified, learner, X, packed, one, (place, len(settings)))
        for place, one in enumerate(settings)
    ]
    decided = np.array([one for one, _, _ in tried])
    agreement, coverage = agreements(decided, packed, space), coverages(decided, space.n_classes)
    found, total = list[Configuration](), int(truth.known.sum())
    for place, ((method, balanced, own), (guesses, seconds, error)) in enumerate(
        zip(settings, tried, strict=True)
    ):
        right = int((guesses == truth.codes).sum())  # no guess is -1, as rows without a label are
        measured = error is None and total > 0
        found.append(
            Configuration(
                str(clone(method).set_params(teacher_temperatures=None)),
                balanced,
                method.teacher_temperatures,
                own,
                float(agreement[place]),
                float(coverage[place]),
                float(agreement[place] * coverage[place]),
                right / total if measured else np.nan,
                wilson(right, total) if measured else (np.nan, np.nan),
                seconds,
                error,
            )
        )
    criterion: Any = "accuracy" if total else "support"
    order = sorted(
        found, key=lambda row: (row.error is not None, -np.nan_to_num(getattr(row, criterion), nan=-1.0))
    )
    shown = "the default" if learner is None else learner
    name = shown if isinstance(shown, str) else type(shown).__name__
    sizes = len(rows), total, space.n_classes, len(space.components())
    remarks = *told, *unknown_classes(truth, space)
    return Comparison(tuple(order), criterion, found[0].name, name, *sizes, remarks)


def _grid(*choices: Sequence[Any]) -> list[Settings]:
    """Return every combination, or say which option is wrong."""
    for (name, known), values in zip(CHOICES.items(), choices, strict=True):
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InvalidInputError(
                f"{{argument}} must be a list of what to compare, such as {list(known[:2])!r}.",
                argument=name,
                value=values,
            )
        for value in values if name != "methods" else ():
            check_choice(name, value, known)
    return [
        (clone(as_method(method)).set_params(teacher_temperatures=heat), balanced, own)
        for method, balanced, heat, own in product(*choices)
    ]


def _learner(unified: Any, student: Any, X: Any) -> Any:
    """Return the student to compare with, or say what is wrong with it: a cheap one unless one is given."""
    if isinstance(student, str) and student == "auto":
        numbers = getattr(getattr(X, "dtype", None), "kind", "") in (*"biuf",) and len(X.shape) == 2
        student = "ngrams" if holds_texts(X) else "logistic" if numbers else unified.student
    make_student(student, X=X, random_state=unified.random_state)
    return student


def _decide(
    unified: Any, learner: Any, X: Any, packed: Floats, settings: Settings, place: tuple[int, int]
) -> tuple[Codes, float, str | None]:
    """Fit on either half of the rows; return what is decided (n,) on the other, seconds, and an error."""
    run, n, started = resolve_run(unified.run), len(packed), time.perf_counter()
    half, decided = as_random_state(unified.random_state).permutation(n) % 2, np.full(n, -1, dtype=np.intp)
    model, error = _model(unified, as_student(learner, X), settings, run), None
    try:
        for part in (0, 1):
            seen, other = np.flatnonzero(half != part), np.flatnonzero(half == part)
            with _quiet():
                model.fit(as_values(take_rows(X, seen)), logits=packed[seen])
            decided[other] = model.predict_proba(take_rows(X, other)).argmax(axis=1)
    except ConsilienceError as problem:
        decided[:], error = -1, str(problem)
    run.report("settings", place[0] + 1, place[1])
    return decided, time.perf_counter() - started, error


def _model(unified: Any, student: Any, settings: Settings, run: Run) -> Any:
    """Return an unfitted Unifier with the settings to compare, and this student."""
    method, balance, student.self_label = settings
    if student.self_label:
        student.loss = "cross-entropy"
    if student.train == "backprop":
        student.train = "estimate"
    return clone(unified).set_params(
        student=student,
        method=method,
        balance=balance,
        disconnected="ignore",
        run=Run(memory=run.memory),
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings about single settings: most of these will not be used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def agreements(decided: Codes, packed: Floats, space: LabelSpace) -> Floats:
    """Return how often decisions are those of the teachers, where these are likely to know the class.

    With v(l) the share of the K settings that decide for class l on row x, the answer d_i(x) of teacher i
    weighs v(L_i): how many of the settings think that x is one of its classes. The agreement is the weighted
    share of answers that the student gives, too, among all L classes.

    Parameters
    ----------
    decided : (K, n) array of int
        What each of the settings decides; -1 for those that failed, which have NaN.
    packed : (n, m) array
        What the teachers say; NaN where they abstain.
    space : LabelSpace
    """
    works, shares = decided[:, 0] >= 0, np.zeros((len(packed), space.n_classes))
    for row in decided[works]:
        shares[np.arange(len(packed)), row] += 1.0 / works.sum()
    weights = shares @ space.mask.astype(np.float64)  # (n, N)
    weights[np.isnan(packed[:, space.offsets[:-1]])] = 0.0
    agreed = np.zeros(len(decided))
    for i, weight in enumerate(weights.T):
        said = space.columns[space.block(i)][packed[:, space.block(i)].argmax(axis=1)]
        agreed += (decided == said) @ weight
    return np.where(works, agreed / (float(weights.sum()) or 1.0), np.nan)


def coverages(decided: Codes, n_classes: int) -> Floats:
    """Return over how many of the classes the decisions (K, n) spread: exp(entropy) / L."""
    counts = [np.bincount(row[row >= 0], minlength=n_classes) for row in decided]
    spread = [np.exp(entropy(count)) / n_classes if count.any() else np.nan for count in counts]
    return np.asarray(spread)
