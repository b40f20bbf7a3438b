"""Neighbours found, and diffusion maps of their graph."""

import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.datasets import make_blobs
from sklearn.neighbors import NearestNeighbors

from consilience.kernels import neighbours
from consilience.kernels.neighbours import (
    diffusion_map,
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


def dense_map(neighbours, m):
    """Return the coordinates by definition, up to signs."""
    P = mean_of_neighbours(np.eye(len(neighbours)), neighbours)
    root = np.sqrt((P + P.T).sum(axis=1))
    values, vectors = eigh((P + P.T) / np.outer(root, root))
    points = vectors[:, ::-1][:, :m] * np.maximum(values[::-1][:m], 0.0) ** 4
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("m", [1, 4, 6])
def test_after_enough_rounds_inner_products_are_those_of_a_dense_eigensolver(m, monkeypatch):
    monkeypatch.setattr(neighbours, "_ROUNDS", 20)
    rng = np.random.default_rng(m)
    X = np.concatenate([rng.normal(size=(60, 3)) + 4.0 * centre for centre in np.eye(6, 3)])
    near = nearest_neighbours(X, 8, 0)
    points, expected = diffusion_map(near, m, 0), dense_map(near, m)
    assert points.shape == (360, m)
    np.testing.assert_allclose(points @ points.T, expected @ expected.T, atol=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_one_part_are_one_point_and_parts_are_orthogonal(seed):
    """Each part of the graph has an eigenvalue of 1, so 1 occurs seven times."""
    parts = np.repeat(range(7), 30)
    X = np.random.default_rng(seed).normal(size=(210, 2))
    near = nearest_neighbours(np.column_stack([X, 99.0 * np.eye(7)[parts]]), 5, 0)
    points = diffusion_map(near, 7, seed)
    np.testing.assert_allclose(points @ points.T, parts[:, None] == parts, atol=0.05)


def test_few_rows_have_few_directions_and_all_lengths_are_one():
    for n, k, m in ((2, 1, 1), (4, 1, 3), (5, 2, 9)):
        near = nearest_neighbours(np.random.default_rng(n).normal(size=(n, 2)), k, 0)
        points = diffusion_map(near, m, 0)
        assert points.shape == (n, min(n, m))
        np.testing.assert_allclose((points**2).sum(axis=1), 1.0)
    np.testing.assert_array_equal(diffusion_map(near, 3, 7), diffusion_map(near, 3, 7))
