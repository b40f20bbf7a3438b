"""Coordinates of rows in which walks along the graph of neighbours are short: diffusion maps."""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.neighbours import (
    Neighbours,
    mean_of_neighbours,
    mean_of_neighbours_transposed,
)

# Steps of the walk: directions whose eigenvalue is small after so many steps hardly count.
_STEPS = 4
# Subspace iteration: rounds, the degree of the polynomial of a round, and spare directions per wanted one.
_ROUNDS, _DEGREE, _SPARE = 3, 12, 1 / 3
# Eigenvalues below the first are damped in the first round, and none above the second in any.
_FIRST_CUT, _LAST_CUT = 0.5, 0.99


def diffusion_map(neighbours: Neighbours, n_directions: int, seed: int) -> Floats:
    r"""Return each row as a point on the unit sphere; rows that many short walks join are close.

    With P the matrix of `mean_of_neighbours` and D the row sums of P + P', the coordinates of row i are

    .. math:: \big( \mu_1^4 v_{i1}, \ldots, \mu_m^4 v_{im} \big) \text{ divided by their length}, \qquad
              D^{-1/2} (P + P^\top) D^{-1/2} v_j = \mu_j v_j

    for the largest m eigenvalues (Ng, Jordan and Weiss, 2001; Coifman and Lafon, 2006). The eigenvectors are
    approximate: subspace iteration, sped up by Chebyshev polynomials. Unlike Lanczos' method it finds
    eigenvalues that occur many times, and 1 occurs once for each connected part of the graph.

    Parameters
    ----------
    neighbours : (n, k) array of int
    n_directions : int
        m; at most n are used.
    seed : int
        Draws the first subspace.

    Returns
    -------
    (n, m) array
    """
    n = len(neighbours)
    root = np.sqrt(1.0 + mean_of_neighbours_transposed(np.ones((n, 1)), neighbours))

    def walk(V: Floats) -> Floats:
        V = V / root
        out: Floats = mean_of_neighbours(V, neighbours) + mean_of_neighbours_transposed(V, neighbours)
        out /= root
        return out

    width = min(n, n_directions + int(np.ceil(_SPARE * n_directions)))
    V = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, width)))[0]
    cut = _FIRST_CUT
    for _ in range(_ROUNDS):
        # the Chebyshev polynomial is small on [-1, cut] and grows fast above
        centre, half = (cut - 1.0) / 2.0, (cut + 1.0) / 2.0
        last, V = V, (walk(V) - centre * V) / half
        for _ in range(_DEGREE - 1):
            last, V = V, (walk(V) - centre * V) * (2.0 / half) - last
        V = np.linalg.qr(V)[0]
        values, turn = np.linalg.eigh(V.T @ walk(V))
        V, cut = V @ turn, float(np.clip(values[0], 0.0, _LAST_CUT))
    kept = np.argsort(-values, kind="stable")[:n_directions]
    points = V[:, kept] * np.maximum(values[kept], 0.0) ** _STEPS
    length = np.sqrt(np.einsum("ij,ij->i", points, points))[:, None]
    return np.ascontiguousarray(points / np.where(length > 0.0, length, 1.0))
