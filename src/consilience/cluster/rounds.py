"""Training by rounds: labels from predictions, then a model from labels, and so on.

There is one loop for each protocol, `alternate` and `descend`. Both train any `Model`: the linear one below,
or a network (`consilience.cluster.network`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from joblib import Parallel, delayed  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy.special import softmax

from consilience.cluster.losses import Problem, clustering_loss, cross_entropy
from consilience.cluster.options import SELA, Collision
from consilience.cluster.starts import (
    choose_centres,
    neighbour_entropy,
    neighbour_information,
    promising_clusters,
    regroup,
    sample,
    weights_from_centres,
)
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.collision.entropy import softmax_rows
from consilience.kernels.linear_model import LogitLoss, linear_logits, minimise_linear
from consilience.kernels.neighbours import mean_of_neighbours, near_rows
from consilience.run import Run

# With more rows than this, starts are trained on a sample of this size; the best continues on all rows.
_SAMPLE_ROWS = 8_192
_LAST_ROUNDS = 10
# The steps of one round need no exact optimum, since the labels change.
_GRADIENT = 1e-6
# Steps in which a model learns the clusters that it starts from.
_FIRST_STEPS = 20
# Rounds towards exact shares, and the share of rows that may still change in the last of them.
_FAIR_ROUNDS, _FAIR_TOL = 6, 0.01
# Exact shares are kept if they raise the entropy of neighbours' clusters by at most this part of its maximum.
_MOST_MIXED = 0.03
_LEARNING_RATE = 0.1  # of the linear model in the paper's protocol
BATCH_SIZE = 250


class Model(Protocol):
    """What the rounds train."""

    stopped: bool  # whether a callback of the model has ended the training

    def predict(self) -> tuple[Floats, Floats]:
        """Return the predictions (n, K), and those that labels are made of: their mean over views."""

    def step(self, loss: LogitLoss) -> None:
        """Take some steps on a loss of the logits of all rows."""

    def epoch(self, problem: Problem) -> float:
        """Pass over the rows with a loss made anew for each batch; return the mean loss."""

    def penalty(self) -> float:
        """Return the part of the objective that depends on the weights alone."""


class Schedule(NamedTuple):
    """When the rounds end."""

    max_rounds: int
    tol: float  # stop when at most this share of rows changes its cluster...
    most_fall: float = np.inf  # ...and the objective falls by at most this...
    settled_rounds: int = 1  # ...in as many rounds in a row


class Trained(NamedTuple):
    """One training from one start."""

    history: tuple[float, ...]  # the objective before each round and at the end
    n_iter: int
    changed: float  # the share of rows that changed their cluster in the last round
    fell: float  # by how much the objective fell in it


def alternate(model: Model, problem: Problem, plan: Schedule) -> Trained:
    """Train by rounds: predict, average over neighbours, make a loss of these, take some steps on it."""
    loss = clustering_loss(problem)
    history: list[float] = []
    clusters: Ints | None = None
    changed, fell, settled = 1.0, np.inf, 0
    for n_iter in range(plan.max_rounds + 1):
        S, views = model.predict()
        A = mean_of_neighbours(views, problem.neighbours)
        previous, clusters = clusters, A.argmax(axis=1)
        target, value = loss(S, A)
        value += model.penalty()
        if previous is not None:
            changed, fell = float((clusters != previous).mean()), history[-1] - value
        history.append(value)
        # early in training a network may give all rows to one cluster, while its objective falls
        settled = settled + 1 if changed <= plan.tol and fell <= plan.most_fall else 0
        if settled >= plan.settled_rounds or n_iter == plan.max_rounds or model.stopped:
            break
        model.step(target)
    return Trained(tuple(history), n_iter, changed, fell)


def descend(model: Model, problem: Problem, max_rounds: int) -> Trained:
    """Train as the paper does (Algorithm 2): labels are made anew for each batch, and rounds are epochs.

    `history` has the mean loss of each epoch.
    """
    history: list[float] = []
    while len(history) < max_rounds and not model.stopped:
        history.append(model.epoch(problem))
    return Trained(tuple(history), len(history), 0.0, 0.0)


@dataclass
class LinearModel:
    """A linear softmax model, eq. (3): L-BFGS on all rows, or stochastic gradient steps on batches.

    X is (n, d) and W (d + 1, K) the start. `steps` are those of L-BFGS in a round; `rng` shuffles the rows of
    the paper's protocol. Half the weight decay times the squared weights is added to the objective.
    """

    X: NDArray[Any]
    W: Floats
    weight_decay: float
    steps: int = 1
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    stopped: bool = False

    def predict(self) -> tuple[Floats, Floats]:
        """Return the predictions (n, K), twice: the linear model has no views."""
        S = softmax_rows(linear_logits(self.X, self.W))
        return S, S

    def step(self, loss: LogitLoss) -> None:
        """Take `steps` steps of L-BFGS."""
        self.W = minimise_linear(
            self.X, self.W, loss, weight_decay=self.weight_decay, max_iter=self.steps, tol=_GRADIENT
        ).W

    def epoch(self, problem: Problem) -> float:
        """Take a gradient step for each batch: of the loss, plus half the decay times the squared weights."""
        X, decay, values = self.X, self.weight_decay, []
        W = self.W = self.W.copy()
        order = self.rng.permutation(len(X))
        for rows in np.array_split(order, max(1, round(len(X) / BATCH_SIZE))):
            logits = linear_logits(X[rows], W).astype(np.float64)
            S = softmax(logits, axis=1)
            loss, value = clustering_loss(problem.rows(rows))(S, S)
            slope = loss(logits)[1]
            values.append(value + self.penalty())
            W[:-1] -= _LEARNING_RATE * (X[rows].T @ slope + decay * W[:-1])
            W[-1] -= _LEARNING_RATE * slope.sum(axis=0)
        return float(np.mean(values))

    def penalty(self) -> float:
        """Return half the decay times the squared weights, without the biases."""
        return 0.5 * self.weight_decay * float(np.vdot(self.W[:-1], self.W[:-1]))


class Search(NamedTuple):
    """How the best of several linear models is found."""

    seeds: Ints
    plan: Schedule
    weight_decay: float
    run: Run
    by_graph: bool = False  # whether to train only one model, on the best clusters of the graph of neighbours


def best_linear(Z: NDArray[Any], problem: Problem, search: Search) -> tuple[LinearModel, Trained]:
    """Train a linear model on rows Z (n, d) from several starts and return the best.

    It is the one of least objective, or the only one if the start comes from the graph of neighbours.

    With many rows, starts are trained on a sample: it tells good starts from bad ones as well, in a tenth of
    the time. The best model then continues on all rows.
    """
    by_graph = search.by_graph and problem.neighbours.shape[1] and not (problem.fixed >= 0).any()
    start = _graph_start if by_graph else _best_start
    if len(Z) <= _SAMPLE_ROWS:
        return start(Z, problem, search)
    seed, wanted = int(search.seeds[0]), problem.neighbours.shape[1]
    rows = sample(problem.fixed, _SAMPLE_ROWS, seed)
    part = problem.rows(rows, near_rows(Z[rows], wanted, len(problem.prior), seed))
    best, trained = start(Z[rows], part, search)
    best.X = Z
    search.run.report("all rows", 0, 1)
    more = alternate(
        best, problem, search.plan._replace(max_rounds=min(search.plan.max_rounds, _LAST_ROUNDS))
    )
    search.run.report("all rows", 1, 1)
    # the rounds on all rows are too few to settle: whether the start did is what counts
    return best, more._replace(changed=trained.changed)


def _best_start(Z: NDArray[Any], problem: Problem, search: Search) -> tuple[LinearModel, Trained]:
    """Train a model from each of several random starts, in threads; return that of least objective."""
    n_clusters, fixed = len(problem.prior), problem.fixed
    # if every class has a labelled row, these rows are the start, and there is only one
    determined = len(np.unique(fixed[fixed >= 0])) == n_clusters
    seeds = search.seeds[:1] if determined else search.seeds

    def train(seed: int) -> tuple[LinearModel, Trained]:
        W = weights_from_centres(Z, choose_centres(Z, fixed, n_clusters, seed))
        model = LinearModel(Z, W, search.weight_decay, problem.loss.steps)
        return model, alternate(model, problem, search.plan)

    parallel = Parallel(n_jobs=search.run.n_jobs, require="sharedmem", return_as="generator")
    found: list[tuple[LinearModel, Trained]] = []
    for one in parallel(delayed(train)(int(seed)) for seed in seeds):
        found.append(one)
        search.run.report("clustering", len(found), len(seeds))
    return min(found, key=lambda one: one[1].history[-1])


def _graph_start(Z: NDArray[Any], problem: Problem, search: Search) -> tuple[LinearModel, Trained]:
    """Train a model on the most promising clusters, with exact shares if they fit, then by rounds."""
    total = len(search.seeds) + len(search.seeds[::2]) + 1
    found = promising_clusters(
        Z,
        problem.neighbours,
        problem.prior,
        search.seeds,
        lambda done: search.run.report("clustering", done, total),
    )
    model = _learned(Z, found[0], problem, search)
    # the other losses press for shares by themselves, and a small lam asks for none
    if isinstance(problem.loss, Collision) and problem.loss.lam >= Collision.lam:
        model = _with_exact_shares(model, found, problem, search)
    trained = alternate(model, problem, search.plan)
    search.run.report("clustering", total, total)
    return model, trained


def _learned(Z: NDArray[Any], clusters: Ints, problem: Problem, search: Search) -> LinearModel:
    """Return a linear model that has learned these clusters (n,) of rows Z (n, d)."""
    n_clusters = len(problem.prior)
    model = LinearModel(Z, np.zeros((Z.shape[1] + 1, n_clusters)), search.weight_decay, _FIRST_STEPS)
    model.step(cross_entropy(np.eye(n_clusters)[clusters]))
    model.steps = problem.loss.steps
    return model


def _with_exact_shares(
    model: LinearModel, found: list[Ints], problem: Problem, search: Search
) -> LinearModel:
    """Return a model trained towards exact shares, or the given one if neighbours speak against them.

    The collision loss hardly moves rows that the model is sure of, so it keeps a start whose shares are
    wrong. Labels of exact shares move them. That helps if the shares are right. If they are wrong, such
    labels cut clusters where rows are dense, and neighbours end in different clusters.
    """
    n_clusters, neighbours = len(problem.prior), problem.neighbours
    repaired = [regroup(model.X, clusters, neighbours, problem.prior) for clusters in found]
    best = min(repaired, key=lambda clusters: neighbour_information(clusters, neighbours, problem.prior))
    fair = _learned(model.X, best, problem, search)
    alternate(fair, problem._replace(loss=SELA()), Schedule(_FAIR_ROUNDS, _FAIR_TOL))
    mixed, fair_mixed = (
        neighbour_entropy(one.predict()[0].argmax(axis=1), neighbours, n_clusters) for one in (model, fair)
    )
    return fair if fair_mixed <= mixed + _MOST_MIXED else model
