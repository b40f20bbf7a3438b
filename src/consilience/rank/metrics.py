"""The metrics that rank teachers. Each maps one teacher's outputs on the task to a score.

The metrics themselves, with their options and equations, are in `consilience.rank.options`.

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
from sklearn.exceptions import ConvergenceWarning as NotConverged

from consilience._validation import as_random_state, check_epsilon
from consilience.exceptions import ConvergenceWarning, InvalidInputError, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.held_out import held_out_folds, stratified_folds
from consilience.kernels.rank.evidence import (
    Evidence,
    Spectrum,
    entropy_rows,
    evidence_rows,
    feature_spectrum,
    gaussian_overlap,
    h_score_rows,
    held_out_h_score,
    leep_rows,
    maximum_evidence,
    transrate_above_chance,
    transrate_value,
)
from consilience.kernels.rank.probe import probe_logits, spread_jackknife, tempered_likelihood
from consilience.kernels.transport import sinkhorn as transport
from consilience.kernels.transport.centres import centre_distances, class_means, class_sums, unit_rows
from consilience.rank.options import (
    GBC,
    LEEP,
    NCE,
    NLEEP,
    OTCE,
    HScore,
    LogME,
    Metric,
    Own,
    Transport,
    TransRate,
)
from consilience.rows import Rows
from consilience.teachers import Observed, Teacher
from consilience.transport.centres import features, teacher_centres
from consilience.transport.distance import conditional_plan, sinkhorn

JACKKNIFE = 10  # groups for the interval of a metric that is no mean over rows
SINKHORN_TOL = 1e-5
FLOOR = 1e-12  # of a student's probabilities
EVIDENCE_TOL = 1e-6  # nats per row in the last step
OTCE_TOL, OTCE_MAX_ITER = 1e-6, 10_000  # of its plan

Codes = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Case:
    """One teacher's outputs on the rows that it answered: the argument of every metric.

    Attributes
    ----------
    teacher : Teacher
    rows : Rows
        All rows that were given.
    places : (n,) array of int
        Those of the task that the teacher answered; `X` has them in memory.
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
        Its embeddings, or the square roots of its probabilities where it has none.
    n_folds, seed : int
        As given to `rank_teachers`.
    intervals : bool
        False spares the numbers of the rows.
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

    teacher: Any
    rows: Rows
    places: NDArray[np.intp]
    y: NDArray[Any]
    codes: NDArray[np.intp]
    n_classes: int
    observed: Observed
    n_folds: int = 2
    seed: int = 0
    intervals: bool = True
    student_logits: Floats | None = None

    @cached_property
    def X(self) -> Any:  # noqa: N802
        """The rows, in memory."""
        return self.rows.take(self.places)

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
        if self.n_folds == 1:
            return np.zeros(len(self.codes), dtype=np.intp)
        folds = held_out_folds(self.codes, self.n_folds, np.random.RandomState(self.seed))
        if (folds < 0).all():
            raise InvalidInputError("There is one row of each class, so no row can be held out. Use folds=1.")
        return folds

    @property
    def held_out(self) -> NDArray[np.intp] | None:
        """The folds, or None if there is one."""
        return None if self.n_folds == 1 else self.folds

    @cached_property
    def proba(self) -> Floats:
        """The teacher's probabilities (n, m)."""
        return np.asarray(softmax(self.observed.logits, axis=1))

    @cached_property
    def embeddings(self) -> NDArray[Any]:
        """Embeddings (n, d) as they are."""
        return features(self.observed)

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
        return class_sums(self.embeddings, self.codes, self.n_classes)

    def part(self, rows: NDArray[np.bool_]) -> Case:
        """Return the same teacher on some of the rows."""
        classes, codes = np.unique(self.codes[rows], return_inverse=True)
        student = None if self.student_logits is None else self.student_logits[rows][:, classes]
        return replace(
            self,
            places=self.places[rows],
            y=self.y[rows],
            codes=codes.astype(np.intp, copy=False),
            n_classes=len(classes),
            observed=self.observed.take(rows),
            student_logits=student,
        )


def _transport(case: Case, metric: Transport) -> Floats:
    r"""Return minus eq. (24) of each row, or the likelihood of the student's predictions.

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
    folds = case.folds
    p_T = np.asarray(softmax(case.observed.logits / metric.temperature, axis=1))
    p_S = np.asarray(softmax(_student_side(case, metric) / metric.temperature, axis=1))
    log_q, rows = np.full(p_S.shape, np.nan), np.full(len(p_S), np.nan)
    for fold in range(int(folds.max()) + 1):
        own = folds == fold
        M = _cost(case, ~own if case.n_folds > 1 else own, metric.normalize)
        if metric.likelihood:
            q = p_T[own] @ conditional_plan(M, check_epsilon(metric.epsilon, M))
            log_q[own] = np.log(np.maximum(q, np.finfo(np.float64).tiny))
        else:
            found = sinkhorn(p_T[own], p_S[own], M, metric.epsilon, tol=SINKHORN_TOL)
            rows[own] = -(found.cost if metric.score == "cost" else found.value)
    several = folds >= 0
    if metric.likelihood:
        rows[several] = tempered_likelihood(p_S[several], log_q[several])
    # the only row of a class cannot be held out, so nothing is known about it
    rows[~several] = case.guess if metric.likelihood else rows[several].mean()
    return rows


def _cost(case: Case, known: NDArray[np.bool_], normalize: bool) -> Floats:
    """Return the cost matrix M (m, K) of eq. (7), made from the rows `known` alone."""
    own = teacher_centres(case.teacher, case.rows.head, case.observed.take(known))
    means = class_means(features(case.observed), np.where(known, case.codes, -1), case.n_classes)
    return centre_distances(own, means, normalize)


def _student_side(case: Case, metric: Transport) -> Floats:
    """Return the logits (n, K) of the student of eq. (24); NaN for rows that cannot be held out."""
    if case.student_logits is not None:
        return case.student_logits
    make = maker_of(metric.student)
    if make is not None:
        return fitted_logits(make(case.teacher), case.X, case.y, np.unique(case.y))
    probe = probe_logits(case.features, case.codes, case.n_classes, metric.weight_decay, case.held_out)
    if not probe.converged:
        warn(
            ConvergenceWarning(
                f"The probe stopped with a gradient of {probe.gradient:.1e} (tol 1e-4). Raise weight_decay."
            )
        )
    return probe.logits.astype(np.float64)


def maker_of(student: Any) -> Callable[[Teacher], Any] | None:
    """Return what makes an unfitted student for a teacher; None for a student that needs no teacher."""
    if not (hasattr(student, "fit") and hasattr(student, "get_params")):
        return student if callable(student) else None
    if "teachers" not in student.get_params():
        return None
    return lambda teacher: clone(student, safe=False).set_params(teachers=teacher)


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


def _leep(case: Case, metric: NCE | LEEP) -> Floats:
    theta = case.proba if isinstance(metric, LEEP) else np.eye(case.proba.shape[1])[case.proba.argmax(axis=1)]
    return leep_rows(theta, case.codes, case.n_classes, case.held_out)


def _n_leep(case: Case, metric: NLEEP) -> Floats:
    n_clusters = metric.n_clusters or case.n_classes
    theta = cluster_posterior(case.embeddings.astype(np.float64), n_clusters, metric.energy, case.seed)
    return leep_rows(theta, case.codes, case.n_classes, case.held_out)


def _logme(case: Case, _: Metric) -> Floats:
    found = maximum_evidence(case.spectrum, *case.sums)
    warn_of_evidence(found)
    if not case.intervals:
        return np.full(len(case.codes), found.values.mean())
    return evidence_rows(case.embeddings, case.codes, case.spectrum, found)


def _h_score(case: Case, metric: HScore) -> Floats:
    F, codes, K = case.embeddings, case.codes, case.n_classes
    if case.n_folds > 1:
        return held_out_h_score(F, codes, K, case.centred_spectrum, case.folds)
    if not metric.shrinkage:
        return h_score_rows(F, codes, case.centred_spectrum, *case.sums)
    return _jackknifed(case, _shrunk_h_score)


def _shrunk_h_score(case: Case) -> float:
    from sklearn.covariance import ledoit_wolf  # slow to import

    F, (sums, counts) = case.embeddings, case.sums
    covariance, share = ledoit_wolf(F)
    G = sums / counts[:, None] - F.mean(axis=0)
    solved = np.linalg.lstsq(covariance, G.T, rcond=None)[0]
    return float((1.0 - share) * (counts / len(F)) @ np.einsum("kd,dk->k", G, solved))


def _transrate(case: Case, metric: TransRate) -> Floats:
    def value(part: Case) -> float:
        F, codes, K = part.embeddings.astype(np.float64), part.codes, part.n_classes
        if part.n_folds == 1:
            return transrate_value(F, codes, K, part.centred_spectrum, metric.epsilon)
        random = as_random_state(part.seed)
        return transrate_above_chance(F, codes, K, metric.epsilon, metric.n_shuffles, random)

    return _jackknifed(case, value)


def _gbc(case: Case, metric: GBC) -> Floats:
    def value(part: Case) -> float:
        F, codes, K = part.embeddings.astype(np.float64), part.codes, part.n_classes
        if metric.n_components is not None:
            F = principal_components(F, min(metric.n_components, *F.shape))
        counts = np.bincount(codes)[:, None]
        means = class_sums(F, codes, K)[0] / counts
        variances = class_sums((F - means[codes]) ** 2, codes, K)[0] / counts
        if metric.covariance == "spherical":
            variances[:] = variances.mean(axis=1, keepdims=True)
        # a class with a single row has no variance
        floor = max(1e-6 * float(F.var(axis=0).mean()), np.finfo(np.float64).tiny)
        return gaussian_overlap(means, np.maximum(variances, floor))

    return _jackknifed(case, value)


def _otce(case: Case, metric: OTCE) -> Floats:
    """Score with the teacher's class centres in place of its training rows, which are not available.

    A centre counts as often as its class is predicted. Both sides have unit length.
    """
    S = unit_rows(teacher_centres(case.teacher, case.rows.head, case.observed))
    share = case.proba.mean(axis=0)
    source = S, (np.arange(len(S)), len(S)), share / share.sum()
    return otce_rows(*source, unit_rows(case.embeddings), case.codes, case.held_out, metric)


def _own(case: Case, metric: Own) -> Floats:
    """Score by a user's function: a number, or a number for each row."""
    value = np.asarray(metric.function(case))
    if value.dtype.kind not in "biuf" or value.shape not in ((), (len(case.codes),)):
        raise InvalidInputError(
            f"metric {metric.name!r} returned an array of shape {value.shape} and type {value.dtype}; "
            f"expected one number, or one for each of the {len(case.codes)} rows."
        )
    if value.ndim == 0:
        return _jackknifed(case, lambda part: float(metric.function(part)))
    return value.astype(np.float64)


def _jackknifed(case: Case, value: Callable[[Case], float]) -> Floats:
    """Return numbers (n,) of a score that is no mean over rows; they spread as it does without a tenth."""
    whole = value(case)
    if not case.intervals:
        return np.full(len(case.codes), whole)
    count = min(JACKKNIFE, len(case.codes))
    groups = stratified_folds(case.codes, count, np.random.RandomState(case.seed))
    left_out = np.empty(count)
    for g in range(count):
        kept = groups != g
        few = len(np.unique(case.codes[kept])) < 2
        left_out[g] = whole if few else value(case.part(kept))
    return spread_jackknife(whole, left_out, groups)


SCORES: dict[type[Metric], Callable[[Case, Any], Floats]] = {
    Transport: _transport,
    NCE: _leep,
    LEEP: _leep,
    LogME: _logme,
    HScore: _h_score,
    NLEEP: _n_leep,
    GBC: _gbc,
    OTCE: _otce,
    TransRate: _transrate,
    Own: _own,
}
"""From a `Case` and the metric to a number for each row; their mean is the score."""


def otce_rows(
    S: Floats,
    source: tuple[Codes, int],
    mass: Floats,
    F: Floats,
    codes: Codes,
    folds: Codes | None,
    metric: OTCE,
) -> Floats:
    """Return each row's contribution (n,) to `OTCE`; `source` has the codes of S, and their number."""
    distances = np.maximum((S**2).sum(axis=1)[:, None] + (F**2).sum(axis=1) - 2.0 * (S @ F.T), 0.0)
    epsilon = check_epsilon(metric.epsilon, distances)
    ours = np.full(len(F), 1 / len(F))
    solved = transport.solve(mass[None], ours[None], distances, epsilon, OTCE_TOL, OTCE_MAX_ITER)
    message = transport.shortfall(solved.residual, solved.n_iter, OTCE_TOL, OTCE_MAX_ITER)
    if message:
        warn(ConvergenceWarning(message))
    plan = transport.plan(mass, ours, distances, epsilon, solved.alpha[0], solved.beta[0]) * len(F)
    entropy = entropy_rows(class_sums(plan, *source)[0], codes, int(codes.max()) + 1, folds)
    far = np.einsum("zi,zi->i", plan, distances)
    return np.asarray(metric.entropy_weight * entropy - metric.distance_weight * far)


def warn_of_evidence(found: Evidence) -> None:
    """Warn if the search for the maximum stopped while the evidence was still changing."""
    late = found.change > EVIDENCE_TOL
    if late.any():
        warn(
            ConvergenceWarning(
                f"The evidence of {int(late.sum())} of {len(late)} classes was still changing, by "
                f"{found.change.max():.1e} nats per row in the last step (tol {EVIDENCE_TOL:g})."
            )
        )


def unit_scale(F: NDArray[Any]) -> NDArray[Any]:
    """Return features (n, d) minus their mean, scaled to a mean squared length of one."""
    Z = F - F.mean(axis=0, dtype=np.float64).astype(F.dtype)
    length = float(np.sqrt(np.square(Z, dtype=np.float64).sum() / max(len(Z), 1)))
    return np.asarray(Z / Z.dtype.type(length)) if length > 0 else Z


def cluster_posterior(F: Floats, n_clusters: int, energy: float, random_state: int | None) -> Floats:
    """Return the posterior (n, n_clusters) of a Gaussian mixture in the first principal components."""
    from sklearn.mixture import GaussianMixture

    Z = principal_components(F, energy)
    Z = Z / (float(Z.std()) or 1.0)  # one number, so that the floor of variances means the same for all
    mixture = GaussianMixture(
        max(1, min(n_clusters, len(Z) // 5)),
        covariance_type="diag",
        reg_covar=1e-4,
        random_state=as_random_state(random_state),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)  # our own warning below has figures
        posterior: Floats = mixture.fit(Z).predict_proba(Z)
    if not mixture.converged_:
        warn(
            ConvergenceWarning(
                f"The Gaussian mixture stopped after {mixture.n_iter_} steps. Use fewer clusters."
            )
        )
    return posterior


def principal_components(F: Floats, energy: float) -> Floats:
    """Return the first principal components (n, c) that hold a share `energy` of the variance."""
    from sklearn.decomposition import PCA

    if not np.ptp(F, axis=0).any():
        return np.zeros((len(F), 1))
    if energy == 1.0:
        return np.asarray(PCA(svd_solver="full").fit_transform(F))
    # with more rows than columns, the eigenvectors of the covariance are faster than an SVD
    solver = "covariance_eigh" if F.shape[1] <= len(F) else "full"
    return np.asarray(PCA(energy, svd_solver=solver).fit_transform(F))
