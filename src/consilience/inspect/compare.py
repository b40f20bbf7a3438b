"""Compare settings of a Unifier on rows that its student has not seen, with labels or without."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest, entropy
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from consilience._tables import as_values
from consilience._validation import (
    as_random_state,
    check_choice,
    check_count,
    check_packed_logits,
    n_rows,
    take_rows,
)
from consilience.exceptions import ConsilienceError, ConsilienceWarning, InvalidInputError
from consilience.inspect.comparison import Comparison, Configuration
from consilience.inspect.truth import read_truth
from consilience.kernels.arrays import Floats
from consilience.labels import LabelSpace
from consilience.methods import as_method
from consilience.run import Run, resolve_run
from consilience.soft_labels.methods import spread_out
from consilience.students.make import as_student, holds_texts, make_student
from consilience.teachers import Teacher

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier

METHODS = ("auto", "ranks", "mf-lf", "ce", "sd")
"""What is compared by default: the default, its parts, and naive distillation."""

Settings = dict[str, Any]


def compare_settings(
    unified: Unifier,
    X: Any,
    y: Any,
    *,
    methods: Sequence[Any],
    balance: Sequence[Any],
    teacher_temperatures: Sequence[Any],
    self_label: Sequence[Any],
    student: Any,
    max_rows: int,
    logits: ArrayLike | None,
) -> Comparison:
    """Do what `Unifier.compare` says."""
    unified.check_options()
    grid = _grid(methods, balance, teacher_temperatures, self_label)
    check_count("max_rows", max_rows, at_least=4)
    rows = spread_out(np.arange(n_rows(X)), max_rows)
    if len(rows) < 4:
        raise InvalidInputError(f"X has {len(rows)} rows; comparing needs at least 4 to hold some out.")
    with _quiet():
        teachers, space = unified.open_teachers()
    nothing = np.full(n_rows(X), -1) if y is None else y
    truth = read_truth(nothing, n_rows(X), space, at_least=0, some_known=True)
    learner = _student(unified, student, X)
    packed = _ask(unified, teachers, space, X, rows, logits)
    answered = ~np.isnan(packed[:, space.offsets[:-1]]).all(axis=1)
    if answered.sum() < 4:
        raise InvalidInputError("Teachers answer on fewer than 4 rows of X; comparing needs more.")
    rows, packed = rows[answered], packed[answered]
    X, truth = take_rows(X, rows), truth.of(rows)
    labels = truth.labels
    current = _current(unified, space)
    settings = [current, *(s for s in grid if not _same(s, current))]
    decided, seconds, errors = _decide(unified, learner, X, packed, settings)
    found = _measure(decided, labels, packed, space)
    configurations = [
        _configuration(s, figures, spent, error)
        for s, figures, spent, error in zip(settings, found, seconds, errors, strict=True)
    ]
    criterion = "accuracy" if (labels >= 0).any() else "support"
    order = sorted(configurations, key=lambda row: (row.error is not None, -_figure(row, criterion)))
    name = configurations[0].name
    return Comparison(
        tuple(order),
        criterion,  # type: ignore[arg-type]
        name,
        _student_name(learner),
        len(rows),
        int((labels >= 0).sum()),
        space.n_classes,
        len(space.components()),
        () if truth.remark is None else (truth.remark,),
    )


def _figure(row: Configuration, criterion: str) -> float:
    value = float(getattr(row, criterion))
    return value if value == value else -1.0


def _grid(
    methods: Sequence[Any],
    balance: Sequence[Any],
    teacher_temperatures: Sequence[Any],
    self_label: Sequence[Any],
) -> list[Settings]:
    """Return every combination, or say which option is wrong."""
    choices = {
        "methods": methods,
        "balance": balance,
        "teacher_temperatures": teacher_temperatures,
        "self_label": self_label,
    }
    for name, values in choices.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InvalidInputError(
                f"{{argument}} must be a list of what to compare, such as {list(_EXAMPLES[name])!r}.",
                argument=name,
                value=values,
            )
        for value in values if name != "methods" else ():
            check_choice(name, value, (*_EXAMPLES[name], "sqrt") if name == "balance" else _EXAMPLES[name])
    return [
        {
            "method": clone(as_method(method)).set_params(teacher_temperatures=heat),
            "balance": balanced,
            "self_label": labels,
        }
        for method, balanced, heat, labels in product(*choices.values())
    ]


_EXAMPLES: dict[str, tuple[Any, ...]] = {
    "methods": METHODS,
    "balance": (True, False),
    "teacher_temperatures": (None, "agreement"),
    "self_label": (False, True),
}


def _current(unified: Unifier, space: LabelSpace) -> Settings:
    """Return the settings in use; those of backprop are compared as estimates."""
    balance = not space.identical if unified.balance == "auto" else unified.balance
    self_label = bool(getattr(unified.student, "self_label", False))
    return {"method": unified.resolved("method"), "balance": balance, "self_label": self_label}


def _same(one: Settings, other: Settings) -> bool:
    """Tell whether settings are equal."""
    return repr(one) == repr(other)


def _ask(
    unified: Unifier,
    teachers: Sequence[Teacher],
    space: LabelSpace,
    X: Any,
    rows: NDArray[np.intp],
    logits: Any,
) -> Floats:
    """Return the packed logits of the rows; stored outputs belong to all of X."""
    if logits is not None:
        return check_packed_logits(logits, space, n_rows(X))[rows]
    with _quiet():
        if len(rows) == n_rows(X) or not all(teacher.batched for teacher in teachers):
            return unified.score_teachers(X)[rows]
        return unified.score_teachers(take_rows(X, rows))


def _student(unified: Unifier, student: Any, X: Any) -> Any:
    """Return the student to compare with, or say what is wrong with it: a cheap one unless one is given."""
    if isinstance(student, str) and student == "auto":
        if holds_texts(X):
            return "ngrams"
        dtype = getattr(X, "dtype", None)
        numbers = getattr(dtype, "kind", "") in ("b", "i", "u", "f") and len(X.shape) == 2
        student = "logistic" if numbers else unified.student
    make_student(student, X=X, random_state=unified.random_state)
    return student


def _student_name(student: Any) -> str:
    if student is None:
        return "the default"
    return student if isinstance(student, str) else type(student).__name__


def _decide(
    unified: Unifier, student: Any, X: Any, packed: Floats, settings: Sequence[Settings]
) -> tuple[NDArray[np.intp], list[float], list[str | None]]:
    """Fit on either half of the rows, and return what is decided (K, n) on the other; -1 after an error."""
    progress, n = resolve_run(unified.run).report, len(packed)
    half = as_random_state(unified.random_state).permutation(n) % 2
    decided = np.full((len(settings), n), -1, dtype=np.intp)
    seconds, errors = [0.0] * len(settings), list[str | None]([None] * len(settings))
    for place, chosen in enumerate(settings):
        progress("settings", place, len(settings))
        model, started = _model(unified, as_student(student, X), chosen), time.perf_counter()
        try:
            for part in (0, 1):
                seen, other = (np.flatnonzero(half == one) for one in (1 - part, part))
                with _quiet():
                    model.fit(as_values(take_rows(X, seen)), logits=packed[seen])
                decided[place, other] = model.predict_proba(take_rows(X, other)).argmax(axis=1)
        except ConsilienceError as problem:
            errors[place] = str(problem)
            decided[place] = -1
        seconds[place] = time.perf_counter() - started
    progress("settings", len(settings), len(settings))
    return decided, seconds, errors


def _model(unified: Unifier, student: Any, chosen: Settings) -> Unifier:
    """Return an unfitted Unifier with the settings to compare, and this student."""
    student.self_label = chosen["self_label"]
    if student.self_label:
        student.loss = "cross-entropy"
    if student.train == "backprop":
        student.train = "estimate"
    model: Unifier = clone(unified).set_params(
        student=student,
        method=chosen["method"],
        balance=chosen["balance"],
        disconnected="ignore",
        run=Run(memory=resolve_run(unified.run).memory),
    )
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings about single settings: most of these will not be used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _measure(
    decided: NDArray[np.intp], labels: NDArray[np.intp], packed: Floats, space: LabelSpace
) -> list[tuple[float, float, float, tuple[float, float]]]:
    """Return agreement, coverage, accuracy and its interval for each of the settings."""
    agreement = agreements(decided, packed, space)
    coverage = coverages(decided, space.n_classes)
    known = labels >= 0
    found = []
    for k, row in enumerate(decided):
        accuracy, interval = np.nan, (np.nan, np.nan)
        if known.any():
            right = int((row[known] == labels[known]).sum())
            ends = binomtest(right, int(known.sum())).proportion_ci(0.95, "wilson")
            accuracy, interval = right / int(known.sum()), (float(ends.low), float(ends.high))
        found.append((float(agreement[k]), float(coverage[k]), accuracy, interval))
    return found


def agreements(decided: NDArray[np.intp], packed: Floats, space: LabelSpace) -> Floats:
    """Return how often decisions are those of the teachers, where these are likely to know the class.

    With v(l) the share of the K settings that decide for class l on row x, the answer d_i(x) of teacher i
    weighs v(L_i): how many of the settings think that x is one of its classes. The agreement is the weighted
    share of answers that the student gives, too, among all L classes.

    Parameters
    ----------
    decided : (K, n) array of int
        What each of the settings decides; -1 for those that failed.
    packed : (n, m) array
        What the teachers say; NaN where they abstain.
    space : LabelSpace
    """
    n, works = len(packed), decided[:, 0] >= 0
    shares = np.zeros((n, space.n_classes))
    for row in decided[works]:
        shares[np.arange(n), row] += 1.0 / works.sum()
    weights = shares @ space.mask.astype(np.float64)  # (n, N)
    weights[np.isnan(packed[:, space.offsets[:-1]])] = 0.0
    agreed = np.zeros(len(decided))
    for i, weight in enumerate(np.ascontiguousarray(weights.T)):
        said = space.columns[space.block(i)][packed[:, space.block(i)].argmax(axis=1)]
        agreed += [weight @ (row == said) for row in decided]
    total = float(weights.sum())
    return agreed / total if total > 0 else agreed


def coverages(decided: NDArray[np.intp], n_classes: int) -> Floats:
    """Return over how many of the classes the decisions (K, n) spread: exp(entropy) / L."""
    counts = [np.bincount(row[row >= 0], minlength=n_classes) for row in decided]
    spread = [np.exp(entropy(count)) / n_classes if count.any() else np.nan for count in counts]
    return np.asarray(spread)


def _configuration(
    settings: Settings,
    figures: tuple[float, float, float, tuple[float, float]],
    seconds: float,
    error: str | None,
) -> Configuration:
    agreement, coverage, accuracy, interval = figures
    if error is not None:
        agreement = coverage = accuracy = np.nan
        interval = (np.nan, np.nan)
    return Configuration(
        str(clone(settings["method"]).set_params(teacher_temperatures=None)),
        settings["balance"],
        settings["method"].teacher_temperatures,
        settings["self_label"],
        agreement,
        coverage,
        agreement * coverage,
        accuracy,
        interval,
        seconds,
        error,
    )
