"""Repairs of a start: merge two clusters and cut a third; and exact shares that neighbours must allow."""

import numpy as np
import pytest
from scipy.special import entr
from sklearn.datasets import make_blobs

from consilience import CollisionClustering, clustering_accuracy
from consilience.cluster import Collision
from consilience.cluster.starts import (
    cut_cost,
    merge_costs,
    neighbour_entropy,
    neighbour_information,
    regroup,
)
from consilience.kernels.neighbours import mean_of_neighbours, nearest_neighbours

PRIOR = np.full(4, 0.25)


X, Y = make_blobs(240, 3, centers=12.0 * np.vstack([np.eye(3), -np.ones(3)]), random_state=0)
NEAR = nearest_neighbours(X, 8, 0)


def test_a_cluster_of_two_groups_is_cut_and_halves_of_one_group_are_merged():
    wrong = np.where(Y == 1, 0, Y)  # two groups in one cluster...
    wrong[(Y == 3) & (X[:, 0] > np.median(X[Y == 3, 0]))] = 1  # ...and two clusters in one group
    assert clustering_accuracy(Y, wrong) < 0.8
    found = regroup(X, wrong, NEAR, PRIOR)
    assert clustering_accuracy(Y, found) == 1.0
    assert neighbour_information(found, NEAR, PRIOR) < neighbour_information(wrong, NEAR, PRIOR)


def test_costs_are_differences_of_mutual_information():
    """Merge each pair, and cut each cluster, in the plain way."""
    clusters = np.random.default_rng(0).integers(20, size=len(X))
    parts = [np.flatnonzero(clusters == k)[:-3] for k in range(20)]
    parts[4] = parts[4][:0]

    def value(labels):
        means = mean_of_neighbours(np.eye(21)[labels], NEAR)
        share = means.mean(axis=0)
        return entr(means).sum() / len(X) - entr(share).sum()

    merge = merge_costs(mean_of_neighbours(np.eye(20)[clusters], NEAR))
    cut = [cut_cost(clusters, k, part, NEAR) for k, part in enumerate(parts)]
    for a, b in [(1, 0), (19, 3), (12, 11)]:
        merged = np.where(clusters == a, b, clusters)
        assert merge[a, b] == pytest.approx(value(merged) - value(clusters), abs=1e-12)
        assert merge[b, a] == np.inf
    for k in (0, 15, 16, 19):
        without = clusters.copy()
        without[parts[k]] = 20
        assert cut[k] == pytest.approx(value(without) - value(clusters), abs=1e-12)
    assert cut[4] == np.inf


def test_good_clusters_stay_as_they_are():
    np.testing.assert_array_equal(regroup(X, Y, NEAR, PRIOR), Y)


def test_rows_that_are_alike_and_single_clusters_are_left_alone():
    near = np.tile(np.arange(3, dtype=np.int32), (9, 1))
    clusters = np.arange(9) % 2
    for prior in (np.full(2, 0.5), np.full(5, 0.2)):
        assert regroup(np.zeros((9, 2)), clusters, near, prior).shape == (9,)
    one = np.zeros(9, dtype=np.intp)
    np.testing.assert_array_equal(regroup(np.zeros((9, 2)), one, near, np.ones(1)), one)
    assert neighbour_entropy(one, near, 1) == 0.0


def test_exact_shares_are_tried_unless_lam_is_small(monkeypatch):
    tried = []
    monkeypatch.setattr(
        "consilience.cluster.rounds.regroup", lambda X, clusters, *_: tried.append(1) or clusters
    )
    for options, n_tried in (({}, 2), ({"loss": Collision(lam=1.0)}, 0), ({"loss": "sela"}, 0)):
        tried.clear()
        CollisionClustering(4, n_init=2, random_state=0, **options).fit(X)
        assert len(tried) == n_tried
