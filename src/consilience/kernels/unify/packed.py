"""Operations on the packed layout, shared by all solvers; and sd, which needs none."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import kernel, kernel_threads, part
from consilience.kernels.elementary import FUSE, exp

# The index type of inner loops. It is unsigned, so compiled code need not check for negative indices.
Indices = NDArray[np.uint32]

# The number of rows that one thread of an iterative solver processes at once. They are the last axis of its
# arrays, which lets the compiler vectorise inner loops. A finished row makes way for the next. (Loops along
# lanes have a length unknown to the compiler. If it knew the length, it would unroll them instead.)
LANES = 48
# Turns per thread: several, because rows differ in cost; few, because lanes run empty at the end of each.
_TURNS = 4
# Seconds that one thread works alone before others are started. Starting them takes milliseconds.
_ALONE = 0.003
# The number of rows that fit in a core's cache, from their logits to their result.
CACHED_ROWS = 512


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


def in_turns(work: Callable[[slice], None], n_rows: int, most: int = CACHED_ROWS) -> None:
    """Call `work` on one slice of rows after the other; if it takes long, on as many threads as numba has.

    These are plain threads, because the kernels release the interpreter's lock. Numba's own parallel loops
    would compile each solver a second time, and wait for torch's threads, which use the same pool.

    Parameters
    ----------
    work : callable
        Takes a slice of rows. Slices do not overlap.
    n_rows : int
    most : int
        The most rows in a slice. Use more than fit in the cache if rows differ in cost a hundredfold.
    """
    threads = kernel_threads()
    length = max(LANES, min(most, n_rows // (_TURNS * threads) + 1))
    turns = iter([slice(start, min(n_rows, start + length)) for start in range(0, n_rows, length)])
    alone_until = time.perf_counter() + _ALONE if threads > 1 else np.inf
    for turn in turns:
        work(turn)
        if time.perf_counter() > alone_until:
            break
    rest = list(turns)
    if rest:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(work, rest):  # reading the results raises the errors of the turns
                pass


def block_softmax(logits: Floats, offsets: Ints, temperature: float) -> tuple[Floats, Floats]:
    """Return log p_i and p_i of eq. (2) for each block; blocks of NaN stay NaN.

    Parameters
    ----------
    logits : (n, m) array
    offsets : (N + 1,) array of int
    temperature : float

    Returns
    -------
    log_p, p : (n, m) arrays
    """
    log_p, p = np.empty(logits.shape), np.empty(logits.shape)
    in_turns(lambda rows: softmax_rows(logits[rows], offsets, temperature, log_p[rows], p[rows]), len(logits))
    return log_p, p


@kernel(fastmath=FUSE)
def softmax_rows(logits, offsets, temperature, log_p, p):  # type: ignore[no-untyped-def]
    """Fill log_p and p, (n, m) each, as in `block_softmax`."""
    for row in range(len(logits)):
        for b in range(len(offsets) - 1):
            start, stop = offsets[b], offsets[b + 1]
            top = -np.inf
            for k in range(start, stop):
                top = max(top, logits[row, k])
            for k in range(start, stop):
                # subtract first: logits as large as 1e308 stay finite
                log_p[row, k] = (logits[row, k] - top) / temperature
        # one loop along the whole row: blocks are too short for vector instructions
        for k in range(logits.shape[1]):
            p[row, k] = exp(log_p[row, k])
        for b in range(len(offsets) - 1):
            start, stop = offsets[b], offsets[b + 1]
            total = 0.0
            for k in range(start, stop):
                total += p[row, k]
            scale, shift = 1.0 / total, np.log(total)
            for k in range(start, stop):
                log_p[row, k] -= shift
                p[row, k] *= scale


@part(fastmath=FUSE)
def load_lanes(logits, first, offsets, x, active):  # type: ignore[no-untyped-def]
    """Put the rows from `first` on into lanes.

    Lanes past the last row are filled with that row.

    Parameters
    ----------
    logits : (n, m) array
    first : int
    offsets : (N + 1,) array of int
    x : (m, lanes) array
        Filled with the logits; 0 where a block abstains.
    active : (N, lanes) array
        Filled with 1, or 0 where a block abstains.
    """
    for lane in range(x.shape[1]):
        row = min(first + lane, len(logits) - 1)
        for k in range(len(x)):
            x[k, lane] = logits[row, k]
        for b in range(len(active)):
            active[b, lane] = 1.0
            if np.isnan(x[offsets[b], lane]):
                active[b, lane] = 0.0
                for k in range(offsets[b], offsets[b + 1]):
                    x[k, lane] = 0.0


@part(fastmath=FUSE)
def _find_top(x, start, stop, top):  # type: ignore[no-untyped-def]
    """Set top (1, lanes) to the largest logit of a block in lanes."""
    # a loop, not top[0] = x[start]: numba takes seconds to compile the assignment of one array to another
    for lane in range(x.shape[1]):
        top[0, lane] = x[start, lane]
    for k in range(start + 1, stop):
        for lane in range(x.shape[1]):
            top[0, lane] = max(top[0, lane], x[k, lane])


@part(fastmath=FUSE)
def raise_lanes(x, offsets, floor):  # type: ignore[no-untyped-def]
    """Raise the logits x (m, lanes) to at least the largest of their block plus `floor`."""
    top = np.empty((1, x.shape[1]))
    for b in range(len(offsets) - 1):
        _find_top(x, offsets[b], offsets[b + 1], top)
        for k in range(offsets[b], offsets[b + 1]):
            for lane in range(x.shape[1]):
                x[k, lane] = max(x[k, lane], top[0, lane] + floor)


@part(fastmath=FUSE)
def add_probabilities(x, active, layout, temperature, a):  # type: ignore[no-untyped-def]
    """Fill a (L, lanes) with the sum of the p_i of eq. (2) over the active blocks of x, in lanes."""
    lanes = x.shape[1]
    top, total = np.empty((1, lanes)), np.empty((1, lanes))
    inverse = 1.0 / temperature
    a[:] = 0.0
    for b in range(len(active)):
        start, stop = layout.offsets[b], layout.offsets[b + 1]
        _find_top(x, start, stop, top)
        total[:] = 0.0
        for k in range(start, stop):
            for lane in range(lanes):
                # subtract first: logits as large as 1e308 stay finite
                x[k, lane] = exp((x[k, lane] - top[0, lane]) * inverse)
                total[0, lane] += x[k, lane]
        for lane in range(lanes):
            total[0, lane] = active[b, lane] / total[0, lane]
        for k in range(start, stop):
            c = layout.columns[k]
            for lane in range(lanes):
                a[c, lane] += total[0, lane] * x[k, lane]


def softmax_by_component(U: Floats, component: Ints, pattern: Ints) -> Floats:
    """Turn unified logits into probabilities; components share the mass in proportion to their classes.

    Within a component, q is the softmax of u. A component with k of the L classes has mass k / L. If there is
    one component, this is the plain softmax.

    Parameters
    ----------
    U : (n, L) array
        Unified logits; -inf means a probability of zero.
    component : (number of patterns, L) array of int
        Component of each class, for each abstention pattern.
    pattern : (n,) array of int
        Pattern of each row.
    """
    Q = np.empty(U.shape)
    in_turns(lambda rows: _softmax_component_rows(U[rows], component, pattern[rows], Q[rows]), len(U))
    return Q


@kernel()
def _softmax_component_rows(U, component, pattern, Q):  # type: ignore[no-untyped-def]
    """Fill Q (n, L) as in `softmax_by_component`."""
    n_classes = U.shape[1]
    top, total, size = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    for row in range(len(U)):
        ids = component[pattern[row]]
        top[:] = -np.inf
        total[:] = 0.0
        size[:] = 0.0
        for c in range(n_classes):
            top[ids[c]] = max(top[ids[c]], U[row, c])
        for c in range(n_classes):
            # a component with only zeros: nothing distinguishes its classes
            Q[row, c] = U[row, c] - top[ids[c]] if top[ids[c]] > -np.inf else 0.0
        for c in range(n_classes):
            Q[row, c] = exp(Q[row, c])
        for c in range(n_classes):
            total[ids[c]] += Q[row, c]
            size[ids[c]] += 1.0
        for c in range(n_classes):
            Q[row, c] *= size[ids[c]] / (total[ids[c]] * n_classes)


def floor_blocks(logits: Floats, offsets: Ints, smoothing: Floats) -> Floats:
    """Raise logits until no class in a block of k is less probable than about smoothing / k.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits; blocks of NaN stay NaN.
    offsets : (N + 1,) array of int
    smoothing : (N,) array
        Of each block; one with 0 stays as it is.

    Returns
    -------
    (n, m) array; up to a number for each row, ``max(z, logsumexp(z) + log(smoothing / k))`` for each block.
    """
    if not smoothing.any():
        return logits
    log_p = block_softmax(logits, offsets, 1.0)[0]
    sizes = np.diff(offsets)
    smooth = np.repeat(smoothing / sizes, sizes)
    np.maximum(log_p, np.log(smooth, out=np.zeros(len(smooth)), where=smooth > 0), out=log_p)
    return log_p if smoothing.all() else np.where(smooth > 0, log_p, logits)


def sd(logits: Floats, layout: Layout, temperature: float) -> Floats:
    """Return the mean of the zero-padded p_i over the teachers that do not abstain.

    Parameters
    ----------
    logits : (n, m) array
    layout : Layout
    temperature : float

    Returns
    -------
    (n, L) array; uniform in rows where every teacher abstains.
    """
    Q = np.empty((len(logits), len(layout.class_offsets) - 1))
    in_turns(lambda rows: _mean_rows(logits[rows], layout, temperature, Q[rows]), len(Q))
    return Q


@kernel(fastmath=FUSE)
def _mean_rows(logits, layout, temperature, Q):  # type: ignore[no-untyped-def]
    """Fill Q (n, L) as in `sd`."""
    n, L = Q.shape
    lanes = min(LANES, n)
    x, a = np.empty((logits.shape[1], lanes)), np.empty((L, lanes))
    active = np.empty((len(layout.offsets) - 1, lanes))
    for first in range(0, n, lanes):
        load_lanes(logits, first, layout.offsets, x, active)
        add_probabilities(x, active, layout, temperature, a)
        for lane in range(min(lanes, n - first)):
            answers = 0.0
            for b in range(len(active)):
                answers += active[b, lane]
            for c in range(L):
                Q[first + lane, c] = a[c, lane] / answers if answers > 0.0 else 1.0 / L
