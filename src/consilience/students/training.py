"""The training loop of networks: epochs, patience, half precision, and checkpoints to go on from."""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from consilience.exceptions import ConsilienceWarning, InvalidInputError, StorageError, warn
from consilience.files.storage import StoragePath
from consilience.kernels.compiled import OneThread
from consilience.run import Progress, Run
from consilience.scoring.blocks import open_cache
from consilience.students.batches import Pair, Plan
from consilience.teachers.torch import logits_of

if TYPE_CHECKING:
    from consilience.students.network import Network

FILE = "training.pt"
INTERVAL = 60.0
"""Seconds between checkpoints, at the least. They are written between epochs."""
LEAST_FALL = 1e-4
"""The least fall of the validation loss, as a share of it, that counts as better."""
SMALL_STEP = 20_000_000
"""Multiplications of a forward pass on a batch, below which one thread is at least as fast."""
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    # fused: one step for all weights at once
    "adam": (torch.optim.Adam, {"fused": True}),
    "adamw": (torch.optim.AdamW, {"fused": True}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),  # the paper's momentum
}


class Trainer:
    """A module in training.

    Parameters
    ----------
    student : Network
        Says how to train.
    module : torch.nn.Module
    criterion : torch.nn.Module
        Called as ``criterion(logits, targets)``. Its own parameters are trained, too.
    plan : Plan
    labelled : pair of tensors, optional
        Rows to measure each epoch on, and the positions of their labels among the classes.
    wrap : callable, optional
        Gives what is called in place of the module in training, such as one of several that train together.
    agree : callable, optional
        From the figures of this process to those of all that train together.

    Attributes
    ----------
    module : torch.nn.Module
    optimizer : torch.optim.Optimizer
    history : list of dict
        Of each epoch: ``epoch``, ``train_loss``, and what was measured.
    stopped : bool
        Whether patience has ended, or a callback has asked to stop.
    """

    def __init__(
        self,
        student: Network,
        module: nn.Module,
        criterion: nn.Module,
        plan: Plan,
        labelled: Pair | None = None,
        *,
        wrap: Callable[[nn.Module], nn.Module] = lambda module: module,
        agree: Callable[[list[float]], list[float]] = lambda figures: figures,
    ) -> None:
        self.student, self.plan, self.labelled, self._agree = student, plan, labelled, agree
        self.module, self.criterion = module.to(student.device), criterion.to(student.device)
        self._wrapped = wrap(self.module)
        make, options = student.optimizer, dict[str, Any]()
        if isinstance(make, str):
            make, options = OPTIMIZERS[make]
        if student.weight_decay:  # not every optimiser has it
            options = {**options, "weight_decay": student.weight_decay}
        weights = [*module.parameters(), *criterion.parameters()]
        self.optimizer = make(weights, lr=student.lr, **options)
        self._kind = torch.device(student.device).type
        self._half = half_type(student.precision, student.device)
        # Small gradients would be lost in float16, so the loss is scaled up. Less than torch does by itself,
        # with which the first steps of a short training overflow, and are left out.
        scaled = self._half == torch.float16
        self._scaler = torch.amp.GradScaler(self._kind, init_scale=2.0**10, enabled=scaled)
        self._parts: dict[str, Any] = {
            "module": self.module,
            "criterion": self.criterion,
            "optimizer": self.optimizer,
            "scaler": self._scaler,
        }
        self.history: list[dict[str, Any]] = []
        self.stopped = False
        self._best: dict[str, Any] = {"loss": math.inf, "misses": 0, "weights": None}

    def run(self, progress: Progress, checkpoint: Checkpoint | None = None) -> None:
        """Train to the end, from the last checkpoint if there is one; then take the best weights."""
        if checkpoint is not None and (state := checkpoint.read()) is not None:
            self._restore(state)
        total = self.plan.epochs.total
        while len(self.history) < total and not self.stopped:
            self.epoch()
            progress("training", len(self.history), total)
            if checkpoint is not None and checkpoint.is_due:
                checkpoint.write(self._state())
        if self._best["weights"] is not None:
            self.module.load_state_dict(self._best["weights"])

    def epoch(self) -> float:
        """Pass over the rows, or a part of them, and measure the module; return the mean loss."""
        self.module.train()
        losses = [(self._step(*batch), len(batch[0])) for batch in self.plan.batches.epoch()]
        figures = {"train_loss": _mean(losses), **self._measure()}
        agreed = dict(zip(figures, self._agree([*figures.values()]), strict=True))
        self.history.append({"epoch": len(self.history) + 1, **agreed})
        if "valid_loss" in agreed and self.student.patience is not None:
            self._judge(agreed["valid_loss"])
        for callback in self.student.callbacks:
            self.stopped |= bool(callback(self))
        return agreed["train_loss"]

    def logits(self, X: Tensor) -> Tensor:
        """Return the logits of a batch, in single precision or better."""
        module = self._wrapped if self.module.training else self.module
        with torch.autocast(self._kind, dtype=self._half, enabled=self._half is not None):
            found: Tensor = logits_of(module(X.to(self.student.device)))
        return found if self._half is None else found.float()

    def predict(self, X: Tensor) -> Tensor:
        """Return the logits (n, L) of rows, in eval mode, on the CPU."""
        self.module.eval()
        with torch.no_grad():
            return torch.cat([self.logits(part).cpu() for part in torch.split(X, self.student.batch_size)])

    def _step(self, X: Tensor, targets: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = self._loss(X, targets)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.step(self.optimizer)
        self._scaler.update()
        return self._finite(loss, "training")

    def _measure(self) -> dict[str, float]:
        """Return the loss of held-out rows, or the cross-entropy and the accuracy of labelled ones."""
        if self.labelled is not None:
            rows, codes = self.labelled
            logits = self.predict(rows).double()
            loss = nn.functional.cross_entropy(logits, codes)
            correct = (logits.argmax(dim=1) == codes).double().mean()
            return {"valid_loss": self._finite(loss, "validation"), "valid_accuracy": correct.item()}
        if self.plan.measured is None:
            return {}
        self.module.eval()
        parts = [torch.split(part, self.student.batch_size) for part in self.plan.measured]
        with torch.no_grad():
            losses = [
                (self._finite(self._loss(*one), "validation"), len(one[0]))
                for one in zip(*parts, strict=True)
            ]
        return {"valid_loss": _mean(losses)}

    def _loss(self, X: Tensor, targets: Tensor) -> Tensor:
        loss: Tensor = self.criterion(self.logits(X), targets.to(self.student.device))
        return loss

    def _finite(self, loss: Tensor, what: str) -> float:
        value = loss.item()
        if not math.isfinite(value):
            raise InvalidInputError(
                f"The {what} loss became {value} in epoch {len(self.history) + 1}. Lower lr (now "
                f"{self.student.lr:g}) of the Network, or check that the targets are finite."
            )
        return float(value)

    def _judge(self, loss: float) -> None:
        """Keep the weights if the loss has fallen; stop when it has not for as long as patience lasts."""
        best = self._best
        if loss < best["loss"]:
            kept = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
            best.update(loss=loss - LEAST_FALL * abs(loss), misses=0, weights=kept)
            return
        best["misses"] += 1
        self.stopped |= best["misses"] >= self.student.patience

    def _state(self) -> dict[str, Any]:
        return {
            **{name: part.state_dict() for name, part in self._parts.items()},
            "history": self.history,
            "best": self._best,
            "random": torch.get_rng_state(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        self.history, self._best = state["history"], state["best"]
        self.plan.batches.skip(len(self.history))
        torch.set_rng_state(state["random"])  # after all draws that a start makes


def _mean(losses: list[tuple[float, int]]) -> float:
    return sum(loss * size for loss, size in losses) / max(1, sum(size for _, size in losses))


def half_type(precision: str, device: str) -> torch.dtype | None:
    """Return the type that autocast computes in, or None for single precision throughout.

    "auto" is half precision on a CUDA device, as bfloat16 if its hardware has it. Other devices gain little
    or lose.
    """
    if precision != "auto":
        return None if precision == "float32" else getattr(torch, precision)
    if torch.device(device).type != "cuda":
        return None
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if native else torch.float16


class CheckpointFile:
    """The file of checkpoints; it may lie in a bucket."""

    def __init__(self, file: StoragePath) -> None:
        self._file = file

    def load(self) -> bytes:
        """Return the content of the file; nothing, if it cannot be read."""
        with suppress(OSError, StorageError), self._file.reading() as file:
            return file.read()
        return b""

    def store(self, content: bytes) -> None:
        """Replace the content of the file."""
        try:
            with self._file.writing(durable=True) as file:
                file.write(content)
        except StorageError as error:  # a bucket that does not answer is no reason to stop
            warn(ConsilienceWarning(f"No checkpoint: {error}"))


class Checkpoint:
    """All there is to know about a training after an epoch.

    One that is damaged or from another training is ignored, and then replaced.

    Parameters
    ----------
    place : CheckpointFile
        What loads and stores it, as bytes.
    identity : dict
        What must agree for a training to go on, as JSON values.
    interval : float, optional
        Seconds between two of them, at the least; by default `INTERVAL`.
    """

    def __init__(self, place: Any, identity: Mapping[str, Any], interval: float | None = None) -> None:
        self._place, self._identity = place, json.loads(json.dumps(identity))
        self._interval, self._written = INTERVAL if interval is None else interval, time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last one is old."""
        return time.monotonic() - self._written >= self._interval

    def read(self) -> dict[str, Any] | None:
        """Return the state of an earlier run of the same training; None if there is none."""
        content = io.BytesIO(self._place.load())
        try:
            found = torch.load(content, map_location="cpu", weights_only=True)
            return found if found.pop("identity") == self._identity else None
        except Exception:  # a damaged file fails in many ways
            return None

    def write(self, state: Mapping[str, Any]) -> None:
        """Write a state."""
        file = io.BytesIO()
        torch.save({**state, "identity": self._identity}, file)
        self._place.store(file.getvalue())
        self._written = time.monotonic()


@contextmanager
def checkpoint_file(run: Run, key: str) -> Iterator[CheckpointFile | None]:
    """Give a file in the cache, if there is one, for the checkpoints of a training on labels of this key.

    It is removed with its folder when the training is over, and left where it fails.
    """
    store = open_cache(run)
    if store is None or not key:
        yield None
        return
    folder = store.root / f"training-{key}"
    with suppress(OSError):  # scoring has said already that it cannot be written
        store.prepare()
        folder.make_root()
    yield CheckpointFile(folder / FILE)
    (folder / FILE).delete()
    folder.delete_folder()


def identity_of(student: Network, plan: Plan, seed: int, criterion: nn.Module, key: str) -> dict[str, Any]:
    """Return what must be the same for a training to go on, as JSON values."""
    names = ("lr", "batch_size", "max_iter", "patience", "weight_decay", "standardize", "precision", "device")
    shapes = [part.shape for part in plan.batches.blocks.nothing]
    return {
        "key": key,
        "seed": seed,
        "student": {name: getattr(student, name) for name in names},
        "module": repr(student.module),
        "optimizer": repr(student.optimizer),
        "criterion": repr(criterion),
        "rows": [plan.epochs.n_rows, plan.batches.capacity, *shapes],
        "torch": torch.__version__,
    }


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """Seed the global generators, which factories, shuffling and dropout use; restore them afterwards."""
    cuda = torch.device(device).type == "cuda"
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else ()):
        # not torch.manual_seed, which would seed devices that are not restored
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed_all(seed)
        yield


one_torch_thread = OneThread(torch.get_num_threads, torch.set_num_threads, own=True)


def torch_threads_for(multiplications: float) -> AbstractContextManager[None]:
    """Return a context in which torch has one thread if a step is small, and its usual number otherwise."""
    return nullcontext() if multiplications >= SMALL_STEP else one_torch_thread()


def multiplications_per_row(module: nn.Module, example: Tensor, device: str = "cpu") -> float:
    """Return the multiplications of a forward pass for each row of `example`, which is on the CPU.

    Infinite, so that threads stay as they are, for other devices and for recurrent layers, which torch does
    not count.
    """
    if torch.device(device).type != "cpu" or any(isinstance(part, nn.RNNBase) for part in module.modules()):
        return float("inf")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(example)
    return float(counter.get_total_flops()) / 2 / len(example)
