"""mf-p, mf-lv and mf-lf: the matrix factorisation methods (Sec. 3.4, supplement B)."""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from consilience.kernels.packed import Floats, Ints, Layout, average_by_class, block_log_softmax

_CHUNK = 64


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
    scaled = logits / temperature
    shifts = np.zeros((len(logits), len(layout.offsets) - 1))
    patterns, of_row = abstention_patterns(logits, layout.offsets)
    for i, active in enumerate(patterns):
        operator = _shift_operator(layout, active)
        if len(patterns) == 1:
            shifts = np.nan_to_num(scaled) @ operator if not active.all() else scaled @ operator
        else:
            rows = np.flatnonzero(of_row == i)
            shifts[rows] = np.nan_to_num(scaled[rows]) @ operator
    return average_by_class(scaled, shifts, layout)


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
) -> tuple[Floats, Floats, Floats, Ints]:
    """Factorise in probability space, eq. (12)-(14), by Algorithm 1.

    Stops when both u and v change by a root mean square of less than `tol` in one iteration.

    Returns
    -------
    U : (n, L) array
        Probabilities, rows sum to one.
    V : (n, N) array
        Scales.
    changes : (n,) array
        The last root-mean-square change.
    n_iter : (n,) array of int
    """
    return _als_p(np.exp(block_log_softmax(logits, layout.offsets, temperature)), layout, tol, max_iter)


def mf_lv_logits(
    logits: Floats, layout: Layout, temperature: float, lam: float, tol: float, max_iter: int
) -> tuple[Floats, Floats, Floats, Ints]:
    """Factorise in logit space with variable v, eq. (15)-(16), by Algorithm 2.

    Stops like `mf_p_probabilities`. Returns U (n, L), unified logits at the given temperature, then V (n, N),
    changes (n,) and n_iter (n,).
    """
    # p instead of z would change nothing but the shift, which c absorbs; centring keeps it small
    return _als_lv(logits / temperature, layout, lam, tol, max_iter)


@njit(cache=True, parallel=True)
def _als_p(P: Floats, layout: Layout, tol: float, max_iter: int) -> tuple[Floats, Floats, Floats, Ints]:
    n, L, N = len(P), len(layout.class_offsets) - 1, len(layout.offsets) - 1
    U, V = np.zeros((n, L)), np.ones((n, N))
    changes, n_iter = np.zeros(n), np.zeros(n, dtype=np.intp)
    for chunk in prange((n + _CHUNK - 1) // _CHUNK):
        numerator, denominator = np.empty(L), np.empty(L)
        for row in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
            known, active = _known(P[row], layout)
            while n_iter[row] < max_iter and known > 0:
                n_iter[row] += 1
                du = _update_u(P[row], U[row], V[row], layout, 0.0, (numerator, denominator), True)
                dv = 0.0
                for b in range(N):
                    start, stop = layout.offsets[b], layout.offsets[b + 1]
                    if np.isnan(P[row, start]):
                        continue
                    top, bottom = 0.0, 0.0
                    for k in range(start, stop):
                        u = U[row, layout.columns[k]]
                        top += P[row, k] * u
                        bottom += u * u
                    new = top / bottom if bottom > 0.0 else 0.0
                    dv += (new - V[row, b]) ** 2
                    V[row, b] = new
                changes[row] = np.sqrt(max(du / known, dv / active))
                # the first u has no predecessor to be compared with
                if n_iter[row] > 1 and changes[row] < tol:
                    break
    return U, V, changes, n_iter


@njit(cache=True, parallel=True)
def _als_lv(
    Z: Floats, layout: Layout, lam: float, tol: float, max_iter: int
) -> tuple[Floats, Floats, Floats, Ints]:
    n, L, N = len(Z), len(layout.class_offsets) - 1, len(layout.offsets) - 1
    U, V = np.zeros((n, L)), np.ones((n, N))
    changes, n_iter = np.zeros(n), np.zeros(n, dtype=np.intp)
    for chunk in prange((n + _CHUNK - 1) // _CHUNK):
        numerator, denominator = np.empty(L), np.empty(L)
        z, c = np.empty(Z.shape[1]), np.empty(N)
        for row in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
            known, active = _known(Z[row], layout)
            _centre(Z[row], layout, z)
            c[:] = 0.0  # step 1: the mean, which centring has taken off already
            while n_iter[row] < max_iter and known > 0:
                n_iter[row] += 1
                # z - c is kept in z: shift it by how far c moved
                du = _update_u(z, U[row], V[row], layout, lam, (numerator, denominator), False)
                dv = 0.0
                for b in range(N):
                    start, stop = layout.offsets[b], layout.offsets[b + 1]
                    if np.isnan(z[start]):
                        continue
                    top, bottom, rest = 0.0, lam, 0.0
                    for k in range(start, stop):
                        u = U[row, layout.columns[k]]
                        top += z[k] * u
                        bottom += u * u
                        rest += u
                    new = max(0.0, top / bottom) if bottom > 0.0 else 0.0
                    dv += (new - V[row, b]) ** 2
                    V[row, b] = new
                    # c := mean(Z - u v); centred Z has mean zero
                    moved = -new * rest / (stop - start) - c[b]
                    c[b] += moved
                    for k in range(start, stop):
                        z[k] -= moved
                changes[row] = np.sqrt(max(du / known, dv / active))
                if n_iter[row] > 1 and changes[row] < tol:
                    break
    return U, V, changes, n_iter


@njit(cache=True)
def _update_u(values, u, v, layout, lam, scratch, normalise):  # type: ignore[no-untyped-def]
    """Do steps 3-10 of Algorithm 1 or 4-6 of Algorithm 2; return the squared change of u."""
    numerator, denominator = scratch
    numerator[:] = 0.0
    denominator[:] = lam
    for b in range(len(v)):
        start, stop = layout.offsets[b], layout.offsets[b + 1]
        if np.isnan(values[start]):
            continue
        scale, square = v[b], v[b] * v[b]
        for k in range(start, stop):
            c = layout.columns[k]
            numerator[c] += values[k] * scale
            denominator[c] += square
    total = 0.0
    for c in range(len(u)):
        numerator[c] = numerator[c] / denominator[c] if denominator[c] > 0.0 else 0.0
        total += numerator[c]
    inverse = 1.0 / total if normalise and total > 0.0 else 1.0
    change = 0.0
    for c in range(len(u)):
        new = numerator[c] * inverse
        change += (new - u[c]) ** 2
        u[c] = new
    return change


@njit(cache=True)
def _centre(z, layout, out):  # type: ignore[no-untyped-def]
    """Take the mean off each block; a block of NaN stays NaN."""
    for b in range(len(layout.offsets) - 1):
        start, stop = layout.offsets[b], layout.offsets[b + 1]
        mean = 0.0
        for k in range(start, stop):
            mean += z[k] / (stop - start)
        for k in range(start, stop):
            out[k] = z[k] - mean


@njit(cache=True)
def _known(values, layout):  # type: ignore[no-untyped-def]
    """Count the classes that active blocks know, and the active blocks."""
    known, active = 0, 0
    for c in range(len(layout.class_offsets) - 1):
        for k in range(layout.class_offsets[c], layout.class_offsets[c + 1]):
            if not np.isnan(values[layout.by_class[k]]):
                known += 1
                break
    for b in range(len(layout.offsets) - 1):
        if not np.isnan(values[layout.offsets[b]]):
            active += 1
    return known, active
