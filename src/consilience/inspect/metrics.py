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
from consilience.kernels.unify.answers import LEAST_LIKELIHOOD, Tally, proba_answers

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
    """Return the answers that probabilities (k, c) give; `truth` (k,) are columns, or unknown from c on."""
    return Answers(*proba_answers(proba, truth))


def confusion_matrix(truth: Codes, decided: Codes, n_classes: int) -> NDArray[np.intp]:
    """Return how many rows of each class (its row) are taken for each class (its column).

    Rows of unknown classes, from `n_classes` on, are left out.
    """
    ours = truth < n_classes
    truth, decided = truth[ours], decided[ours]
    cells = np.bincount(truth * n_classes + decided, minlength=n_classes**2)
    return cells.reshape(n_classes, n_classes)


def recalls_of(occurs: Codes, hits: Codes) -> Floats:
    """Return the recall (L,) of each class, by its rows and those that are right; NaN without rows."""
    found = np.full(len(occurs), np.nan)
    np.divide(hits, occurs, out=found, where=occurs > 0)
    return found


def measure(answers: Answers, truth: Codes, n_classes: int, *, confidence: float, n_bins: int) -> Scores:
    """Return how good answers about k rows are; k is at least 1.

    Parameters
    ----------
    answers : Answers
    truth : (k,) array of int
        The true class, as a position among the `n_classes`; those beyond are unknown, and count as errors.
    n_classes : int
    confidence : float
        Of the interval.
    n_bins : int
        Bins of the calibration error.
    """
    right = answers.decided == truth
    occurs = np.bincount(truth, minlength=n_classes)
    tally = Tally(
        occurs,
        np.bincount(truth[right], minlength=len(occurs)),
        float(np.log(np.maximum(answers.likelihood, LEAST_LIKELIHOOD)).sum()),
        calibration_gaps(answers.confidence, right, n_bins),
    )
    return scores_of(tally, confidence)


def scores_of(tally: Tally, confidence: float) -> Scores:
    """Return the scores of at least one row, by its sums; `confidence` is that of the interval."""
    n_rows, n_right = int(tally.occurs.sum()), int(tally.hits.sum())
    interval = binomtest(n_right, n_rows).proportion_ci(confidence, "wilson")
    return Scores(
        n_rows,
        n_right / n_rows,
        (float(interval.low), float(interval.high)),
        float(np.nanmean(recalls_of(tally.occurs, tally.hits))),
        -tally.log_likelihood / n_rows,
        float(np.abs(tally.gaps).sum() / n_rows),
    )


def calibration_gaps(confidence: Floats, right: NDArray[np.bool_], n_bins: int) -> Floats:
    """Return by how much confidence (k,) exceeds success, summed over the rows of each bin of equal width.

    The mean over rows of their absolute values is the expected calibration error.

    Examples
    --------
    >>> calibration_gaps(np.array([0.9, 0.9, 0.6]), np.array([True, False, True]), 2).round(3).tolist()
    [0.0, 0.4]
    """
    bins = np.minimum((confidence * n_bins).astype(np.intp), n_bins - 1)
    return np.bincount(bins, confidence - right, n_bins).astype(np.float64, copy=False)


def most_confused(confusion: NDArray[np.intp]) -> Sequence[tuple[int, int, int]]:
    """Return (true class, decided class, rows) of all confusions that occur, most rows first."""
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    truth, decided = np.nonzero(wrong)
    counts = wrong[truth, decided]
    order = np.argsort(-counts, kind="stable")
    return list(zip(truth[order].tolist(), decided[order].tolist(), counts[order].tolist(), strict=True))
