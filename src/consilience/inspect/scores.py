"""How good answers about rows are whose class is known: one classifier, and teachers beside it.

scikit-learn has most of the figures, and the tests compare with it. Here they share one pass over the rows:
its functions sort the labels anew for every metric, and its log-loss makes an array (n, L) of zeros and ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.unify.packed import block_softmax
from consilience.labels import LabelSpace

# scikit-learn's bound: a probability of zero costs 36 nats, not infinitely many
LEAST_LIKELIHOOD = float(np.finfo(np.float64).eps)


class Answers(NamedTuple):
    """What a classifier says about k rows, as far as the scores need it."""

    decided: Ints  # (k,) the class that it finds most probable
    confidence: Floats  # (k,) the probability of that class
    likelihood: Floats  # (k,) the probability of the true class

    @classmethod
    def given(cls, proba: Floats, truth: Ints) -> Answers:
        """Return the answers of probabilities (k, c); `truth` (k,) are columns, or unknown from c on."""
        rows, decided = np.arange(len(proba)), proba.argmax(axis=1)
        known = truth < proba.shape[1]
        likelihood = np.where(known, proba[rows, np.where(known, truth, 0)], 0.0)
        return cls(decided, proba[rows, decided], likelihood)


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

    @classmethod
    def of(cls, answers: Answers, truth: Ints, confidence: float, n_bins: int) -> Scores:
        """Score answers about at least one row; classes that nobody knows, in `truth` (k,), are errors."""
        right = answers.decided == truth
        bins = np.minimum((answers.confidence * n_bins).astype(np.intp), n_bins - 1)
        gaps = np.bincount(bins, answers.confidence - right, n_bins)
        n_rows, n_right = len(truth), int(right.sum())
        return cls(
            n_rows,
            n_right / n_rows,
            wilson(n_right, n_rows, confidence),
            float(np.nanmean(recalls(answers.decided, truth, int(truth.max()) + 1))),
            -float(np.log(np.maximum(answers.likelihood, LEAST_LIKELIHOOD)).mean()),
            float(np.abs(gaps).sum() / n_rows),
        )


def wilson(n_right: int, n_rows: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of an accuracy."""
    ends = binomtest(n_right, n_rows).proportion_ci(confidence, "wilson")
    return float(ends.low), float(ends.high)


def recalls(decided: Ints, truth: Ints, n_classes: int) -> Floats:
    """Return the share (n_classes,) of each class's rows that are decided rightly; NaN without rows."""
    hits = np.bincount(truth[decided == truth], minlength=n_classes)
    return shares(hits, np.bincount(truth, minlength=n_classes))[:n_classes]


def shares(parts: Ints, wholes: Ints) -> Floats:
    """Return parts (L,) of wholes; NaN of nothing."""
    return np.asarray(np.divide(parts, wholes, out=np.full(len(wholes), np.nan), where=wholes > 0))


def conditioned(proba: Floats) -> Floats:
    """Return probabilities (k, c) given that the class is one of these; all alike where none has mass."""
    mass = proba.sum(axis=1, keepdims=True)
    uniform = np.full(proba.shape, 1.0 / proba.shape[1])
    return np.asarray(np.divide(proba, mass, out=uniform, where=mass > 0))


class Side(NamedTuple):
    """A teacher, and a model beside it, on the k rows of the teacher's classes that it answered."""

    truth: Ints  # (k,) positions among its classes
    teacher: Answers
    model: Answers


def beside_teachers(
    logits: Floats, space: LabelSpace, proba: Floats, truth: Ints
) -> tuple[Answers, list[Side]]:
    """Return how the teachers vote, and what each teacher and a model say of the rows of its classes.

    Every teacher that answers has one vote, and all classes share one more. So each of L classes that v of N
    teachers decide for has the share (v + 1 / L) / (N + 1). Ties go to the class whose voters are surer: the
    one with the larger sum of their probabilities.

    Beside a teacher, the model's probabilities are those given that the class is one of the teacher's.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits; NaN in the block of a teacher that abstains.
    space : LabelSpace
    proba : (n, L) array
        What the model says.
    truth : (n,) array of int
        The class of each row; those from L on are unknown to all.
    """
    n, n_classes = proba.shape
    # votes, plus how sure their voters are as a fraction of one: it decides between equal votes
    votes, n_answers, sides = np.zeros((n, n_classes)), np.zeros((n, 1)), list[Side]()
    for i in range(space.n_teachers):
        classes, block = space.columns[space.block(i)], logits[:, space.block(i)]
        answered = np.flatnonzero(~np.isnan(block[:, 0]))
        p = block_softmax(block[answered], np.array([0, len(classes)]), 1.0)[1]
        best = p.argmax(axis=1)
        votes[answered, classes[best]] += 1 + p[np.arange(len(p)), best] / (space.n_teachers + 1)
        n_answers[answered] += 1
        place = np.full(max(n_classes, int(truth.max(initial=0)) + 1), -1)
        place[classes] = np.arange(len(classes))
        own = place[truth[answered]]
        asked, true = own >= 0, own[own >= 0]
        q = conditioned(proba[np.ix_(answered[asked], classes)])
        sides.append(Side(true, Answers.given(p[asked], true), Answers.given(q, true)))
    voted = (np.floor(votes) + 1 / n_classes) / (n_answers + 1)
    return Answers.given(voted, truth)._replace(decided=votes.argmax(axis=1)), sides
