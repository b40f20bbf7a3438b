"""What a torch student adds to skorch's training loop. Imported only if skorch is installed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import Callback
from torch import Tensor

from consilience._progress import Progress
from consilience.exceptions import InvalidInputError

PARTS_OF_HISTORY = ("batches", "train_batch_count", "valid_batch_count")
"""skorch's own bookkeeping, left out of the student's history."""


class Rows(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Inputs and targets, served in whole batches: collating single rows would take most of the time."""

    def __init__(self, X: Tensor, targets: Tensor) -> None:
        self.X, self.targets = X, targets

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.X[row], self.targets[row]

    def __getitems__(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        index = torch.as_tensor(rows)
        return self.X[index], self.targets[index]


class Watch(Callback):
    """Reports progress, and stops with an error if the loss is not finite."""

    def __init__(self, progress: Progress, max_iter: int, lr: float) -> None:
        self.progress, self.max_iter, self.lr = progress, max_iter, lr

    def on_batch_end(self, net: Any, *, training: bool, loss: Tensor, **_: Any) -> None:
        """Check the loss of a batch."""
        value = loss.item()
        if not math.isfinite(value):
            raise InvalidInputError(
                f"The {'training' if training else 'validation'} loss became {value} in epoch "
                f"{len(net.history)}. Lower lr (now {self.lr:g}) of the TorchStudent, or check that the "
                "targets are finite."
            )

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """Report an epoch."""
        self.progress("training", len(net.history), self.max_iter)


def run(net: NeuralNet, rows: Rows) -> None:
    """Fit a skorch net; raise an interrupt by the user again."""
    net.fit(rows, y=None)
    # skorch takes any KeyboardInterrupt for early stopping; one in the middle of an epoch is the user's
    if not net.history or "train_loss" not in net.history[-1]:
        raise KeyboardInterrupt


def history_of(net: NeuralNet) -> list[dict[str, Any]]:
    """Return the history of a net, a dict of plain values per epoch."""
    return [{k: plain(v) for k, v in row.items() if k not in PARTS_OF_HISTORY} for row in net.history]


def plain(value: Any) -> Any:
    """Return a numpy scalar as a Python one, so that the history can be written as JSON."""
    return value.item() if isinstance(value, np.generic) else value


def as_is(batch: Any) -> Any:
    """Return a batch as `Rows` made it."""
    return batch
