"""Train a torch student in several processes or on several machines, by Ray Train.

Each worker reads its share of the blocks. Ray Train starts the workers and joins them (gloo on processors,
nccl on CUDA devices), and torch's DistributedDataParallel averages their gradients. If a worker dies, Ray
Train starts all of them again, from the last checkpoint.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from skorch.callbacks import Callback
from torch import nn

from consilience._optional import require
from consilience._progress import Progress, silent
from consilience.exceptions import (
    ConsilienceError,
    ConsilienceWarning,
    InvalidInputError,
    ScoringError,
    StorageError,
)
from consilience.files.storage import StoragePath
from consilience.rows.datasets import sent_to_ray
from consilience.rows.targets import TargetRows
from consilience.scoring.ray import START_SECONDS, connected, offer
from consilience.scoring.ray_options import RayOptions
from consilience.students import _checkpoint
from consilience.students._checkpoint import Checkpoint, identity_of, plain_array, tensors_like
from consilience.students._passes import plan_passes
from consilience.students._threads import multiplications_per_row
from consilience.students._training import run
from consilience.students.network import Network
from consilience.teachers.outputs import summary

RESTARTS = 3
"""How often the workers are started again after one of them died."""
END_SECONDS = 20.0
"""How long Ray Train has to end its workers before it is ended itself."""
_POLL = 0.5  # seconds between two looks at the keeper
_BEAT = 2.0  # seconds between two signs of life of a worker


def fit_on_ray(
    student: Network,
    rows: TargetRows,
    *,
    options: RayOptions,
    n_classes: int,
    criterion: nn.Module,
    progress: Progress = silent,
    memory: int = 2**31,
    checkpoint: StoragePath | None = None,
    key: str = "",
) -> None:
    """Train a student in ``options.train_workers`` processes of a Ray cluster.

    The parameters are those of `Network.fit_by_passes`. A batch of ``batch_size`` rows is cut into as
    many parts as there are workers, so the learning rate and the number of steps mean the same.

    Raises
    ------
    ScoringError
        Workers died more than `RESTARTS` times, or nothing moved for ``options.timeout`` seconds.
    """
    require("ray.train.torch", extra="ray", purpose="Training on Ray")
    _check(student, criterion)
    student._check_params()
    seed = student._seed()
    workers = _workers(options, rows)
    plan = plan_passes(student, rows, memory, seed, 0, workers)  # tells what is wrong before workers start
    with connected(options.address) as ray:
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        keeper = ray.remote(num_cpus=0, scheduling_strategy=here)(Keeper).remote(
            None if checkpoint is None else checkpoint.absolute()
        )
        sent = rows.sent(lambda source: sent_to_ray(ray, source))
        job = Job(student, sent, n_classes, criterion, memory, seed, key, _checkpoint.INTERVAL, os.getcwd())
        kept = ray.put(job)
        gpu = torch.device(student.device).type == "cuda"
        # in a process of its own: there it can be ended, and its workers with it
        running = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)(_run_trainer).remote(
            [kept], keeper, workers, gpu
        )
        try:
            found = _wait(ray, running, keeper, options, workers, progress)
            ray.get(keeper.clear.remote())
        finally:
            _end(ray, running)
            ray.kill(keeper)
    module = student._make_module(plan.rows, n_classes)
    weights = {name: np.array(value) for name, value in found.weights.items()}  # Ray shares them read-only
    module.load_state_dict(tensors_like(weights, "", module.state_dict()))
    work = multiplications_per_row(module, plan.rows[:2], student.device)
    student._keep(module.to(student.device), found.history, plan.rows, work)


@dataclass(frozen=True)
class Job:
    """What every worker is sent."""

    student: Network
    rows: TargetRows
    n_classes: int
    criterion: nn.Module
    memory: int
    seed: int
    key: str
    interval: float
    folder: str


class Trained(NamedTuple):
    """What the first worker sends back."""

    weights: dict[str, NDArray[Any]]
    history: list[dict[str, Any]]


class Seen(NamedTuple):
    """What the keeper says: how many signs of life there were, epochs done and in all, and what failed."""

    signs: int = 0
    epoch: int = 0
    total: int = 0
    error: ConsilienceError | None = None


class Keeper:
    """An actor on the driver's machine: it keeps the last checkpoint, and says how far the training is.

    Parameters
    ----------
    folder : StoragePath, optional
        Where checkpoints are written, too, so that they outlive the run.
    """

    def __init__(self, folder: StoragePath | None) -> None:
        self._folder, self._state, self._seen = folder, b"", Seen()
        if folder is not None:
            folder.make_root()
            with suppress(OSError, StorageError), (folder / _checkpoint.FILE).reading() as file:
                self._state = file.read()

    def state(self) -> bytes:
        """Return the last checkpoint; nothing, if there is none."""
        return self._state

    def keep(self, state: bytes) -> None:
        """Keep a checkpoint."""
        self._state = state
        if self._folder is not None:
            with (
                suppress(OSError, StorageError),  # it is kept here, at least
                (self._folder / _checkpoint.FILE).writing(durable=True) as file,
            ):
                file.write(state)

    def clear(self) -> None:
        """Forget the checkpoint: the training is over."""
        self._state = b""
        if self._folder is not None:
            (self._folder / _checkpoint.FILE).delete()

    def sign(self, epoch: int | None = None, total: int = 0) -> None:
        """Note that a worker lives, and how many epochs are done."""
        self._seen = self._seen._replace(signs=self._seen.signs + 1)
        if epoch is not None:
            self._seen = self._seen._replace(epoch=epoch, total=total)

    def fail(self, error: ConsilienceError) -> None:
        """Note an error that starting again would not mend; the first counts."""
        self._seen = self._seen._replace(error=self._seen.error or error)

    def seen(self) -> Seen:
        """Return what is known."""
        return self._seen


def _check(student: Network, criterion: nn.Module) -> None:
    if student.callbacks:
        raise InvalidInputError(
            "The student has callbacks, which Ray Train would call in every worker. Leave them out, or train "
            "in one process, without train_workers."
        )
    if any(weight.requires_grad for weight in criterion.parameters()):
        raise InvalidInputError(
            "The loss has weights of its own, which Ray Train does not average over workers. Train in one "
            "process, without train_workers."
        )


def _workers(options: RayOptions, rows: TargetRows) -> int:
    """Return how many workers have a block to read; say so if these are not all."""
    wanted, blocks = options.train_workers or 1, sum(len(stretch) for stretch in rows.stretches)
    if blocks < wanted:
        warnings.warn(
            f"The rows have {blocks} blocks, so {blocks} of {wanted} train_workers train.",
            ConsilienceWarning,
            stacklevel=3,
        )
    return max(1, min(wanted, blocks))


def _wait(
    ray: Any, running: Any, keeper: Any, options: RayOptions, workers: int, progress: Progress
) -> Trained:
    """Wait for the training; raise if a worker met an error of ours, or if nothing moves."""
    last, moved = Seen(), time.monotonic()
    while True:
        done, _ = ray.wait([running], timeout=_POLL)
        seen: Seen = ray.get(keeper.seen.remote())
        if seen.error is not None:
            raise seen.error
        if seen.epoch != last.epoch:
            progress("training", seen.epoch, seen.total)
        if seen.signs != last.signs:
            last, moved = seen, time.monotonic()
        if done:
            try:
                found: Trained = ray.get(running)
            except ray.exceptions.RayError as error:
                met = getattr(getattr(error, "cause", None), "worker_failures", {})
                cause = summary(next(iter(met.values()), error))
                raise ScoringError(
                    f"Training on Ray failed {RESTARTS + 1} times, the last time with {cause}. The same call "
                    "goes on from the last checkpoint, if a cache was given."
                ) from error
            return found
        still = time.monotonic() - moved
        if still > (options.timeout if last.signs else max(options.timeout, START_SECONDS)):
            what = (
                "workers have started, and took no step"
                if last.signs
                else f"it needs {workers} workers with a processor each, and {offer(ray)}"
            )
            raise ScoringError(
                f"Training on Ray has not moved for {still:.0f} seconds (timeout {options.timeout:g}): "
                f"{what}."
            )


def _end(ray: Any, running: Any) -> None:
    """End what still runs: first by an interrupt, at which Ray Train ends its workers in order."""
    for force in (False, True):
        with suppress(ray.exceptions.RayError):
            ray.cancel(running, force=force)
        if ray.wait([running], timeout=END_SECONDS)[0]:
            return


def _run_trainer(kept: list[Any], keeper: Any, workers: int, gpu: bool) -> Trained:
    """Let Ray Train run the workers, and return what the first one has found."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory() as storage:  # for Ray's own notes; our checkpoints are the keeper's
        result = TorchTrainer(
            _train_share,
            train_loop_config={"job": kept[0], "keeper": keeper},
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
            run_config=RunConfig(storage_path=storage, failure_config=FailureConfig(max_failures=RESTARTS)),
        ).fit()
    found: Trained = result.return_value
    return found


def _train_share(settings: dict[str, Any]) -> Trained | None:
    """Train on one worker's share of the rows."""
    import ray
    from ray.train import get_context
    from ray.train.torch import prepare_model

    job, keeper = ray.get(settings["job"]), settings["keeper"]
    keeper.sign.remote()
    with suppress(OSError):  # another machine may not have it
        os.chdir(job.folder)
    context = get_context()
    place, workers = context.get_world_rank(), context.get_world_size()
    try:
        student = job.student
        plan = plan_passes(student, job.rows, job.memory, job.seed, place, workers)
        identity = identity_of(student, plan, job.seed, job.criterion, job.key)
        # the buffers of workers differ, and the first one's checkpoint is for all
        identity["rows"] = [job.rows.n_rows, job.rows.n_columns, *plan.rows.shape[1:], job.memory]
        shared = SharedCheckpoint(identity, plan.data, keeper, job.interval)
        plan.callbacks.extend([Together(keeper), shared])

        def tell(task: str, done: int, total: int) -> None:
            if place == 0:
                keeper.sign.remote(done, total)

        with student._trained(
            plan,
            job.seed,
            n_classes=job.n_classes,
            criterion=job.criterion,
            progress=tell,
            wrap=prepare_model,
        ) as net:
            run(net, plan.data)
    except ConsilienceError as error:
        ray.get(keeper.fail.remote(error))
        raise
    except (OSError, RuntimeError):  # among others, what torch raises where another worker has died
        raise
    except Exception as error:  # a module that takes other rows, a package that is not installed there, ...
        ray.get(keeper.fail.remote(ScoringError(f"Training on Ray failed: {summary(error)}.")))
        raise
    if place:
        return None
    # as arrays, since Ray Train returns no tensors
    weights = {name: plain_array(value) for name, value in student.module_.state_dict().items()}
    return Trained(weights, student.history_)


class Together(Callback):
    """Lets all workers decide alike, and tells the keeper that they live.

    Workers measure the same rows with the same weights. On machines of different kinds the last digits may
    differ, and one worker would stop where the others wait for it. So the first one's figures count.
    """

    late = True  # see StudentNet.initialize_callbacks

    def __init__(self, keeper: Any) -> None:
        self.keeper, self._told = keeper, 0.0

    def on_batch_end(self, net: Any, **_: Any) -> None:
        """Give a sign of life."""
        if time.monotonic() - self._told > _BEAT:
            self._told = time.monotonic()
            self.keeper.sign.remote()

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """Take the losses of the first worker."""
        names = [name for name in ("train_loss", "valid_loss") if name in net.history[-1]]
        values = torch.tensor([net.history[-1][name] for name in names], dtype=torch.float64)
        for name, value in zip(names, _first_of_all(values).tolist(), strict=True):
            net.history.record(name, value)


class SharedCheckpoint(Checkpoint):
    """Checkpoints that the first worker writes, and all workers start from."""

    def __init__(self, identity: dict[str, Any], data: Any, keeper: Any, interval: float) -> None:
        self.identity, self.data, self.keeper, self.interval = identity, data, keeper, interval

    def on_train_begin(self, net: Any, **options: Any) -> None:
        """Go on from the last checkpoint; each worker drops out other units."""
        super().on_train_begin(net, **options)
        if place := _place():
            torch.default_generator.manual_seed(torch.initial_seed() + 2**20 * len(net.history) + place)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        import ray

        found = ray.get(self.keeper.state.remote()) if _place() == 0 else b""
        size = int(_first_of_all(torch.tensor([len(found)]))[0])
        if not size:
            raise FileNotFoundError("no checkpoint")
        state = torch.zeros(size, dtype=torch.uint8)
        if found:
            state = torch.frombuffer(bytearray(found), dtype=torch.uint8)
        yield io.BytesIO(_first_of_all(state).numpy().tobytes())

    def _write(self, arrays: dict[str, NDArray[Any]]) -> None:
        import ray

        if _place() == 0:
            file = io.BytesIO()
            np.savez(file, **arrays)  # type: ignore[arg-type]
            ray.get(self.keeper.keep.remote(file.getvalue()))


def _place() -> int:
    return int(torch.distributed.get_rank()) if torch.distributed.is_initialized() else 0


def _first_of_all(values: torch.Tensor) -> torch.Tensor:
    """Return the values of the first worker."""
    if not torch.distributed.is_initialized():
        return values
    sent = values.cuda() if torch.distributed.get_backend() == "nccl" else values
    torch.distributed.broadcast(sent, 0)
    return sent.cpu()
