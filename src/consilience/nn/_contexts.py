"""What holds during a training: a criterion that watches the module, and seeded generators."""

from __future__ import annotations

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
