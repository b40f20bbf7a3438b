"""What classifiers decide about rows whose class is known, and the sums from which all scores follow."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.unify.packed import block_softmax
from consilience.labels import LabelSpace

# scikit-learn's bound: a probability of zero costs 36 nats, not infinitely many
LEAST_LIKELIHOOD = float(np.finfo(np.float64).eps)
# Rows that are looked at together: what is computed from them stays in the processor's cache.
_ROWS = 4096


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


class Tally(NamedTuple):
    """Sums over rows, from which all scores follow."""

    occurs: Ints  # (c,) rows of each class
    hits: Ints  # (c,) those of them that are right
    log_likelihood: float  # the sum over rows of the logarithm of the probability of the true class
    gaps: Floats  # (n_bins,) the sum of what confidence exceeds success by, by bins of confidence

    @classmethod
    def of(cls, answers: Answers, truth: Ints, n_classes: int, n_bins: int) -> Tally:
        """Sum up answers about k rows; true classes from `n_classes` on are unknown, and count as errors."""
        right = answers.decided == truth
        occurs = np.bincount(truth, minlength=n_classes)
        return cls(
            occurs,
            np.bincount(truth[right], minlength=len(occurs)),
            float(np.log(np.maximum(answers.likelihood, LEAST_LIKELIHOOD)).sum()),
            calibration_gaps(answers.confidence, right, n_bins),
        )

    @classmethod
    def sum(cls, tallies: Iterable[Tally]) -> Tally:
        """Return the tally of all rows together."""
        return cls(*(sum(values) for values in zip(*tallies, strict=True)))


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


def beside_teachers(
    logits: Floats, space: LabelSpace, proba: Floats, truth: Ints, n_bins: int
) -> tuple[Answers, list[tuple[Tally, Tally]]]:
    """Return how the teachers vote, and tallies of each teacher and of a model on the rows of its classes.

    Every teacher that answers has one vote, and all classes share one more. So each of L classes that v of N
    teachers decide for has the share (v + 1 / L) / (N + 1). Ties go to the class whose voters are surer: the
    one with the larger sum of their probabilities.

    Beside a teacher, the model's probabilities are those given that the class is one of the teacher's. Where
    none of these has mass, they are equally probable. Rows on which the teacher abstains do not count.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits; NaN in the block of a teacher that abstains.
    space : LabelSpace
    proba : (n, L) array
        What the model says.
    truth : (n,) array of int
        The class of each row; those from L on are unknown to all.
    n_bins : int
        Bins of equal width for the confidence.
    """
    blocks = [slice(start, start + _ROWS) for start in range(0, len(proba), _ROWS)]
    votes, counted = zip(
        *(_some_beside(logits[rows], space, proba[rows], truth[rows], n_bins) for rows in blocks), strict=True
    )
    tallies = [
        (Tally.sum(pair[0] for pair in pairs), Tally.sum(pair[1] for pair in pairs))
        for pairs in zip(*counted, strict=True)
    ]
    return Answers(*map(np.concatenate, zip(*votes, strict=True))), tallies


def _some_beside(
    logits: Floats, space: LabelSpace, proba: Floats, truth: Ints, n_bins: int
) -> tuple[Answers, list[tuple[Tally, Tally]]]:
    """Do this for some rows."""
    n, n_classes = proba.shape
    # votes, plus how sure their voters are as a fraction of one: it decides between equal votes
    votes, n_answers = np.zeros((n, n_classes)), np.zeros((n, 1))
    said = block_softmax(logits, space.offsets, 1.0)[1]
    tallies = []
    for start, stop in pairwise(space.offsets):
        classes, answered = space.columns[start:stop], np.flatnonzero(~np.isnan(logits[:, start]))
        p = said[answered, start:stop]
        best = p.argmax(axis=1)
        votes[answered, classes[best]] += 1 + p[np.arange(len(p)), best] / (space.n_teachers + 1)
        n_answers[answered] += 1
        place = np.full(max(n_classes, int(truth.max(initial=0)) + 1), -1)
        place[classes] = np.arange(stop - start)
        own = place[truth[answered]]
        asked, true = own >= 0, own[own >= 0]
        q = proba[np.ix_(answered[asked], classes)]
        mass = q.sum(axis=1, keepdims=True)
        q = np.divide(q, mass, out=np.full(q.shape, 1 / q.shape[1]), where=mass > 0)
        answers = (Answers.given(found, true) for found in (p[asked], q))
        theirs, ours = (Tally.of(one, true, stop - start, n_bins) for one in answers)
        tallies.append((theirs, ours))
    shares = (np.floor(votes) + 1 / n_classes) / (n_answers + 1)
    return Answers.given(shares, truth)._replace(decided=votes.argmax(axis=1)), tallies
