"""Nearest neighbours, and means over them. No array here has n x n entries.

Up to `EXACT_ROWS` rows, every pair is compared. Above, rows are sorted into about sqrt(n) cells by a few
steps of Lloyd's algorithm on a sample, and a row is compared with the rows of the `PROBES` cells nearest to
its own: O(n^1.5 d) instead of O(n^2 d). tests/kernels/test_neighbours.py measures what this misses.
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
    n = len(X)
    half_norms = 0.5 * np.einsum("ij,ij->i", X, X)
    out = np.empty((n, k), dtype=np.int32)
    blocks = _all_pairs(n) if n <= EXACT_ROWS else _cells(X, half_norms, k, seed)
    for rows, candidates in blocks:
        products = X[rows] @ X[candidates].T
        _select(products, half_norms[candidates], rows, candidates, out)
    return out


def near_rows(X: NDArray[Any], wanted: int, n_classes: int, seed: int) -> Neighbours:
    """Return the nearest rows (n, k) of each row, k at most as wanted.

    With more neighbours than a fair class has rows, all rows would look alike.
    """
    k = min(wanted, max(0, len(X) // n_classes - 1))
    return nearest_neighbours(X, k, seed) if k else np.empty((len(X), 0), np.int32)


def mean_of_neighbours(S: Floats, neighbours: Neighbours) -> Floats:
    """Return the mean of each row of S (n, K) and of its neighbours' rows; `neighbours` is (n, k)."""
    return _gather(S, neighbours)  # type: ignore[no-any-return]


def mean_of_neighbours_transposed(G: Floats, neighbours: Neighbours) -> Floats:
    """Return the gradient by S where G (n, K) is the gradient by `mean_of_neighbours(S)`."""
    return _scatter(G, neighbours)  # type: ignore[no-any-return]


def _all_pairs(n: int) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    every = np.arange(n, dtype=np.int32)
    for start in range(0, n, _BLOCK):
        yield every[start : start + _BLOCK], every


def _cells(
    X: NDArray[Any], half_norms: NDArray[Any], k: int, seed: int
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Yield rows of one cell and the rows of the cells nearest to it, for all cells."""
    centres = _place_centres(X, round(len(X) ** 0.5), seed)
    cell = _nearest_centre(X, centres)
    order = np.argsort(cell, kind="stable").astype(np.int32)
    members = np.split(order, np.searchsorted(cell[order], np.arange(1, len(centres))))
    sizes = np.array([len(rows) for rows in members])
    towards = 0.5 * np.einsum("ij,ij->i", centres, centres) - centres @ centres.T
    for i, rows in enumerate(members):
        if len(rows) == 0:
            continue
        near = np.argsort(towards[i], kind="stable")
        # more cells if the nearest hold too few rows
        enough = max(PROBES, int(np.searchsorted(np.cumsum(sizes[near]), k + 1)) + 1)
        candidates = np.concatenate([members[j] for j in near[:enough]])
        for start in range(0, len(rows), _BLOCK):
            yield rows[start : start + _BLOCK], candidates


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


def _nearest_centre(X: NDArray[Any], centres: NDArray[Any]) -> NDArray[np.intp]:
    half_norms = 0.5 * np.einsum("ij,ij->i", centres, centres)
    blocks = [X[i : i + 4096] @ centres.T - half_norms for i in range(0, len(X), 4096)]
    return np.concatenate([block.argmax(axis=1) for block in blocks])


@kernel()
def _select(products, half_norms, rows, candidates, out):  # type: ignore[no-untyped-def]
    """Keep, for each row i, the k nearest candidates j: those of smallest |x_j|^2 / 2 - x_i . x_j."""
    k = out.shape[1]
    best = np.empty(k)
    for a in range(len(rows)):
        row = rows[a]
        found = 0
        for b in range(len(candidates)):
            score = float(half_norms[b]) - float(products[a, b])
            if (found == k and score >= best[k - 1]) or candidates[b] == row:
                continue
            place = found if found < k else k - 1
            found = min(found + 1, k)
            while place > 0 and best[place - 1] > score:
                best[place] = best[place - 1]
                out[row, place] = out[row, place - 1]
                place -= 1
            best[place] = score
            out[row, place] = candidates[b]


@kernel()
def _gather(S, neighbours):  # type: ignore[no-untyped-def]
    out = S.copy()
    for i in range(len(S)):
        for j in neighbours[i]:
            for c in range(S.shape[1]):
                out[i, c] += S[j, c]
    return out / (neighbours.shape[1] + 1)


@kernel()
def _scatter(G, neighbours):  # type: ignore[no-untyped-def]
    out = G.copy()
    for i in range(len(G)):
        for j in neighbours[i]:
            for c in range(G.shape[1]):
                out[j, c] += G[i, c]
    return out / (neighbours.shape[1] + 1)
