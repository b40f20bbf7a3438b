"""Rank teachers by how much each has to give to a task, without a student of each (SCTD, Sec. 5)."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone

from consilience._progress import Progress, silent
from consilience._validation import check_choice, check_count, check_number, n_rows
from consilience.exceptions import ConsilienceWarning, InvalidInputError, TeacherError
from consilience.kernels.rank.assessment import resampled_means
from consilience.labels import counted
from consilience.rank.metrics import METRICS, SCORES, Case, Settings, fitted_logits, takes_teachers
from consilience.rank.ranking import RankedTeacher, Ranking
from consilience.rank.transferability import label_codes
from consilience.students.sklearn import named_student
from consilience.teachers import Teacher, as_teacher
from consilience.teachers.scoring.engine import Observed, observe
from consilience.teachers.scoring.store import ScoreStore, as_store

__all__ = ["METRICS", "RankedTeacher", "Ranking", "rank_teachers"]

Floats = NDArray[np.float64]

LIKELIHOODS = ("nce", "leep", "n_leep")  # metrics of which a guess has a value: minus the logarithm of K
SAME = 1e-6  # differences of probabilities that are rounding

APPROXIMATIONS = {
    "fictitious": "fictitious",
    "II": "fictitious",
    "student": "student",
    "I": "student",
    "exact": "exact",
}


@dataclass(frozen=True, eq=False)
class Task:
    """What all teachers are assessed on, and how."""

    X: Any
    y: NDArray[Any]
    codes: NDArray[np.intp]
    n_classes: int
    metrics: tuple[str, ...]
    settings: Settings
    student_logits: Floats | None  # of Approximation I
    store: ScoreStore | None
    batch_size: int


def rank_teachers(
    teachers: Any,
    X: Any,
    y: Any,
    metric: str | Sequence[str] = "transport",
    *,
    approximation: str = "fictitious",
    student: Any = None,
    score: str = "likelihood",
    temperature: float = 1.0,
    epsilon: float | str = "auto",
    normalize: bool = True,
    weight_decay: float = 1e-3,
    folds: int = 2,
    n_bootstrap: int = 200,
    confidence: float = 0.95,
    cache: ScoreStore | str | os.PathLike[str] | None = None,
    batch_size: int = 4096,
    progress: Progress = silent,
    random_state: int | None = None,
) -> Ranking:
    r"""Rank teachers by how much each would help a student of your classes.

    Parameters
    ----------
    teachers : sequence, or dict from names
        Teachers, or whatever `as_teacher` takes: models, paths, functions, precomputed outputs. One that
        fails, says the same of every row or abstains everywhere comes last, with the reason. Rows on which
        one abstains count as guesses; where the metric is no likelihood, a teacher that abstains on all rows
        of a class comes after those that do not.
    X : array, sparse matrix, data frame or list
        n rows of your task.
    y : (n,) sequence of str, int or float
        Their classes, which need not be those of any teacher.
    metric : str or sequence of str
        ``"transport"`` (SCTD), ``"nce"``, ``"leep"``, ``"logme"``, ``"h_score"``, ``"n_leep"``, ``"gbc"``,
        ``"otce"`` or ``"transrate"``; see `consilience.rank.transferability`. Of several, the first ranks.
    approximation : {"fictitious", "student", "exact"}
        Whose predictions stand for the student's in eq. (24): those of a linear probe on the teacher's
        embedding (the paper's Approximation II); of one student trained without any teacher (I); of a student
        trained with each teacher (exact). "II" and "I" are understood.
    student : estimator, name or callable, optional
        For "student" a classifier with `predict_proba`, or the name of one ("mlp", "logistic", ...). For
        "exact" one with a parameter `teachers`, such as a `CrossTaskDistiller`, or a function from a teacher
        to an unfitted classifier.
    score : {"likelihood", "distance", "cost"}
        What "transport" makes of cost and predictions. ``"distance"`` is eq. (24) as printed, the mean of
        S_eps(p_T, p_S): it depends on the scale and the entropy of a teacher's outputs as much as on the
        task. ``"likelihood"`` (ours) asks how probable the student's predictions p_S are to a student who
        only listened to the teacher; it ranks far better, see docs/rank.md. ``"cost"`` is the plain <T, M>.
    temperature : float
        Of the softmax of both sides; the paper's is 3.
    epsilon : float or "auto"
        Of the Sinkhorn distance; "auto" follows the spread of each teacher's cost matrix.
    normalize : bool
        Whether class centres are brought to unit length; see `cost_matrix`.
    weight_decay : float
        Weight decay of the probe, on features scaled to a mean squared length of d.
    folds : int
        From 2, each row meets a probe of its own fold and class centres of the other folds, so that a teacher
        gains nothing by what rows happen to have in common. 1 takes both from all rows, as the paper does:
        with few rows per class, teachers of many classes then win by chance.
    n_bootstrap : int
        Resamples of the rows for the intervals; 0 for none.
    confidence : float
        Of the intervals.
    cache : folder or ScoreStore, optional
        Keeps what teachers say, so that no teacher runs twice on the same rows.
    batch_size : int
        Rows per call of a teacher.
    progress : callable
        Called with ("ranking", teachers done, teachers in all).
    random_state : int, optional
        Seeds resamples, folds and mixtures; None is 0 here, since a ranking that changes is of no use.

    Returns
    -------
    Ranking

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_digits(return_X_y=True)
    >>> models = {f"below {k}": LogisticRegression(max_iter=500).fit(X[y < k], y[y < k]) for k in (4, 7)}
    >>> new = y >= 4
    >>> [row.name for row in rank_teachers(models, X[new], y[new])]
    ['below 7', 'below 4']
    """
    if not isinstance(metric, str | list | tuple):
        raise InvalidInputError(f"metric={metric!r} must be the name of a metric, or a list of names.")
    names = [metric] if isinstance(metric, str) else list(metric)
    settings = _settings(
        names,
        approximation,
        student,
        score,
        temperature,
        epsilon,
        normalize,
        weight_decay,
        folds,
        random_state,
    )
    n_bootstrap = check_count("n_bootstrap", n_bootstrap, at_least=0)
    settings = replace(settings, intervals=n_bootstrap > 0)
    if not 0 < check_number("confidence", confidence, above=0) < 1:
        raise InvalidInputError(f"confidence={confidence!r} must be between 0 and 1.")
    codes, classes = label_codes(y, n_rows(X))
    check_classes(classes, len(codes))
    labels, given, once = classes[codes], _named(teachers), None
    if settings.approximation == "student" and "transport" in names:
        once = fitted_logits(_lone(settings.student), X, labels, classes)
    task = Task(
        X, labels, codes, len(classes), tuple(names), settings, once, as_store(cache),
        check_count("batch_size", batch_size),
    )  # fmt: skip
    rows, resamples = [], []
    for place, (name, source) in enumerate(given):
        start = time.perf_counter()
        row, added = _assess(source, name, place, task)
        means = np.full(n_bootstrap, -np.inf)
        if added is not None and n_bootstrap:
            means = resampled_means(added, n_bootstrap, settings.seed)
            row = replace(row, interval=_interval(means, confidence, names[0]))
        rows.append(replace(row, seconds=time.perf_counter() - start))
        resamples.append(means)
        progress("ranking", place + 1, len(given))
    ordered = _best_first(rows, np.array(resamples))
    return Ranking(ordered, names[0], len(labels), len(classes), float(confidence))


def _settings(
    metrics: Sequence[str],
    approximation: str,
    student: Any,
    score: str,
    temperature: float,
    epsilon: float | str,
    normalize: bool,
    weight_decay: float,
    folds: int,
    random_state: int | None,
) -> Settings:
    """Check the options, or raise."""
    if not metrics:
        raise InvalidInputError("metric is empty; give the name of at least one.")
    for name in metrics:
        check_choice("metric", name, METRICS)
    check_choice("approximation", approximation, APPROXIMATIONS)
    check_choice("score", score, SCORES)
    check_choice("normalize", normalize, (True, False))
    if isinstance(epsilon, str):
        check_choice("epsilon", epsilon, ("auto",))
    else:
        check_number("epsilon", epsilon, above=0)
    way = APPROXIMATIONS[approximation]
    if way != "fictitious" and student is None:
        raise InvalidInputError(f"approximation={approximation!r} needs student=, a classifier to train.")
    if way == "fictitious" and student is not None:
        raise InvalidInputError(
            "student= is for approximation='student' or 'exact'; the fictitious student is a linear probe."
        )
    if way == "exact" and not isinstance(student, str) and not takes_teachers(student):
        raise InvalidInputError(
            f"student is a {type(student).__name__}; approximation='exact' needs a classifier with a "
            "parameter teachers, such as CrossTaskDistiller(None), or a function from a teacher to one."
        )
    return Settings(
        way,
        named_student(student) if isinstance(student, str) else student,
        score,
        check_number("temperature", temperature, above=0),
        epsilon,
        normalize,
        check_number("weight_decay", weight_decay, at_least=0),
        check_count("folds", folds),
        0 if random_state is None else check_count("random_state", random_state, at_least=0),
    )


def check_classes(classes: NDArray[Any], n: int, where: str = "y") -> None:
    """Refuse labels that are not meant as classes."""
    if classes.dtype.kind not in "if":
        return
    if (classes < 0).sum() == 1 and classes[0] == -1:
        raise InvalidInputError(
            f"{where} has the label -1, which means no label elsewhere; give the labelled rows alone, "
            "or texts for names if it is a class."
        )
    if len(classes) > n / 2 and (classes != np.floor(classes)).any():
        raise InvalidInputError(
            f"{where} has {len(classes)} different numbers in {n} rows, as measurements have; give classes."
        )


def _named(teachers: Any) -> list[tuple[str | None, Any]]:
    """Return names, where they are given, and what teachers are made of."""
    if isinstance(teachers, Mapping):
        pairs: list[tuple[str | None, Any]] = [(str(name), source) for name, source in teachers.items()]
    elif isinstance(teachers, list | tuple):
        pairs = [(None, source) for source in teachers]
    else:
        raise InvalidInputError(
            f"teachers is a {type(teachers).__name__}; give a list of teachers, or a dict of them by name."
        )
    if not pairs:
        raise InvalidInputError("teachers is empty; give at least one.")
    return pairs


def _lone(student: Any) -> Any:
    """Return a student that nobody teaches, unfitted."""
    if hasattr(student, "fit"):
        return clone(student, safe=False)
    if callable(student):
        return student()
    raise InvalidInputError(
        f"student is a {type(student).__name__}; give a classifier, the name of one, "
        "or a function that makes one."
    )


def _assess(source: Any, name: str | None, place: int, task: Task) -> tuple[RankedTeacher, Floats | None]:
    """Assess one teacher; return its row without interval, and what each row of X adds to the score."""
    shown, teacher, added = name or f"teacher {place + 1}", None, None
    scores: dict[str, float] = {}
    error: str | None = None
    partial = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            teacher = as_teacher(source, name=name)
            shown = teacher.name
            observed = observe(teacher, task.X, batch_size=task.batch_size, store=task.store)
            case, spoken = _case(teacher, observed, task)
            for metric in task.metrics:
                try:
                    found = _scored(case, spoken, metric, task)
                except Exception as problem:
                    if metric == task.metrics[0]:
                        raise
                    # a column more or less: the metric that ranks has its score
                    scores[metric] = np.nan
                    warnings.warn(f"{metric}: {_reason(problem)}", ConsilienceWarning, stacklevel=2)
                    continue
                scores[metric] = float(np.nanmean(found))
                if metric == task.metrics[0]:
                    added = found
                    partial = bool(np.isnan(found).any()) and case.n_classes < task.n_classes
        except Exception as problem:  # whatever a foreign model raises, the others are still to be ranked
            error, added = _reason(problem), None
    release = getattr(teacher, "release", None)
    if release is not None:  # the next one needs the memory
        release()
    score = scores[task.metrics[0]] if error is None else -np.inf
    nothing = (np.nan, np.nan)
    row = RankedTeacher(teacher, shown, score, nothing, np.nan, 0.0, _texts(caught), error, scores, partial)
    return row, added


def _scored(case: Case, spoken: NDArray[np.bool_], metric: str, task: Task) -> Floats:
    """Return what each row of X adds to a score, whose mean it is.

    Where the score is a log-likelihood, rows on which the teacher abstains count as a guess; otherwise they
    are NaN.
    """
    value, rows = METRICS[metric](case)
    if not np.isfinite(value):
        raise TeacherError(case.teacher.name, f"has {metric} = {value}, which is no score.")
    likelihood = metric in LIKELIHOODS or (metric == "transport" and task.settings.score == "likelihood")
    added = np.full(len(task.y), -np.log(task.n_classes) if likelihood else np.nan)
    added[spoken] = rows
    return added


def _interval(means: Floats, confidence: float, metric: str) -> tuple[float, float]:
    """Return the interval that holds a share of the resamples, those without a row left out."""
    if np.isnan(means).all():
        return np.nan, np.nan
    low, high = np.nanquantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    # a jackknife does not know where a metric ends
    return float(low), min(float(high), 0.0) if metric in ("gbc", "otce") else float(high)


def _case(teacher: Teacher, observed: Observed, task: Task) -> tuple[Case, NDArray[np.bool_]]:
    """Return what can be assessed of a teacher, and on which rows; raise where that is nothing."""
    logits, n = observed.logits, len(task.y)
    spoken: NDArray[np.bool_] = np.asarray(~np.isnan(logits).any(axis=1))
    if not spoken.any():
        raise TeacherError(teacher.name, "abstains on every row.")
    # by probabilities: what is added to all logits of a row tells nothing
    if np.ptp(softmax(logits[spoken], axis=1), axis=0).max() <= SAME:
        raise TeacherError(teacher.name, "says the same of every row.")
    if observed.embeddings is not None:
        bad = ~np.isfinite(observed.embeddings).all(axis=1) & spoken
        if bad.any():
            raise TeacherError(
                teacher.name, f"has embeddings with NaN or infinity in {counted(int(bad.sum()), 'row')}."
            )
        if not np.ptp(observed.embeddings[spoken], axis=0).any():
            raise TeacherError(teacher.name, "has the same embedding for every row.")
    case = Case(
        teacher, task.X, task.y, task.codes, task.n_classes, observed, task.settings, task.student_logits
    )
    if spoken.all():
        return case, spoken
    if len(np.unique(task.codes[spoken])) < 2:
        raise TeacherError(teacher.name, "only speaks about rows of one class.")
    part = case.part(spoken)
    lost = task.n_classes - part.n_classes
    warnings.warn(
        f"Abstains on {int((~spoken).sum())} of {n} rows"
        + (f", among them all of {counted(lost, 'class')}" if lost else "")
        + "; these count as guesses where the metric is a likelihood, and are left out of others.",
        ConsilienceWarning,
        stacklevel=2,
    )
    return part, spoken


def _reason(error: Exception) -> str:
    """Return why a teacher failed, without its name, which stands beside."""
    if isinstance(error, TeacherError):
        return error.problem
    text = " ".join(str(error).split()) or "no message"
    return text if isinstance(error, InvalidInputError) else f"{type(error).__name__}: {text[:300]}"


def _texts(caught: Sequence[warnings.WarningMessage]) -> tuple[str, ...]:
    """Return what was warned of, each once."""
    return tuple(dict.fromkeys(" ".join(str(one.message).split()) for one in caught))


def _best_first(rows: Sequence[RankedTeacher], resamples: Floats) -> tuple[RankedTeacher, ...]:
    """Sort by score, those of fewer classes behind, those that failed last; add how often each is best."""
    good = np.array([row.error is None for row in rows])
    partial = np.array([row.partial for row in rows])
    wins = np.full(len(rows), np.nan)
    if resamples.shape[1] and good.any():
        # scores of fewer classes win only among themselves
        out = partial & bool((good & ~partial).any()) | ~good
        means = np.where(np.isnan(resamples) | out[:, None], -np.inf, resamples)
        best = (means == means.max(axis=0)) & good[:, None] & ~out[:, None]
        wins = np.where(good, (best / np.maximum(best.sum(axis=0), 1)).mean(axis=1), np.nan)
    order = sorted(range(len(rows)), key=lambda i: (not good[i], bool(partial[i]), -rows[i].score))
    return tuple(replace(rows[i], wins=float(wins[i])) for i in order)
