"""How good answers are: accuracy with an interval, balanced accuracy, log-loss, calibration error.

scikit-learn has most of these, and the tests compare with it. Here they share one pass over the rows: its
functions sort the labels anew for every metric, and its log-loss makes an array (n, L) of zeros and ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from consilience.kernels.arrays import Floats

Codes = NDArray[np.intp]


class Answers(NamedTuple):
    """What a classifier says about k rows, as far as the metrics need it."""

    decided: Codes  # (k,) the class that it finds most probable
    confidence: Floats  # (k,) the probability of that class
    likelihood: Floats  # (k,) the probability of the true class

    def of(self, rows: NDArray[np.bool_]) -> Answers:
        """Return the answers on some of the rows."""
        return Answers(self.decided[rows], self.confidence[rows], self.likelihood[rows])


@dataclass(frozen=True)
class Scores:
    """How good a classifier is on some rows.

    Attributes
    ----------
    n_rows : int
    accuracy : float
        The share of rows that are right.
    interval : (float, float)
        Wilson's interval of the accuracy.
    balanced_accuracy : float
        The mean recall of the classes that occur.
    log_loss : float
        Minus the mean logarithm of the probability of the true class.
    calibration_error : float
        The expected calibration error: rows fall into bins of equal width by the probability of the class
        decided for; in each bin, the mean of it is compared with the share of rows that are right.
    """

    n_rows: int
    accuracy: float
    interval: tuple[float, float]
    balanced_accuracy: float
    log_loss: float
    calibration_error: float


def answers_of(proba: Floats, truth: Codes) -> Answers:
    """Return the answers that probabilities (k, c) give; `truth` (k,) are columns."""
    decided = proba.argmax(axis=1)
    rows = np.arange(len(proba))
    return Answers(decided, proba[rows, decided], proba[rows, truth])


def confusion_matrix(truth: Codes, decided: Codes, n_classes: int) -> NDArray[np.intp]:
    """Return how many rows of each class (its row) are taken for each class (its column)."""
    cells = np.bincount(truth * n_classes + decided, minlength=n_classes**2)
    return cells.reshape(n_classes, n_classes)


def recalls(confusion: NDArray[np.intp]) -> Floats:
    """Return the recall (L,) of each class, NaN for classes that do not occur."""
    rows = confusion.sum(axis=1)
    found = np.full(len(rows), np.nan)
    np.divide(confusion.diagonal(), rows, out=found, where=rows > 0)
    return found


def measure(answers: Answers, truth: Codes, n_classes: int, *, confidence: float, n_bins: int) -> Scores:
    """Return how good answers about k rows are; k is at least 1.

    Parameters
    ----------
    answers : Answers
    truth : (k,) array of int
        The true class, as a position among the `n_classes`.
    n_classes : int
    confidence : float
        Of the interval.
    n_bins : int
        Bins of the calibration error.
    """
    right = answers.decided == truth
    n_right, n_rows = int(np.count_nonzero(right)), len(truth)
    occurs = np.bincount(truth, minlength=n_classes)
    hits = np.bincount(truth[right], minlength=n_classes)
    interval = binomtest(n_right, n_rows).proportion_ci(confidence, "wilson")
    return Scores(
        n_rows,
        n_right / n_rows,
        (float(interval.low), float(interval.high)),
        float((hits[occurs > 0] / occurs[occurs > 0]).mean()),
        # scikit-learn's bound: a probability of zero costs 36 nats, not infinitely many
        float(-np.log(np.maximum(answers.likelihood, np.finfo(np.float64).eps)).mean()),
        calibration_error(answers.confidence, right, n_bins),
    )


def calibration_error(confidence: Floats, right: NDArray[np.bool_], n_bins: int) -> float:
    """Return the expected calibration error over bins of equal width.

    Examples
    --------
    >>> round(calibration_error(np.array([0.9, 0.9, 0.6]), np.array([True, False, True]), 10), 3)
    0.4
    """
    bins = np.minimum((confidence * n_bins).astype(np.intp), n_bins - 1)
    gaps = np.bincount(bins, confidence, n_bins) - np.bincount(bins, right, n_bins)
    return float(np.abs(gaps).sum() / len(right))


def most_confused(confusion: NDArray[np.intp]) -> Sequence[tuple[int, int, int]]:
    """Return (true class, decided class, rows) of all confusions that occur, most rows first."""
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    truth, decided = np.nonzero(wrong)
    counts = wrong[truth, decided]
    order = np.argsort(-counts, kind="stable")
    return list(zip(truth[order].tolist(), decided[order].tolist(), counts[order].tolist(), strict=True))
