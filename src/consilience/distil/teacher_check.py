"""Whether a teacher tells anything about a task: the check that keeps bad teachers from doing harm."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array, issparse
from scipy.special import log_softmax, logsumexp

from consilience._validation import take_rows
from consilience.exceptions import ConvergenceWarning
from consilience.kernels.columns import column_moments, rounding_of
from consilience.kernels.linear_model import linear_logits
from consilience.kernels.softmax_regression import fit_softmax_regression

Floats = NDArray[np.float64]

FOLDS = 5
# Nats that a teacher must add, over all held-out rows, to be taken at its word: Akaike's price of a parameter
# and then some, so that chance alone seldom pays it.
PRICE = 2.0
# Teachers of whose word less than this is left are dropped, and those whose own gain is not this many
# standard errors above zero: one in twenty by chance.
LEAST_TRUST, CONFIDENCE = 0.05, 1.645
# With fewer held-out rows than this nothing can be said; more than the other are not needed.
LEAST_ROWS, MOST_ROWS = 8, 2000
# What a transported label gives a class at least: one row of which a teacher is wrongly sure must not decide.
FLOOR = 1e-3
# Decay of the softmax regression that stands for what labels alone tell, times the number of rows.
DECAY, TOLERANCE = 5.0, 1e-3
# It sees at most so many columns; more are added up at random.
MOST_COLUMNS = 1024


@dataclass(frozen=True)
class TeacherCheck:
    """What a teacher's transported labels tell about labels that had no part in them.

    Attributes
    ----------
    name : str
        The teacher.
    trust : float
        From 0 (dropped) to 1, a factor of its weight: the power a that its transported label q gets in the
        product p q^a that predicts held-out labels best, where p is what the other labels tell without it;
        times the square of accuracy / alone where that is below 1: such a one knows less than the labels.
    added : float
        Nats that the product tells of all held-out labels, beyond what p tells.
    gain, error : float
        Nats a row that q tells by itself, flattened by the power in [0, 1] that suits it best, and their
        standard error; 0 for a teacher that tells nothing or misleads.
    accuracy : float
        How often the most probable class of q is the label.
    alone : float
        The same of p, a softmax regression on X.
    n_rows : int
        Labelled rows that were held out; 0 where there were too few of them to check anything. Then it is
        dropped.
    failure : str
        What a teacher that failed said of it.
    """

    name: str
    trust: float
    added: float
    gain: float
    error: float
    accuracy: float
    alone: float
    n_rows: int
    failure: str = ""

    @classmethod
    def failed(cls, name: str, failure: str = "") -> TeacherCheck:
        """Return the check of a teacher of which nothing could be found out."""
        return cls(name, 0.0, np.nan, np.nan, np.nan, np.nan, np.nan, 0, failure)

    @property
    def kept(self) -> bool:
        """Whether the teacher takes part in the training."""
        return self.trust > 0

    @property
    def leads(self) -> bool:
        """Whether it knows more by itself than the labels: only then does it teach rows without a label."""
        return self.n_rows > 0 and self.accuracy >= self.alone

    @property
    def reason(self) -> str:
        """Why it was kept or dropped."""
        if self.failure:
            return self.failure.rstrip(".")
        if self.n_rows == 0:
            return (
                f"could not be checked: fewer than {LEAST_ROWS} labelled rows on which it speaks could be "
                "held out, for which a class needs two"
            )
        if self.gain <= CONFIDENCE * self.error:
            figures = f"{self.gain:.2f} +- {self.error:.2f} nats a row"
            return f"tells nothing of {self.n_rows} held-out labels: {figures}"
        told = f"{self.added:.1f} nats to what the labels tell of {self.n_rows} held-out rows"
        return f"adds {told}" if self.kept else f"adds only {told}, no more than chance may"


def check_teacher(
    name: str,
    proba: Floats,
    codes: NDArray[np.intp],
    log_alone: Floats,
    folds: NDArray[np.intp],
    label: Callable[[NDArray[np.bool_]], Callable[[Floats], Floats]],
) -> TeacherCheck:
    """Ask a teacher for labels of rows that had no part in its costs, and compare with y.

    Parameters
    ----------
    name : str
    proba : (n, m) array
        The teacher's predictions of the labelled rows; NaN where it abstains.
    codes : (n,) array of int
        The labels.
    log_alone : (n, K) array
        From `learn_alone`.
    folds : (n,) array of int
        From `make_folds`.
    label : callable
        ``label(train)(proba)`` transports predictions with costs made of the rows `train` alone.
    """
    spoken = ~np.isnan(proba[:, 0])
    held = spoken & (folds >= 0)
    if np.count_nonzero(held) < LEAST_ROWS:
        # it may be confidently wrong, and with so few labels nothing would make up for that
        return TeacherCheck.failed(name)
    Q = np.full(log_alone.shape, np.nan)
    for fold in np.unique(folds[held]):
        rows = held & (folds == fold)
        Q[rows] = label(spoken & (folds != fold))(proba[rows])
    log_q = np.log((1 - FLOOR) * Q[held] + FLOOR / log_alone.shape[1])
    return _judge(name, log_q, log_alone[held], codes[held])


def _judge(name: str, log_q: Floats, log_p: Floats, codes: NDArray[np.intp]) -> TeacherCheck:
    own = (np.arange(len(codes)), codes)
    trust = _power(log_p, log_q, codes, PRICE)
    # by itself, and not as sure of itself as it is: hard labels of which a third is wrong are worth something
    tempered = log_softmax(_power(np.zeros_like(log_p), log_q, codes, 0.0) * log_q, axis=1)
    gains = tempered[own] - np.log(np.exp(tempered).mean(axis=0))[codes]
    gain, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    accuracy = float((log_q.argmax(axis=1) == codes).mean())
    alone = float((log_p.argmax(axis=1) == codes).mean())
    # a constant teacher has gains of nothing but rounding
    good = trust >= LEAST_TRUST and gain > max(CONFIDENCE * error, 1e-9)
    return TeacherCheck(
        name,
        # where classes are shared in part, much of what it says of the others is wrong however much it adds
        trust=trust * min(1.0, accuracy / max(alone, 1e-9)) ** 2 if good else 0.0,
        added=_told(log_p + (trust or 1.0) * log_q, codes) - _told(log_p, codes),
        gain=gain,
        error=error,
        accuracy=accuracy,
        alone=alone,
        n_rows=len(codes),
    )


def _power(log_p: Floats, log_q: Floats, codes: NDArray[np.intp], price: float) -> float:
    """Return the a in [0, 1] for which p q^a tells most of the labels, less `price` times a."""

    def worth(a: float) -> float:
        return _told(log_p + a * log_q, codes) - price * a

    # concave in a, so that a search finds the best inside; the ends it only comes near
    best = float(minimize_scalar(lambda a: -worth(a), bounds=(0.0, 1.0), method="bounded").x)
    return max((0.0, best, 1.0), key=worth)


def _told(log_product: Floats, codes: NDArray[np.intp]) -> float:
    """Return the log likelihood of the labels under a product of distributions, renormalised."""
    return float((log_product[np.arange(len(codes)), codes] - logsumexp(log_product, axis=1)).sum())


def make_folds(codes: NDArray[np.intp], random: np.random.RandomState) -> NDArray[np.intp]:
    """Return the fold (n,) in which a row is held out; -1 for rows that never are.

    Each class is spread evenly; its only row is never held out, and neither are rows beyond the first
    `MOST_ROWS`.
    """
    folds = np.full(len(codes), -1, dtype=np.intp)
    for code in np.unique(codes):
        rows = random.permutation(np.flatnonzero(codes == code))
        if len(rows) > 1:
            # classes begin at fold after fold, so that folds of few rows have about the same size
            folds[rows] = (np.arange(len(rows)) + code) % FOLDS
    held = np.flatnonzero(folds >= 0)
    folds[random.permutation(held)[MOST_ROWS:]] = -1
    return folds


def learn_alone(X: Any, codes: NDArray[np.intp], n_classes: int, folds: NDArray[np.intp]) -> Floats:
    """Return log probabilities (n, K) of held-out rows by a softmax regression on the rows of other folds.

    It stands for what labels alone tell. Where X is no array of numbers they tell nothing here: the rows are
    zeros.
    """
    log_p = np.zeros((len(codes), n_classes))
    used = np.ones(len(codes), dtype=bool) if len(codes) <= MOST_ROWS else folds >= 0
    rows = _numbers(X if used.all() else take_rows(X, used))
    if rows is None:
        return log_p
    known, place = log_p[used], folds[used]
    for fold in np.unique(place[place >= 0]):
        known[place == fold] = _learn_rest(rows, codes[used], n_classes, place == fold)
    log_p[used] = known
    return log_p


def _learn_rest(
    rows: NDArray[np.float32], codes: NDArray[np.intp], n_classes: int, held: NDArray[np.bool_]
) -> Floats:
    """Return log probabilities of the rows `held` by a regression on the others."""
    mean, scale = _units(*column_moments(rows[~held]))
    fit = fit_softmax_regression(
        ((rows[~held] - mean) / scale).astype(np.float32),
        codes[~held],
        n_classes,
        l2=DECAY / np.count_nonzero(~held),
        tol=TOLERANCE,
    )
    if not fit.converged:
        warnings.warn(
            "The regression that says what labels alone tell, which teachers are compared with, stopped "
            f"after {fit.n_iter} steps with a gradient of {fit.gradient:.2g}, above {TOLERANCE:g}. Trust in "
            "teachers may be too high; scale the columns of X.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return np.asarray(
        log_softmax(linear_logits(((rows[held] - mean) / scale).astype(np.float32), fit.W), axis=1)
    )


def _sparse_moments(rows: Any) -> tuple[Floats, Floats]:
    """Do for compressed sparse rows what `column_moments` does, without writing zeros out."""
    n, d = rows.shape
    mean = np.bincount(rows.indices, rows.data, minlength=d) / n
    squares = np.bincount(rows.indices, (rows.data - mean[rows.indices]) ** 2, minlength=d)
    zeros = n - np.bincount(rows.indices, minlength=d)
    spread = np.sqrt((squares + zeros * mean**2) / n)
    spread[spread <= max(rounding_of(rows.dtype), n * rounding_of(mean.dtype)) * np.abs(mean)] = 0.0
    return mean, spread


def _units(mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
    # columns that hardly vary in few rows would count for much too much in others
    return mean, spread + 0.1 * max(float(spread.mean()), 1e-12)


def _numbers(X: Any) -> NDArray[np.float32] | None:
    """Return X as a table of finite floats with at most `MOST_COLUMNS` columns, or None where it is none."""
    try:
        rows: Any = X.tocsr().astype(np.float32) if issparse(X) else np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError):
        return None
    if not issparse(rows):
        rows = rows.reshape(len(rows), -1)
    if 0 in rows.shape or not np.isfinite(rows.data if issparse(rows) else rows).all():
        return None
    if rows.shape[1] > MOST_COLUMNS:
        return _sketch(rows)
    return np.asarray(rows.toarray() if issparse(rows) else rows)


def _sketch(rows: Any) -> NDArray[np.float32]:
    """Add up standardised columns, with random signs, in `MOST_COLUMNS` random groups.

    This keeps inner products of rows, on which a regression depends, up to 1 / sqrt(MOST_COLUMNS) of their
    lengths, takes no longer than reading them, and never makes sparse rows dense.
    """
    d = rows.shape[1]
    mean, spread = _sparse_moments(rows) if issparse(rows) else column_moments(rows)
    mean, scale = _units(mean, spread)
    random = np.random.RandomState(0)
    # a constant column would only add its rounding
    signs = random.choice([-1.0, 1.0], d) * (spread > 0) / scale
    groups = csr_array((signs, (np.arange(d), random.randint(MOST_COLUMNS, size=d))), shape=(d, MOST_COLUMNS))
    sums = rows @ groups.astype(np.float32)
    dense = sums.toarray() if issparse(sums) else sums
    return np.asarray(dense - mean @ groups, dtype=np.float32)
