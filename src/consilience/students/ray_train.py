"""Train a network in several processes or on several machines, by Ray Train.

Each worker reads its share of the blocks. Ray Train starts the workers and joins them (gloo on processors,
nccl on CUDA devices), and torch's DistributedDataParallel averages their gradients. If a worker dies, Ray
Train starts all of them again, from the last checkpoint.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from consilience._optional import require
from consilience.exceptions import (
    ConsilienceError,
    ConsilienceWarning,
    InvalidInputError,
    ScoringError,
    warn,
)
from consilience.rows.datasets import sent_to_ray
from consilience.rows.targets import TargetRows
from consilience.run import Progress, Run
from consilience.scoring.ray import START_SECONDS, RayOptions, connected, engine_options, offer
from consilience.students import training
from consilience.students.batches import plan_training
from consilience.students.network import Network
from consilience.students.training import Checkpoint, CheckpointFile, checkpoint_file, identity_of, seeded
from consilience.teachers.outputs import summary

RESTARTS = 3
"""How often the workers are started again after one of them died."""
END_SECONDS = 20.0
"""How long Ray Train has to end its workers before it is ended itself."""
_POLL = 0.5  # seconds between two looks at the keeper
_BEAT = 2.0  # seconds between two signs of life of a worker


def learn_on_ray(
    student: Network, rows: TargetRows, n_classes: int, criterion: nn.Module, run: Run, key: str
) -> None:
    """Train a network in ``train_workers`` processes of a Ray cluster; see `Network.learn`.

    A batch of ``batch_size`` rows is cut into as many parts as there are workers, so the learning rate and
    the number of steps mean the same.

    Raises
    ------
    ScoringError
        Workers died more than `RESTARTS` times, or nothing moved for ``timeout`` seconds.
    """
    require("ray.train.torch", extra="ray", purpose="Training on Ray")
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
    options, seed = engine_options(run), student.seed()
    workers = _workers(options, rows)
    # tells what is wrong before workers start
    plan = plan_training(student, rows, seed, 0, workers)
    with connected(options.address) as ray, checkpoint_file(run, key) as file:
        node = ray.get_runtime_context().get_node_id()
        here = {
            "num_cpus": 0,
            "scheduling_strategy": ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                node, soft=False
            ),
        }
        keeper = ray.remote(**here)(Keeper).remote(file)
        work = partial(
            _train,
            student,
            rows.sent(lambda source: sent_to_ray(ray, source)),
            n_classes=n_classes,
            criterion=criterion,
            seed=seed,
            key=key,
            folder=os.getcwd(),
            interval=training.INTERVAL,
        )
        gpu = torch.device(student.device).type == "cuda"
        # in a process of its own: there it can be ended, and its workers with it
        running = ray.remote(max_retries=0, **here)(_run_trainer).remote(
            [ray.put(work)], keeper, workers, gpu
        )
        try:
            weights, history = _wait(ray, running, keeper, options, workers, run.report)
        finally:
            _end(ray, running)
            ray.kill(keeper)
    with seeded(seed, student.device):
        module = student.make_module(plan.rows, n_classes).to(student.device)
    module.load_state_dict(torch.load(io.BytesIO(weights), map_location=student.device, weights_only=True))
    student.keep(module, history, plan.rows)


class Keeper:
    """An actor on the driver's machine: it keeps the last checkpoint, and says how far the training is.

    Parameters
    ----------
    file : CheckpointFile, optional
        Where checkpoints are written, too, so that they outlive the run.
    """

    def __init__(self, file: CheckpointFile | None) -> None:
        self._file, self._content = file, b"" if file is None else file.load()
        self._signs, self._epoch, self._error = 0, (0, 0), None

    def load(self) -> bytes:
        """Return the last checkpoint; nothing, if there is none."""
        return self._content

    def store(self, content: bytes) -> None:
        """Keep a checkpoint."""
        self._content = content
        if self._file is not None:
            self._file.store(content)

    def sign(self, *epoch: int) -> None:
        """Note that a worker lives, and how many epochs are done, of how many."""
        self._signs += 1
        self._epoch = epoch or self._epoch  # type: ignore[assignment]

    def fail(self, error: Any) -> None:
        """Note an error that starting again would not mend; the first counts."""
        self._error = self._error or error

    def seen(self) -> tuple[int, tuple[int, int], ConsilienceError | None]:
        """Return the signs of life so far, the epochs done and in all, and what failed."""
        return self._signs, self._epoch, self._error


class AtKeeper:
    """Where the workers' checkpoint is: all start from the keeper's, and the first one writes it."""

    def __init__(self, keeper: Any, place: int) -> None:
        self._keeper, self._place = keeper, place

    def load(self) -> bytes:
        """Return the last checkpoint."""
        import ray

        return bytes(ray.get(self._keeper.load.remote()))

    def store(self, content: bytes) -> None:
        """Let the keeper have the first worker's checkpoint."""
        import ray

        if self._place == 0:
            ray.get(self._keeper.store.remote(content))


def _workers(options: RayOptions, rows: TargetRows) -> int:
    """Return how many workers have a block to read; say so if these are not all."""
    wanted, blocks = options.train_workers or 1, len(rows.numbers)
    if blocks < wanted:
        warn(
            ConsilienceWarning(f"The rows have {blocks} blocks, so {blocks} of {wanted} train_workers train.")
        )
    return max(1, min(wanted, blocks))


def _wait(ray: Any, running: Any, keeper: Any, options: RayOptions, workers: int, progress: Progress) -> Any:
    """Wait for the training; raise if a worker met an error of ours, or if nothing moves."""
    signs, epoch, moved = 0, (0, 0), time.monotonic()
    while True:
        done, _ = ray.wait([running], timeout=_POLL)
        before = signs, epoch
        signs, epoch, error = ray.get(keeper.seen.remote())
        if error is not None:
            raise error
        if epoch != before[1]:
            progress("training", *epoch)
        if signs != before[0]:
            moved = time.monotonic()
        if done:
            try:
                return ray.get(running)
            except ray.exceptions.RayError as failure:
                met = getattr(getattr(failure, "cause", None), "worker_failures", {})
                cause = summary(next(iter(met.values()), failure))
                raise ScoringError(
                    f"Training on Ray failed {RESTARTS + 1} times, the last time with {cause}. The same call "
                    "goes on from the last checkpoint, if a cache was given."
                ) from failure
        still = time.monotonic() - moved
        if still > (options.timeout if signs else max(options.timeout, START_SECONDS)):
            what = "workers have started, and took no step"
            if not signs:
                what = f"it needs {workers} workers with a processor each, and {offer(ray)}"
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


def _run_trainer(kept: list[Any], keeper: Any, workers: int, gpu: bool) -> Any:
    """Let Ray Train run the workers, and return what the first one has found."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory() as storage:  # for Ray's own notes; our checkpoints are the keeper's
        result = TorchTrainer(
            _train_share,
            train_loop_config={"work": kept[0], "keeper": keeper},
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
            run_config=RunConfig(storage_path=storage, failure_config=FailureConfig(max_failures=RESTARTS)),
        ).fit()
    return result.return_value


def _train_share(settings: dict[str, Any]) -> Any:
    """Train on one worker's share of the rows; the first one returns the weights and the history."""
    import ray

    keeper = settings["keeper"]
    try:
        return ray.get(settings["work"])(keeper=keeper)
    except Exception as error:
        # what torch raises where another worker has died is mended by a new start, all else is not: a module
        # that takes other rows, a package that is not installed there, ...
        if isinstance(error, ConsilienceError) or not isinstance(error, OSError | RuntimeError):
            told = ScoringError(f"Training on Ray failed: {summary(error)}.")
            ray.get(keeper.fail.remote(error if isinstance(error, ConsilienceError) else told))
        raise


def _train(
    student: Network,
    rows: TargetRows,
    *,
    n_classes: int,
    criterion: nn.Module,
    seed: int,
    key: str,
    folder: str,
    interval: float,
    keeper: Any,
) -> tuple[bytes, list[dict[str, Any]]] | None:
    from ray.train import get_context
    from ray.train.torch import prepare_model

    keeper.sign.remote()
    with suppress(OSError):  # another machine may not have it
        os.chdir(folder)
    place, told = get_context().get_world_rank(), time.monotonic()
    plan = plan_training(student, rows, seed, place, get_context().get_world_size())
    identity = identity_of(student, plan, seed, criterion, key)
    # the buffers of workers differ, and the first one's checkpoint is for all
    identity["rows"] = [rows.n_rows, rows.n_columns, *plan.rows.shape[1:]]

    def live(*_: Any) -> None:
        nonlocal told
        if time.monotonic() - told > _BEAT:
            told = time.monotonic()
            keeper.sign.remote()

    def tell(task: str, done: int, total: int) -> None:
        if place == 0:
            keeper.sign.remote(done, total)

    criterion.register_forward_hook(live)
    with student.training(plan, seed, n_classes, criterion, wrap=prepare_model, agree=_agreed) as trainer:
        torch.default_generator.manual_seed(seed + place)  # each worker drops out other units
        trainer.run(tell, Checkpoint(AtKeeper(keeper, place), identity, interval))
    weights = io.BytesIO()
    torch.save(student.module_.state_dict(), weights)  # as bytes, since Ray Train returns no tensors
    return None if place else (weights.getvalue(), student.history_)


def _agreed(figures: list[float]) -> list[float]:
    """Return the first worker's figures: the last digits may differ, and one would stop where others wait."""
    shared = [figures]
    torch.distributed.broadcast_object_list(shared, 0)
    return shared[0]
