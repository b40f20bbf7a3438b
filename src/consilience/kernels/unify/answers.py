"""What teachers decide, row by row, beside what a model says."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.unify.packed import Layout

Found = tuple[Ints, Floats, Floats]
# scikit-learn's bound: a probability of zero costs 36 nats, not infinitely many
LEAST_LIKELIHOOD = float(np.finfo(np.float64).eps)
# Rows whose numbers stay in a core's cache.
CACHED_ROWS = 4096


def proba_answers(proba: Floats, truth: Ints) -> Found:
    """Return what probabilities (n, L) decide, how probable that is, and how probable the truth (n,) is.

    Classes from L on are unknown; their probability is 0.
    """
    rows, last = np.arange(len(proba)), proba.shape[1] - 1
    decided = proba.argmax(axis=1)
    likelihood = np.where(truth <= last, proba[rows, np.minimum(truth, last)], 0.0)
    return decided, proba[rows, decided], likelihood


class Tally(NamedTuple):
    """Sums over rows, from which all metrics follow."""

    occurs: Ints  # (c,) rows of each class
    hits: Ints  # (c,) those of them that are right
    log_likelihood: float  # the sum over rows of the logarithm of the probability of the true class
    gaps: Floats  # (n_bins,) the sum of what confidence exceeds success by, by bins of confidence


class Beside(NamedTuple):
    """What teachers say, beside what a model says."""

    vote: Found  # (n,) each
    teachers: list[Tally]
    model: list[Tally]  # among the classes of each teacher


def beside_teachers(logits: Floats, layout: Layout, proba: Floats, truth: Ints, n_bins: int) -> Beside:
    """Count the decisions of the teachers, and compare each with a model on the rows of its own classes.

    Every teacher that answers has one vote, and all classes share one more. So each of L classes that v of N
    teachers decide for has the share (v + 1 / L) / (N + 1). Ties go to the class whose voters are surer: the
    one with the larger sum of their probabilities.

    Beside a teacher, the model's probabilities are those given that the class is one of the teacher's. Where
    none of these has mass, they are equally probable. Rows on which the teacher abstains do not count.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits; NaN in the block of a teacher that abstains.
    layout : Layout
    proba : (n, L) array
        What the model says.
    truth : (n,) array of int
        The class of each row; those from L on are unknown to all.
    n_bins : int
        Bins of equal width for the confidence.

    Returns
    -------
    Beside
        The vote as (decided, confidence, likelihood), like `proba_answers`; and tallies with classes in the
        order of each teacher's columns.
    """
    parts = []
    for start in range(0, max(1, len(proba)), CACHED_ROWS):
        rows = slice(start, start + CACHED_ROWS)
        parts.append(_beside(logits[rows], layout, proba[rows], truth[rows], n_bins))
    votes, *sides = zip(*parts, strict=True)
    decided, confidence, likelihood = (np.concatenate(values) for values in zip(*votes, strict=True))
    teachers, model = ([_add_up(one) for one in zip(*side, strict=True)] for side in sides)
    return Beside((decided, confidence, likelihood), teachers, model)


def _beside(logits: Floats, layout: Layout, proba: Floats, truth: Ints, n_bins: int) -> Beside:
    """Do what `beside_teachers` does for a few rows."""
    (n, L), blocks = proba.shape, list(pairwise(layout.offsets))
    votes, n_answers, chosen = np.zeros((n, L)), np.zeros((n, 1)), np.full((len(blocks), n), -1)
    teachers, model = [], []
    for b, (start, stop) in enumerate(blocks):
        columns = layout.columns[start:stop].astype(np.intp)
        rows = np.flatnonzero(~np.isnan(logits[:, start]))
        best = logits[rows, start:stop].argmax(axis=1)
        chosen[b, rows] = columns[best]
        votes[rows, columns[best]] += 1.0
        n_answers[rows] += 1.0
        place = np.full(L + 1, -1)  # the last is for unknown classes
        place[columns] = np.arange(len(columns))
        own = place[np.minimum(truth[rows], L)]
        known = own >= 0
        p = _softmax(logits[rows[known], start:stop])
        teachers.append(_tally(p, best[known], own[known], n_bins))
        given = proba[rows[known]][:, columns]
        total = given.sum(axis=1, keepdims=True)
        q = np.divide(given, total, out=np.full(given.shape, 1.0 / len(columns)), where=total > 0)
        model.append(_tally(q, given.argmax(axis=1), own[known], n_bins))
    sure = np.where(votes == votes.max(axis=1, keepdims=True), 0.0, -1.0)
    tied = (sure == 0.0).sum(axis=1) > 1
    for chose, (start, stop) in zip(chosen, blocks, strict=True):
        rows = np.flatnonzero(tied & (chose >= 0))
        sure[rows, chose[rows]] += _softmax(logits[rows, start:stop]).max(axis=1)
    decided = sure.argmax(axis=1)
    votes += 1.0 / L
    votes /= n_answers + 1.0
    likelihood = proba_answers(votes, truth)[2]
    return Beside((decided, votes[np.arange(n), decided], likelihood), teachers, model)


def _softmax(z: Floats) -> Floats:
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


def _add_up(parts: Iterable[Tally]) -> Tally:
    return Tally(*(sum(values[1:], values[0]) for values in zip(*parts, strict=True)))


def _tally(p: Floats, decided: Ints, own: Ints, n_bins: int) -> Tally:
    """Return the sums for probabilities (k, c) of rows of these classes (k,)."""
    rows, right = np.arange(len(p)), decided == own
    confidence = p[rows, decided]
    bins = np.minimum((confidence * n_bins).astype(np.intp), n_bins - 1)
    return Tally(
        np.bincount(own, minlength=p.shape[1]),
        np.bincount(own[right], minlength=p.shape[1]),
        float(np.log(np.maximum(p[rows, own], LEAST_LIKELIHOOD)).sum()),
        np.bincount(bins, confidence - right, n_bins),
    )
