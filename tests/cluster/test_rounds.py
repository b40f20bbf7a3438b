"""The round loop: what it gives the loss, when it stops, what it records; and the linear model's steps."""

import numpy as np
import pytest
from scipy.special import softmax

from consilience.cluster import rounds
from consilience.cluster.losses import Problem, clustering_loss
from consilience.cluster.options import MI, Own
from consilience.cluster.report import clustering_accuracy
from consilience.cluster.rounds import (
    LinearModel,
    Schedule,
    alternate,
    descend,
)
from consilience.cluster.starts import promising_clusters, weights_from_centres
from consilience.kernels.collision.entropy import mutual_information
from consilience.kernels.neighbours import mean_of_neighbours, nearest_neighbours

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
NEAR = nearest_neighbours(X, 2, 0)


class Scripted:
    """A model whose predictions are given; it counts its steps."""

    def __init__(self, logits, penalty=0.0, stop_after=None):
        self.predictions = [softmax(z, axis=1) for z in logits]
        self.losses, self._penalty, self.stop_after = [], penalty, stop_after

    @property
    def stopped(self):
        return self.stop_after is not None and len(self.losses) >= self.stop_after

    def predict(self):
        S = self.predictions[min(len(self.losses), len(self.predictions) - 1)]
        return S, S[::-1]  # the views are other predictions

    def step(self, loss):
        self.losses.append(loss)

    def epoch(self, problem):
        self.losses.append(problem)
        return float(len(self.losses))

    def penalty(self):
        return self._penalty


def problem(loss, neighbours=NEAR, n=12, fixed=None):
    fixed = np.full(n, -1) if fixed is None else fixed
    return Problem(loss if isinstance(loss, MI) else Own(loss), np.full(3, 1 / 3), fixed, neighbours)


def no_report(done):
    """Count nothing."""


def constant(value):
    return lambda S, A: (value, 0.0, 0.0)


def test_a_loss_sees_the_predictions_and_the_means_of_views_over_neighbours():
    seen = []

    def own(S, A):
        seen.append((S.copy(), A.copy()))
        return 1.5, 0.0, 0.0

    model = Scripted([RNG.normal(size=(12, 3))], penalty=0.25)
    run = alternate(model, problem(own), Schedule(0, 0.0))
    S, A = seen[0]
    np.testing.assert_array_equal(S, model.predict()[0])
    np.testing.assert_allclose(A, mean_of_neighbours(S[::-1].copy(), NEAR))
    assert run.history == (1.75,)
    assert (run.n_iter, model.losses) == (0, [])


def test_rounds_end_when_few_rows_change_their_cluster():
    """Clusters are those of the means; a quarter of the rows changes in the first round, then none."""
    first = 9.0 * np.eye(3)[np.arange(12) % 3]
    second = first.copy()
    second[:3] = second[:3, [1, 2, 0]]
    alone = np.empty((12, 0), np.int32)
    for tol, n_iter, changed in ((0.3, 1, 0.25), (0.2, 2, 0.0)):
        model = Scripted([first, second])
        run = alternate(model, problem(constant(1.0), alone), Schedule(9, tol))
        assert (run.n_iter, run.changed, len(model.losses)) == (n_iter, changed, n_iter)
    run = alternate(Scripted([first, second] * 9), problem(constant(1.0), alone), Schedule(3, 0.0))
    assert (run.n_iter, run.changed, len(run.history)) == (3, 0.25, 4)


def test_a_falling_objective_or_impatience_keeps_the_rounds_going():
    still = [9.0 * np.eye(3)[np.arange(12) % 3]]
    values = iter([5.0, 4.0, 3.999, 3.5, 3.499, 3.498, 3.497, 3.496])  # one settled round, and later three

    def falling(S, A):
        return next(values), 0.0, 0.0

    run = alternate(Scripted(still), problem(falling), Schedule(9, 0.0, most_fall=0.01, settled_rounds=3))
    assert run.history == (5.0, 4.0, 3.999, 3.5, 3.499, 3.498, 3.497)
    assert run.fell == pytest.approx(0.001)


def test_a_model_that_has_stopped_is_not_trained_on():
    model = Scripted(RNG.normal(size=(20, 12, 3)), stop_after=2)
    run = alternate(model, problem(constant(0.0)), Schedule(9, 0.0))
    assert (len(model.losses), run.n_iter, len(run.history)) == (2, 2, 3)
    model = Scripted(RNG.normal(size=(20, 12, 3)), stop_after=2)
    assert descend(model, problem(constant(0.0)), 9).history == (1.0, 2.0)
    assert descend(Scripted([]), problem(constant(0.0)), 4).n_iter == 4


def test_an_epoch_is_the_paper_s_step_on_each_batch(monkeypatch):
    """W loses 0.1 times the gradient of loss and decay; biases are not decayed; batches are a permutation."""
    W = RNG.normal(size=(4, 3))
    fixed = np.full(12, -1)
    fixed[2] = 1
    whole = problem(MI(lam=2.0), np.empty((12, 0), np.int32), fixed=fixed)
    model = LinearModel(X, W, 0.5, rng=np.random.default_rng(3))
    value = model.epoch(whole)
    rows = np.random.default_rng(3).permutation(12)
    z = X[rows] @ W[:-1] + W[-1]
    S = softmax(z, axis=1)
    loss, expected = clustering_loss(whole.rows(rows))(S, S)
    slope = loss(z)[1]
    assert value == pytest.approx(expected + 0.25 * (W[:-1] ** 2).sum())
    np.testing.assert_allclose(model.W[:-1], W[:-1] - 0.1 * (X[rows].T @ slope + 0.5 * W[:-1]))
    np.testing.assert_allclose(model.W[-1], W[-1] - 0.1 * slope.sum(axis=0))
    monkeypatch.setattr(rounds, "BATCH_SIZE", 5)
    batches = []

    def own(S, A):
        batches.append(len(S))
        return 0.0, 0.0, 0.0

    LinearModel(X, W, 0.5, rng=np.random.default_rng(3)).epoch(problem(own))
    assert batches == [6, 6, 6, 6]  # two batches, each seen for its value and for its slope


def test_clusters_of_the_graph_are_those_that_tell_most_about_neighbours():
    """More seeds never tell less, and clusters of the parts of a graph tell all."""
    Z = np.random.default_rng(1).normal(size=(200, 3))
    near, prior = nearest_neighbours(Z, 5, 0), np.full(6, 1 / 6)

    def value(seeds):
        means = mean_of_neighbours(np.eye(6)[promising_clusters(Z, near, prior, seeds, no_report)[0]], near)
        return mutual_information(means, prior, 1.0)[0]

    best = value(np.arange(8))
    assert best <= value([0])
    assert best < value([0]) or best < value(np.arange(2))  # so that there is a choice
    parts = np.repeat(range(6), [30, 34, 38, 28, 36, 34])
    apart = nearest_neighbours(np.column_stack([Z, 100.0 * np.eye(6)[parts]]), 5, 0)
    assert clustering_accuracy(parts, promising_clusters(Z, apart, prior, np.arange(8), no_report)[0]) == 1.0


def test_the_start_gives_rows_to_the_nearest_centre_softly():
    Z = RNG.normal(size=(50, 2)) + np.repeat([[4.0, 0.0], [-4.0, 0.0]], 25, axis=0)
    middle = np.array([[4.0, 0.0], [-4.0, 0.0]])
    W = weights_from_centres(Z, middle)
    squared = ((Z[:, None] - middle) ** 2).sum(axis=2)
    width = max(0.1 * squared.min(axis=1).mean(), 0.05 * (Z**2).sum(axis=1).mean())
    expected = softmax(-squared / (2 * width), axis=1)
    np.testing.assert_allclose(softmax(Z @ W[:-1] + W[-1], axis=1), expected, atol=1e-9)
