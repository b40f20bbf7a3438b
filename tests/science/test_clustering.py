"""What the paper claims of clustering, on handwritten digits."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from consilience import CollisionClustering, clustering_accuracy
from consilience.cluster.options import LOSSES

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


@pytest.mark.parametrize("unequal", [False, True])
def test_the_graph_of_neighbours_gives_a_better_start_than_random_rows(digits, unequal):
    """One model from the graph beats the best of several from random rows."""
    X, y = digits
    gains = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        share = rng.permutation(5.0 ** (-np.arange(10) / 9)) if unequal else np.ones(10)
        rows = np.flatnonzero(rng.random(len(y)) < share[y])
        graph, random = (
            clustering_accuracy(
                y[rows], CollisionClustering(10, n_init=5, init=init, random_state=seed).fit_predict(X[rows])
            )
            for init in ("graph", "k-means++")
        )
        gains.append(graph - random)
    assert np.mean(gains) > 0.01


# a bad start may lose a cluster, and says so
@pytest.mark.filterwarnings("ignore:Only .* clusters have rows:consilience.CoverageWarning")
def test_the_objective_knows_which_start_is_good(digits):
    X, y = digits
    options = {"n_init": 1, "init": "k-means++"}
    runs = [CollisionClustering(10, **options, random_state=s).fit(X) for s in range(12)]
    accuracy = [clustering_accuracy(y, run.labels_) for run in runs]
    assert np.corrcoef(accuracy, [run.objective_ for run in runs])[0, 1] < -0.4
