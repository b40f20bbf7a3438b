"""The metrics that rank teachers. Each maps one teacher's outputs on the task to a score.

A metric also gives each row a number. The mean of these numbers is the score, and they resample as the score
does. They are the terms of a mean for `transport`, `nce`, `leep`, `n_leep`, `otce` and the cross-fitted
`h_score`; derivatives by the weight of a row for `logme` and the published `h_score`; and the spread of a
jackknife for the others.

With two folds or more, metrics that would learn from the rows they judge learn from the other folds. `logme`
averages over all linear models instead of fitting one, and `gbc` is left as published. Equation numbers are
those of SCTD.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone

from consilience._validation import take_rows
from consilience.exceptions import ConvergenceWarning, InvalidInputError, TeacherError
from consilience.kernels.arrays import Floats
from consilience.kernels.folds import held_out_folds, stratified_folds
from consilience.kernels.rank.evidence import (
    Spectrum,
    evidence_rows,
    feature_spectrum,
    label_sums,
    maximum_evidence,
)
from consilience.kernels.rank.label_evidence import (
    held_out_leep_rows,
    held_out_nce_rows,
    leep_rows,
    nce_rows,
)
from consilience.kernels.rank.probe import (
    probe_logits,
    spread_jackknife,
    tempered_likelihood,
)
from consilience.kernels.rank.separability import h_score_rows, held_out_h_score
from consilience.kernels.transport.centres import centre_distances, class_means, unit_rows
from consilience.kernels.transport.sinkhorn import automatic_epsilon
from consilience.rank import transferability
from consilience.rank.mixture import cluster_posterior
from consilience.rank.transferability import unit_scale
from consilience.scoring.engine import Observed
from consilience.teachers import Teacher
from consilience.transport.centres import features, teacher_centres
from consilience.transport.distance import sinkhorn
from consilience.transport.plan import conditional_plan

SCORES = ("likelihood", "distance", "cost")
JACKKNIFE = 10  # groups for the interval of a metric that is no mean over rows
SHUFFLES = 5  # of the labels, for what transrate finds by chance
SINKHORN_TOL = 1e-5
FLOOR = 1e-12  # of a student's probabilities


@dataclass(frozen=True)
class Settings:
    """What the metrics need to know besides a teacher's outputs."""

    approximation: str
    student: Any
    score: str
    temperature: float
    epsilon: float | str
    normalize: bool
    weight_decay: float
    folds: int
    seed: int
    intervals: bool = True  # False spares the numbers of the rows


@dataclass(frozen=True, eq=False)
class Case:
    """One teacher's outputs on the rows that it answered: the argument of every metric.

    Attributes
    ----------
    teacher : Teacher
    X : rows
        The n rows of the task that the teacher answered.
    y : (n,) array
        Their labels.
    codes : (n,) array of int
        The labels as numbers from 0 to K - 1.
    n_classes : int
        K, the classes among these rows.
    observed : Observed
        The teacher's `logits` (n, m) and `embeddings` (n, d), as they came.
    proba : (n, m) array
        The teacher's probabilities.
    embeddings : (n, d) array
        Its embeddings; asking for them raises an error where it has none.
    settings : Settings
        The options of `rank_teachers`.
    student_logits : (n, K) array or None
        p_S of Approximation I, which is the same for all teachers.

    Examples
    --------
    >>> from consilience import as_teacher, rank_teachers
    >>> def confidence(case):
    ...     return case.proba.max(axis=1)  # a number per row
    >>> teacher = as_teacher([[0.9, 0.1], [0.2, 0.8]] * 10, ["wolf", "lion"], name="wild")
    >>> found = rank_teachers([teacher], range(20), ["dog", "cat"] * 10, metric=confidence)
    >>> round(found[0].score, 2)
    0.85
    """

    teacher: Teacher
    X: Any
    y: NDArray[Any]
    codes: NDArray[np.intp]
    n_classes: int
    observed: Observed
    settings: Settings
    student_logits: Floats | None = None

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """Embeddings (n, d) less their mean, with a mean squared length of d: one scale for all teachers."""
        F: NDArray[np.float32] = unit_scale(self.embeddings)
        F *= np.float32(np.sqrt(F.shape[1]))
        return F

    @property
    def guess(self) -> float:
        """The log-likelihood of a guess among the classes."""
        return -float(np.log(self.n_classes))

    @cached_property
    def folds(self) -> NDArray[np.intp]:
        """The fold (n,) of each row; -1 where it is the only one of its class."""
        if self.settings.folds == 1:
            return np.zeros(len(self.codes), dtype=np.intp)
        rng = np.random.RandomState(self.settings.seed)
        folds = held_out_folds(self.codes, self.settings.folds, rng)
        if (folds < 0).all():
            raise TeacherError(
                self.teacher.name, "answered one row of each class, so no row can be held out. Use folds=1."
            )
        return folds

    @cached_property
    def proba(self) -> Floats:
        """The teacher's probabilities (n, m)."""
        return np.asarray(softmax(self.observed.logits, axis=1))

    @cached_property
    def embeddings(self) -> NDArray[np.float32]:
        """Embeddings (n, d) as they are."""
        return np.asarray(features(self.observed), dtype=np.float32)

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigendecomposition of the features for logme, which has no intercept."""
        return feature_spectrum(self.embeddings)

    @cached_property
    def centred_spectrum(self) -> Spectrum:
        """The eigendecomposition that h_score and transrate share, of the features less their mean."""
        return feature_spectrum(self.embeddings, centred=True)

    @cached_property
    def sums(self) -> tuple[Floats, Floats]:
        """The sums of the embeddings of each class (K, d), and its rows (K,)."""
        return label_sums(self.embeddings, self.codes, self.n_classes)

    def part(self, rows: NDArray[np.bool_]) -> Case:
        """Return the same teacher on some of the rows."""
        seen = self.observed
        kept = Observed(seen.logits[rows], None if seen.embeddings is None else seen.embeddings[rows])
        y = self.y[rows]
        classes, codes = np.unique(y, return_inverse=True)
        known = np.unique(self.codes[rows])
        student = None if self.student_logits is None else self.student_logits[rows][:, known]
        return replace(
            self,
            X=take_rows(self.X, np.flatnonzero(rows)),
            y=y,
            codes=codes.astype(np.intp, copy=False),
            n_classes=len(classes),
            observed=kept,
            student_logits=student,
        )


# the score, and a number for each row whose mean is the score
Scored = tuple[float, Floats]
# a user's metric: the score, or a number for each row whose mean is the score
OwnMetric = Callable[[Case], float | Floats]


def _transport(case: Case) -> Scored:
    r"""Return minus the mean of eq. (24) over the rows, or the likelihood of the student's predictions.

    "likelihood" (ours) compares the student's predictions with the transported label q, which a student
    of the teacher alone would predict: q = argmin_q S_epsilon(p_T, q). A power a flattens q where that fits
    better:

    .. math:: \max_{0 \le a \le 1} \frac{1}{N} \sum_i \sum_n p_S(x_i)_n \ln
              \frac{q(x_i)_n^a}{\sum_k q(x_i)_k^a}

    S_epsilon itself rewards teachers that know nothing: their costs are all alike, and so are their student's
    predictions. Here such a teacher gets the likelihood of a guess.

    The rows of a fold meet a probe of that fold and class centres of the other folds. Made of the same rows,
    probe and centres would agree by chance.
    """
    settings, folds = case.settings, case.folds
    p_T = np.asarray(softmax(case.observed.logits / settings.temperature, axis=1))
    p_S = np.asarray(softmax(_student_side(case) / settings.temperature, axis=1))
    log_q, rows = np.full(p_S.shape, np.nan), np.full(len(p_S), np.nan)
    for fold in range(int(folds.max()) + 1):
        own = folds == fold
        M = _cost(case, ~own if settings.folds > 1 else own)
        if settings.score == "likelihood":
            epsilon = automatic_epsilon(M) if isinstance(settings.epsilon, str) else settings.epsilon
            q = p_T[own] @ conditional_plan(M, epsilon)
            log_q[own] = np.log(np.maximum(q, np.finfo(np.float64).tiny))
        else:
            found = sinkhorn(p_T[own], p_S[own], M, settings.epsilon, tol=SINKHORN_TOL)
            rows[own] = -(found.cost if settings.score == "cost" else found.value)
    several = folds >= 0
    if settings.score == "likelihood":
        rows[several] = tempered_likelihood(p_S[several], log_q[several])
    # the only row of a class cannot be held out, so nothing is known about it
    rows[~several] = case.guess if settings.score == "likelihood" else rows[several].mean()
    return float(rows.mean()), rows


def _cost(case: Case, known: NDArray[np.bool_]) -> Floats:
    """Return the cost matrix M (m, K) of eq. (7), made from the rows `known` alone."""
    seen = case.observed
    logits = np.where(known[:, None], seen.logits, np.nan)  # as if the teacher abstained on the others
    own = teacher_centres(case.teacher, case.X, observed=Observed(logits, seen.embeddings))
    means = class_means(features(seen), np.where(known, case.codes, -1), case.n_classes)
    return centre_distances(own, means, case.settings.normalize)


def _student_side(case: Case) -> Floats:
    """Return the logits (n, K) of the student of eq. (24); NaN for rows that cannot be held out."""
    settings = case.settings
    if case.student_logits is not None:
        return case.student_logits
    if settings.approximation == "exact":
        return fitted_logits(_student_of(settings.student, case.teacher), case.X, case.y, np.unique(case.y))
    folds = case.folds if settings.folds > 1 else None
    probe = probe_logits(case.features, case.codes, case.n_classes, settings.weight_decay, folds)
    if not probe.converged:
        warnings.warn(
            f"The probe stopped with a gradient of {probe.gradient:.1e} (tol 1e-4). Raise weight_decay.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return probe.logits.astype(np.float64)


def takes_teachers(student: Any) -> bool:
    """Tell whether a student can be made for a teacher: see `_student_of`."""
    if hasattr(student, "fit") and hasattr(student, "get_params"):
        return "teachers" in student.get_params()
    return callable(student)


def _student_of(student: Any, teacher: Teacher) -> Any:
    """Return an unfitted student of this teacher."""
    if hasattr(student, "fit") and hasattr(student, "get_params"):
        return clone(student, safe=False).set_params(teachers=teacher)
    return student(teacher)


def fitted_logits(student: Any, X: Any, y: NDArray[Any], classes: NDArray[Any]) -> Floats:
    """Fit a student; return the logarithms of its probabilities (n, K), in the order of `classes`."""
    student.fit(X, y)
    proba = np.asarray(student.predict_proba(X), dtype=np.float64)
    known = np.asarray(student.classes_).tolist()
    if sorted(known, key=str) != sorted(classes.tolist(), key=str) or proba.shape != (len(y), len(known)):
        raise InvalidInputError(
            f"The student predicts {proba.shape} for the classes {known}; expected a column for each of "
            f"{classes.tolist()}."
        )
    return np.asarray(np.log(np.maximum(proba[:, [known.index(name) for name in classes.tolist()]], FLOOR)))


def _nce(case: Case) -> Scored:
    guesses, n_guesses = case.proba.argmax(axis=1), case.proba.shape[1]
    if case.settings.folds == 1:
        rows = nce_rows(guesses, case.codes, case.n_classes, n_guesses)
    else:
        rows = held_out_nce_rows(guesses, case.codes, case.n_classes, n_guesses, case.folds)
    return float(rows.mean()), rows


def _leep(case: Case) -> Scored:
    return _leep_of(case.proba, case)


def _n_leep(case: Case) -> Scored:
    F = case.embeddings.astype(np.float64)
    return _leep_of(cluster_posterior(F, case.n_classes, 0.8, case.settings.seed), case)


def _leep_of(theta: Floats, case: Case) -> Scored:
    """Return LEEP for given probabilities (n, m)."""
    if case.settings.folds == 1:
        rows = leep_rows(theta, case.codes, case.n_classes)
    else:
        rows = held_out_leep_rows(theta, case.codes, case.n_classes, case.folds)
    return float(rows.mean()), rows


def _logme(case: Case) -> Scored:
    found = maximum_evidence(case.spectrum, *case.sums)
    transferability.warn_of_evidence(found)
    if not case.settings.intervals:
        return float(found.values.mean()), np.full(len(case.codes), found.values.mean())
    rows = evidence_rows(case.embeddings, case.codes, case.spectrum, found)
    return float(found.values.mean()), rows


def _h_score(case: Case) -> Scored:
    if case.settings.folds == 1:
        return h_score_rows(case.embeddings, case.codes, case.centred_spectrum, *case.sums)
    return held_out_h_score(case.embeddings, case.codes, case.n_classes, case.centred_spectrum, case.folds)


def _transrate(case: Case) -> Scored:
    def value(part: Case) -> float:
        if part.settings.folds == 1:
            return transferability.transrate(part.embeddings, part.codes, spectrum=part.centred_spectrum)
        seed = part.settings.seed
        return transferability.transrate(part.embeddings, part.codes, n_shuffles=SHUFFLES, random_state=seed)

    return _jackknifed(case, value)


def _gbc(case: Case) -> Scored:
    return _jackknifed(case, lambda part: transferability.gbc(part.embeddings, part.codes))


def _otce(case: Case) -> Scored:
    """Score with the teacher's class centres in place of its training rows, which are not available.

    A centre counts as often as its class is predicted. Both sides have unit length.
    """

    S = unit_rows(teacher_centres(case.teacher, case.X, observed=case.observed))
    folds = None if case.settings.folds == 1 else case.folds
    classes = (np.arange(len(S)), len(S))
    share = case.proba.mean(axis=0)
    rows = transferability.otce_rows(
        S, classes, share / share.sum(), unit_rows(case.embeddings), case.codes, folds
    )
    return float(rows.mean()), rows


def _jackknifed(case: Case, value: Callable[[Case], float]) -> Scored:
    """Return a score that is no mean over rows, with its spread when a tenth of the rows is left out."""
    whole = value(case)
    if not case.settings.intervals:
        return whole, np.full(len(case.codes), whole)
    count = min(JACKKNIFE, len(case.codes))
    groups = stratified_folds(case.codes, count, np.random.RandomState(case.settings.seed))
    left_out = np.empty(count)
    for g in range(count):
        kept = groups != g
        few = len(np.unique(case.codes[kept])) < 2
        left_out[g] = whole if few else value(case.part(kept))
    return whole, spread_jackknife(whole, left_out, groups)


@dataclass(frozen=True)
class Metric:
    """How a metric scores, and what its numbers are.

    Attributes
    ----------
    score : callable
        From a `Case` to the score and a number for each row.
    likelihood : bool
        Whether the score is a mean log-likelihood. Rows without an answer then count as guesses.
    highest : float
        The largest score there can be; a jackknife interval is cut there.
    """

    score: Callable[[Case], Scored]
    likelihood: bool = False
    highest: float = np.inf


METRICS: dict[str, Metric] = {
    "transport": Metric(_transport, likelihood=True),
    "nce": Metric(_nce, likelihood=True),
    "leep": Metric(_leep, likelihood=True),
    "logme": Metric(_logme),
    "h_score": Metric(_h_score),
    "n_leep": Metric(_n_leep, likelihood=True),
    "gbc": Metric(_gbc, highest=0.0),
    "otce": Metric(_otce, highest=0.0),
    "transrate": Metric(_transrate),
}


def as_metric(metric: str | OwnMetric, settings: Settings) -> Metric:
    """Return the metric of this name, or make one of a user's function."""
    if callable(metric):
        return Metric(lambda case: _own(metric, case))
    found = METRICS[metric]
    if metric == "transport" and settings.score != "likelihood":
        return replace(found, likelihood=False)
    return found


def _own(metric: OwnMetric, case: Case) -> Scored:
    """Score by a user's function: a number, or a number for each row."""
    name = metric_name(metric)
    value = np.asarray(metric(case))
    if value.dtype.kind not in "biuf" or value.shape not in ((), (len(case.codes),)):
        raise InvalidInputError(
            f"metric {name!r} returned an array of shape {value.shape} and type {value.dtype}; expected "
            f"one number, or one for each of the {len(case.codes)} rows."
        )
    if value.ndim == 0:
        return _jackknifed(case, lambda part: float(metric(part)))
    return float(value.mean()), value.astype(np.float64)


def metric_name(metric: str | OwnMetric) -> str:
    """Return the name of a metric, for tables."""
    return metric if isinstance(metric, str) else str(getattr(metric, "__name__", type(metric).__name__))
