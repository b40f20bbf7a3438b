"""The direction of a Newton step of the cross-entropy method.

There are three ways to find it: eliminate class sets, eliminate classes, or run conjugate gradients. The
equations are in the docstring of `cross_entropy`. In this file, `z` is a `cross_entropy._Lanes`: the rows in
progress, one per lane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compiled import part
from consilience.kernels.elementary import FUSE
from consilience.kernels.unify.conjugate_gradients import conjugate_gradients
from consilience.kernels.unify.laplacian import fill_in, solve_laplacian
from consilience.kernels.unify.packed import Indices, Layout

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


# How to find the direction. Exactly one entry is not None: the links of class sets (to eliminate class sets),
# the `fill_in` of the classes and the ground (to eliminate classes), or the number of iterations of conjugate
# gradients. Numba drops a branch whose condition is "None is not None", so a first call compiles one way.
Way = tuple[Links | None, NDArray[np.bool_] | None, int | None]
BY_GRADIENTS: Way = (None, None, GRADIENTS)


def make_links(sets: Layout) -> Way:
    """Prepare elimination: of the class sets, or of the classes if these are fewer."""
    n_sets, n_classes = len(sets.offsets) - 1, len(sets.class_offsets) - 1
    knows = np.zeros((n_sets, n_classes), dtype=np.float32)
    knows[sets.block_of, sets.columns] = 1.0
    if n_sets > n_classes:
        return None, _fill_with_ground(knows.T @ knows > 0), None
    pairs = [np.empty((4, 0))]
    for c in range(n_classes):
        columns = sets.by_class[sets.class_offsets[c] : sets.class_offsets[c + 1]]
        one, other = (columns[i] for i in np.triu_indices(len(columns), 1))
        meet = sets.block_of[one] * (n_sets + 1) + sets.block_of[other]
        pairs.append(np.stack([one, other, np.full(len(one), c), meet]))
    first, second, shared, place = np.concatenate(pairs, axis=1).astype(np.uint32)
    return Links(first, second, shared, place, _fill_with_ground(knows @ knows.T > 0)), None, None


def _fill_with_ground(linked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return fill_in(np.pad(linked, (0, 1), constant_values=True))


def elimination_cost(sets: Layout) -> int:
    """Return roughly how many multiplications a Newton step takes by elimination.

    Eliminating a node adds edges only between later nodes whose first neighbour is not after that node.
    """
    n_sets, n_classes = len(sets.offsets) - 1, len(sets.class_offsets) - 1
    if n_sets > n_classes:
        node, hub, size = sets.columns, sets.block_of, n_classes
    else:
        node, hub, size = sets.block_of, sets.columns, n_sets
    first_of_hub = np.full(max(n_sets, n_classes), size)
    np.minimum.at(first_of_hub, hub, node)
    first = np.arange(size)
    np.minimum.at(first, node, first_of_hub[hub])
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


@part(fastmath=FUSE)
def solve_by_class(z, sets, fill):  # type: ignore[no-untyped-def]
    """Solve the Newton system directly: with more class sets than classes, this Laplacian is smaller."""
    t, columns = z.t, sets.columns
    z.weights[:] = 0.0
    for b in range(len(z.w)):
        for i in range(sets.offsets[b], sets.offsets[b + 1]):
            for j in range(i + 1, sets.offsets[b + 1]):
                # classes ascend within a set, so this fills the upper triangle
                row, column = columns[i], columns[j]
                for lane in range(t.shape[1]):
                    if z.w[b, lane] > 0.0:
                        z.weights[row, column, lane] += t[i, lane] * t[j, lane] / z.w[b, lane]
    z.s[:] = 0.0
    for c in range(len(z.x)):
        z.weights[c, -1, :] = DAMPING
        for lane in range(t.shape[1]):
            z.s[c, lane] = -z.g[c, lane]
    solve_laplacian(z.weights, z.s, fill)
    for c in range(len(z.x)):
        for lane in range(t.shape[1]):
            z.x[c, lane] = z.s[c, lane]
