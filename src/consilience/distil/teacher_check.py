"""Check teachers on held-out labels, so that bad ones do no harm, and weigh the others."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import log_softmax, softmax

from consilience._validation import take_rows
from consilience.exceptions import ConvergenceWarning
from consilience.kernels.arrays import Floats
from consilience.kernels.columns import column_moments
from consilience.kernels.distil.labels_only import TOLERANCE, held_out_log_proba, sketch_columns
from consilience.kernels.distil.likelihood import best_power, log_likelihood
from consilience.kernels.folds import held_out_folds

N_FOLDS = 5
# A teacher used at full strength must add this many nats over all held-out rows. It is somewhat more than
# Akaike's price of one parameter, so that chance seldom pays it.
PRICE = 2.0
# Drop teachers whose reliability falls below this, and those whose own gain is not this many standard errors
# above zero (chance reaches that in one of twenty).
MIN_RELIABILITY, CONFIDENCE = 0.05, 1.645
# Fewer held-out rows than this prove nothing; more than this are not needed.
MIN_ROWS, MAX_ROWS = 8, 2000
# The least probability that a transported label gives a class: a single row on which a teacher is sure and
# wrong must not decide.
FLOOR = 1e-3
# Columns of X that the labels-only regression sees; more are summed up in random groups.
MAX_COLUMNS = 1024


@dataclass(frozen=True)
class TeacherCheck:
    """How well a teacher's transported labels predict labels that were not used to make them.

    Attributes
    ----------
    name : str
        The teacher.
    reliability : float
        From 0 (dropped) to 1; a factor of the teacher's weight. It is the power a for which p q^a predicts
        held-out labels best, where q is the teacher's transported label and p what the other labels predict
        without it. A teacher that is less accurate than the labels alone gets this times the square of
        accuracy / labels_only_accuracy.
    added : float
        Nats that p q^a tells about all held-out labels beyond what p tells.
    gain, error : float
        Nats per row that q tells by itself, and their standard error; q is first flattened by the power in
        [0, 1] that suits it best. The gain is 0 for a teacher that tells nothing or misleads.
    accuracy : float
        How often the most probable class of q is the label.
    labels_only_accuracy : float
        The same for p, a softmax regression on X.
    n_rows : int
        Held-out rows that the teacher answered. 0 if they were too few to check anything: then it is dropped.
    failure : str
        The error of a teacher that failed.
    """

    name: str
    reliability: float
    added: float
    gain: float
    error: float
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
    def beats_labels(self) -> bool:
        """Whether it is at least as accurate as the labels alone: only then is it used on unlabelled rows."""
        return self.n_rows > 0 and self.accuracy >= self.labels_only_accuracy

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
        if self.gain <= CONFIDENCE * self.error:
            figures = f"{self.gain:.2f} +- {self.error:.2f} nats per row"
            return f"tells nothing about {self.n_rows} held-out labels: {figures}"
        added = f"{self.added:.1f} nats to what the labels tell about {self.n_rows} held-out rows"
        return f"adds {added}" if self.used else f"adds only {added}, no more than chance would"


@dataclass(frozen=True)
class Folds:
    """The labelled rows that are held out, and what the other labels predict for them without a teacher.

    Attributes
    ----------
    fold : (n,) array of int
        The fold in which each labelled row is held out; -1 for rows that never are.
    labels_only_log_proba : (n, K) array
        Log-probabilities by a softmax regression on the rows of the other folds.
    """

    fold: NDArray[np.intp]
    labels_only_log_proba: Floats

    @classmethod
    def draw(cls, X: Any, codes: NDArray[np.intp], n_classes: int, seed: int) -> Folds:
        """Draw the folds of labelled rows X with labels `codes` (n,), and predict each from the others."""
        random = np.random.RandomState(seed)
        fold = held_out_folds(codes, N_FOLDS, random, shuffle="classes", max_rows=MAX_ROWS)
        return cls(fold, labels_only(X, codes, n_classes, fold))


def check_teacher(
    name: str, labels: Floats, codes: NDArray[np.intp], labels_only_log_proba: Floats
) -> TeacherCheck:
    """Judge a teacher by the transported labels of rows that had no part in its costs.

    Parameters
    ----------
    name : str
    labels : (n, K) array
        Transported labels of the labelled rows, each made with the costs of other folds; NaN for rows that
        are never held out and for those that the teacher did not answer.
    codes : (n,) array of int
        The true labels.
    labels_only_log_proba : (n, K) array
        What the labels alone predict; see `Folds`.
    """
    held_out = ~np.isnan(labels[:, 0])
    if np.count_nonzero(held_out) < MIN_ROWS:
        # it may be confidently wrong, and so few labels could not make up for that
        return TeacherCheck.unknown(name)
    log_q = np.log((1 - FLOOR) * labels[held_out] + FLOOR / labels.shape[1])
    log_p, codes = labels_only_log_proba[held_out], codes[held_out]
    power = best_power(log_p, log_q, codes, PRICE)
    # by itself, and flattened: hard labels of which a third is wrong still tell something
    flattened = log_softmax(best_power(np.zeros_like(log_p), log_q, codes, 0.0) * log_q, axis=1)
    gains = flattened[np.arange(len(codes)), codes] - np.log(np.exp(flattened).mean(axis=0))[codes]
    gain, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    accuracy = float((log_q.argmax(axis=1) == codes).mean())
    labels_only_accuracy = float((log_p.argmax(axis=1) == codes).mean())
    # 1e-9: the gains of a constant teacher are nothing but rounding
    good = power >= MIN_RELIABILITY and gain > max(CONFIDENCE * error, 1e-9)
    # a teacher that knows some of the classes adds much and is still often wrong about the others
    discount = min(1.0, accuracy / max(labels_only_accuracy, 1e-9)) ** 2
    return TeacherCheck(
        name,
        reliability=power * discount if good else 0.0,
        added=log_likelihood(log_p + (power or 1.0) * log_q, codes) - log_likelihood(log_p, codes),
        gain=gain,
        error=error,
        accuracy=accuracy,
        labels_only_accuracy=labels_only_accuracy,
        n_rows=len(codes),
    )


def labels_only(X: Any, codes: NDArray[np.intp], n_classes: int, fold: NDArray[np.intp]) -> Floats:
    """Return log-probabilities (n, K) of held-out rows by a softmax regression on the rows of other folds.

    They stand for what the labels tell without a teacher. All are zero where X is not a table of numbers:
    then the labels tell nothing here.
    """
    log_proba = np.zeros((len(codes), n_classes))
    # with many rows, those that are never held out are not needed to learn from either
    used = np.ones(len(codes), dtype=bool) if len(codes) <= MAX_ROWS else fold >= 0
    rows = _as_table(X if used.all() else take_rows(X, used))
    if rows is None:
        return log_proba
    log_proba[used], worst = held_out_log_proba(rows, codes[used], n_classes, fold[used])
    if worst is not None and not worst.converged:
        warnings.warn(
            "The regression that teachers are compared with (labels only, no teacher) stopped after "
            f"{worst.n_iter} steps with a gradient of {worst.gradient:.2g}, above {TOLERANCE:g}. Teachers "
            "may look more reliable than they are; scale the columns of X.",
            ConvergenceWarning,
            stacklevel=2,
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
    if not known.any():
        return weights
    mean, spread = column_moments(values[known, None])
    standard = (values[known] - mean) / (spread if spread > 0 else 1.0)
    weights[known] = softmax(sharpness * standard)
    return weights


def _as_table(X: Any) -> NDArray[np.float32] | None:
    """Return X as a table of finite floats with at most `MAX_COLUMNS` columns; None where X is none."""
    try:
        rows: Any = X.tocsr().astype(np.float32) if issparse(X) else np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError):
        return None
    if not issparse(rows):
        rows = rows.reshape(len(rows), -1)
    if 0 in rows.shape or not np.isfinite(rows.data if issparse(rows) else rows).all():
        return None
    if rows.shape[1] > MAX_COLUMNS:
        return sketch_columns(rows, MAX_COLUMNS)
    return np.asarray(rows.toarray() if issparse(rows) else rows)
