"""Rank teachers by how much each would help with a task, without training on each (SCTD, Sec. 5)."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone

from consilience._progress import Progress, silent
from consilience._validation import (
    check_choice,
    check_count,
    check_number,
    check_temperature,
    take_rows,
)
from consilience._words import counted
from consilience.exceptions import ConsilienceWarning, InvalidInputError, ScoringError, TeacherError
from consilience.kernels.arrays import Floats
from consilience.kernels.rank.probe import resampled_means
from consilience.rank.metrics import (
    METRICS,
    SCORES,
    Case,
    OwnMetric,
    Settings,
    as_metric,
    fitted_logits,
    metric_name,
    takes_teachers,
)
from consilience.rank.ranking import RankedTeacher, Ranking
from consilience.rank.task import Task, read_task_rows, widest
from consilience.rows import as_rows
from consilience.scoring.engine import Observed
from consilience.scoring.engines import check_engine
from consilience.scoring.ray_options import RayOptions, read_options
from consilience.scoring.ray_tasks import map_on_ray
from consilience.scoring.store import ScoreStore, as_store
from consilience.students.make import named_student
from consilience.teachers import Teacher, as_teacher
from consilience.teachers.given import GivenTeachers, distinct_names, given_teachers

__all__ = ["METRICS", "RankedTeacher", "Ranking", "rank_teachers"]


_Ranked = tuple[RankedTeacher, Floats | None]
"""A teacher's row, and the number of each row of X whose mean is its score."""

SAME = 1e-6  # differences of probabilities that are rounding

APPROXIMATIONS = {
    "fictitious": "fictitious",
    "II": "fictitious",
    "student": "student",
    "I": "student",
    "exact": "exact",
}


def rank_teachers(
    teachers: Any,
    X: Any,
    y: Any,
    metric: str | OwnMetric | Sequence[str | OwnMetric] = "transport",
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
    cache_limit: float | str | None = None,
    memory: float | str | None = None,
    batch_size: int = 4096,
    engine: str = "local",
    engine_options: Mapping[str, Any] | None = None,
    progress: Progress = silent,
    random_state: int | None = None,
) -> Ranking:
    r"""Rank teachers by how much each would help a student of your classes.

    Parameters
    ----------
    teachers : sequence, dict, Ranking or teacher
        Teachers, or whatever `as_teacher` takes: models, paths, functions, precomputed outputs. A list of
        them, a dict by name, another Ranking (those with a score), or a single one. A teacher that fails,
        gives every row the same answer or abstains everywhere comes last, with the reason. Rows without an
        answer count as guesses. Where the metric is no likelihood, a teacher that never answers for some
        class comes after those that do.
    X : array, sparse matrix, data frame or list
        n rows of your task.
    y : (n,) sequence of str or int
        Their classes, which need not be those of any teacher. Rows without a label (None, NaN, -1) are left
        out.
    metric : str, callable, or sequence of these
        ``"transport"`` (SCTD), ``"nce"``, ``"leep"``, ``"logme"``, ``"h_score"``, ``"n_leep"``, ``"gbc"``,
        ``"otce"`` or ``"transrate"``; see `consilience.rank.transferability`. "transport" answers which
        teacher to distil, "logme" and "h_score" whose embedding to reuse: see docs/rank.md. A function gets a
        `consilience.rank.metrics.Case` and returns a score, or a number for each row whose mean is the
        score; higher is better. Of several metrics, the first ranks.
    approximation : {"fictitious", "student", "exact"}
        Which student eq. (24) is about: a linear probe on the teacher's embedding (the paper's
        Approximation II), one student trained without any teacher (I), or a student trained with each
        teacher (exact). The names "II" and "I" work, too.
    student : estimator, name or callable, optional
        For "student" a classifier with `predict_proba`, or the name of one ("mlp", "logistic", ...). For
        "exact" one with a parameter `teachers`, such as a `CrossTaskDistiller`, or a function from a teacher
        to an unfitted classifier.
    score : {"likelihood", "distance", "cost"}
        How "transport" scores. ``"distance"`` is eq. (24) as printed, the mean of S_eps(p_T, p_S). It
        depends on the scale and the entropy of a teacher's outputs as much as on the task.
        ``"likelihood"`` (ours) asks how probable the student's predictions p_S are under the transported
        label of the teacher. It ranks far better, see docs/how/ranking.md. ``"cost"`` is the plain <T, M>.
    temperature : float
        Of the softmax of both sides; the paper's is 3.
    epsilon : float or "auto"
        Of the Sinkhorn distance; "auto" follows the spread of each teacher's cost matrix.
    normalize : bool
        Whether class centres are brought to unit length; see `cost_matrix`.
    weight_decay : float
        Weight decay of the probe, on features scaled to a mean squared length of d.
    folds : int
        With 2 or more, every metric but "logme" and "gbc" is cross-fitted: what it learns from the labels of
        some rows is tested on others, so teachers that know nothing gain nothing by chance. "transport"
        gives each row a probe of its own fold and class centres of the other folds. "transrate" has nothing
        to hold out; the score of shuffled labels is subtracted instead. 1 gives the metrics as published;
        with few rows per class, random teachers of many classes or features then often come first.
    n_bootstrap : int
        Resamples of the rows for the intervals; 0 for none.
    confidence : float
        Of the intervals.
    cache : folder or ScoreStore, optional
        Keeps what teachers say, so that no teacher runs twice on the same rows.
    cache_limit : float or str, optional
        Most bytes of the cache, such as ``"20GB"``: what was not used for longest is deleted beyond it.
    memory : float or str, optional
        How much memory the work may take, such as ``"2GB"``; by default a quarter of the machine's. Rows in
        files that would take more are read block by block, and what teachers say of them is in memory. If
        not even that fits, or if the metric needs the rows themselves (your own, or with a student), a random
        sample is used, with a warning.
    batch_size : int
        Rows per call of a teacher.
    engine : {"local", "ray"}
        Where teachers run: here, one after the other, or each as a task on a Ray cluster; see docs/ray.md.
    engine_options : dict, optional
        For "ray": `address`, `timeout`, and `teachers` with `num_cpus` and `num_gpus` by name.
    progress : callable
        Called with ("ranking", teachers done, teachers in all).
    random_state : int, optional
        Seeds resamples, folds and mixtures. None means 0, so a ranking never changes from run to run.

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
    chosen: list[Any] = list(metric) if isinstance(metric, list | tuple) else [metric]
    names = _metric_names(chosen)
    settings = _settings(
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
    check_number("confidence", confidence, above=0, below=1)
    check_engine(engine, engine_options)
    options = read_options(engine_options)
    given = given_teachers(teachers)
    # metrics of ours look at outputs alone, unless a student is trained
    alone = settings.approximation == "fictitious" and not any(callable(one) for one in chosen)
    width = widest(given, options if engine == "ray" else None) if alone else None
    X, found, places = read_task_rows(as_rows(X).given, y, memory, seed=settings.seed, width=width)
    classes, all_codes = found
    codes, rows_left = all_codes[found.known], X if found.known.all() else take_rows(X, found.known)
    labels, once = classes[codes], None
    if settings.approximation == "student" and "transport" in names:
        once = fitted_logits(_student_without_teacher(settings.student), rows_left, labels, classes)
    task = Task(
        rows_left,
        labels,
        codes,
        len(classes),
        {name: as_metric(one, settings) for name, one in zip(names, chosen, strict=True)},
        settings,
        once,
        as_store(cache, cache_limit),
        check_count("batch_size", batch_size),
        X,
        found.known,
        places,
    )
    rows, resamples = [], []
    ranked = _ranked(given, task, progress) if engine == "local" else _on_ray(given, task, options, progress)
    for row, added in ranked:
        means = np.full(n_bootstrap, -np.inf)
        if added is not None and n_bootstrap:
            means = resampled_means(added, n_bootstrap, settings.seed)
            row = replace(row, interval=_interval(means, confidence, task.metrics[names[0]].highest))
        rows.append(row)
        resamples.append(means)
    names_once = distinct_names([row.name for row in rows])
    rows = [replace(row, name=name) for row, name in zip(rows, names_once, strict=True)]
    ordered = _best_first(rows, np.array(resamples))
    return Ranking(ordered, names[0], len(labels), len(classes), float(confidence))


def _metric_names(metrics: Sequence[Any]) -> list[str]:
    """Return the name of each metric, or raise unless each is known or a function, with its own name."""
    if not metrics:
        raise InvalidInputError("metric is empty; give the name of at least one.")
    for one in metrics:
        if not callable(one):
            check_choice("metric", one, METRICS)
    names = [metric_name(one) for one in metrics]
    for i, name in enumerate(names):
        if name in names[:i] or (callable(metrics[i]) and name in METRICS):
            raise InvalidInputError(f"metric has two metrics called {name!r}; give each its own name.")
    return names


def _settings(
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
        check_temperature(temperature),
        epsilon,
        normalize,
        check_number("weight_decay", weight_decay, at_least=0),
        check_count("folds", folds),
        0 if random_state is None else check_count("random_state", random_state, at_least=0),
    )


def _student_without_teacher(student: Any) -> Any:
    """Return an unfitted student without a teacher."""
    if hasattr(student, "fit"):
        return clone(student, safe=False)
    if callable(student):
        return student()
    raise InvalidInputError(
        f"student is a {type(student).__name__}; give a classifier, the name of one, "
        "or a function that makes one."
    )


def _ranked(given: GivenTeachers, task: Task, progress: Progress) -> Iterator[_Ranked]:
    for place, (name, source) in enumerate(zip(given.names, given.sources, strict=True)):
        yield _rank_one(source, name, place, task)
        progress("ranking", place + 1, len(given.sources))


def _on_ray(given: GivenTeachers, task: Task, options: RayOptions, progress: Progress) -> list[_Ranked]:
    """Rank each teacher in a task of its own."""
    items = list(zip(given.sources, given.names, range(len(given.names)), strict=True))
    needs = [options.teachers.get(name or "", {}) for name in given.names]
    found: dict[int, _Ranked] = {}
    for place, result in map_on_ray(_rank_without_teacher, task, items, options=options, needs=needs):
        source, name, _ = items[place]
        if isinstance(result, ScoringError):
            found[place] = _row(None, name or f"teacher {place + 1}", {}, error=str(result)), None
        else:
            row, added = result
            teacher = as_teacher(source, name=name) if row.error is None else None
            found[place] = replace(row, teacher=teacher), added
        progress("ranking", len(found), len(items))
    return [found[place] for place in sorted(found)]


def _rank_without_teacher(task: Task, item: tuple[Any, str | None, int]) -> _Ranked:
    """Rank one teacher in a worker; the teacher itself, which may be large, stays there."""
    source, name, place = item
    row, added = _rank_one(source, name, place, task)
    return replace(row, teacher=None), added


def _rank_one(source: Any, name: str | None, place: int, task: Task) -> _Ranked:
    """Score one teacher; return its row without an interval, and the number of each row of X."""
    start = time.perf_counter()
    shown, teacher, added = name or f"teacher {place + 1}", None, None
    scores: dict[str, float] = {}
    error: str | None = None
    first = next(iter(task.metrics))
    partial = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            teacher = as_teacher(source, name=name)
            shown = teacher.name
            case, answered = _case(teacher, task.observed(teacher), task)
            for metric in task.metrics:
                try:
                    found = _scored(case, answered, metric, task)
                except Exception as problem:
                    if metric == first:
                        raise
                    # a metric that does not rank may fail: its column stays empty
                    scores[metric] = np.nan
                    warnings.warn(f"{metric}: {_reason(problem)}", ConsilienceWarning, stacklevel=2)
                    continue
                scores[metric] = float(np.nanmean(found))
                if metric == first:
                    added = found
                    partial = bool(np.isnan(found).any()) and case.n_classes < task.n_classes
        except Exception as problem:  # whatever a foreign model raises, the others are still to be ranked
            error, added = _reason(problem), None
    if teacher is not None:
        teacher.release()  # the next one needs the memory
    row = _row(teacher, shown, scores, _texts(caught), error, partial)
    return replace(row, seconds=time.perf_counter() - start), added


def _row(
    teacher: Teacher | None,
    name: str,
    scores: dict[str, float],
    told: tuple[str, ...] = (),
    error: str | None = None,
    partial: bool = False,
) -> RankedTeacher:
    """Return the row of a teacher, without an interval; its score is that of the first metric."""
    score = next(iter(scores.values())) if error is None else -np.inf
    return RankedTeacher(teacher, name, score, (np.nan, np.nan), np.nan, 0.0, told, error, scores, partial)


def _scored(case: Case, answered: NDArray[np.bool_], metric: str, task: Task) -> Floats:
    """Return a number for each row of X, whose mean is the score.

    Rows without an answer count as guesses where the score is a likelihood. Otherwise they are NaN.
    """
    value, rows = task.metrics[metric].score(case)
    if not np.isfinite(value):
        raise TeacherError(case.teacher.name, f"has {metric} = {value}, which is no score.")
    guess = -np.log(task.n_classes) if task.metrics[metric].likelihood else np.nan
    added = np.full(len(task.y), guess)
    added[answered] = rows
    return added


def _interval(means: Floats, confidence: float, highest: float) -> tuple[float, float]:
    """Return the interval that holds a share of the resamples; those without an answer do not count."""
    if np.isnan(means).all():
        return np.nan, np.nan
    low, high = np.nanquantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    # a jackknife may go beyond the largest score there is
    return float(low), min(float(high), highest)


def _case(teacher: Teacher, observed: Observed, task: Task) -> tuple[Case, NDArray[np.bool_]]:
    """Return a teacher's outputs on the rows it answered, and which rows; raise if they say nothing."""
    logits, n = observed.logits, len(task.y)
    answered: NDArray[np.bool_] = np.asarray(~np.isnan(logits).any(axis=1))
    if not answered.any():
        raise TeacherError(teacher.name, "abstains on every row.")
    # compare probabilities: a constant added to all logits of a row means nothing
    if np.ptp(softmax(logits[answered], axis=1), axis=0).max() <= SAME:
        raise TeacherError(teacher.name, "gives the same answer for every row.")
    if observed.embeddings is not None:
        bad = ~np.isfinite(observed.embeddings).all(axis=1) & answered
        if bad.any():
            raise TeacherError(
                teacher.name, f"has embeddings with NaN or infinity in {counted(int(bad.sum()), 'row')}."
            )
        if not np.ptp(observed.embeddings[answered], axis=0).any():
            raise TeacherError(teacher.name, "has the same embedding for every row.")
    case = Case(
        teacher, task.X, task.y, task.codes, task.n_classes, observed, task.settings, task.student_logits
    )
    if answered.all():
        return case, answered
    if len(np.unique(task.codes[answered])) < 2:
        raise TeacherError(teacher.name, "answered rows of one class only.")
    part = case.part(answered)
    lost = task.n_classes - part.n_classes
    warnings.warn(
        f"Abstains on {int((~answered).sum())} of {n} rows"
        + (f", among them all of {counted(lost, 'class')}" if lost else "")
        + "; these count as guesses where the metric is a likelihood, and are left out of others.",
        ConsilienceWarning,
        stacklevel=2,
    )
    return part, answered


def _reason(error: Exception) -> str:
    """Return why a teacher failed, without its name, which the table shows."""
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
