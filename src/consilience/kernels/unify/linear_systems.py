"""The linear systems of ce and mf-lf: graph Laplacians, by elimination or by conjugate gradients.

The Newton step of the cross-entropy method and the shifts of mf-lf are both Laplacian systems. The nodes of
the graph are teachers, the edges are shared classes. Eliminating nodes one by one (Grassmann, Taksar and
Heyman) only adds positive numbers. Weak links between teachers (shared classes of tiny probability) therefore
keep their full relative accuracy, where Cholesky would cancel.

Conjugate gradients take O(m) per iteration, for label spaces with many teachers. Each class set B gives its
classes l the weights t_B(l). Their sum over the set is w_B. The system is

    sum over the B that know l of t_B(l) (x_l - mean_B x) = r_l,    mean_B x = sum_l t_B(l) x_l / w_B.

With t_B = w_B q_B this is the Newton step of ce. With t_B = 1 it is the least squares of mf-lf after
eliminating the shifts. Let d_l be the sum of t_B(l) over the sets that know l. Relative to the diagonal d,
eigenvalues lie between 0 and 1. If teachers share many classes, most of these are near 1, and conjugate
gradients need about a dozen iterations for any number of teachers. Elimination takes the cube of that number.

There are two ways to find the direction of a Newton step of ce: eliminate class sets, or run conjugate
gradients. The equations are in the docstring of `cross_entropy`. Below, `z` is a `cross_entropy._Lanes`: the
rows in progress, one per lane."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import part
from consilience.kernels.elementary import FUSE
from consilience.kernels.unify.packed import Indices, Layout


def fill_in(linked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return all edges that exist at some time while nodes are eliminated in order.

    Parameters
    ----------
    linked : (size, size) array of bool
        Symmetric; whether two nodes share an edge. A node need not be linked to itself.
    """
    fill = linked.copy()
    for k in range(len(fill) - 1):
        later = k + 1 + np.flatnonzero(fill[k, k + 1 :])
        fill[np.ix_(later, later)] = True
    return fill


@part(fastmath=FUSE)
def solve_laplacian(weights: Floats, rhs: Floats, fill: NDArray[np.bool_]) -> None:
    """Solve ``sum_j w_ij (s_i - s_j) = r_i`` in place, with s = 0 at the last node of each component.

    It solves many systems with the same edges at once. The last axis counts them (the lanes), which makes
    inner loops long, contiguous and free of branches. Lanes do not depend on each other.

    Parameters
    ----------
    weights : (size, size, lanes) array
        Edge weights, not negative, in the upper triangle. Overwritten.
    rhs : (size, lanes) array
        On entry r, which sums to zero over each component; on return s.
    fill : (size, size) array of bool
        From `fill_in`; other entries of `weights` must be zero.
    """
    size, lanes = rhs.shape
    scale = np.empty((1, lanes))
    for k in range(size):
        _add_up_degree(weights[k], k, fill[k])
        for i in range(k + 1, size):
            if not fill[k, i]:
                continue
            for lane in range(lanes):
                degree = weights[k, k, lane]
                ratio = weights[k, i, lane] / degree
                scale[0, lane] = ratio if degree > 0.0 else 0.0
                rhs[i, lane] += scale[0, lane] * rhs[k, lane]
            # the upper triangle is enough: weights[k, j] is read only for j > k
            for j in range(i + 1, size):
                if fill[k, j]:
                    for lane in range(lanes):
                        weights[i, j, lane] += scale[0, lane] * weights[k, j, lane]
    for k in range(size - 1, -1, -1):
        for j in range(k + 1, size):
            if fill[k, j]:
                for lane in range(lanes):
                    rhs[k, lane] += weights[k, j, lane] * rhs[j, lane]
        for lane in range(lanes):
            degree = weights[k, k, lane]
            ratio = rhs[k, lane] / degree
            rhs[k, lane] = ratio if degree > 0.0 else 0.0


@part(fastmath=FUSE)
def _add_up_degree(weights, k, fill):  # type: ignore[no-untyped-def]
    """Put node k's degree, over the nodes not yet eliminated, on the diagonal."""
    weights[k, :] = 0.0
    for j in range(k + 1, len(weights)):
        if fill[j]:
            for lane in range(weights.shape[1]):
                weights[k, lane] += weights[j, lane]


# A thread's matrix of weights has at most this many numbers, to stay in its cache (256 KB), and at least this
# many lanes, to fill vector instructions.
_MOST_WEIGHTS = 2**15
_LEAST_LANES = 8
# Added to the diagonal. A class with less weight than this does not affect any residual that we ask for.
_LEAST = 1e-14
# rows of the scratch: |r|^2, r'r / d, p'Hp, the step along p, and a mean
_SQUARE, _SCALED, _CURVATURE, _STEP, _MEAN = range(5)


@part()
def lanes_for(columns, most):  # type: ignore[no-untyped-def]
    """Return how many rows of this many packed columns a thread should process at once."""
    return min(most, max(_LEAST_LANES, _MOST_WEIGHTS // columns))


@part(fastmath=FUSE)
def conjugate_gradients(t, w, r, sets, x, goal, most):  # type: ignore[no-untyped-def]
    """Solve the system above for x, starting at x = 0. Each row has a lane.

    Parameters
    ----------
    t : (m, lanes) array
        Weights of the packed columns.
    w : (G, lanes) array
        Their sum over each class set; 0 for a set without weight.
    r : (L, lanes) array
        The right-hand side, which sums to zero over each component. Overwritten with the residual.
    sets : Layout
    x : (L, lanes) array
        Filled with the solution.
    goal : (lanes,) array
        Stop when the norm of r is at most this.
    most : int
        The largest number of iterations.

    Returns
    -------
    int
        The number of lanes that missed their goal.
    """
    lanes = x.shape[1]
    d, p, Hp, scratch = np.empty(x.shape), np.zeros(x.shape), np.empty(x.shape), np.zeros((5, lanes))
    _fill_diagonal(t, w, sets, d)
    x[:] = 0.0
    left = _next_direction(r, d, p, scratch, goal)
    for _ in range(most):
        if left == 0:
            break
        _apply(t, w, sets, p, Hp, scratch[_MEAN])
        scratch[_CURVATURE] = 0.0
        for c in range(len(x)):
            for lane in range(lanes):
                scratch[_CURVATURE, lane] += p[c, lane] * Hp[c, lane]
        for lane in range(lanes):
            # a lane that is done does not move
            step = scratch[_SCALED, lane] / scratch[_CURVATURE, lane]
            going = scratch[_SQUARE, lane] > goal[lane] ** 2 and scratch[_CURVATURE, lane] > 0.0
            scratch[_STEP, lane] = step if going else 0.0
        for c in range(len(x)):
            for lane in range(lanes):
                x[c, lane] += scratch[_STEP, lane] * p[c, lane]
                r[c, lane] -= scratch[_STEP, lane] * Hp[c, lane]
        left = _next_direction(r, d, p, scratch, goal)
    return left


@part(fastmath=FUSE)
def _fill_diagonal(t, w, sets, d):  # type: ignore[no-untyped-def]
    """Fill d (L, lanes) with the diagonal of the matrix."""
    d[:] = _LEAST
    for b in range(len(w)):
        for k in range(sets.offsets[b], sets.offsets[b + 1]):
            c = sets.columns[k]
            for lane in range(d.shape[1]):
                share = t[k, lane] / w[b, lane] if w[b, lane] > 0.0 else 0.0
                d[c, lane] += t[k, lane] * max(1.0 - share, 0.0)


@part(fastmath=FUSE)
def _next_direction(r, d, p, scratch, goal):  # type: ignore[no-untyped-def]
    """Set p to the next direction; return how many lanes are above their goal."""
    lanes = r.shape[1]
    for lane in range(lanes):
        scratch[_STEP, lane] = scratch[_SCALED, lane]
        scratch[_SQUARE, lane] = 0.0
        scratch[_SCALED, lane] = 0.0
    for c in range(len(r)):
        for lane in range(lanes):
            square = r[c, lane] * r[c, lane]
            scratch[_SQUARE, lane] += square
            scratch[_SCALED, lane] += square / d[c, lane]
    left = 0
    for lane in range(lanes):
        before = scratch[_STEP, lane]
        scratch[_STEP, lane] = scratch[_SCALED, lane] / before if before > 0.0 else 0.0
        left += scratch[_SQUARE, lane] > goal[lane] ** 2
    for c in range(len(r)):
        for lane in range(lanes):
            ratio = r[c, lane] / d[c, lane]
            p[c, lane] = ratio + scratch[_STEP, lane] * p[c, lane]
    return left


@part(fastmath=FUSE)
def _apply(t, w, sets, p, Hp, mean):  # type: ignore[no-untyped-def]
    """Fill Hp with the matrix times p."""
    lanes = p.shape[1]
    Hp[:] = 0.0
    for b in range(len(w)):
        start, stop = sets.offsets[b], sets.offsets[b + 1]
        mean[:] = 0.0
        for k in range(start, stop):
            c = sets.columns[k]
            for lane in range(lanes):
                mean[lane] += t[k, lane] * p[c, lane]
        for lane in range(lanes):
            mean[lane] = mean[lane] / w[b, lane] if w[b, lane] > 0.0 else 0.0
        for k in range(start, stop):
            c = sets.columns[k]
            for lane in range(lanes):
                # subtract first: if p hardly varies within a set, the result must be small
                Hp[c, lane] += t[k, lane] * (p[c, lane] - mean[lane])


# Added to the Hessian's diagonal. A class or link with less mass than this matters to no gradient of 1e-8,
# but rounding divided by its mass would make a huge step. In the Laplacian it is an extra node, the ground.
DAMPING = 1e-14
# The most iterations of conjugate gradients per step. If they do not suffice, the step is only approximate.
GRADIENTS = 60


class Links(NamedTuple):
    """The edges of the Laplacian on class sets, from which elimination finds the Newton step."""

    first: Indices  # (k,) one of two packed columns of a class
    second: Indices  # (k,) the other, in a later class set
    shared: Indices  # (k,) that class
    place: Indices  # (k,) where their sets meet in a flat matrix of edge weights, in its upper triangle
    fill: NDArray[np.bool_]  # (G + 1, G + 1) from `fill_in`; the last node is the ground


def make_links(sets: Layout) -> Links:
    """Prepare the elimination of class sets."""
    n_sets, n_classes = len(sets.offsets) - 1, len(sets.class_offsets) - 1
    knows = np.zeros((n_sets, n_classes), dtype=np.float32)
    knows[sets.block_of, sets.columns] = 1.0
    pairs = [np.empty((4, 0))]
    for c in range(n_classes):
        columns = sets.by_class[sets.class_offsets[c] : sets.class_offsets[c + 1]]
        one, other = (columns[i] for i in np.triu_indices(len(columns), 1))
        meet = sets.block_of[one] * (n_sets + 1) + sets.block_of[other]
        pairs.append(np.stack([one, other, np.full(len(one), c), meet]))
    first, second, shared, place = np.concatenate(pairs, axis=1).astype(np.uint32)
    with_ground = np.pad(knows @ knows.T > 0, (0, 1), constant_values=True)
    return Links(first, second, shared, place, fill_in(with_ground))


def elimination_cost(sets: Layout) -> int:
    """Return roughly how many multiplications a Newton step takes by elimination.

    Eliminating a node adds edges only between later nodes whose first neighbour is not after that node.
    """
    size = len(sets.offsets) - 1
    first_of_class = np.full(len(sets.class_offsets) - 1, size)
    np.minimum.at(first_of_class, sets.columns, sets.block_of)
    first = np.arange(size)
    np.minimum.at(first, sets.block_of, first_of_class[sets.columns])
    # for each node, the number of later nodes with a first neighbour at or before it
    later = np.cumsum(np.bincount(first, minlength=size)) - np.arange(1, size + 1)
    return int((later**2).sum()) + size**2 // 4  # every possible edge is set to zero


@part(fastmath=FUSE)
def solve_by_gradients(z, sets, norms, tol, most):  # type: ignore[no-untyped-def]
    """Solve the Newton system for x, as exactly as Newton's method can use.

    norms (lanes,) holds the norm of each lane's gradient.
    """
    goal = np.empty(len(z.row))
    for lane in range(len(goal)):
        # a step leaves about the square of the gradient, so a more exact direction would not help
        norm = norms[lane]
        goal[lane] = max(0.25 * tol, min(0.1, norm) * norm) if z.row[lane] >= 0 else np.inf
    for c in range(len(z.g)):
        for lane in range(len(goal)):
            z.g[c, lane] = -z.g[c, lane]
    conjugate_gradients(z.t, z.w, z.g, sets, z.x, goal, most)


@part(fastmath=FUSE)
def solve_by_set(z, sets, links):  # type: ignore[no-untyped-def]
    """Solve the Newton system through the Laplacian on class sets.

    Its edges are w_B w_C sum_l q_B(l) q_C(l) / d_l, where d includes the damping. The edges to the ground are
    w_B sum_l q_B(l) damping / d_l.
    """
    columns, offsets = sets.columns, sets.offsets
    t, s, x, inverse = z.t, z.s, z.x, z.g  # x takes -g / d before 1 / d overwrites g
    lanes = x.shape[1]
    for c in range(len(x)):
        for lane in range(lanes):
            over = 1.0 / (z.d[c, lane] + DAMPING)
            x[c, lane] = -z.g[c, lane] * over
            inverse[c, lane] = over
    z.weights[:] = 0.0
    flat = z.weights.reshape(len(s) * len(s), lanes)
    for i in range(len(links.place)):
        place, first, second, shared = links.place[i], links.first[i], links.second[i], links.shared[i]
        for lane in range(lanes):
            flat[place, lane] += t[first, lane] * t[second, lane] * inverse[shared, lane]
    s[:] = 0.0
    ground = len(s) - 1
    for b in range(len(z.w)):
        for k in range(offsets[b], offsets[b + 1]):
            c = columns[k]
            for lane in range(lanes):
                s[b, lane] += t[k, lane] * x[c, lane]
                z.weights[b, ground, lane] += t[k, lane] * inverse[c, lane] * DAMPING
    solve_laplacian(z.weights, s, links.fill)
    for b in range(len(z.w)):
        for k in range(offsets[b], offsets[b + 1]):
            c = columns[k]
            for lane in range(lanes):
                x[c, lane] += t[k, lane] * s[b, lane] * inverse[c, lane]
