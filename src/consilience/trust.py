"""Whether a teacher tells anything about a task: the check that keeps bad teachers from doing harm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience.transport import sinkhorn

Floats = NDArray[np.float64]

FOLDS = 5
# A teacher is kept where its gain is this many standard errors above zero: one in twenty by chance.
CONFIDENCE = 1.645
# With fewer rows than this nothing can be said.
LEAST_ROWS = 8
# What a transported label gives a class at least: one row of which a teacher is wrongly sure must not decide.
FLOOR = 1e-3


@dataclass(frozen=True)
class TeacherCheck:
    """What a teacher's transported labels tell about labels they have not seen.

    Attributes
    ----------
    name : str
        The teacher.
    kept : bool
        Whether it takes part in the training.
    gain : float
        Nats per row that the transported label tells about y: the mean of log q(y) less the log of what q
        gives class y on average. 0 for a teacher that tells rows apart no better than chance, negative for
        one that misleads; NaN where it was not checked.
    error : float
        Standard error of the gain.
    accuracy : float
        How often the most probable class of the transported label is y.
    n_rows : int
        Labelled rows that were checked.
    reason : str
        Why it was kept or dropped.
    """

    name: str
    kept: bool
    gain: float
    error: float
    accuracy: float
    n_rows: int
    reason: str

    @property
    def trust(self) -> float:
        """How much the teacher counts, from 0 to 1."""
        return float(self.kept)


def conditional_plan(cost: Floats, epsilon: float, beta: Floats | None = None) -> Floats:
    """Return P (m, K), the share of the teacher's class m that goes to each class of the student.

    The p_S that minimises the Sinkhorn distance of SCTD, eq. (5), is p_T P with P[m, n] proportional to
    exp((beta_n - M_mn) / epsilon) and beta = 0: the student is pulled towards this transported label.

    Parameters
    ----------
    cost : (m, K) array
    epsilon : float
    beta : (K,) array, optional
        Added to what each class of the student attracts; see `balancing`.
    """
    shift = 0.0 if beta is None else beta
    return np.asarray(softmax((shift - cost) / epsilon, axis=1))


def balancing(proba: Floats, prior: Floats, cost: Floats, epsilon: float) -> Floats:
    """Return the beta (K,) with which transported labels have the class shares of the task, on average.

    It is the dual of one transport problem, from the mean of `proba` to `prior`. Without it a class of the
    student that is not the nearest to any class of the teacher never gets a transported label, and its rows
    are pulled towards other classes.

    Parameters
    ----------
    proba : (n, m) array
        The teacher's predictions.
    prior : (K,) array
        The shares of the classes.
    cost : (m, K) array
    epsilon : float
    """
    mean = proba.mean(axis=0, keepdims=True)
    return np.asarray(sinkhorn(mean, prior[None], cost, epsilon, tol=1e-6, max_iter=100_000).beta[0])


def check_teacher(
    name: str,
    proba: Floats,
    codes: NDArray[np.intp],
    n_classes: int,
    label: Callable[[NDArray[np.bool_]], Callable[[Floats], Floats]],
    random: np.random.RandomState,
) -> TeacherCheck:
    """Ask a teacher for labels of rows that had no part in its costs, and compare with y.

    Parameters
    ----------
    name : str
    proba : (n, m) array
        The teacher's predictions of the labelled rows; NaN where it abstains.
    codes : (n,) array of int
        The labels.
    n_classes : int
        K.
    label : callable
        ``label(train)(proba)`` transports predictions with costs made of the rows `train` alone.
    random : RandomState
        Draws the folds.
    """
    spoken = ~np.isnan(proba[:, 0])
    folds = np.where(spoken, _folds(codes, random), -1)
    if np.count_nonzero(folds >= 0) < LEAST_ROWS:
        reason = f"kept unchecked: fewer than {LEAST_ROWS} labelled rows could be held out"
        return TeacherCheck(name, True, np.nan, np.nan, np.nan, 0, reason)
    Q = np.full((len(codes), n_classes), np.nan)
    for fold in np.unique(folds[folds >= 0]):
        held = folds == fold
        Q[held] = label(spoken & ~held)(proba[held])
    kept = folds >= 0
    return _judge(name, Q[kept], codes[kept])


def _judge(name: str, Q: Floats, codes: NDArray[np.intp]) -> TeacherCheck:
    Q = (1 - FLOOR) * Q + FLOOR / Q.shape[1]
    gains = np.log(Q[np.arange(len(Q)), codes]) - np.log(Q.mean(axis=0))[codes]
    gain, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    accuracy = float((Q.argmax(axis=1) == codes).mean())
    good = gain > CONFIDENCE * error and gain > 1e-9
    verdict = "tells" if good else "does not tell"
    reason = f"{verdict} about the labels: {gain:+.3f} +- {error:.3f} nats a row"
    return TeacherCheck(name, bool(good), gain, error, accuracy, len(Q), reason)


def _folds(codes: NDArray[np.intp], random: np.random.RandomState) -> NDArray[np.intp]:
    """Return the fold (n,) of each row, each class spread evenly; -1 for the only row of a class."""
    folds = np.full(len(codes), -1, dtype=np.intp)
    for code in np.unique(codes):
        rows = random.permutation(np.flatnonzero(codes == code))
        if len(rows) > 1:
            # classes begin at fold after fold, so that folds of few rows have about the same size
            folds[rows] = (np.arange(len(rows)) + code) % FOLDS
    return folds
