"""Operations on the packed layout that every solver shares."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numba import get_num_threads, njit, prange
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
# What inner loops index with: unsigned, so that compiled code need not ask whether an index is negative.
Indices = NDArray[np.uint32]

# Rows that one thread of an iterative solver has in work at once. They are the last axis of its arrays, so
# that the compiler makes vector instructions of the inner loops; a row that is done makes way for the next.
LANES = 32
# Turns per thread: several, since rows differ in cost; few, since lanes run dry at the end of each.
_TURNS = 4


class Layout(NamedTuple):
    """The packed layout, indexed by block and by class."""

    columns: Indices  # (m,) class of each packed column
    offsets: Ints  # (N + 1,) block borders
    block_of: Indices  # (m,) block of each packed column
    by_class: Indices  # (m,) packed columns sorted by class
    class_offsets: Ints  # (L + 1,) borders in by_class


def make_layout(columns: Ints, offsets: Ints, n_classes: int) -> Layout:
    """Index packed columns both ways.

    Parameters
    ----------
    columns : (m,) array of int
        Class of each packed column.
    offsets : (N + 1,) array of int
        Block borders.
    n_classes : int
        Number of classes, L.
    """
    block_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    counts = np.bincount(columns, minlength=n_classes)
    return Layout(
        np.ascontiguousarray(columns, np.uint32),
        np.ascontiguousarray(offsets, np.intp),
        block_of.astype(np.uint32),
        np.argsort(columns, kind="stable").astype(np.uint32),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.intp),
    )


def distinct_blocks(columns: Indices, offsets: Ints) -> tuple[Ints, Ints, Ints]:
    """Find the distinct class sets among the blocks.

    Returns
    -------
    set_of : (N,) array of int
        The class set of each block.
    set_columns, set_offsets : arrays of int
        The class sets in the packed layout, classes ascending.
    """
    seen: dict[bytes, int] = {}
    sets: list[Indices] = []
    set_of = np.empty(len(offsets) - 1, dtype=np.intp)
    for i in range(len(set_of)):
        block = np.sort(columns[offsets[i] : offsets[i + 1]])
        set_of[i] = seen.setdefault(block.tobytes(), len(sets))
        if set_of[i] == len(sets):
            sets.append(block)
    borders = np.cumsum([0] + [len(block) for block in sets])
    return set_of, np.concatenate(sets).astype(np.intp), borders.astype(np.intp)


def in_turns(work: Callable[[slice], None], n_rows: int) -> None:
    """Call `work` on one slice of rows after the other, in as many threads as numba has.

    Plain threads, since the kernels release the interpreter's lock: numba's own parallel loops would compile
    all of a solver a second time, and wait for torch's threads, whose pool they share.

    Parameters
    ----------
    work : callable
        Takes a slice of rows; slices do not overlap.
    n_rows : int
    """
    threads = int(get_num_threads())
    length = max(LANES, n_rows // (_TURNS * threads) + 1)
    turns = [slice(start, min(n_rows, start + length)) for start in range(0, n_rows, length)]
    if threads == 1 or len(turns) == 1:
        for turn in turns:
            work(turn)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, turns):  # which raises what a turn raised
            pass


def block_softmax(logits: Floats, offsets: Ints, temperature: float) -> tuple[Floats, Floats]:
    """Return log p_i and p_i of eq. (2) for each block; a block of NaN stays NaN.

    Parameters
    ----------
    logits : (n, m) array
    offsets : (N + 1,) array of int
    temperature : float

    Returns
    -------
    log_p, p : (n, m) arrays
    """
    log_p = _below_top(logits, offsets, temperature)
    p = np.exp(log_p)  # numpy's is a vector instruction, numba's is not
    _normalise(log_p, p, offsets)
    return log_p, p


def block_log_softmax(logits: Floats, offsets: Ints, temperature: float) -> Floats:
    """Return the first of `block_softmax`."""
    return block_softmax(logits, offsets, temperature)[0]


@njit(cache=True, parallel=True)
def _below_top(logits: Floats, offsets: Ints, temperature: float) -> Floats:
    """Return how far each logit lies below its block's largest, over the temperature."""
    out = np.empty(logits.shape)
    for row in prange(len(logits)):
        for b in range(len(offsets) - 1):
            start, stop = offsets[b], offsets[b + 1]
            top = -np.inf
            for k in range(start, stop):
                top = max(top, logits[row, k])
            for k in range(start, stop):
                # difference first: logits as large as 1e308 stay finite
                out[row, k] = (logits[row, k] - top) / temperature
    return out


@njit(cache=True, parallel=True)
def _normalise(log_p: Floats, p: Floats, offsets: Ints) -> None:
    """Make each block of p sum to one, in place, and log_p its logarithm."""
    for row in prange(len(p)):
        for b in range(len(offsets) - 1):
            start, stop = offsets[b], offsets[b + 1]
            total = 0.0
            for k in range(start, stop):
                total += p[row, k]
            shift = np.log(total)
            for k in range(start, stop):
                log_p[row, k] -= shift
                p[row, k] /= total


@njit(cache=True, parallel=True)
def average_by_class(values: Floats, shifts: Floats, layout: Layout) -> Floats:
    """Return, for each class, the mean of ``values - shifts`` over the blocks that know it.

    Parameters
    ----------
    values : (n, m) array
        Packed values; NaN where a block abstains.
    shifts : (n, N) array
        What to take off each block.
    layout : Layout

    Returns
    -------
    (n, L) array, 0 for a class that no active block knows.
    """
    n, n_classes = len(values), len(layout.class_offsets) - 1
    out = np.zeros((n, n_classes))
    for row in prange(n):
        for c in range(n_classes):
            total, count = 0.0, 0
            for k in range(layout.class_offsets[c], layout.class_offsets[c + 1]):
                column = layout.by_class[k]
                if not np.isnan(values[row, column]):
                    total += values[row, column] - shifts[row, layout.block_of[column]]
                    count += 1
            if count > 0:
                out[row, c] = total / count
    return out


@njit(cache=True, parallel=True)
def sum_by_class(values: Floats, layout: Layout) -> Floats:
    """Return, for each class, the sum over the active blocks that know it.

    Parameters
    ----------
    values : (n, m) array
        Packed values; NaN where a block abstains.
    layout : Layout

    Returns
    -------
    (n, L) array.
    """
    n = len(values)
    out = np.zeros((n, len(layout.class_offsets) - 1))
    for row in prange(n):
        for k in range(values.shape[1]):
            if not np.isnan(values[row, k]):
                out[row, layout.columns[k]] += values[row, k]
    return out


@njit(cache=True, parallel=True)
def softmax_by_component(U: Floats, component: Ints, pattern: Ints) -> Floats:
    """Turn unified logits into probabilities, with equal prior mass per class between components.

    Within a component q is the softmax of u; a component of k of the L classes has mass k / L. With one
    component this is the plain softmax.

    Parameters
    ----------
    U : (n, L) array
        Unified logits; -inf is a probability of zero.
    component : (number of patterns, L) array of int
        Component of each class, for each pattern of abstentions.
    pattern : (n,) array of int
        Pattern of each row.
    """
    n, n_classes = U.shape
    Q = np.empty((n, n_classes))
    for row in prange(n):
        ids = component[pattern[row]]
        n_components = ids.max() + 1
        top = np.full(n_components, -np.inf)
        total = np.zeros(n_components)
        size = np.zeros(n_components)
        for c in range(n_classes):
            top[ids[c]] = max(top[ids[c]], U[row, c])
        for c in range(n_classes):
            k = ids[c]
            # a component of zeros only: nothing tells its classes apart
            Q[row, c] = np.exp(U[row, c] - top[k]) if top[k] > -np.inf else 1.0
            total[k] += Q[row, c]
            size[k] += 1.0
        for c in range(n_classes):
            k = ids[c]
            Q[row, c] *= size[k] / (total[k] * n_classes)
    return Q


def floor_blocks(logits: Floats, offsets: Ints, smoothing: float) -> Floats:
    """Raise logits so that no class of a block of k is less probable than about smoothing / k.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits; a block of NaN stays NaN.
    offsets : (N + 1,) array of int
    smoothing : float
        Above 0.

    Returns
    -------
    (n, m) array; exactly, ``max(z, logsumexp(z) + log(smoothing / k))`` for each block.
    """
    log_p: Floats = block_log_softmax(logits, offsets, 1.0)
    sizes = np.diff(offsets)
    np.maximum(log_p, np.repeat(np.log(smoothing / sizes), sizes), out=log_p)
    return log_p
