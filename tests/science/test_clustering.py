"""What the paper claims of clustering, on handwritten digits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from consilience import CollisionClustering, clustering_accuracy
from consilience.collision.losses import LOSSES

SEEDS = range(4)


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


@pytest.mark.slow
def test_digits_are_clustered_better_than_by_k_means(digits):
    X, y = digits
    ours = [clustering_accuracy(y, CollisionClustering(10, random_state=s).fit_predict(X)) for s in SEEDS]
    theirs = [clustering_accuracy(y, KMeans(10, n_init=10, random_state=s).fit_predict(X)) for s in SEEDS]
    assert np.mean(ours) >= 0.86
    assert np.mean(ours) > np.mean(theirs) + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("loss", sorted(set(LOSSES) - {"collision"}))
def test_the_compared_losses_have_the_same_care(digits, loss):
    X, y = digits
    accuracy = [
        clustering_accuracy(y, CollisionClustering(10, loss=loss, n_init=5, random_state=s).fit_predict(X))
        for s in range(2)
    ]
    # k-means has 0.79; IIC was made for networks and augmentation
    assert np.mean(accuracy) > (0.65 if loss == "iic" else 0.79)


def mixture(seed):
    """Return eight round classes whose sizes fall from 1 to 1/5."""
    rng = np.random.default_rng(seed)
    share = 5.0 ** (-np.arange(8) / 7)
    y = np.repeat(np.arange(8), (1200 * share / share.sum()).astype(int))
    return rng.normal(size=(8, 20))[y] + rng.normal(size=(len(y), 20)), y


@pytest.mark.filterwarnings("ignore:.* clusters have:consilience.CoverageWarning")
def test_the_fast_loss_lets_classes_differ_in_size():
    """It beats the collision loss with its default lam of 100, which cuts large classes up."""
    accuracy = {}
    for loss in ("fast", "collision"):
        models = [CollisionClustering(8, loss=loss, n_init=5, random_state=s) for s in range(20, 24)]
        data = [mixture(s) for s in range(20, 24)]
        found = [clustering_accuracy(y, m.fit_predict(X)) for m, (X, y) in zip(models, data, strict=True)]
        accuracy[loss] = np.array(found)
    assert accuracy["fast"].mean() > accuracy["collision"].mean() + 0.05
    assert (accuracy["fast"] > accuracy["collision"]).sum() >= 3


# a bad start may lose a cluster, and says so
@pytest.mark.filterwarnings("ignore:Only .* clusters have rows:consilience.CoverageWarning")
def test_the_objective_knows_which_start_is_good(digits):
    X, y = digits
    runs = [CollisionClustering(10, n_init=1, random_state=s).fit(X) for s in range(12)]
    accuracy = [clustering_accuracy(y, run.labels_) for run in runs]
    assert np.corrcoef(accuracy, [run.objective_ for run in runs])[0, 1] < -0.4


def test_five_percent_of_labels_beat_only_seeds(digits):
    X, y = digits
    gains = []
    for seed in range(3):
        known = np.random.default_rng(seed).permutation(len(X))[: len(X) // 20]
        partial = np.full(len(y), -1)
        partial[known] = y[known]
        hidden = partial < 0
        seeds_only = LogisticRegression(max_iter=2000).fit(X[known] / 16, y[known])
        ours = CollisionClustering(10, random_state=seed).fit(X, partial)
        gains.append((ours.labels_ == y)[hidden].mean() - (seeds_only.predict(X / 16) == y)[hidden].mean())
    assert np.mean(gains) >= 0.03
