"""What holds during a training: a criterion that watches the module, seeded generators, a watch on Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def attached(criterion: nn.Module, module: nn.Module, example: Tensor) -> Iterator[None]:
    """Attach the criterion to the module during training, if it has `attach`."""
    watcher: Any = criterion if hasattr(criterion, "attach") else None
    if watcher is not None:
        watcher.attach(module, example)
    try:
        yield
    finally:
        if watcher is not None:
            watcher.detach()


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


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Give a list that gets an entry if the user presses Ctrl-C, while the block runs in the main thread."""
    seen: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield seen
        return

    def handler(number: int, frame: Any) -> None:
        seen.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, handler)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
