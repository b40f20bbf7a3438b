"""Training by rounds: labels from predictions, then a model from labels, and so on.

There is one loop for each protocol, `alternate` and `descend`. Both train any `Model`: the linear one below,
or a network (`consilience.cluster.network`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
from joblib import Parallel, delayed  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy.special import softmax

from consilience._progress import Progress
from consilience.cluster.losses import LOSSES, Problem, clustering_loss, cross_entropy
from consilience.cluster.regroup import neighbour_entropy, neighbour_information, regroup
from consilience.cluster.starts import choose_centres, promising_clusters, sample, weights_from_centres
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.collision.mutual_information import softmax_rows
from consilience.kernels.linear_model import LogitLoss, linear_logits, minimise_linear
from consilience.kernels.neighbours import mean_of_neighbours, nearest_neighbours

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


class Run(NamedTuple):
    """One training from one start."""

    history: tuple[float, ...]  # the objective before each round and at the end
    n_iter: int
    changed: float  # the share of rows that changed their cluster in the last round
    fell: float  # by how much the objective fell in it


class LinearRun(NamedTuple):
    """A run of the linear model, and the model."""

    W: Floats  # (d + 1, K)
    run: Run


def alternate(
    model: Model, problem: Problem, plan: Schedule, report: Callable[[], None] = lambda: None
) -> Run:
    """Train by rounds: predict, average over neighbours, make a loss of these, take some steps on it.

    `report` is called in each round.
    """
    loss = clustering_loss(problem)
    history: list[float] = []
    clusters: Ints | None = None
    changed, fell, settled = 1.0, np.inf, 0
    for n_iter in range(plan.max_rounds + 1):
        S, views = model.predict()
        A = mean_of_neighbours(views, problem.neighbours)
        previous, clusters = clusters, A.argmax(axis=1)
        report()
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
    return Run(tuple(history), n_iter, changed, fell)


def descend(model: Model, problem: Problem, max_rounds: int) -> Run:
    """Train as the paper does (Algorithm 2): labels are made anew for each batch, and rounds are epochs.

    `history` has the mean loss of each epoch.
    """
    history: list[float] = []
    while len(history) < max_rounds and not model.stopped:
        history.append(model.epoch(problem))
    return Run(tuple(history), len(history), 0.0, 0.0)


class LinearModel:
    """A linear softmax model, eq. (3): L-BFGS on all rows, or stochastic gradient steps on batches.

    Parameters
    ----------
    X : (n, d) array
    W : (d + 1, K) array
        The start.
    weight_decay : float
        Half of it times the squared weights is added to the objective.
    steps : int
        Steps of L-BFGS in a round.
    batch_size : int
        Of the paper's protocol.
    rng : Generator, optional
        Shuffles the rows in the paper's protocol.
    """

    stopped = False

    def __init__(
        self,
        X: NDArray[Any],
        W: Floats,
        weight_decay: float,
        steps: int = 1,
        batch_size: int = 250,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.X, self.W, self.weight_decay = X, W, weight_decay
        self.steps, self.batch_size, self.rng = steps, batch_size, rng or np.random.default_rng(0)

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
        for rows in np.array_split(order, max(1, round(len(X) / self.batch_size))):
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


class Starts(NamedTuple):
    """How the best of several linear models is found."""

    seeds: Ints
    plan: Schedule
    weight_decay: float
    steps: int  # of L-BFGS in a round
    n_jobs: int | None
    progress: Progress
    by_graph: bool = False  # whether to train only one model, on the best clusters of the graph of neighbours


def best_linear(Z: NDArray[Any], problem: Problem, starts: Starts) -> LinearRun:
    """Train a linear model on rows Z (n, d) from several starts and return the best run.

    It is the run of least objective, or the only run if the start comes from the graph of neighbours.

    With many rows, starts are trained on a sample: it tells good starts from bad ones as well, in a tenth of
    the time. The best model then continues on all rows.
    """
    if len(Z) <= _SAMPLE_ROWS:
        return _best_start(Z, problem, starts)
    seed, wanted = int(starts.seeds[0]), problem.neighbours.shape[1]
    rows = sample(problem.fixed, _SAMPLE_ROWS, seed)
    part = problem.rows(rows, find_neighbours(Z[rows], wanted, len(problem.prior), seed))
    best = _best_start(Z[rows], part, starts)
    last = starts.plan._replace(max_rounds=min(starts.plan.max_rounds, _LAST_ROUNDS))
    done = count(1)
    model = LinearModel(Z, best.W, starts.weight_decay, starts.steps)
    run = alternate(
        model,
        problem,
        last,
        lambda: starts.progress("all rows", next(done), last.max_rounds + 1),
    )
    # the rounds on all rows are too few to settle: whether the start did is what counts
    return LinearRun(model.W, run._replace(changed=best.run.changed))


def _best_start(Z: NDArray[Any], problem: Problem, starts: Starts) -> LinearRun:
    n_clusters, fixed = len(problem.prior), problem.fixed
    if starts.by_graph and problem.neighbours.shape[1] and not (fixed >= 0).any():
        return _graph_start(Z, problem, starts)
    # if every class has a labelled row, these rows are the start, and there is only one
    determined = len(np.unique(fixed[fixed >= 0])) == n_clusters
    seeds = starts.seeds[:1] if determined else starts.seeds
    most = starts.plan.max_rounds + 1
    done = _Done(starts.progress, len(seeds) * most)

    def train(seed: int) -> LinearRun:
        W = weights_from_centres(Z, choose_centres(Z, fixed, n_clusters, seed))
        model = LinearModel(Z, W, starts.weight_decay, starts.steps)
        run = alternate(model, problem, starts.plan, done.add)
        done.add(most - len(run.history))  # rounds that were not needed
        return LinearRun(model.W, run)

    parallel = Parallel(n_jobs=starts.n_jobs, require="sharedmem")
    runs = parallel(delayed(train)(int(seed)) for seed in seeds)
    best: LinearRun = min(runs, key=lambda one: one.run.history[-1])
    return best


def _graph_start(Z: NDArray[Any], problem: Problem, starts: Starts) -> LinearRun:
    """Train a model on the most promising clusters, with exact shares if they fit, then by rounds."""
    most = starts.plan.max_rounds + 1
    n_starts = len(starts.seeds) + len(starts.seeds[::2])
    done = _Done(starts.progress, n_starts + _FAIR_ROUNDS + 1 + most)
    found = promising_clusters(Z, problem.neighbours, problem.prior, starts.seeds, done.add)
    model = _learned(Z, found[0], problem, starts)
    # the other losses press for shares by themselves, and a small lam asks for none
    if problem.loss == "collision" and problem.lam >= LOSSES["collision"].lam:
        model = _with_exact_shares(model, found, problem, starts)
    done.add(_FAIR_ROUNDS + 1)
    run = alternate(model, problem, starts.plan, done.add)
    done.add(most - len(run.history))  # rounds that were not needed
    return LinearRun(model.W, run)


def _learned(Z: NDArray[Any], clusters: Ints, problem: Problem, starts: Starts) -> LinearModel:
    """Return a linear model that has learned these clusters (n,) of rows Z (n, d)."""
    n_clusters = len(problem.prior)
    model = LinearModel(Z, np.zeros((Z.shape[1] + 1, n_clusters)), starts.weight_decay, _FIRST_STEPS)
    model.step(cross_entropy(np.eye(n_clusters)[clusters]))
    model.steps = starts.steps
    return model


def _with_exact_shares(
    model: LinearModel, found: list[Ints], problem: Problem, starts: Starts
) -> LinearModel:
    """Return a model trained towards exact shares, or the given one if neighbours speak against them.

    The collision loss hardly moves rows that the model is sure of, so it keeps a start whose shares are
    wrong. Labels of exact shares move them. That helps if the shares are right. If they are wrong, such
    labels cut clusters where rows are dense, and neighbours end in different clusters.
    """
    n_clusters, neighbours = len(problem.prior), problem.neighbours
    repaired = [regroup(model.X, clusters, neighbours, problem.prior) for clusters in found]
    best = min(repaired, key=lambda clusters: neighbour_information(clusters, neighbours, problem.prior))
    fair = _learned(model.X, best, problem, starts)
    alternate(fair, problem._replace(loss="sela", lam=np.inf), Schedule(_FAIR_ROUNDS, _FAIR_TOL))
    mixed, fair_mixed = (
        neighbour_entropy(one.predict()[0].argmax(axis=1), neighbours, n_clusters) for one in (model, fair)
    )
    return fair if fair_mixed <= mixed + _MOST_MIXED else model


class _Done:
    """Counts the rounds of all starts, and reports them."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0
        self.lock = Lock()

    def add(self, rounds: int = 1) -> None:
        with self.lock:  # starts may run in threads
            self.done += rounds
            self.progress("clustering", self.done, self.total)


def find_neighbours(Z: NDArray[Any], wanted: int, n_clusters: int, seed: int) -> NDArray[np.int32]:
    """Return the nearest neighbours (n, k) of each row, k at most as wanted.

    With more neighbours than a fair cluster has rows, all rows would look alike.
    """
    k = min(wanted, max(0, len(Z) // n_clusters - 1))
    return nearest_neighbours(Z, k, seed) if k else np.empty((len(Z), 0), np.int32)
