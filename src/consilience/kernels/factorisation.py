"""mf-p, mf-lv and mf-lf: the matrix factorisation methods (Sec. 3.4, supplement B)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from consilience.kernels.packed import (
    LANES,
    Floats,
    Ints,
    Layout,
    average_by_class,
    block_softmax,
    in_turns,
)

# u, v, the last change of both, and the number of iterations, row by row
Factors = tuple[Floats, Floats, Floats, Ints]


def mf_lf_logits(logits: Floats, layout: Layout, temperature: float) -> Floats:
    """Minimise eq. (17) with v = 1 and no regulariser, for all rows at once.

    With v fixed the problem is linear least squares whose matrix depends only on the label space: with
    r_l teachers knowing class l, u_l is the mean of z_il - c_i over these teachers, and the shifts c solve a
    graph Laplacian on the teachers (edge weights sum of 1 / r_l over shared classes) whose right-hand side is
    linear in z. One pseudo-inverse, N by N, then one matrix product for the transfer set. Rows on which
    teachers abstain are grouped by who does.

    Parameters
    ----------
    logits : (n, m) array
        Packed teacher logits; NaN where a teacher abstains.
    layout : Layout
    temperature : float

    Returns
    -------
    (n, L) array of unified logits at the given temperature.
    """
    shifts = np.zeros((len(logits), len(layout.offsets) - 1))
    patterns, of_row = abstention_patterns(logits, layout.offsets)
    for i, active in enumerate(patterns):
        operator = _shift_operator(layout, active)
        if len(patterns) == 1:
            shifts = np.nan_to_num(logits) @ operator if not active.all() else logits @ operator
        else:
            rows = np.flatnonzero(of_row == i)
            shifts[rows] = np.nan_to_num(logits[rows]) @ operator
    U: Floats = average_by_class(logits, shifts, layout)
    U /= temperature  # all of it is linear, and U is the smallest array
    return U


def abstention_patterns(logits: Floats, offsets: Ints) -> tuple[NDArray[np.bool_], Ints]:
    """Find which teachers answer together.

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


def _shift_operator(layout: Layout, active: NDArray[np.bool_]) -> Floats:
    """Return the (m, N) matrix that takes a row's logits to the teachers' shifts c."""
    n_blocks, n_classes = len(active), len(layout.class_offsets) - 1
    used = active[layout.block_of]
    knows = np.zeros((n_classes, n_blocks))
    knows[layout.columns[used], layout.block_of[used]] = 1.0
    share = knows / np.maximum(knows.sum(axis=1, keepdims=True), 1.0)
    edges = knows.T @ share
    laplacian = np.diag(edges.sum(axis=1)) - edges
    residual = np.where(used[:, None], np.eye(n_blocks)[layout.block_of] - share[layout.columns], 0.0)
    return np.asarray(residual @ np.linalg.pinv(laplacian, rcond=1e-12, hermitian=True))


def mf_p_probabilities(
    logits: Floats, layout: Layout, temperature: float, tol: float, max_iter: int
) -> Factors:
    """Factorise in probability space, eq. (12)-(14), by Algorithm 1.

    Stops when both u and v change by a root mean square of less than `tol` in one iteration.

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
    _, p = block_softmax(logits, layout.offsets, temperature)
    return _alternate(p, layout, False, 0.0, tol, max_iter)


def mf_lv_logits(
    logits: Floats, layout: Layout, temperature: float, lam: float, tol: float, max_iter: int
) -> Factors:
    """Factorise in logit space with variable v, eq. (15)-(16), by Algorithm 2.

    Stops like `mf_p_probabilities`. Returns U (n, L), unified logits at the given temperature, then V (n, N),
    changes (n,) and n_iter (n,).
    """
    return _alternate(logits / temperature, layout, True, lam, tol, max_iter)


class _Lanes(NamedTuple):
    """The rows in work, one per lane, the last axis, which inner loops run along.

    A silent teacher has v = 0 and logits of 0, and so drops out of every sum.
    """

    y: Floats  # (m, lanes) p, or z less its mean over each block
    u: Floats  # (L, lanes)
    v: Floats  # (N, lanes)
    c: Floats  # (N, lanes) what the shift is beyond that mean; 0 in mf-p
    above: Floats  # (L, lanes) numerators and denominators of u
    below: Floats
    du: Floats  # (lanes,) squared changes of u and v in the last iteration
    dv: Floats
    sums: Floats  # (3, lanes) scratch
    row: Ints  # (lanes,) the row in the lane, or -1
    n_iter: Ints  # (lanes,) its iterations so far
    known: Ints  # (lanes,) how many classes its active teachers know
    active: Ints  # (lanes,) how many of its teachers are active


def _alternate(
    values: Floats, layout: Layout, shifting: bool, lam: float, tol: float, max_iter: int
) -> Factors:
    """Alternate between u and v: Algorithm 1, or Algorithm 2 when `shifting`.

    Algorithm 1 normalises u and has no shifts c; Algorithm 2 does not, has them, and regularises by lam.
    """
    n = len(values)
    U, V = np.zeros((n, len(layout.class_offsets) - 1)), np.zeros((n, len(layout.offsets) - 1))
    changes, n_iter = np.zeros(n), np.zeros(n, dtype=np.intp)

    def work(rows: slice) -> None:
        out = (U[rows], V[rows], changes[rows], n_iter[rows])
        _alternate_rows(values[rows], layout, shifting, out, lam, tol, max_iter)

    in_turns(work, n)
    return U, V, changes, n_iter


@njit(cache=True, nogil=True, error_model="numpy")
def _alternate_rows(values, layout, shifting, out, lam, tol, max_iter):  # type: ignore[no-untyped-def]
    """Factorise a chunk of rows: a lane whose row is done takes up the next one."""
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
            change = np.sqrt(max(z.du[lane] / z.known[lane], z.dv[lane] / z.active[lane]))
            # the first u has no predecessor to be compared with
            if z.n_iter[lane] < max_iter and (z.n_iter[lane] == 1 or change >= tol):
                continue
            changes[row], n_iter[row] = change, z.n_iter[lane]
            # loops: numba takes seconds to compile the assignment of one array to another
            for c in range(len(z.u)):
                U[row, c] = z.u[c, lane]
            for b in range(len(z.v)):
                V[row, b] = z.v[b, lane]
            waiting = _take_up(z, lane, waiting, values, layout, shifting)
            busy -= z.row[lane] < 0
        if 2 * busy <= lanes:
            z = _close_ranks(z)
            lanes = busy


@njit(cache=True)
def _make_lanes(m, L, N, lanes):  # type: ignore[no-untyped-def]
    return _Lanes(
        np.zeros((m, lanes)), np.zeros((L, lanes)), np.zeros((N, lanes)), np.zeros((N, lanes)),
        np.zeros((L, lanes)), np.zeros((L, lanes)), np.zeros(lanes), np.zeros(lanes), np.zeros((3, lanes)),
        np.zeros(lanes, np.intp), np.zeros(lanes, np.intp), np.zeros(lanes, np.intp),
        np.zeros(lanes, np.intp),
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _close_ranks(z):  # type: ignore[no-untyped-def]
    """Return the lanes that have a row: rows that take long shall not pay for empty lanes."""
    full = z.row >= 0
    return _Lanes(
        z.y[:, full], z.u[:, full], z.v[:, full], z.c[:, full], z.above[:, full], z.below[:, full],
        z.du[full], z.dv[full], z.sums[:, full], z.row[full], z.n_iter[full], z.known[full], z.active[full],
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
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


@njit(cache=True, error_model="numpy")
def _update_u(z, layout, shifting, lam):  # type: ignore[no-untyped-def]
    """Do steps 3-10 of Algorithm 1 or 4-6 of Algorithm 2."""
    y, u, v, above, below, total = z.y, z.u, z.v, z.above, z.below, z.sums[0]
    lanes = len(total)
    above[:] = 0.0
    below[:] = lam
    total[:] = 0.0
    z.du[:] = 0.0
    for b in range(len(v)):
        for k in range(layout.offsets[b], layout.offsets[b + 1]):
            c = layout.columns[k]
            for lane in range(lanes):
                above[c, lane] += (y[k, lane] - z.c[b, lane]) * v[b, lane]
                below[c, lane] += v[b, lane] * v[b, lane]
    for c in range(len(u)):
        for lane in range(lanes):
            above[c, lane] = above[c, lane] / below[c, lane] if below[c, lane] > 0.0 else 0.0
            total[lane] += above[c, lane]
    for lane in range(lanes):
        total[lane] = 1.0 if shifting or total[lane] <= 0.0 else 1.0 / total[lane]
    for c in range(len(u)):
        for lane in range(lanes):
            new = above[c, lane] * total[lane]
            z.du[lane] += (new - u[c, lane]) ** 2
            u[c, lane] = new


@njit(cache=True, error_model="numpy")
def _update_v(z, layout, shifting, lam):  # type: ignore[no-untyped-def]
    """Do steps 11-14 of Algorithm 1 or 7-13 of Algorithm 2."""
    y, u, v = z.y, z.u, z.v
    above, below, rest = z.sums
    lanes = len(above)
    z.dv[:] = 0.0
    for b in range(len(v)):
        start, stop = layout.offsets[b], layout.offsets[b + 1]
        above[:] = 0.0
        below[:] = lam
        for k in range(start, stop):
            c = layout.columns[k]
            for lane in range(lanes):
                above[lane] += y[k, lane] * u[c, lane]
                below[lane] += u[c, lane] * u[c, lane]
        rest[:] = 0.0
        for k in range(start, stop if shifting else start):
            c = layout.columns[k]
            for lane in range(lanes):
                rest[lane] += u[c, lane]
        for lane in range(lanes):
            top = above[lane] - z.c[b, lane] * rest[lane]
            new = max(0.0, top / below[lane]) if below[lane] > 0.0 else 0.0
            z.dv[lane] += (new - v[b, lane]) ** 2
            v[b, lane] = new
            # the mean of y - u v, where y has mean zero
            z.c[b, lane] = -new * rest[lane] / (stop - start)
