"""ce: the cross-entropy method (Sec. 3.3), solved by Newton's method row by row.

Eq. (9) depends on the p_i only through their sum a_l = sum_i p_i(l), and teachers with the same class set B
share their term, so with w_B the number of them

    J(u) = sum_B w_B log sum_{k in B} exp(u_k) - sum_l a_l u_l.

Its Hessian is diag(d) - sum_B w_B q_B q_B', where q_B is the softmax of u over B and d = sum_B w_B q_B. With
s_B = q_B' x the Newton system Hx = -g becomes a graph Laplacian on the class sets (edge weights
w_B w_C sum_l q_B(l) q_C(l) / d_l), so a step costs O(m + sum_l r_l^2 + G^3), with r_l sets knowing class l and
G sets, instead of O(L^3): thousands of classes cost no more than their columns.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from consilience.kernels.factorisation import mf_lf_logits
from consilience.kernels.laplacian import solve_laplacian
from consilience.kernels.packed import (
    Floats,
    Indices,
    Ints,
    Layout,
    block_log_softmax,
    distinct_blocks,
    make_layout,
    sum_by_class,
)

# The start is the least-squares fit to log p; entries below this would rule it, and matter to no probability.
START_FLOOR = -40.0
# Newton steps longer than this leave the region where the quadratic model holds.
MAX_STEP = 4.0
_CHUNK = 64


def ce_logits(
    logits: Floats, layout: Layout, temperature: float, tol: float, max_iter: int
) -> tuple[Floats, Floats, Ints]:
    """Minimise eq. (9) for each row.

    Parameters
    ----------
    logits : (n, m) array
        Packed teacher logits; NaN where a teacher abstains.
    layout : Layout
    temperature : float
    tol : float
        Euclidean norm of the gradient to reach.
    max_iter : int

    Returns
    -------
    U : (n, L) array
        Unified logits at the given temperature.
    norms : (n,) array
        Gradient norms reached.
    n_iter : (n,) array of int
        Newton iterations used.
    """
    n_classes = len(layout.class_offsets) - 1
    log_p = block_log_softmax(logits, layout.offsets, temperature)
    U = mf_lf_logits(np.maximum(log_p, START_FLOOR), layout, 1.0)
    A = sum_by_class(np.exp(log_p), layout)
    set_of, columns, offsets = distinct_blocks(layout.columns, layout.offsets)
    active = ~np.isnan(logits[:, layout.offsets[:-1]])
    W = active @ np.eye(len(offsets) - 1)[set_of]
    sets = make_layout(columns, offsets, n_classes)
    norms, n_iter = newton(A, W, sets, shared_classes(sets), U, tol, max_iter)
    return U, norms, n_iter


def ce_objective(U: Floats, logits: Floats, layout: Layout, temperature: float) -> Floats:
    """Return J of eq. (9) for each row, at unified logits U (n, L)."""
    p = np.exp(block_log_softmax(logits, layout.offsets, temperature))
    log_q = block_log_softmax(np.where(np.isnan(p), np.nan, U[:, layout.columns]), layout.offsets, 1.0)
    return -np.nansum(p * log_q, axis=1)


def shared_classes(sets: Layout) -> Indices:
    """List every pair of class sets that share a class.

    Returns
    -------
    (4, k) array
        Two packed columns of one class, that class, and the place of their sets in a flat (G, G) matrix,
        in its upper triangle. Flat and unsigned: a signed or double index costs more than the product.
    """
    n_sets = len(sets.offsets) - 1
    pairs = [np.empty((4, 0))]
    for c in range(len(sets.class_offsets) - 1):
        columns = sets.by_class[sets.class_offsets[c] : sets.class_offsets[c + 1]]
        first, second = (columns[i] for i in np.triu_indices(len(columns), 1))
        place = sets.block_of[first] * n_sets + sets.block_of[second]
        pairs.append(np.stack([first, second, np.full(len(first), c), place]))
    return np.ascontiguousarray(np.concatenate(pairs, axis=1), dtype=np.uint32)


@njit(cache=True, parallel=True)
def newton(
    A: Floats, W: Floats, sets: Layout, pairs: Indices, U: Floats, tol: float, max_iter: int
) -> tuple[Floats, Ints]:
    """Minimise J for each row, from the start in U, in place.

    Parameters
    ----------
    A : (n, L) array
        a_l, the sum of the p_i.
    W : (n, G) array
        w_B, the number of teachers with each class set.
    sets : Layout
        The distinct class sets.
    pairs : (4, k) array of int
        From `shared_classes`.
    U : (n, L) array
        The start on entry, the minimiser on return.
    tol, max_iter : float, int

    Returns
    -------
    norms, n_iter : (n,) arrays
        The gradient norms reached and the iterations used.
    """
    n = len(A)
    norms = np.empty(n)
    n_iter = np.empty(n, dtype=np.intp)
    for chunk in prange((n + _CHUNK - 1) // _CHUNK):
        # scratch once per chunk: allocation would dominate small problems
        L, G = A.shape[1], W.shape[1]
        t, d, g, x = np.zeros(len(sets.columns)), np.empty(L), np.empty(L), np.empty(L)
        s, trial = np.empty(G), np.empty(L)
        size = L if G > L else G
        weights = np.empty((size, size))
        for row in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
            norms[row], n_iter[row] = _newton_row(
                A[row], W[row], sets, pairs, U[row], (t, d, g, x, s, trial, weights), tol, max_iter
            )
    return norms, n_iter


@njit(cache=True)
def _newton_row(a, w, sets, pairs, u, scratch, tol, max_iter):  # type: ignore[no-untyped-def]
    """Minimise J for one row in place; return the gradient norm and the number of iterations."""
    t, d, g, x, s, trial, weights = scratch
    t[:] = 0.0  # the columns of absent sets stay zero and so drop out of every sum
    value, norm = _evaluate(u, a, w, sets, t, d, g)
    multiply = True
    iteration = 0
    while norm > tol and iteration < max_iter:
        iteration += 1
        longest = _direction(w, sets, pairs, t, d, g, x, s, weights)
        if longest > MAX_STEP and multiply:
            # Far off: the multiplicative update of Bradley-Terry models sets every class's scale at once
            # and never raises J. Alternate with shortened Newton steps, which it needs for weak links.
            multiply = False
            for c in range(len(u)):
                if a[c] > 0.0 and d[c] > 0.0:
                    u[c] += min(30.0, max(-30.0, np.log(a[c] / d[c])))
            value, norm = _evaluate(u, a, w, sets, t, d, g)
            continue
        multiply = True
        step = min(1.0, MAX_STEP / longest) if longest > 0.0 else 1.0
        while True:
            for c in range(len(u)):
                trial[c] = u[c] + step * x[c]
            new_value, new_norm = _evaluate(trial, a, w, sets, t, d, g)
            # the slack is rounding: near the minimum J no longer resolves a Newton step, the gradient does
            if new_value <= value + 1e-13 * (1.0 + abs(value)) or step < 1e-6:
                break
            step *= 0.5
        u[:] = trial
        value, norm = new_value, new_norm
    return norm, iteration


@njit(cache=True)
def _evaluate(u, a, w, sets, t, d, g):  # type: ignore[no-untyped-def]
    """Fill t (w_B times the softmax over B), d and the gradient g; return J and the gradient's norm."""
    columns, offsets = sets.columns, sets.offsets
    top = u[0]
    for c in range(1, len(u)):
        top = max(top, u[c])
    for c in range(len(u)):
        g[c] = np.exp(u[c] - top)
        d[c] = 0.0
    value = 0.0
    for b in range(len(w)):
        if w[b] == 0.0:
            continue
        start, stop = offsets[b], offsets[b + 1]
        total, peak = 0.0, top
        for k in range(start, stop):
            total += g[columns[k]]
        if total < 1e-200:  # the whole set lies far below the row's largest logit: take its own maximum
            peak, total = -np.inf, 0.0
            for k in range(start, stop):
                peak = max(peak, u[columns[k]])
            for k in range(start, stop):
                total += np.exp(u[columns[k]] - peak)
        value += w[b] * (np.log(total) + peak)
        scale = w[b] / total
        for k in range(start, stop):
            c = columns[k]
            t[k] = scale * (g[c] if peak == top else np.exp(u[c] - peak))
            d[c] += t[k]
    square = 0.0
    for c in range(len(u)):
        g[c] = d[c] - a[c]
        square += g[c] * g[c]
        value -= a[c] * u[c]
    return value, np.sqrt(square)


@njit(cache=True)
def _direction(w, sets, pairs, t, d, g, x, s, weights):  # type: ignore[no-untyped-def]
    """Fill x with the Newton direction; return its largest entry in absolute value."""
    weights[:, :] = 0.0
    if len(w) > len(x):
        _solve_by_class(w, sets, t, g, x, weights)
    else:
        _solve_by_set(w, sets, pairs, t, d, g, x, s, weights)
    longest = 0.0
    for c in range(len(x)):
        longest = max(longest, abs(x[c]))
    return longest


@njit(cache=True)
def _solve_by_set(w, sets, pairs, t, d, g, x, s, weights):  # type: ignore[no-untyped-def]
    """Solve Hx = -g through the Laplacian on class sets, with edges w_B w_C sum_l q_B(l) q_C(l) / d_l."""
    columns, offsets = sets.columns, sets.offsets
    for c in range(len(x)):
        d[c] = 1.0 / d[c] if d[c] > 0.0 else 0.0
        x[c] = -g[c] * d[c]
    flat = weights.ravel()
    first, second, shared, place = pairs
    for i in range(len(place)):
        flat[place[i]] += t[first[i]] * t[second[i]] * d[shared[i]]
    for b in range(len(w)):
        s[b] = 0.0
        for k in range(offsets[b], offsets[b + 1]):
            s[b] += t[k] * x[columns[k]]
    solve_laplacian(weights, s, len(w))
    for b in range(len(w)):
        for k in range(offsets[b], offsets[b + 1]):
            x[columns[k]] += t[k] * s[b] * d[columns[k]]
    for c in range(len(x)):
        d[c] = 1.0 / d[c] if d[c] > 0.0 else 0.0


@njit(cache=True)
def _solve_by_class(w, sets, t, g, x, weights):  # type: ignore[no-untyped-def]
    """Solve Hx = -g directly: with more class sets than classes, the Hessian is the smaller Laplacian."""
    for b in range(len(w)):
        if w[b] == 0.0:
            continue
        for i in range(sets.offsets[b], sets.offsets[b + 1]):
            for j in range(i + 1, sets.offsets[b + 1]):
                # classes ascend within a set, so this fills the upper triangle
                weights[sets.columns[i], sets.columns[j]] += t[i] * t[j] / w[b]
    for c in range(len(x)):
        x[c] = -g[c]
    solve_laplacian(weights, x, len(x))
