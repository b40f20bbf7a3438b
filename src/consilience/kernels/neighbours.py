"""Nearest neighbours, means over them, and walks along their graph. No array here has n x n entries.

Up to `EXACT_ROWS` rows, every pair is compared. Above, rows are sorted into about sqrt(n) cells by a few
steps of Lloyd's algorithm on a sample, and a row is compared with the rows of the `PROBES` cells nearest to
its own: O(n^1.5 d) instead of O(n^2 d). tests/kernels/test_neighbours.py measures what this misses.

Coordinates of rows in which walks along the graph of neighbours are short: diffusion maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel

Neighbours = NDArray[np.int32]

EXACT_ROWS = 8_192
PROBES = 24
_LLOYD_STEPS = 4
_ROWS_PER_CENTRE = 40  # in the sample that places the centres
_BLOCK = 512  # rows compared at once: few enough that their products stay near the cache


def nearest_neighbours(X: NDArray[Any], k: int, seed: int) -> Neighbours:
    """Return the `k` nearest other rows of each row, by Euclidean distance, nearest first.

    Parameters
    ----------
    X : (n, d) array
        float32 or float64; the products are in its precision.
    k : int
        Below n.
    seed : int
        Draws the sample that places the cells, if there are more than `EXACT_ROWS` rows.

    Returns
    -------
    (n, k) array of int
    """
    return NearestRows(X, seed).find(X, k, np.arange(len(X)))


class NearestRows:
    """Finds the nearest of some rows, for any others, block by block.

    Parameters
    ----------
    X : (r, d) array
        The rows to find.
    seed : int
        As in `nearest_neighbours`.
    """

    def __init__(self, X: NDArray[Any], seed: int) -> None:
        self.X = X
        self._half_norms = 0.5 * np.einsum("ij,ij->i", X, X)
        self._centres = None
        if len(X) > EXACT_ROWS:
            self._centres = centres = _place_centres(X, round(len(X) ** 0.5), seed)
            cell = _nearest_centre(X, centres)
            order = np.argsort(cell, kind="stable").astype(np.int32)
            self._members = np.split(order, np.searchsorted(cell[order], np.arange(1, len(centres))))
            self._towards = 0.5 * np.einsum("ij,ij->i", centres, centres) - centres @ centres.T

    def find(self, rows: NDArray[Any], k: int, own: NDArray[np.intp]) -> Neighbours:
        """Return the positions (b, k) of the nearest rows, nearest first.

        Parameters
        ----------
        rows : (b, d) array
        k : int
            Below r.
        own : (b,) array of int
            The position of each of these rows among X, which is not its neighbour; -1 if it is not there.
        """
        out = np.empty((len(rows), k), dtype=np.int32)
        for these, candidates in (
            self._all_pairs(len(rows)) if self._centres is None else self._cells(rows, k)
        ):
            products = rows[these] @ self.X[candidates].T
            _select(products, self._half_norms[candidates], own[these], candidates, these, out)
        return out

    def _all_pairs(self, n: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int32]]]:
        every = np.arange(len(self.X), dtype=np.int32)
        for start in range(0, n, _BLOCK):
            yield np.arange(start, min(start + _BLOCK, n)), every

    def _cells(self, rows: NDArray[Any], k: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int32]]]:
        """Yield rows of one cell and the rows of X in the cells nearest to it, for all cells."""
        cell = _nearest_centre(rows, self._centres)
        order = np.argsort(cell, kind="stable")
        parts = np.split(order, np.searchsorted(cell[order], np.arange(1, len(self._members))))
        sizes = np.array([len(members) for members in self._members])
        for i, these in enumerate(parts):
            if len(these) == 0:
                continue
            near = np.argsort(self._towards[i], kind="stable")
            # more cells if the nearest hold too few rows
            enough = max(PROBES, int(np.searchsorted(np.cumsum(sizes[near]), k + 1)) + 1)
            candidates = np.concatenate([self._members[j] for j in near[:enough]])
            for start in range(0, len(these), _BLOCK):
                yield these[start : start + _BLOCK], candidates


def near_rows(X: NDArray[Any], wanted: int, n_classes: int, seed: int) -> Neighbours:
    """Return the nearest rows (n, k) of each row, k at most as wanted.

    With more neighbours than a fair class has rows, all rows would look alike.
    """
    k = min(wanted, max(0, len(X) // n_classes - 1))
    return nearest_neighbours(X, k, seed) if k else np.empty((len(X), 0), np.int32)


def mean_of_neighbours(S: Floats, neighbours: Neighbours) -> Floats:
    """Return the mean of each row of S (n, K) and of its neighbours' rows; `neighbours` is (n, k)."""
    return _mix(S, neighbours, False)  # type: ignore[no-any-return]


def mean_of_neighbours_transposed(G: Floats, neighbours: Neighbours) -> Floats:
    """Return the gradient by S where G (n, K) is the gradient by `mean_of_neighbours(S)`."""
    return _mix(G, neighbours, True)  # type: ignore[no-any-return]


@kernel()
def _mix(S, neighbours, back):  # type: ignore[no-untyped-def]
    out = S.copy()
    for i in range(len(S)):
        for j in neighbours[i]:
            source, target = (i, j) if back else (j, i)
            for c in range(S.shape[1]):
                out[target, c] += S[source, c]
    return out / (neighbours.shape[1] + 1)


def _place_centres(X: NDArray[Any], n_cells: int, seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    sample = X[rng.choice(len(X), min(len(X), _ROWS_PER_CENTRE * n_cells), replace=False)]
    centres = sample[:n_cells].copy()
    for _ in range(_LLOYD_STEPS):
        cell = _nearest_centre(sample, centres)
        filled = np.bincount(cell, minlength=n_cells) > 0
        order = np.argsort(cell, kind="stable")
        starts = np.searchsorted(cell[order], np.flatnonzero(filled))
        sums = np.add.reduceat(sample[order], starts, axis=0)
        centres[filled] = sums / np.bincount(cell, minlength=n_cells)[filled, None]
    return centres


def _nearest_centre(X: NDArray[Any], centres: Any) -> NDArray[np.intp]:
    half_norms = 0.5 * np.einsum("ij,ij->i", centres, centres)
    blocks = [X[i : i + 4096] @ centres.T - half_norms for i in range(0, len(X), 4096)]
    return np.concatenate([block.argmax(axis=1) for block in blocks])


@kernel()
def _select(products, half_norms, own, candidates, rows, out):  # type: ignore[no-untyped-def]
    """Keep, for each row i, the k nearest candidates j: those of smallest |x_j|^2 / 2 - x_i . x_j."""
    k = out.shape[1]
    best = np.empty(k)
    for a in range(len(rows)):
        row = rows[a]
        found = 0
        for b in range(len(candidates)):
            score = float(half_norms[b]) - float(products[a, b])
            if (found == k and score >= best[k - 1]) or candidates[b] == own[a]:
                continue
            place = found if found < k else k - 1
            found = min(found + 1, k)
            while place > 0 and best[place - 1] > score:
                best[place] = best[place - 1]
                out[row, place] = out[row, place - 1]
                place -= 1
            best[place] = score
            out[row, place] = candidates[b]


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
