"""Self-labelled training of a network: the loop is skorch's, the labels are made anew after each epoch.

The clustering losses are those of the linear model: functions from predictions to a loss with its gradient by
the logits (`kernels.self_labelling`). Here the gradient goes on into the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from skorch.callbacks import Callback
from torch import Tensor, nn

from consilience._progress import Progress
from consilience.collision.rounds import Relabel
from consilience.exceptions import InvalidInputError
from consilience.kernels.collision.neighbours import Neighbours, mean_of_neighbours
from consilience.kernels.linear_model import LogitLoss
from consilience.nn.augment import Augment
from consilience.nn.student import TorchStudent

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# Row numbers travel as float32 targets, which hold whole numbers up to here.
_MOST_ROWS = 2**24
# The most by which the objective of a settled network still falls in a round.
SETTLED_FALL = 0.01
# Steps towards the labels of the start before the network's own predictions are asked.
_START_STEPS = 50


class NetworkRun(NamedTuple):
    """One training from one start."""

    student: TorchStudent
    history: tuple[float, ...]
    n_iter: int
    changed: float  # the share of rows that changed their cluster in the last round
    fell: float  # by how much the objective fell in it


class Views(nn.Module):
    """A module that sees random views of its input while it is trained, one after the other in one batch."""

    def __init__(self, module: nn.Module, augment: Augment, n_views: int) -> None:
        super().__init__()
        self.module, self.augment, self.n_views = module, augment, n_views

    def forward(self, X: Tensor) -> Tensor:
        """Return logits (n_views * n, K) in training, and (n, K) of X itself otherwise."""
        if not self.training:
            return self.module(X)  # type: ignore[no-any-return]
        return self.module(torch.cat([self.view(X) for _ in range(self.n_views)]))  # type: ignore[no-any-return]

    def view(self, X: Tensor) -> Tensor:
        """Return X augmented; the student has seeded torch's generator."""
        return self.augment(X, torch.default_generator)


class _Criterion(nn.Module):
    """A loss of skorch's form whose value and gradient by the logits are computed by numpy."""

    def _carry(self, logits: Tensor, value: float, gradient: Floats) -> Tensor:
        """Return a scalar of this value which passes this gradient on."""
        slope = (logits * torch.as_tensor(gradient).to(logits)).sum()
        return slope - slope.detach() + value


class RoundLoss(_Criterion):
    """The loss of one round, over all rows: a batch is a sample of its gradient.

    Losses that tie rows to each other, by shares or by neighbours, must know the logits of all rows at each
    step. Rows outside the batch keep those they had last, moved by what the batch has moved on average since
    then: a step that changes the bias of a cluster changes it for all rows. Without this, unfair shares are
    noticed an epoch late, and the training swings from one cluster to the next.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loss: LogitLoss
        self.logits: Floats  # (n, K)

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Return the loss, given the logits (b, K) of some rows and the numbers (b, 1) of these."""
        index, new = _whole(rows), _floats(logits)
        self.logits += (new - self.logits[index]).mean(axis=0)
        self.logits[index] = new
        value, gradient = self.loss(self.logits)
        return self._carry(logits, value, gradient[index] * (len(self.logits) / len(index)))


class BatchLoss(_Criterion):
    """The paper's loss: labels are made for each batch anew, from predictions averaged over its views."""

    def __init__(self, relabel_batch: Callable[[Ints, Neighbours], Relabel]) -> None:
        super().__init__()
        self.relabel_batch = relabel_batch

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Return the loss, given the logits (v b, K) of v views of rows and the numbers (b, 1) of these."""
        n_views = len(logits) // len(rows)
        # views of a row are neighbours: their mean is E_t[sigma(t(X_i))]
        views = np.empty((len(logits), n_views - 1), dtype=np.int32)
        for step in range(1, n_views):
            views[:, step - 1] = np.roll(np.arange(len(logits)), step * len(rows))
        values = _floats(logits)
        S = softmax(values, axis=1)
        relabel = self.relabel_batch(np.tile(_whole(rows), n_views), views)
        loss, value = relabel(S, mean_of_neighbours(S, views))
        return self._carry(logits, value, loss(values)[1])


class Rounds(Callback):
    """Makes the labels before the training and after each epoch, and stops when they have settled."""

    def __init__(
        self,
        X: Tensor,
        neighbours: Neighbours,
        relabel: Relabel,
        criterion: RoundLoss,
        start: LogitLoss | None,
        tol: float,
    ) -> None:
        self.X, self.neighbours, self.relabel = X, neighbours, relabel
        self.criterion, self.start, self.tol = criterion, start, tol
        self.history: list[float] = []
        self.changed, self.fell = 1.0, np.inf
        self._clusters: Ints | None = None
        self._warm_up = 0  # epochs left
        self._calm = 0  # rounds in which little changed

    def on_train_begin(self, net: Any, **_: Any) -> None:
        """Set the first loss: the start's, or one of the network's own predictions."""
        if self.start is None:
            self._round(net)
        else:
            self.criterion.loss, self.criterion.logits = self.start, _predict(net, self.X)
            self._warm_up = warm_up_epochs(len(self.X), net.batch_size)

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """Make new labels, and stop if few rows changed their cluster."""
        self._warm_up -= 1
        if self._warm_up > 0:
            return
        self._round(net)
        # a young network may give all rows to one cluster for some rounds: its objective falls meanwhile
        calm = self.changed <= self.tol and self.fell <= SETTLED_FALL
        self._calm = self._calm + 1 if calm else 0
        # a round of one step or two changes little in any case
        if self._calm >= warm_up_epochs(len(self.X), net.batch_size):
            raise KeyboardInterrupt  # how skorch's callbacks end a training

    def _round(self, net: Any) -> None:
        logits = _predict(net, self.X)
        S = softmax(logits, axis=1)
        views = S
        if isinstance(net.module_, Views):
            views = 0.5 * (S + softmax(_predict(net, self.X, net.module_.view), axis=1))
        A = mean_of_neighbours(views, self.neighbours)
        previous, self._clusters = self._clusters, A.argmax(axis=1)
        if previous is not None:
            self.changed = float((self._clusters != previous).mean())
        self.criterion.loss, value = self.relabel(S, A)
        if self.history:
            self.fell = self.history[-1] - value
        self.criterion.logits = logits
        self.history.append(value)


def warm_up_epochs(n_rows: int, batch_size: int) -> int:
    """Return how many epochs a network follows the start's labels: one, or more where epochs are short."""
    return math.ceil(_START_STEPS / math.ceil(n_rows / batch_size))


def train_rounds(
    student: TorchStudent,
    X: Tensor,
    n_clusters: int,
    neighbours: Neighbours,
    relabel: Relabel,
    *,
    start: LogitLoss | None,
    augment: Augment | None,
    tol: float,
    progress: Progress,
) -> NetworkRun:
    """Train by rounds: label all rows by the predictions, then pass once over the rows towards these labels.

    Parameters
    ----------
    student : TorchStudent
        Says which module, how to descend, and how long. A copy of it is fitted.
    X : (n, ...) tensor
    n_clusters : int
        K.
    neighbours : (n, k) array of int
    relabel : function
        The clustering loss.
    start : function, optional
        A loss of the logits (n, K) of all rows to begin with, such as one towards another model's labels.
    augment : function, optional
        Gives the views that the network is trained on; labels come from rows and views alike.
    tol : float
        Stop when at most this share of rows changes its cluster, and the objective falls by at most
        `SETTLED_FALL`.
    progress : callable
    """
    criterion = RoundLoss()
    rounds = Rounds(X, neighbours, relabel, criterion, start, tol)
    fitted = _train(student, X, n_clusters, criterion, augment, 1, (rounds,), progress)
    return NetworkRun(fitted, tuple(rounds.history), len(rounds.history) - 1, rounds.changed, rounds.fell)


def train_batches(
    student: TorchStudent,
    X: Tensor,
    n_clusters: int,
    relabel_batch: Callable[[Ints, Neighbours], Relabel],
    *,
    augment: Augment | None,
    progress: Progress,
) -> NetworkRun:
    """Train as the paper does: labels within each batch; two augmentations of each row, where there are any.

    `history` has the mean loss of each epoch. The other parameters are those of `train_rounds`.
    """
    fitted = _train(student, X, n_clusters, BatchLoss(relabel_batch), augment, 2, (), progress)
    history = tuple(float(epoch["train_loss"]) for epoch in fitted.history_)
    return NetworkRun(fitted, history, fitted.n_iter_, 0.0, 0.0)


def _train(
    student: TorchStudent,
    X: Tensor,
    n_clusters: int,
    criterion: nn.Module,
    augment: Augment | None,
    n_views: int,
    callbacks: tuple[Any, ...],
    progress: Progress,
) -> TorchStudent:
    """Fit a copy of the student with a criterion that is told the numbers of the rows; unwrap its module."""
    if len(X) > _MOST_ROWS:
        raise InvalidInputError(f"X has {len(X)} rows; a network can cluster up to {_MOST_ROWS}.")
    worker = clone(student)
    if augment is not None:
        # made inside fit, where factories find torch seeded
        worker.set_params(
            module=lambda n_features, n_classes: Views(student._make_module(X, n_classes), augment, n_views),
            standardize=False,
        )
    # all rows are trained on, for as long as asked: there is no truth to hold out
    worker.set_params(callbacks=(*student.callbacks, *callbacks), patience=None, validation_fraction=0.0)
    rows = torch.arange(len(X), dtype=torch.float32)[:, None]
    worker.fit(X, rows, n_classes=n_clusters, criterion=criterion, progress=progress)
    if isinstance(worker.module_, Views):
        worker.module_ = worker.module_.module
    # the student's own settings again, and not those that hold the rows
    return worker.set_params(  # type: ignore[no-any-return]
        **{name: getattr(student, name) for name in ("module", "callbacks", "standardize")}
    )


def _predict(net: Any, X: Tensor, view: Callable[[Tensor], Tensor] | None = None) -> Floats:
    """Return the logits (n, K) of rows, or of a view of each, in eval mode; skorch sets the mode back."""
    net.module_.eval()
    with torch.no_grad():
        parts = [
            net.module_(part if view is None else view(part))
            for part in (rows.to(net.device) for rows in torch.split(X, net.batch_size))
        ]
    return _floats(torch.cat(parts))


def _whole(rows: Tensor) -> Ints:
    return rows[:, 0].cpu().numpy().astype(np.intp)


def _floats(logits: Tensor) -> Floats:
    return logits.detach().cpu().numpy().astype(np.float64)
