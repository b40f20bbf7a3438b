"""The diffusion map of a graph, against a dense eigensolver and on graphs in several parts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigh

from consilience.kernels.collision import diffusion
from consilience.kernels.collision.diffusion import diffusion_map
from consilience.kernels.neighbours import mean_of_neighbours, nearest_neighbours


def dense_map(neighbours, m):
    """Return the coordinates by definition, up to signs."""
    P = mean_of_neighbours(np.eye(len(neighbours)), neighbours)
    root = np.sqrt((P + P.T).sum(axis=1))
    values, vectors = eigh((P + P.T) / np.outer(root, root))
    points = vectors[:, ::-1][:, :m] * np.maximum(values[::-1][:m], 0.0) ** 4
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("m", [1, 4, 6])
def test_after_enough_rounds_inner_products_are_those_of_a_dense_eigensolver(m, monkeypatch):
    monkeypatch.setattr(diffusion, "_ROUNDS", 20)
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
