"""Choose the number of threads for torch: one if a step is too short to share."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from consilience.kernels.compiled import OneThread

SMALL_STEP = 20_000_000
"""Multiplications of a forward pass on a batch, below which one thread is at least as fast."""

_limit = OneThread(torch.get_num_threads, torch.set_num_threads, own=True)


def one_torch_thread() -> AbstractContextManager[None]:
    """Return a context in which torch has one thread."""
    return _limit()


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
