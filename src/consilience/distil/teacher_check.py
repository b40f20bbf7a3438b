"""Check teachers on held-out labels, so that bad ones do no harm, and find the weight of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import softmax

from consilience._validation import take_rows
from consilience.distil.teacher_signal import Task, TeacherSignal, out_of_fold_labels, plans_by_fold
from consilience.exceptions import ConvergenceWarning, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.held_out import (
    TOLERANCE,
    calibrated_losses,
    held_out_folds,
    held_out_log_proba,
    sketch_columns,
)
from consilience.kernels.linear_model import column_moments

N_FOLDS = 5
# A teacher must know more than the labels by this many standard errors.
CONFIDENCE = 1.0
# Fewer held-out rows than this prove nothing; more than this are not needed. Nor are more unlabelled rows.
MIN_ROWS, MAX_ROWS = 8, 2000
# The least probability that a transported label gives a class: a single row on which a teacher is sure and
# wrong must not decide.
FLOOR = 1e-3
# Columns of X that the regressions see; more are summed up in random groups.
MAX_COLUMNS = 1024


@dataclass(frozen=True)
class TeacherCheck:
    """How well a teacher's transported labels predict labels that were not used to make them.

    Attributes
    ----------
    name : str
        The teacher.
    reliability : float
        The weight that the teacher has earned, in units of the largest that it could: from 0 (dropped) to 1.
    gain, error : float
        Nats per held-out row by which the teacher's transported labels predict the label better than a
        softmax regression on the other labelled rows does, and their standard error. Both predictions are
        first sharpened or flattened as suits them best.
    added : float
        Nats that this regression gains over all held-out rows when it learns from the teacher, too, with the
        weight that the teacher has earned. NaN if that was not tried, 0 if no weight made it better.
    accuracy : float
        How often the most probable class of the transported label is the label.
    labels_only_accuracy : float
        The same for the regression on labels only.
    n_rows : int
        Held-out rows that the teacher answered. 0 if they were too few to check anything: then it is dropped.
    failure : str
        The error of a teacher that failed.

    Examples
    --------
    >>> check = TeacherCheck("pets", 0.9, gain=0.4, error=0.1, added=3.0, accuracy=0.8,
    ...     labels_only_accuracy=0.7, n_rows=30)
    >>> check.used, check.knows_more
    (True, True)
    """

    name: str
    reliability: float
    gain: float
    error: float
    added: float
    accuracy: float
    labels_only_accuracy: float
    n_rows: int
    failure: str = ""

    @classmethod
    def unknown(cls, name: str, failure: str = "") -> TeacherCheck:
        """Return the check of a teacher that failed, or that answered too few rows to be checked."""
        return cls(name, 0.0, np.nan, np.nan, np.nan, np.nan, np.nan, 0, failure)

    @property
    def used(self) -> bool:
        """Whether the teacher takes part in the training."""
        return self.reliability > 0

    @property
    def knows_more(self) -> bool:
        """Whether the teacher knows more than the labels, by more than one standard error.

        It must not be less accurate, either: being unsure where one is wrong saves nats, and no mistakes.
        """
        # 1e-9: two predictions that are the same differ by rounding only
        surer = self.n_rows > 0 and self.gain > max(CONFIDENCE * self.error, 1e-9)
        return surer and self.accuracy >= self.labels_only_accuracy

    @property
    def reason(self) -> str:
        """Why the teacher is used or dropped."""
        if self.failure:
            return self.failure.rstrip(".")
        if self.n_rows == 0:
            return (
                f"could not be checked: it answered fewer than {MIN_ROWS} labelled rows that can be held "
                "out (for which a class needs two)"
            )
        if not self.knows_more:
            why = f"knows no more about {self.n_rows} held-out labels than the other labels do"
        elif self.used:
            why = f"knows more about {self.n_rows} held-out labels than the other labels do"
        else:
            why = f"made a student no better on {self.n_rows} held-out rows, though it knows more"
        return (
            f"{why}: {self.gain:+.2f} +- {self.error:.2f} nats per row, {self.accuracy:.0%} right instead of "
            f"{self.labels_only_accuracy:.0%}"
        )


@dataclass(frozen=True, eq=False)
class Folds:
    """The labelled rows that are held out, and what the other labels predict for them without a teacher.

    Attributes
    ----------
    fold : (n,) array of int
        The fold in which each row of the task is held out; -1 for rows that never are.
    rows : (r,) array of int
        The rows that regressions learn from, labelled and unlabelled. All that are held out are among them.
    table : (r, d) array or None
        These rows as numbers; None where X is not a table of numbers.
    labels_only_log_proba : (r, K) array
        Log-probabilities by a softmax regression on the labelled rows of the other folds; they need not be
        normalised.
    """

    fold: NDArray[np.intp]
    rows: NDArray[np.intp]
    table: NDArray[np.float32] | None
    labels_only_log_proba: Floats

    @classmethod
    def draw(cls, task: Task, seed: int) -> Folds:
        """Draw the folds of the labelled rows of a task, and predict each from the others."""
        random = np.random.RandomState(seed)
        labelled, unlabelled = np.flatnonzero(task.labelled), np.flatnonzero(~task.labelled)
        fold = np.full(len(task.codes), -1)
        fold[labelled] = held_out_folds(task.codes[labelled], N_FOLDS, random, MAX_ROWS)
        # with many rows, those that are never held out are not needed to learn from either
        learnt = labelled if len(labelled) <= MAX_ROWS else np.flatnonzero(fold >= 0)
        rows = np.concatenate([learnt, random.permutation(unlabelled)[:MAX_ROWS]])
        table = _as_table(take_rows(task.learnt, rows))
        # without a table, labels tell their shares and no more
        log_proba = np.tile(np.log(task.shares() / task.shares().max()), (len(rows), 1))
        if table is not None:
            n = len(learnt)
            log_proba[:n] = _predict(table[:n], task.codes[learnt], len(task.classes), fold[learnt])
        return cls(fold, rows, table, log_proba)


def check_teacher(
    signal: TeacherSignal, folds: Folds, weights: Sequence[float], labelled_share: float
) -> TeacherCheck:
    """Judge a teacher on held-out labels, and choose its weight.

    Parameters
    ----------
    signal : TeacherSignal
    folds : Folds
    weights : sequence of float
        The teacher weights to choose from, besides 0; ascending.
    labelled_share : float
        The part of its weight that a teacher has on labelled rows.
    """
    plans = plans_by_fold(signal, folds.fold)
    labels = signal.student_labels(out_of_fold_labels(signal, folds.fold, plans)[folds.rows])
    codes = signal.task.codes[folds.rows]
    check = compare_labels(signal.teacher.name, labels, codes, folds.labels_only_log_proba)
    if not check.knows_more:
        return check
    if folds.table is None:  # nothing to try, and to know more than the shares of classes is not much
        return replace(check, reliability=weights[0] / weights[-1])
    held_out = ~np.isnan(labels[:, 0])
    log_p, truth = folds.labels_only_log_proba[held_out], codes[held_out]
    students = [
        student_log_proba(signal, folds, plans, weight, labelled_share)[held_out] for weight in weights
    ]
    best, added = choose_weight(log_p, students, truth)
    return replace(check, reliability=0.0 if best is None else weights[best] / weights[-1], added=added)


def choose_weight(
    log_p: Floats, students: Sequence[Floats], codes: NDArray[np.intp]
) -> tuple[int | None, float]:
    """Return which student to take, None for the one with labels only, and the nats that it gains.

    The best student must gain over the one with labels only. Then the one with the largest weight is taken
    that is not worse than the best by more than one standard error: its teacher knows more than the labels.
    A student whose accuracy falls by more than one standard error is never taken.

    Parameters
    ----------
    log_p : (n, K) array
        Log-probabilities of held-out rows by the student with labels only.
    students : sequence of (n, K) arrays
        The same by students with a teacher of ascending weight.
    codes : (n,) array of int
        The labels.
    """
    before, was_right = calibrated_losses(log_p, codes), log_p.argmax(axis=1) == codes
    losses = {}
    for i, log_s in enumerate(students):
        lost = was_right.astype(float) - (log_s.argmax(axis=1) == codes)
        if lost.mean() <= standard_error(lost):
            losses[i] = calibrated_losses(log_s, codes)
    best = min(losses.values(), key=lambda loss: float(loss.sum()), default=before)
    if not best.sum() < before.sum():
        return None, 0.0
    *_, largest = (i for i, loss in losses.items() if (loss - best).mean() <= standard_error(loss - best))
    return largest, float((before - losses[largest]).sum())


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean of values (n,)."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def compare_labels(
    name: str, labels: Floats, codes: NDArray[np.intp], labels_only_log_proba: Floats
) -> TeacherCheck:
    """Compare a teacher's transported labels with what the labels alone predict. This chooses no weight.

    Parameters
    ----------
    name : str
    labels : (r, K) array
        Transported labels, each made with the costs of other folds; NaN for rows that are never held out and
        for those that the teacher did not answer.
    codes : (r,) array of int
        The true labels.
    labels_only_log_proba : (r, K) array
        See `Folds`.
    """
    held_out = ~np.isnan(labels[:, 0])
    if np.count_nonzero(held_out) < MIN_ROWS:
        # it may be confidently wrong, and so few labels could not make up for that
        return TeacherCheck.unknown(name)
    log_q = np.log((1 - FLOOR) * labels[held_out] + FLOOR / labels.shape[1])
    log_p, codes = labels_only_log_proba[held_out], codes[held_out]
    gains = calibrated_losses(log_p, codes) - calibrated_losses(log_q, codes)
    return TeacherCheck(
        name,
        reliability=0.0,
        gain=float(gains.mean()),
        error=standard_error(gains),
        added=np.nan,
        accuracy=float((log_q.argmax(axis=1) == codes).mean()),
        labels_only_accuracy=float((log_p.argmax(axis=1) == codes).mean()),
        n_rows=len(codes),
    )


def student_log_proba(
    signal: TeacherSignal,
    folds: Folds,
    plans: Mapping[int, Floats],
    weight: float,
    labelled_share: float,
) -> Floats:
    """Return log-probabilities (r, K) of held-out rows by a regression that learns from the teacher, too.

    It stands for the student: labels, transported labels and their weights are those that a scikit-learn
    student learns.
    """
    if folds.table is None:
        raise ValueError("The stand-in of a student needs a table.")
    codes, fold = signal.task.codes[folds.rows], folds.fold[folds.rows]
    logits, labelled = signal.observed.logits[folds.rows], codes >= 0
    counts = signal.label_weight(weight) * np.where(labelled, labelled_share, 1.0)[:, None]

    def soft_labels(held_out: int) -> Floats:
        # NaN: the teacher did not answer
        transported = signal.transported_labels(logits, plans[held_out])
        labels = np.nan_to_num(counts * signal.student_labels(transported))
        labels[labelled, codes[labelled]] += 1.0
        return np.asarray(labels / labels.sum(axis=1).max())

    known = np.where(np.isin(fold, list(plans)), fold, -1)
    return _predict(folds.table, codes, len(signal.task.classes), known, soft_labels)


def _predict(
    table: NDArray[np.float32],
    codes: NDArray[np.intp],
    n_classes: int,
    fold: NDArray[np.intp],
    soft_labels: Callable[[int], Floats] | None = None,
) -> Floats:
    """Do `held_out_log_proba`, and warn if a regression did not converge."""
    log_proba, worst = held_out_log_proba(table, codes, n_classes, fold, soft_labels)
    if worst is not None and not worst.converged:
        warn(
            ConvergenceWarning(
                f"A regression that teachers are checked with stopped after {worst.n_iter} steps with a "
                f"gradient of {worst.gradient:.2g}, above {TOLERANCE:g}. Teachers may look more reliable "
                "than they are; scale the columns of X."
            )
        )
    return log_proba


def score_weights(scores: ArrayLike, sharpness: float) -> Floats:
    """Return weights (N,) that sum to one from scores of which higher is better.

    They are softmax(sharpness * s), with s the scores less their mean, in standard deviations: metrics have
    scales of their own. A score of NaN gets no weight.

    Examples
    --------
    >>> score_weights([-0.9, -0.7, np.nan], 1.0).round(3).tolist()
    [0.119, 0.881, 0.0]
    """
    values = np.asarray(scores, dtype=np.float64)
    weights = np.zeros(len(values))
    known = ~np.isnan(values)
    if known.any():
        mean, spread = column_moments(values[known, None])
        weights[known] = softmax(sharpness * (values[known] - mean) / (spread if spread > 0 else 1.0))
    return weights


def _as_table(X: Any) -> NDArray[np.float32] | None:
    """Return X as a table of finite floats with at most `MAX_COLUMNS` columns; None if X is not a table."""
    sparse = issparse(X)
    try:
        rows: Any = X.tocsr().astype(np.float32) if sparse else np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError):
        return None
    rows = rows if sparse else rows.reshape(len(rows), -1)
    if 0 in rows.shape or not np.isfinite(rows.data if sparse else rows).all():
        return None
    if rows.shape[1] > MAX_COLUMNS:
        return sketch_columns(rows, MAX_COLUMNS)
    return np.asarray(rows.toarray() if sparse else rows)
