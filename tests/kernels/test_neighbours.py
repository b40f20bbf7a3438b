"""Neighbours: exact against scikit-learn's, approximate by their recall."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.neighbors import NearestNeighbors

from consilience.kernels import neighbours
from consilience.kernels.neighbours import (
    mean_of_neighbours,
    mean_of_neighbours_transposed,
    nearest_neighbours,
)


def _exact(X, k):
    return NearestNeighbors(n_neighbors=k + 1).fit(X).kneighbors(X, return_distance=False)[:, 1:]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_rows_have_their_exact_neighbours(dtype):
    X = np.random.default_rng(0).normal(size=(700, 6)).astype(dtype)
    np.testing.assert_array_equal(nearest_neighbours(X, 7, 0), _exact(X, 7))


def test_many_rows_have_most_of_their_neighbours():
    X = make_blobs(12_000, 32, centers=40, cluster_std=4.0, random_state=0)[0].astype(np.float32)
    found, exact = nearest_neighbours(X, 10, 0), _exact(X, 10)
    assert len(X) > neighbours.EXACT_ROWS
    recall = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(found, exact, strict=True)])
    assert recall > 0.9
    assert not (found == np.arange(len(X))[:, None]).any()
    assert all(len(set(row)) == 10 for row in found.tolist())
    np.testing.assert_array_equal(found, nearest_neighbours(X, 10, 0))


def test_cells_that_are_too_small_are_joined(monkeypatch):
    monkeypatch.setattr(neighbours, "EXACT_ROWS", 10)
    monkeypatch.setattr(neighbours, "PROBES", 1)
    X = np.repeat(np.random.default_rng(0).normal(size=(20, 2)), 2, axis=0)
    found = nearest_neighbours(X, 15, 0)
    assert all(len(set(row)) == 15 for row in found.tolist())
    # each row's twin is at distance zero
    assert (
        (np.sort(found, axis=1) == np.arange(40)[:, None] // 2 * 2 + 1 - np.arange(40)[:, None] % 2)
        .any(1)
        .all()
    )


def test_means_over_neighbours_and_their_transpose():
    rng = np.random.default_rng(0)
    S, G = rng.random((30, 3)), rng.random((30, 3))
    near = nearest_neighbours(rng.normal(size=(30, 2)), 4, 0)
    matrix = np.eye(30)
    np.add.at(matrix, (np.repeat(np.arange(30), 4), near.ravel()), 1.0)
    np.testing.assert_allclose(mean_of_neighbours(S, near), matrix @ S / 5)
    np.testing.assert_allclose(mean_of_neighbours_transposed(G, near), matrix.T @ G / 5)
