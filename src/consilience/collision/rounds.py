"""Self-labelled training of the linear model: labels from predictions, predictions from labels, and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience.kernels.collision.neighbours import Neighbours, mean_of_neighbours
from consilience.kernels.linear_model import LogitLoss, linear_logits, minimise_linear

Floats = NDArray[np.float64]

# How soft the start is, relative to the squared distance of a typical row to its centre...
START_WIDTH = 0.1
# ...and, at least, to the squared length of a typical row: sharper starts have such large weights that the
# first step is one of weight decay alone, to a model without clusters.
LEAST_WIDTH = 0.05


class Round(NamedTuple):
    """What a clustering loss makes of predictions."""

    loss: LogitLoss  # what the model minimises until the next round
    value: float  # the loss at the predictions


# (sigma (n, K), their means over neighbours (n, K)) -> Round
Relabel = Callable[[Floats, Floats], Round]


class Run(NamedTuple):
    """One training from one start."""

    W: Floats  # (d + 1, K)
    history: tuple[float, ...]  # the objective before each round and at the end
    n_iter: int
    changed: float  # the share of rows that changed their cluster in the last round


class Schedule(NamedTuple):
    """How long to train, and how the model is kept small."""

    weight_decay: float
    steps: int  # of the model, a round
    max_rounds: int
    tol: float  # stop when a smaller share of rows changes its cluster


def start_from_centres(X: NDArray[Any], centres: Floats) -> Floats:
    r"""Return the model W (d + 1, K) that assigns rows softly to the nearest of K centres.

    .. math:: z_{ik} = -\|x_i - c_k\|^2 / (2 w) + \|x_i\|^2 / (2 w), \qquad
              w = \max(0.1\, \text{mean}_i \min_k \|x_i - c_k\|^2,\ 0.05\, \text{mean}_i \|x_i\|^2)

    Rows X (n, d) are centred.
    """
    half = 0.5 * np.einsum("ij,ij->i", centres, centres)
    nearest = half - X @ centres.T.astype(X.dtype)
    squares = float(np.einsum("ij,ij->", X, X)) / len(X)
    distance = 2.0 * float(nearest.min(axis=1).mean()) + squares
    width = max(START_WIDTH * distance, LEAST_WIDTH * squares) or 1.0
    return np.vstack([centres.T, -half]) / width


def alternate(X: NDArray[Any], W: Floats, neighbours: Neighbours, relabel: Relabel, plan: Schedule) -> Run:
    """Train W by rounds: predict, average over neighbours, make the loss of these, take some steps on it.

    Parameters
    ----------
    X : (n, d) array
    W : (d + 1, K) array
        The start.
    neighbours : (n, k) array of int
    relabel : function
        The clustering loss.
    plan : Schedule
    """
    history: list[float] = []
    clusters: NDArray[np.intp] | None = None
    changed = 1.0
    for n_iter in range(plan.max_rounds + 1):
        S = softmax(linear_logits(X, W).astype(np.float64), axis=1)
        A = mean_of_neighbours(S, neighbours)
        previous, clusters = clusters, A.argmax(axis=1)
        loss, value = relabel(S, A)
        history.append(value + _penalty(W, plan.weight_decay))
        if previous is not None:
            changed = float((clusters != previous).mean())
        if changed <= plan.tol or n_iter == plan.max_rounds:
            break
        W = minimise_linear(X, W, loss, weight_decay=plan.weight_decay, max_iter=plan.steps, tol=_GRADIENT).W
    return Run(W, tuple(history), n_iter, changed)


def descend(
    X: NDArray[Any],
    W: Floats,
    relabel_batch: Callable[[NDArray[np.intp]], Relabel],
    plan: Schedule,
    batch_size: int,
    learning_rate: float,
    rng: np.random.Generator,
) -> Run:
    """Train W as the paper does (Algorithm 2): stochastic gradient steps, labels made for each batch anew.

    A step takes the gradient of the loss plus half the weight decay times the squared weights. Rounds are
    epochs; `history` has the mean loss of each.
    """
    history = []
    W = W.copy()
    changed = 1.0
    clusters = linear_logits(X, W).argmax(axis=1)
    for _ in range(plan.max_rounds):
        order = rng.permutation(len(X))
        values = []
        for rows in np.array_split(order, max(1, round(len(X) / batch_size))):
            logits = linear_logits(X[rows], W).astype(np.float64)
            S = softmax(logits, axis=1)
            loss, value = relabel_batch(rows)(S, S)
            slope = loss(logits)[1]
            values.append(value + _penalty(W, plan.weight_decay))
            W[:-1] -= learning_rate * (X[rows].T @ slope + plan.weight_decay * W[:-1])
            W[-1] -= learning_rate * slope.sum(axis=0)
        history.append(float(np.mean(values)))
        previous, clusters = clusters, linear_logits(X, W).argmax(axis=1)
        changed = float((clusters != previous).mean())
    return Run(W, tuple(history), plan.max_rounds, changed)


# Steps on one round's labels need no exact optimum, since the labels change.
_GRADIENT = 1e-6


def _penalty(W: Floats, weight_decay: float) -> float:
    return 0.5 * weight_decay * float(np.vdot(W[:-1], W[:-1]))
