"""What teachers decide, row by row, without copies of their outputs."""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import kernel, part
from consilience.kernels.elementary import FUSE, exp
from consilience.kernels.unify.packed import Layout, in_turns

Found = tuple[Ints, Floats, Floats]
# Rows that one thread takes at once: such work is quick, and turns cost time.
MOST_ROWS = 8192


def vote(logits: Floats, layout: Layout, truth: Ints) -> Found:
    """Count the decisions of the teachers.

    Every teacher that answers has one vote, and all classes share one more. So each of L classes that v of N
    teachers decide for has the share (v + 1 / L) / (N + 1). Ties go to the class whose voters are surer: the
    one with the larger sum of their probabilities.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits; NaN in the block of a teacher that abstains.
    layout : Layout
    truth : (n,) array of int
        A class of each row.

    Returns
    -------
    decided : (n,) array of int
    confidence : (n,) array
        The share of the class decided for.
    likelihood : (n,) array
        The share of the class in `truth`.
    """
    found = _empty(len(logits))

    def work(rows: slice) -> None:
        _vote_rows(logits[rows], layout, truth[rows], *(values[rows] for values in found))

    in_turns(work, len(logits), MOST_ROWS)
    return found


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


@kernel(fastmath=FUSE)
def _vote_rows(logits, layout, truth, decided, confidence, likelihood):  # type: ignore[no-untyped-def]
    """Fill the last three, (n,) each, as in `vote`."""
    n_blocks, n_classes = len(layout.offsets) - 1, len(layout.class_offsets) - 1
    counts, sums = np.empty(n_classes), np.empty(n_classes)
    choice = np.empty(n_blocks, np.intp)
    for row in range(len(logits)):
        counts[:] = 0.0
        answers = 0.0
        for b in range(n_blocks):
            start, stop = layout.offsets[b], layout.offsets[b + 1]
            choice[b] = -1
            if np.isnan(logits[row, start]):
                continue
            best = find_top(logits[row], start, stop)
            choice[b] = best
            counts[layout.columns[best]] += 1.0
            answers += 1.0
        winner, n_tied = 0, 1
        for c in range(1, n_classes):
            if counts[c] > counts[winner]:
                winner, n_tied = c, 1
            elif counts[c] == counts[winner]:
                n_tied += 1
        if n_tied > 1 and answers > 0:
            most = counts[winner]
            sums[:] = 0.0
            for b in range(n_blocks):
                if choice[b] >= 0 and counts[layout.columns[choice[b]]] == most:
                    total = 0.0
                    for k in range(layout.offsets[b], layout.offsets[b + 1]):
                        total += exp(logits[row, k] - logits[row, choice[b]])
                    sums[layout.columns[choice[b]]] += 1.0 / total
            for c in range(n_classes):
                if sums[c] > sums[winner]:
                    winner = c
        decided[row] = winner
        confidence[row] = (counts[winner] + 1.0 / n_classes) / (answers + 1.0)
        likelihood[row] = (counts[truth[row]] + 1.0 / n_classes) / (answers + 1.0)


def block_answers(logits: Floats, start: int, rows: Ints, truth: Ints, size: int) -> Found:
    """Return what one teacher decides on k of the rows.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits.
    start, size : int
        The first column of the teacher, and how many it has.
    rows, truth : (k,) arrays of int
        Rows on which it answers, and a class of each, counted from `start`.

    Returns
    -------
    decided, confidence, likelihood : (k,) arrays
        The most probable class, counted from `start`; its probability; that of `truth`.
    """
    found = _empty(len(rows))

    def work(part: slice) -> None:
        _block_rows(logits, start, rows[part], truth[part], size, *(values[part] for values in found))

    in_turns(work, len(rows), MOST_ROWS)
    return found


@kernel(fastmath=FUSE)
def _block_rows(logits, start, rows, truth, size, decided, confidence, likelihood):  # type: ignore[no-untyped-def]
    """Fill the last three, (k,) each, as in `block_answers`."""
    powers = np.empty(size)
    for i in range(len(rows)):
        z = logits[rows[i], start : start + size]
        best = find_top(z, 0, size)
        top = z[best]
        for k in range(size):
            powers[k] = exp(z[k] - top)
        total = 0.0
        for k in range(size):
            total += powers[k]
        decided[i] = best
        confidence[i] = 1.0 / total
        likelihood[i] = powers[truth[i]] / total


def part_answers(proba: Floats, columns: Ints, rows: Ints, truth: Ints) -> Found:
    """Return what probabilities say on k of the rows, given that the class is one of some.

    Where none of these has mass, they are equally probable.

    Parameters
    ----------
    proba : (n, L) array
    columns : (c,) array of int
        The classes in question.
    rows, truth : (k,) arrays of int
        The rows, and a class of each, as a position in `columns`.

    Returns
    -------
    decided, confidence, likelihood : (k,) arrays
        The most probable class, as a position in `columns`; its probability; that of `truth`.
    """
    found = _empty(len(rows))

    def work(part: slice) -> None:
        _part_rows(proba, columns, rows[part], truth[part], *(values[part] for values in found))

    in_turns(work, len(rows), MOST_ROWS)
    return found


@kernel(fastmath=FUSE)
def _part_rows(proba, columns, rows, truth, decided, confidence, likelihood):  # type: ignore[no-untyped-def]
    """Fill the last three, (k,) each, as in `part_answers`."""
    for i in range(len(rows)):
        p = proba[rows[i]]
        best, total = 0, 0.0
        for k in range(len(columns)):
            total += p[columns[k]]
            if p[columns[k]] > p[columns[best]]:
                best = k
        decided[i] = best
        if total > 0.0:
            confidence[i] = p[columns[best]] / total
            likelihood[i] = p[columns[truth[i]]] / total
        else:
            confidence[i] = likelihood[i] = 1.0 / len(columns)


def _empty(n: int) -> Found:
    return np.zeros(n, np.intp), np.empty(n), np.empty(n)
