"""A network as a model of the rounds: a `Trainer` runs its epochs, the losses are those of the linear model.

A clustering loss is a function of logits with a gradient, computed by numpy (`consilience.cluster.losses`).
Here the gradient continues into the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from torch import Tensor, nn

from consilience.cluster.losses import Problem, clustering_loss
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.linear_model import LogitLoss
from consilience.kernels.neighbours import mean_of_neighbours
from consilience.nn.augment import Augment
from consilience.rows import as_rows
from consilience.rows.targets import TargetRows
from consilience.run import Run
from consilience.students.batches import as_tensor, plan_training
from consilience.students.network import Network
from consilience.students.training import Trainer
from consilience.teachers.torch import logits_of

# Row numbers travel as float32 targets, which hold whole numbers up to here.
_MOST_ROWS = 2**24
# The objective of a settled network falls by at most this in a round.
SETTLED_FALL = 0.01
# Steps towards the labels of the start, before the network's own predictions are used.
_START_STEPS = 50


class Views(nn.Module):
    """A module that sees random views of its input in training, one after the other in one batch."""

    def __init__(self, module: nn.Module, augment: Augment, n_views: int) -> None:
        super().__init__()
        self.module, self.augment, self.n_views = module, augment, n_views

    def forward(self, X: Tensor) -> Tensor:
        """Return logits (n_views * n, K) in training, and (n, K) of X itself otherwise."""
        if not self.training:
            return logits_of(self.module(X))  # type: ignore[no-any-return]
        views = torch.cat([self.view(X) for _ in range(self.n_views)])
        return logits_of(self.module(views))  # type: ignore[no-any-return]

    def view(self, X: Tensor) -> Tensor:
        """Return X augmented; the student has seeded torch's generator."""
        return self.augment(X, torch.default_generator)


class RoundLoss(nn.Module):
    """The loss of one round, over all rows: a batch is a sample of its gradient.

    Losses that tie rows to each other, by shares or by neighbours, must know the logits of all rows at each
    step. Rows outside the batch keep their last logits, moved by what the batch has moved on average since
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
        return _carry(logits, value, gradient[index] * (len(self.logits) / len(index)))


class BatchLoss(nn.Module):
    """The paper's loss: labels are made anew for each batch, from predictions averaged over its views."""

    def __init__(self) -> None:
        super().__init__()
        self.problem: Problem

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Return the loss, given the logits (v b, K) of v views of rows and the numbers (b, 1) of these."""
        n_views = len(logits) // len(rows)
        # views of a row are neighbours: their mean is E_t[sigma(t(X_i))]
        views = np.empty((len(logits), n_views - 1), dtype=np.int32)
        for step in range(1, n_views):
            views[:, step - 1] = np.roll(np.arange(len(logits)), step * len(rows))
        values = _floats(logits)
        S = softmax(values, axis=1)
        of_batch = clustering_loss(self.problem.rows(np.tile(_whole(rows), n_views), views))
        loss, value = of_batch(S, mean_of_neighbours(S, views))
        return _carry(logits, value, loss(values)[1])


class NetworkModel:
    """A network in training, as the rounds see it; `network` makes one."""

    def __init__(self, trainer: Trainer, X: Tensor, criterion: RoundLoss | BatchLoss, run: Run) -> None:
        self.trainer, self.X, self.criterion, self._run = trainer, X, criterion, run

    @property
    def stopped(self) -> bool:
        """Whether a callback of the student has ended the training."""
        return self.trainer.stopped

    def predict(self) -> tuple[Floats, Floats]:
        """Return the predictions (n, K), and their mean with those of a view of each row."""
        S = views = softmax(self._remember(), axis=1)
        if isinstance(self.trainer.module, Views):
            seen = torch.cat([*map(self.trainer.module.view, torch.split(self.X, 1024))])
            views = 0.5 * (S + softmax(_floats(self.trainer.predict(seen)), axis=1))
        return S, views

    def step(self, loss: LogitLoss, epochs: int = 1) -> None:
        """Pass over the rows, an epoch or some."""
        self.criterion.loss = loss
        for _ in range(epochs):
            if not self.stopped:
                self._epoch()

    def start(self, loss: LogitLoss) -> None:
        """Take the first steps, towards the labels of another model."""
        self._remember()
        self.step(loss, warm_up_epochs(len(self.X), self.trainer.student.batch_size))

    def epoch(self, problem: Problem) -> float:
        """Pass over the rows once, with labels made anew for each batch; return the mean loss."""
        self.criterion.problem = problem
        return self._epoch()

    def penalty(self) -> float:
        """Return 0: the optimiser decays the weights, and the objective leaves that out."""
        return 0.0

    def _epoch(self) -> float:
        loss = self.trainer.epoch()
        self._run.report("training", len(self.trainer.history), self.trainer.plan.epochs.total)
        return loss

    def _remember(self) -> Floats:
        """Return the logits (n, K) of all rows, and let the loss start from a copy of them."""
        logits = _floats(self.trainer.predict(self.X))
        self.criterion.logits = logits.copy()
        return logits


def warm_up_epochs(n_rows: int, batch_size: int) -> int:
    """Return how many epochs a network follows the start's labels: one, or more if epochs are short."""
    return math.ceil(_START_STEPS / math.ceil(n_rows / batch_size))


@contextmanager
def network(
    student: Network, X: NDArray[Any], n_clusters: int, *, augment: Augment | None, paper: bool, run: Run
) -> Iterator[NetworkModel]:
    """Give a network to train by rounds; the student is fitted when the block ends.

    Parameters
    ----------
    student : Network
        Says which module to train, and how.
    X : (n, ...) array
    n_clusters : int
        K.
    augment : function, optional
        Makes the views that the network is trained on: one of each row, or two in the paper's protocol.
    paper : bool
        Whether labels are made within each batch.
    run : Run
    """
    if len(X) > _MOST_ROWS:
        raise InvalidInputError(f"X has {len(X)} rows; a network can cluster up to {_MOST_ROWS}.")
    own = {name: getattr(student, name) for name in ("module", "standardize")}
    rows = as_tensor(X)
    if augment is not None:
        plain = clone(student)
        student.set_params(
            # made inside the training, where factories find torch seeded
            module=lambda n_features, n_classes: Views(
                plain.make_module(rows, n_classes), augment, 2 if paper else 1
            ),
            standardize=False,
        )
    # train on all rows, for as long as asked: there is no truth to hold out
    student.set_params(patience=None, validation_fraction=0.0, validation=None)
    student.check_options()
    criterion, seed = BatchLoss() if paper else RoundLoss(), student.seed()
    numbered = TargetRows(as_rows(X), np.arange(len(X), dtype=np.float32)[:, None])
    plan = plan_training(student, numbered, seed)
    with student.training(plan, seed, n_clusters, criterion) as trainer:
        yield NetworkModel(trainer, rows, criterion, run)
    if isinstance(student.module_, Views):
        student.module_ = student.module_.module
    student.set_params(**own)


def _carry(logits: Tensor, value: float, gradient: Floats) -> Tensor:
    """Return a scalar with this value and this gradient by the logits, which numpy has computed."""
    slope = (logits * torch.as_tensor(gradient).to(logits)).sum()
    return slope - slope.detach() + value


def _whole(rows: Tensor) -> Ints:
    return rows[:, 0].cpu().numpy().astype(np.intp)


def _floats(logits: Tensor) -> Floats:
    return logits.detach().cpu().numpy().astype(np.float64)
