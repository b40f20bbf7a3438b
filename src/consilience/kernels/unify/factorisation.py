"""mf-p, mf-lv and mf-lf: the matrix factorisation methods (Sec. 3.4, supplement B)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import kernel, part
from consilience.kernels.elementary import FUSE
from consilience.kernels.unify.linear_systems import conjugate_gradients, lanes_for
from consilience.kernels.unify.packed import (
    LANES,
    Layout,
    in_turns,
    load_lanes,
    raise_lanes,
    softmax_rows,
)

# With at most this many teachers, one pseudo-inverse per abstention pattern is always fast.
_FEW_TEACHERS = 32
# Cost of a pseudo-inverse over N^3, in multiplications of conjugate gradients (LAPACK is quicker at each).
_INVERSE_COST = 4
# What conjugate gradients leave of the right-hand side: no more than rounding does.
EXACT = 1e-13
# u, v, the last change of both, and the number of iterations, for each row
Factors = tuple[Floats, Floats, Floats, Ints]


def mf_lf_logits(
    logits: Floats, layout: Layout, temperature: float, floor: float = -np.inf, left: float = EXACT
) -> Floats:
    """Minimise eq. (17) with v = 1 and no regularizer, for each row.

    With v fixed, the problem is linear least squares, and its matrix depends only on the label space. If r_l
    teachers know class l, u_l is the mean of z_il - c_i over these teachers. The shifts c solve a graph
    Laplacian on the teachers, with the sum of 1 / r_l over shared classes as edge weights. Its right-hand
    side is, for each teacher, the sum over its logits of their excess over the mean of their class. One N by
    N pseudo-inverse serves all rows on which the same teachers answer. A row costs O(m + N^2).

    If there are many teachers and few rows share a pattern of abstentions, one pseudo-inverse per pattern
    costs too much. Conjugate gradients then solve the rows one by one, in O(m) per iteration.

    Parameters
    ----------
    logits : (n, m) array
        Packed teacher logits; NaN where a teacher abstains.
    layout : Layout
    temperature : float
    floor : float
        Raise logits to at least this far below the largest of their block, at the given temperature.
    left : float
        The share of the right-hand side's norm that conjugate gradients may leave.

    Returns
    -------
    (n, L) array of unified logits at the given temperature.
    """
    U, scale = np.empty((len(logits), len(layout.class_offsets) - 1)), (temperature, floor)
    most = most_iterations(len(layout.offsets) - 1, left)
    factors = lru_cache(maxsize=256)(lambda active: _factorise(layout, active))

    def work(turn: slice) -> None:
        Z, found = logits[turn], U[turn]
        patterns, of_row = abstention_patterns(Z, layout.offsets)
        pays = np.array([_inverse_pays(layout, count, left) for count in np.bincount(of_row)])
        slow = np.flatnonzero(~pays[of_row])
        if len(slow):
            part, late = np.empty((len(slow), U.shape[1])), np.empty(len(slow), dtype=bool)
            _fit_rows_by_gradients(Z[slow], layout, scale, part, late, left, most)
            found[slow] = part
            pays[of_row[slow[late & (left <= EXACT)]]] = True
        for i in np.flatnonzero(pays):
            rows = slice(None) if len(patterns) == 1 else np.flatnonzero(of_row == i)
            part = np.ascontiguousarray(found[rows])
            _fit_rows(Z[rows], layout, *factors(patterns[i].tobytes()), scale, part)
            found[rows] = part

    in_turns(work, len(logits))
    return U


def _factorise(layout: Layout, active: bytes) -> tuple[Floats, Floats]:
    """Return 1 / r_l (L,) and the Laplacian's pseudo-inverse (N, N), for the teachers that answer."""
    answers = np.frombuffer(active, dtype=bool)
    used = answers[layout.block_of]
    knows = np.zeros((len(layout.class_offsets) - 1, len(answers)))
    knows[layout.columns[used], layout.block_of[used]] = 1.0
    share = 1.0 / np.maximum(knows.sum(axis=1), 1.0)
    edges = knows.T @ (share[:, None] * knows)
    laplacian = np.diag(edges.sum(axis=1)) - edges
    return share, np.linalg.pinv(laplacian, rcond=1e-12, hermitian=True)


def _inverse_pays(layout: Layout, rows: int, left: float) -> bool:
    """Tell whether a pseudo-inverse costs less than conjugate gradients on this many rows."""
    N, m = len(layout.offsets) - 1, len(layout.columns)
    iterations = -3.0 * np.log10(left)  # each halves the residual if teachers share many classes
    return N <= _FEW_TEACHERS or _INVERSE_COST * N**3 + 2 * rows * N**2 <= 4 * iterations * rows * m


def most_iterations(n_teachers: int, left: float) -> int:
    """Return the most iterations of conjugate gradients to try; a chain of teachers needs one per link."""
    return 2 * n_teachers + 50 if left <= EXACT else 10


@kernel(fastmath=FUSE)
def _fit_rows(logits, layout, share, inverse, scale, U):  # type: ignore[no-untyped-def]
    """Fill U (n, L) for rows on which the same teachers abstain."""
    lanes = min(LANES, len(U))
    columns, offsets = layout.columns, layout.offsets
    temperature, floor = scale
    x, active = np.empty((logits.shape[1], lanes)), np.empty((len(inverse), lanes))
    mean, lower = np.empty((len(share), lanes)), np.empty((len(share), lanes))
    above, shift = np.empty((len(inverse), lanes)), np.empty((1, lanes))
    for first in range(0, len(U), lanes):
        load_lanes(logits, first, offsets, x, active)
        if floor > -np.inf:
            raise_lanes(x, offsets, floor * temperature)
        mean[:] = 0.0
        lower[:] = 0.0
        above[:] = 0.0
        for k in range(len(columns)):
            c = columns[k]
            for lane in range(lanes):
                mean[c, lane] += share[c] * x[k, lane]
        for b in range(len(above)):
            for k in range(offsets[b], offsets[b + 1]):
                c = columns[k]
                for lane in range(lanes):
                    above[b, lane] += x[k, lane] - mean[c, lane]
        for b in range(len(above)):
            shift[:] = 0.0
            for other in range(len(above)):
                for lane in range(lanes):
                    shift[0, lane] += inverse[b, other] * above[other, lane]
            for k in range(offsets[b], offsets[b + 1]):
                c = columns[k]
                for lane in range(lanes):
                    lower[c, lane] += shift[0, lane]
        for lane in range(min(lanes, len(U) - first)):
            for c in range(len(share)):
                U[first + lane, c] = (mean[c, lane] - share[c] * lower[c, lane]) / temperature


@kernel(fastmath=FUSE)
def _fit_rows_by_gradients(logits, layout, scale, U, late, left, most):  # type: ignore[no-untyped-def]
    """Fill U (n, L); set late (n,) where more than a share `left` of the right-hand side remains."""
    m, L, N = len(layout.columns), U.shape[1], len(layout.offsets) - 1
    columns, offsets = layout.columns, layout.offsets
    temperature, floor = scale
    lanes = lanes_for(m, min(LANES, len(U)))
    z, active, w = np.empty((m, lanes)), np.empty((N, lanes)), np.empty((N, lanes))
    r, u = np.empty((L, lanes)), np.empty((L, lanes))
    mean, goal = np.empty((1, lanes)), np.empty(lanes)
    for first in range(0, len(U), lanes):
        load_lanes(logits, first, offsets, z, active)
        if floor > -np.inf:
            raise_lanes(z, offsets, floor * temperature)
        r[:] = 0.0
        for b in range(N):
            mean[:] = 0.0
            size = offsets[b + 1] - offsets[b]
            for k in range(offsets[b], offsets[b + 1]):
                for lane in range(lanes):
                    mean[0, lane] += z[k, lane] / size
            for lane in range(lanes):
                w[b, lane] = active[b, lane] * size
            for k in range(offsets[b], offsets[b + 1]):
                c = columns[k]
                for lane in range(lanes):
                    r[c, lane] += z[k, lane] - mean[0, lane]
                    # from here on, z holds the weights of `conjugate_gradients`
                    z[k, lane] = active[b, lane]
        goal[:] = 0.0
        for c in range(L):
            for lane in range(lanes):
                goal[lane] += r[c, lane] * r[c, lane]
        for lane in range(lanes):
            goal[lane] = left * np.sqrt(goal[lane])
        conjugate_gradients(z, w, r, layout, u, goal, most)
        for lane in range(min(lanes, len(U) - first)):
            square = 0.0
            for c in range(L):
                U[first + lane, c] = u[c, lane] / temperature
                square += r[c, lane] * r[c, lane]
            late[first + lane] = square > goal[lane] ** 2


def abstention_patterns(logits: Floats, offsets: Ints) -> tuple[NDArray[np.bool_], Ints]:
    """Find the sets of teachers that answer together.

    Returns
    -------
    patterns : (k, N) array of bool
        The distinct patterns: whether each teacher answers.
    of_row : (n,) array of int
        The pattern of each row.
    """
    active = ~np.isnan(logits[:, offsets[:-1]])
    if active.all():
        return np.ones((1, active.shape[1]), dtype=bool), np.zeros(len(active), dtype=np.intp)
    packed = np.packbits(active, axis=1)
    _, first, of_row = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return active[first], of_row.ravel().astype(np.intp)


def mf_p_probabilities(
    logits: Floats, layout: Layout, temperature: float, tol: float, max_iter: int
) -> Factors:
    """Factorise in probability space, eq. (12)-(14), by Algorithm 1.

    Stops when one iteration changes both u and v by a root mean square of less than `tol`.

    Returns
    -------
    U : (n, L) array
        Probabilities, rows sum to one.
    V : (n, N) array
        Scales; 0 for a teacher that abstains.
    changes : (n,) array
        The last root-mean-square change.
    n_iter : (n,) array of int
    """

    def probabilities(rows: Floats) -> Floats:
        log_p, p = np.empty(rows.shape), np.empty(rows.shape)
        softmax_rows(rows, layout.offsets, temperature, log_p, p)
        return p

    return _alternate(logits, probabilities, layout, False, 0.0, tol, max_iter)


def mf_lv_logits(
    logits: Floats, layout: Layout, temperature: float, lam: float, tol: float, max_iter: int
) -> Factors:
    """Factorise in logit space with variable v, eq. (15)-(16), by Algorithm 2.

    It stops like `mf_p_probabilities`. It returns U (n, L), the unified logits at the given temperature, then
    V (n, N), changes (n,) and n_iter (n,).
    """
    return _alternate(logits, lambda rows: rows / temperature, layout, True, lam, tol, max_iter)


class _Lanes(NamedTuple):
    """The rows in progress, one per lane. Lanes are the last axis, along which inner loops run.

    An abstaining teacher has v = 0 and logits of 0, and so drops out of every sum.
    """

    y: Floats  # (m, lanes) p, or z minus its mean over each block
    u: Floats  # (L, lanes)
    v: Floats  # (N, lanes)
    c: Floats  # (N, lanes) the shift minus that mean; 0 in mf-p
    above: Floats  # (L, lanes) numerators and denominators of u
    below: Floats
    sums: Floats  # (8, lanes) rows named below
    row: Ints  # (lanes,) the row in the lane, or -1
    n_iter: Ints  # (lanes,) its iterations so far
    known: Ints  # (lanes,) how many classes its active teachers know
    active: Ints  # (lanes,) how many of its teachers are active


# rows of `sums`: squared changes of u and v in the last iteration, then scratch. (They are one array because
# the compiler cannot rule out that separate arrays overlap, and then makes no vector instructions.)
_DU, _DV, _TOTAL, _SQUARE, _LIFT, _ABOVE, _BELOW, _REST = range(8)


def _alternate(
    logits: Floats,
    values_of: Callable[[Floats], Floats],
    layout: Layout,
    shifting: bool,
    lam: float,
    tol: float,
    max_iter: int,
) -> Factors:
    """Alternate between u and v on `values_of` the logits: Algorithm 1, or Algorithm 2 if `shifting`.

    Algorithm 1 normalises u. Algorithm 2 does not; it has shifts c and regularises by lam.
    """
    n = len(logits)
    U, V = np.zeros((n, len(layout.class_offsets) - 1)), np.zeros((n, len(layout.offsets) - 1))
    changes, n_iter = np.zeros(n), np.zeros(n, dtype=np.intp)

    def work(rows: slice) -> None:
        out = (U[rows], V[rows], changes[rows], n_iter[rows])
        _alternate_rows(values_of(logits[rows]), layout, shifting, out, lam, tol, max_iter)

    in_turns(work, n, most=n)
    return U, V, changes, n_iter


@kernel(fastmath=FUSE)
def _alternate_rows(values, layout, shifting, out, lam, tol, max_iter):  # type: ignore[no-untyped-def]
    """Factorise a chunk of rows; when a row is done, its lane takes the next one."""
    U, V, changes, n_iter = out
    lanes = min(LANES, len(values))
    z = _make_lanes(len(layout.columns), U.shape[1], V.shape[1], lanes)
    waiting, busy = 0, 0
    for lane in range(lanes):
        waiting = _take_up(z, lane, waiting, values, layout, shifting)
        busy += z.row[lane] >= 0
    while busy > 0:
        _update_u(z, layout, shifting, lam)
        _update_v(z, layout, shifting, lam)
        for lane in range(lanes):
            row = z.row[lane]
            if row < 0:
                continue
            z.n_iter[lane] += 1
            change = np.sqrt(max(z.sums[_DU, lane] / z.known[lane], z.sums[_DV, lane] / z.active[lane]))
            # the first u has no predecessor to compare with
            if z.n_iter[lane] < max_iter and (z.n_iter[lane] == 1 or change >= tol):
                continue
            changes[row], n_iter[row] = change, z.n_iter[lane]
            # loops: numba takes seconds to compile an assignment between arrays
            for c in range(len(z.u)):
                U[row, c] = z.u[c, lane]
            for b in range(len(z.v)):
                V[row, b] = z.v[b, lane]
            waiting = _take_up(z, lane, waiting, values, layout, shifting)
            busy -= z.row[lane] < 0
        if 2 * busy <= lanes:
            z = _close_ranks(z)
            lanes = busy


@part()
def _make_lanes(m, L, N, lanes):  # type: ignore[no-untyped-def]
    return _Lanes(
        np.zeros((m, lanes)), np.zeros((L, lanes)), np.zeros((N, lanes)), np.zeros((N, lanes)),
        np.zeros((L, lanes)), np.zeros((L, lanes)), np.zeros((8, lanes)),
        np.zeros(lanes, np.intp), np.zeros(lanes, np.intp), np.zeros(lanes, np.intp),
        np.zeros(lanes, np.intp),
    )  # fmt: skip


@part(fastmath=FUSE)
def _close_ranks(z):  # type: ignore[no-untyped-def]
    """Return only the lanes that hold a row, because empty lanes slow down the rows that are left."""
    full = z.row >= 0
    return _Lanes(
        z.y[:, full], z.u[:, full], z.v[:, full], z.c[:, full], z.above[:, full], z.below[:, full],
        z.sums[:, full], z.row[full], z.n_iter[full], z.known[full], z.active[full],
    )  # fmt: skip


@part(fastmath=FUSE)
def _take_up(z, lane, waiting, values, layout, shifting):  # type: ignore[no-untyped-def]
    """Start on the next row that has an active teacher; return the row after it."""
    z.row[lane] = -1
    for row in range(waiting, len(values)):
        active = 0
        z.below[:, lane] = 0.0
        for b in range(len(layout.offsets) - 1):
            start, stop = layout.offsets[b], layout.offsets[b + 1]
            silent = np.isnan(values[row, start])
            # step 1 of Algorithm 2
            mean = 0.0
            for k in range(start, stop if shifting else start):
                mean += values[row, k] / (stop - start)
            for k in range(start, stop):
                z.y[k, lane] = 0.0 if silent else values[row, k] - mean
                z.below[layout.columns[k], lane] += not silent
            z.v[b, lane], z.c[b, lane] = 0.0 if silent else 1.0, 0.0
            active += not silent
        if active > 0:
            z.row[lane], z.n_iter[lane], z.active[lane] = row, 0, active
            z.known[lane] = 0
            for c in range(len(z.u)):
                z.known[lane] += z.below[c, lane] > 0.0
                z.u[c, lane] = 0.0
            return row + 1
    return len(values)


@part(fastmath=FUSE)
def _update_u(z, layout, shifting, lam):  # type: ignore[no-untyped-def]
    """Do steps 3-10 of Algorithm 1 or 4-6 of Algorithm 2."""
    y, u, v, above, below, sums = z.y, z.u, z.v, z.above, z.below, z.sums
    lanes = y.shape[1]
    above[:] = 0.0
    below[:] = lam
    for b in range(len(v)):
        for lane in range(lanes):
            sums[_SQUARE, lane] = v[b, lane] * v[b, lane]
            sums[_LIFT, lane] = v[b, lane] * z.c[b, lane]
        for k in range(layout.offsets[b], layout.offsets[b + 1]):
            c = layout.columns[k]
            for lane in range(lanes):
                above[c, lane] += y[k, lane] * v[b, lane] - sums[_LIFT, lane]
            for lane in range(lanes):
                below[c, lane] += sums[_SQUARE, lane]
    for lane in range(lanes):
        sums[_TOTAL, lane] = 0.0
        sums[_DU, lane] = 0.0
    for c in range(len(u)):
        for lane in range(lanes):
            ratio = above[c, lane] / below[c, lane]
            above[c, lane] = ratio if below[c, lane] > 0.0 else 0.0
            sums[_TOTAL, lane] += above[c, lane]
    for lane in range(lanes):
        total = sums[_TOTAL, lane]
        sums[_TOTAL, lane] = 1.0 if shifting or total <= 0.0 else 1.0 / total
    for c in range(len(u)):
        for lane in range(lanes):
            new = above[c, lane] * sums[_TOTAL, lane]
            sums[_DU, lane] += (new - u[c, lane]) ** 2
            u[c, lane] = new


@part(fastmath=FUSE)
def _update_v(z, layout, shifting, lam):  # type: ignore[no-untyped-def]
    """Do steps 11-14 of Algorithm 1 or 7-13 of Algorithm 2."""
    y, u, v, sums = z.y, z.u, z.v, z.sums
    lanes = y.shape[1]
    for lane in range(lanes):
        sums[_DV, lane] = 0.0
    for b in range(len(v)):
        start, stop = layout.offsets[b], layout.offsets[b + 1]
        for lane in range(lanes):
            sums[_ABOVE, lane] = 0.0
            sums[_BELOW, lane] = lam
            sums[_REST, lane] = 0.0
        for k in range(start, stop):
            c = layout.columns[k]
            for lane in range(lanes):
                sums[_ABOVE, lane] += y[k, lane] * u[c, lane]
                sums[_BELOW, lane] += u[c, lane] * u[c, lane]
                sums[_REST, lane] += u[c, lane]
        for lane in range(lanes):
            rest = sums[_REST, lane]
            ratio = (sums[_ABOVE, lane] - z.c[b, lane] * rest) / sums[_BELOW, lane]
            new = ratio if ratio > 0.0 else 0.0  # also covers 0 / 0: an abstaining teacher, or u = 0
            sums[_DV, lane] += (new - v[b, lane]) ** 2
            v[b, lane] = new
            # the mean of y - u v, where y has mean zero
            z.c[b, lane] = -new * rest / (stop - start) if shifting else 0.0
