"""What teachers decide, row by row, without copies of their outputs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import kernel, kernel_threads, part
from consilience.kernels.elementary import FUSE, exp
from consilience.kernels.unify.packed import Layout, in_turns

Found = tuple[Ints, Floats, Floats]
# scikit-learn's bound: a probability of zero costs 36 nats, not infinitely many
LEAST_LIKELIHOOD = float(np.finfo(np.float64).eps)
# A product of likelihoods below this could soon be zero.
SMALL = 1e-250
# Rows that one thread takes at once: such work is quick, and turns cost time.
MOST_ROWS = 8192
MOST_TURNS = 16


@part(fastmath={"nnan", "nsz", "reassoc"})  # so that the compiler may compare several numbers at once
def find_top(values, start, stop):  # type: ignore[no-untyped-def]
    """Return where the largest of values[start:stop] is; the first of several. None of them is NaN."""
    # first how large, then where: the processor cannot foresee the steps of one loop for both
    top = values[start]
    for k in range(start + 1, stop):
        top = values[k] if values[k] > top else top
    for k in range(start, stop):
        if values[k] == top:
            return k
    return start


def proba_answers(proba: Floats, truth: Ints) -> Found:
    """Return what probabilities (n, L) decide, how probable that is, and how probable the truth (n,) is.

    Classes from L on are unknown; their probability is 0.
    """
    found = _empty(len(proba))

    def work(rows: slice) -> None:
        _proba_rows(proba[rows], truth[rows], *(values[rows] for values in found))

    in_turns(work, len(proba), MOST_ROWS)
    return found


@kernel()
def _proba_rows(proba, truth, decided, confidence, likelihood):  # type: ignore[no-untyped-def]
    """Fill the last three, (n,) each, as in `proba_answers`."""
    for row in range(len(proba)):
        best = find_top(proba[row], 0, proba.shape[1])
        decided[row] = best
        confidence[row] = proba[row, best]
        likelihood[row] = proba[row, truth[row]] if truth[row] < proba.shape[1] else 0.0


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

    All this is one pass over the rows: passes for each teacher would wait for the memory.

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
    n, offsets = len(logits), layout.offsets
    place = np.full((len(offsets) - 1, proba.shape[1] + 1), -1)  # the last is for unknown classes
    for b, (start, stop) in enumerate(pairwise(offsets)):
        place[b, layout.columns[start:stop]] = np.arange(start, stop)
    # the length of turns depends on n only: so do sums, whatever the number of threads
    length = max(MOST_ROWS, -(-n // MOST_TURNS))
    turns = [slice(start, start + length) for start in range(0, n, length)]
    counts = np.zeros((len(turns), 3, len(layout.columns)), np.intp)
    sums = np.zeros((len(turns), 2, len(offsets) - 1, n_bins + 1))
    found = _empty(n)

    def work(turn: int) -> None:
        rows = turns[turn]
        some = found[0][rows], found[1][rows], found[2][rows]
        _beside_rows(logits[rows], layout, proba[rows], truth[rows], place, some, counts[turn], sums[turn])

    with ThreadPoolExecutor(kernel_threads()) as pool:
        list(pool.map(work, range(len(turns))))  # reading the results raises the errors of the threads
    (occurs, *hits), totals = counts.sum(axis=0), sums.sum(axis=0)
    teachers, model = (
        [
            Tally(occurs[start:stop], right[start:stop], float(row[-1]), row[:-1])
            for (start, stop), row in zip(pairwise(offsets), total, strict=True)
        ]
        for right, total in zip(hits, totals, strict=True)
    )
    return Beside(found, teachers, model)


@kernel(fastmath=FUSE)
def _beside_rows(logits, layout, proba, truth, place, found, counts, sums):  # type: ignore[no-untyped-def]
    """Fill `found`, three arrays (n,), and add to counts (3, m) and sums (2, N, n_bins + 1).

    Counts are of rows, of the teachers' hits and of the model's. Sums are gaps and log-likelihoods of both.
    """
    n_blocks, n_classes = len(layout.offsets) - 1, proba.shape[1]
    votes, sure = np.zeros(n_classes), np.zeros(n_classes)  # zero again after each row
    choice, values = np.empty(n_blocks, np.intp), np.empty(n_classes)
    likely = np.ones((2, n_blocks))
    for row in range(len(logits)):
        z, p = logits[row], proba[row]
        answers, true = 0.0, min(truth[row], n_classes)
        for b in range(n_blocks):
            start, stop = layout.offsets[b], layout.offsets[b + 1]
            choice[b] = -1
            if np.isnan(z[start]):
                continue
            best, own = find_top(z, start, stop), place[b, true]
            choice[b] = best
            votes[layout.columns[best]] += 1.0
            answers += 1.0
            if own >= 0:
                counts[0, own] += 1
                block, classes = slice(start, stop), layout.columns[start:stop]
                best, own = best - start, own - start
                _add_teacher(z[block], best, own, values, counts[1, block], sums[0, b], likely[0, b : b + 1])
                _add_model(p, classes, own, values, counts[2, block], sums[1, b], likely[1, b : b + 1])
        winner = _most_votes(z, layout, choice, votes, sure)
        found[0][row] = winner
        found[1][row] = (votes[winner] + 1.0 / n_classes) / (answers + 1.0)
        found[2][row] = 0.0
        if true < n_classes:
            found[2][row] = (votes[true] + 1.0 / n_classes) / (answers + 1.0)
        for b in range(n_blocks):
            if choice[b] >= 0:
                votes[layout.columns[choice[b]]] = sure[layout.columns[choice[b]]] = 0.0
    for side in range(2):
        for b in range(n_blocks):
            sums[side, b, -1] += np.log(likely[side, b])


@part(fastmath=FUSE)
def _add_teacher(z, best, own, values, hits, sums, likely):  # type: ignore[no-untyped-def]
    """Add what a teacher says (c,) about a row of its class `own`; its best class is known."""
    top, total = z[best], 0.0
    for k in range(len(z)):
        values[k] = exp(z[k] - top)
    for k in range(len(z)):
        total += values[k]
    _add(best, own, 1.0 / total, values[own] / total, hits, sums, likely)


@part(fastmath=FUSE)
def _add_model(p, classes, own, values, hits, sums, likely):  # type: ignore[no-untyped-def]
    """Add what the model says about the same row, given that the class is one of the teacher's (c,)."""
    total = 0.0
    for k in range(len(classes)):
        values[k] = p[classes[k]]
    for k in range(len(classes)):
        total += values[k]
    best = find_top(values, 0, len(classes))
    confidence = likelihood = 1.0 / len(classes)
    if total > 0.0:
        confidence, likelihood = values[best] / total, values[own] / total
    _add(best, own, confidence, likelihood, hits, sums, likely)


@part()
def _add(best, own, confidence, likelihood, hits, sums, likely):  # type: ignore[no-untyped-def]
    """Add a row to the hits (c,) and to sums (n_bins + 1,): to the gap of its bin, and its log-likelihood.

    Logarithms are slow: likely (1,) holds a product of likelihoods until it becomes small.
    """
    right = best == own
    hits[own] += right
    n_bins = len(sums) - 1
    sums[min(int(confidence * n_bins), n_bins - 1)] += confidence - right
    likely[0] *= max(likelihood, LEAST_LIKELIHOOD)
    if likely[0] < SMALL:
        sums[-1] += np.log(likely[0])
        likely[0] = 1.0


@part(fastmath=FUSE)
def _most_votes(z, layout, choice, votes, sure):  # type: ignore[no-untyped-def]
    """Return the class with most votes (L,), by the columns (N,) that teachers decide for; -1 abstains.

    It fills `sure` (L,), zero before, if there is a tie. Only classes with a vote can win.
    """
    winner, n_tied = 0, 0
    for b in range(len(choice)):
        if choice[b] < 0:
            continue
        c = layout.columns[choice[b]]
        if n_tied == 0 or votes[c] > votes[winner]:
            winner, n_tied = c, 1
        elif votes[c] == votes[winner] and c != winner:
            n_tied += 1
    if n_tied < 2:
        return winner
    most, surest = votes[winner], -1.0
    for b in range(len(choice)):
        if choice[b] >= 0 and votes[layout.columns[choice[b]]] == most:
            total = 0.0
            for k in range(layout.offsets[b], layout.offsets[b + 1]):
                total += exp(z[k] - z[choice[b]])
            sure[layout.columns[choice[b]]] += 1.0 / total
    for b in range(len(choice)):
        c = layout.columns[max(choice[b], 0)]
        tied = choice[b] >= 0 and votes[c] == most
        if tied and (sure[c] > surest or (sure[c] == surest and c < winner)):
            winner, surest = c, sure[c]
    return winner


def _empty(n: int) -> Found:
    return np.zeros(n, np.intp), np.empty(n), np.empty(n)
