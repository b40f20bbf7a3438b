"""What a torch student adds to skorch's training loop. Imported only if skorch is installed."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import Callback, EarlyStopping
from skorch.dataset import unpack_data
from torch import Tensor
from torch.utils.data import Dataset

from consilience._progress import Progress
from consilience.exceptions import InvalidInputError
from consilience.students._contexts import interrupts
from consilience.students._rows import LazyRows, batches
from consilience.teachers.torch import logits_of

EPOCHS = 50
"""The most epochs of a student that does not say how many."""
PARTS_OF_HISTORY = ("batches", "train_batch_count", "valid_batch_count")
"""skorch's own bookkeeping, left out of the student's history."""


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """Inputs and targets, served in whole batches: collating single rows would take most of the time."""

    def __init__(self, X: Tensor | LazyRows, targets: Tensor) -> None:
        self.X, self.targets = X, targets

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.X[row], self.targets[row]

    def __getitems__(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        index = torch.as_tensor(rows)
        return self.X[index], self.targets[index]


class Plan(NamedTuple):
    """What a net trains on, and for how long."""

    rows: Tensor | LazyRows  # all rows, or some of them: for the shape, the type, and mean and scale
    data: Any  # the dataset
    split: Any  # skorch's `train_split`
    epochs: int
    iterator: dict[str, Any]  # options of the loader of batches to train on
    num_workers: int  # processes that read the held-out rows
    callbacks: list[Any]
    workers: int = 1  # processes that train together


class StudentNet(NeuralNet):
    """A net whose module may return its logits by name, and may compute in half precision.

    Parameters
    ----------
    *args, **options
        Those of `skorch.NeuralNet`.
    half : torch.dtype, optional
        What autocast computes in. Weights and losses stay in single precision. With float16, the loss is
        scaled up before the gradient, and the gradient down again, because small ones would be lost.
    """

    def __init__(self, *args: Any, half: torch.dtype | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.half = half
        kind = torch.device(self.device).type
        # Lower than torch's, with which the first steps of a short training overflow, and are left out.
        self.scaler = torch.amp.GradScaler(kind, init_scale=2.0**10) if half == torch.float16 else None

    def initialize_callbacks(self) -> StudentNet:
        """Set up the callbacks, and move early stopping to the end, before checkpoints, which have its state.

        It stops skorch by an exception: callbacks after it, such as one that prints, would miss an epoch.
        Those with ``late = True`` come just before it, when all losses are known.
        """
        super().initialize_callbacks()
        self.callbacks_.sort(
            key=lambda named: (
                getattr(named[1], "last", False),
                isinstance(named[1], EarlyStopping),
                getattr(named[1], "late", False),
            )
        )
        return self

    def infer(self, x: Any, **fit_params: Any) -> Any:
        """Return the logits of a batch, in single precision or better."""
        if self.half is None:
            return logits_of(super().infer(x, **fit_params))
        with torch.autocast(torch.device(self.device).type, dtype=self.half):
            return logits_of(super().infer(x, **fit_params)).float()

    def train_step_single(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Compute the loss of a batch and its gradient."""
        if self.scaler is None:
            return super().train_step_single(batch, **fit_params)  # type: ignore[no-any-return]
        self._set_training(True)
        x, y = unpack_data(batch)
        found = self.infer(x, **fit_params)
        loss = self.get_loss(found, y, X=x, training=True)
        self.scaler.scale(loss).backward()
        return {"loss": loss, "y_pred": found}

    def train_step(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Take a step on a batch."""
        if self.scaler is None:
            return super().train_step(batch, **fit_params)  # type: ignore[no-any-return]
        self.optimizer_.zero_grad()
        step = self.train_step_single(batch, **fit_params)
        self.scaler.unscale_(self.optimizer_)  # callbacks that clip gradients expect their true size
        named = list(self.get_all_learnable_params())
        self.notify("on_grad_computed", named_parameters=named, batch=batch, training=True)
        self.scaler.step(self.optimizer_)
        self.scaler.update()
        return step


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
                f"{len(net.history)}. Lower lr (now {self.lr:g}) of the Network, or check that the "
                "targets are finite."
            )

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """Report an epoch."""
        self.progress("training", len(net.history), self.max_iter)


class LabelledRows(Callback):
    """Measures a net on labelled rows after each epoch: cross-entropy with the labels, and accuracy.

    Parameters
    ----------
    X : (n, ...) tensor or LazyRows
    codes : (n,) tensor of int
        The position of each label among the classes.
    num_workers : int
        Processes that read a dataset.
    """

    def __init__(self, X: Tensor | LazyRows, codes: Tensor, num_workers: int) -> None:
        self.X, self.codes, self.num_workers = X, codes, num_workers

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """Add ``valid_loss`` and ``valid_accuracy`` to the history."""
        net.module_.eval()
        with torch.no_grad():
            parts = [net.infer(part).cpu() for part in batches(self.X, net.batch_size, self.num_workers)]
        logits = torch.cat(parts).double()
        loss = torch.nn.functional.cross_entropy(logits, self.codes)
        net.history.record("valid_loss", loss.item())
        net.history.record("valid_accuracy", (logits.argmax(dim=1) == self.codes).double().mean().item())


def silence(text: str) -> None:
    """Print nothing."""


def run(net: NeuralNet, rows: Rows) -> None:
    """Fit a skorch net; raise an interrupt by the user again."""
    with interrupts() as seen:
        net.fit(rows, y=None)
    # skorch takes any KeyboardInterrupt for early stopping; one in the middle of an epoch is the user's
    if seen or not net.history or "train_loss" not in net.history[-1]:
        raise KeyboardInterrupt


def history_of(net: NeuralNet) -> list[dict[str, Any]]:
    """Return the history of a net, a dict of plain values per epoch."""
    return [{k: plain(v) for k, v in row.items() if k not in PARTS_OF_HISTORY} for row in net.history]


def plain(value: Any) -> Any:
    """Return a numpy scalar as a Python one, so that the history can be written as JSON."""
    return value.item() if isinstance(value, np.generic) else value
