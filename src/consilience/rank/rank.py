"""Rank teachers by how much each would help with a task, without training on each (SCTD, Sec. 5)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone

from consilience._words import counted
from consilience.exceptions import ConsilienceWarning, InvalidInputError, ScoringError, TeacherError, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.rank.probe import resampled_means
from consilience.labels.reader import read_labels
from consilience.options import takes
from consilience.rank.metrics import SCORES, Case, fitted_logits, maker_of
from consilience.rank.options import Metric, Own, RankOptions, Transport
from consilience.rank.ranking import RankedTeacher, Ranking
from consilience.rows import as_rows, memory_budget
from consilience.run import Run, resolve_run
from consilience.scoring import observe, with_open_cache
from consilience.students.make import named_student
from consilience.teachers import Observed, Teacher, as_teacher
from consilience.teachers.given import GivenTeachers, distinct_names, given_teachers

__all__ = ["MOST_ROWS", "rank_teachers"]

MOST_ROWS = 2**15
"""Most labelled rows that teachers are ranked on: more would hardly change the order."""
SAME = 1e-6  # differences of probabilities that are rounding

_Ranked = tuple[RankedTeacher, Floats | None]
"""A teacher's row, and the number of each row of X whose mean is its score."""


class Task(NamedTuple):
    """What all teachers are scored on, and how."""

    case: Case  # of no teacher yet
    metrics: Mapping[str, Metric]  # by name; the first ranks
    run: Run  # without progress: teachers are asked silently


@takes(RankOptions)
def rank_teachers(teachers: Any, X: Any, y: Any, options: RankOptions) -> Ranking:
    r"""Rank teachers by how much each would help a student of your classes.

    Parameters
    ----------
    teachers : sequence, dict, Ranking or teacher
        Teachers, or whatever `as_teacher` takes: models, paths, functions, precomputed outputs. A list of
        them, a dict by name, another Ranking (those with a score), or a single one. A teacher that fails,
        gives every row the same answer or abstains everywhere comes last, with the reason. Rows without an
        answer count as guesses. Where the metric is no likelihood, a teacher that never answers for some
        class comes after those that do.
    X : array, sparse matrix, data frame, list, path or other source of rows
        n rows of your task. At most `MOST_ROWS` that have a label are used, a random sample. Where a metric
        needs the rows themselves (your own, or with a student), it must fit in memory, too.
    y : (n,) sequence of str or int
        Their classes, which need not be those of any teacher. Rows without a label (None, NaN, -1) are left
        out.

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
    metrics, run = options.resolved("metric"), with_open_cache(resolve_run(options.run))
    given = given_teachers(teachers)
    task = _read_task(X, y, metrics, options, run.changed(progress=None))
    first = next(iter(metrics.values()))
    n_resamples = 0 if options.confidence is None else first.n_bootstrap
    rows, resamples = [], []
    for row, added in _ranked(given, task, run):
        means = np.full(n_resamples, -np.inf)
        if added is not None and options.confidence is not None:
            means = resampled_means(added, n_resamples, task.case.seed)
            row = replace(row, interval=_interval(means, options.confidence, first.highest))
        rows.append(row)
        resamples.append(means)
    names = distinct_names([row.name for row in rows])
    rows = [replace(row, name=name) for row, name in zip(rows, names, strict=True)]
    return Ranking(
        _best_first(rows, np.array(resamples)),
        first.name,
        len(task.case.y),
        task.case.n_classes,
        options.confidence,
    )


def _read_task(X: Any, y: Any, metrics: Mapping[str, Metric], options: RankOptions, run: Run) -> Task:
    """Read the labels, choose the rows, and train the student that serves all teachers."""
    transport = [one for one in metrics.values() if isinstance(one, Transport)]
    student = _checked_student(transport[0].student) if transport else None
    rows, seed = as_rows(X), options.random_state or 0
    classes, codes = read_labels(y, len(rows), at_least=2)
    places, most = np.flatnonzero(codes >= 0), MOST_ROWS
    alone = student is None and not any(isinstance(one, Own) for one in metrics.values())
    if not (alone or rows.held):
        most = min(most, int(memory_budget(run) / 4 * len(rows) / max(1, rows.n_bytes)))
    if len(places) > most:
        if most < MOST_ROWS:
            warn(
                ConsilienceWarning(
                    f"{most:,} random rows of the {len(places):,} that have a label are used: the metric "
                    "needs them in memory. Raise memory= for more."
                )
            )
        places = np.sort(np.random.default_rng(seed).choice(places, most, replace=False))
    y, once = classes[codes[places]], None
    if student is not None and maker_of(student) is None:
        once = fitted_logits(clone(student, safe=False), rows.take(places), y, classes)
    nothing = Observed(np.empty((len(places), 0)), None)
    intervals = options.confidence is not None
    case = Case(
        None, rows, places, y, codes[places], len(classes), nothing, options.folds, seed, intervals, once
    )
    return Task(case, metrics, run)


def _checked_student(student: Any) -> Any:
    """Return the student of eq. (24), None for the probe, or raise."""
    if isinstance(student, str):
        return None if student == "probe" else named_student(student)
    if not (maker_of(student) or hasattr(student, "fit")):
        raise InvalidInputError(
            f"student is a {type(student).__name__}; give 'probe', a classifier, the name of one, or a "
            "function from a teacher to a classifier."
        )
    return student


def _ranked(given: GivenTeachers, task: Task, run: Run) -> list[_Ranked]:
    """Rank all teachers: here, or each in a task of its own on Ray."""
    items = list(zip(given.sources, given.names, range(len(given.names)), strict=True))
    results: Iterable[tuple[int, Any]] = enumerate(_rank_one(task, item) for item in items)
    if run.engine == "ray":
        from consilience.scoring.ray import engine_options, map_on_ray

        results = map_on_ray(_rank_without_teacher, task, items, engine_options(run))
    found: dict[int, _Ranked] = {}
    for place, result in results:
        source, name, _ = items[place]
        ended = isinstance(result, ScoringError)
        row, added = (replace(_failed(name, place), error=str(result)), None) if ended else result
        if row.teacher is None and row.error is None:  # it stayed in a worker
            row = replace(row, teacher=as_teacher(source, name=name))
        found[place] = row, added
        run.report("ranking", len(found), len(items))
    return [found[place] for place in sorted(found)]


def _rank_without_teacher(task: Task, item: tuple[Any, str | None, int]) -> _Ranked:
    """Rank one teacher in a worker; the teacher itself, which may be large, stays there."""
    row, added = _rank_one(task, item)
    return replace(row, teacher=None), added


def _failed(name: str | None, place: int) -> RankedTeacher:
    """Return the row of a teacher without a score."""
    return RankedTeacher(None, name or f"teacher {place + 1}", -np.inf, (np.nan, np.nan), np.nan, 0.0)


def _rank_one(task: Task, item: tuple[Any, str | None, int]) -> _Ranked:
    """Score one teacher; return its row without an interval, and the number of each row of X."""
    (source, name, place), start = item, time.perf_counter()
    row, added = _failed(name, place), None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            teacher = as_teacher(source, name=name)
            row = replace(row, teacher=teacher, name=teacher.name)
            case, answered = _case(teacher, _observed(teacher, task), task)
            first, *others = task.metrics
            added = _scored(case, answered, first, task)
            scores = {first: float(np.nanmean(added))}
            for metric in others:
                try:
                    scores[metric] = float(np.nanmean(_scored(case, answered, metric, task)))
                except Exception as problem:  # a metric that does not rank may fail: its column stays empty
                    scores[metric] = np.nan
                    warn(ConsilienceWarning(f"{metric}: {_reason(problem)}"))
            partial = bool(np.isnan(added).any()) and case.n_classes < task.case.n_classes
            row = replace(row, score=scores[first], scores=scores, partial=partial)
        except Exception as problem:  # whatever a foreign model raises, the others are still to be ranked
            row, added = replace(row, error=_reason(problem)), None
    if row.teacher is not None:
        row.teacher.release()  # the next one needs the memory
    told = dict.fromkeys(" ".join(str(one.message).split()) for one in caught)
    return replace(row, warnings=tuple(told), seconds=time.perf_counter() - start), added


def _observed(teacher: Teacher, task: Task) -> Observed:
    """Ask a teacher about the rows of the task."""
    rows, places = task.case.rows, task.case.places
    if len(places) == len(rows):
        return observe(teacher, rows, task.run)
    if teacher.part(slice(0, 0)) is not None:  # it holds the outputs of all rows
        teacher.check_rows(rows.given)
    return observe(teacher.part(places) or teacher, rows.take(places), task.run)


def _scored(case: Case, answered: NDArray[np.bool_], name: str, task: Task) -> Floats:
    """Return a number for each row of X, whose mean is the score.

    Rows without an answer count as guesses where the score is a likelihood. Otherwise they are NaN.
    """
    metric = task.metrics[name]
    rows = SCORES[type(metric)](case, metric)
    if not np.isfinite(rows.mean()):
        raise TeacherError(case.teacher.name, f"has {name} = {rows.mean()}, which is no score.")
    added = np.full(len(task.case.y), task.case.guess if metric.likelihood else np.nan)
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
    answered: NDArray[np.bool_] = ~np.isnan(observed.logits).any(axis=1)
    if not answered.any():
        raise TeacherError(teacher.name, "abstains on every row.")
    # compare probabilities: a constant added to all logits of a row means nothing
    if np.ptp(softmax(observed.logits[answered], axis=1), axis=0).max() <= SAME:
        raise TeacherError(teacher.name, "gives the same answer for every row.")
    if observed.embeddings is not None:
        bad = int((~np.isfinite(observed.embeddings).all(axis=1) & answered).sum())
        if bad:
            raise TeacherError(teacher.name, f"has embeddings with NaN or infinity in {counted(bad, 'row')}.")
        if not np.ptp(observed.embeddings[answered], axis=0).any():
            raise TeacherError(teacher.name, "has the same embedding for every row.")
    case = replace(task.case, teacher=teacher, observed=observed)
    if answered.all():
        return case, answered
    case = case.part(answered)
    if case.n_classes < 2:
        raise TeacherError(teacher.name, "answered rows of one class only.")
    lost = task.case.n_classes - case.n_classes
    among = f", among them all of {counted(lost, 'class')}" if lost else ""
    warn(
        ConsilienceWarning(
            f"Abstains on {int((~answered).sum())} of {len(answered)} rows{among}; these count as guesses "
            "where the metric is a likelihood, and are left out of others."
        )
    )
    return case, answered


def _reason(error: Exception) -> str:
    """Return why a teacher failed, without its name, which the table shows."""
    if isinstance(error, TeacherError):
        return error.problem
    text = " ".join(str(error).split()) or "no message"
    return text if isinstance(error, InvalidInputError) else f"{type(error).__name__}: {text[:300]}"


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
