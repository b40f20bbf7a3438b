"""How much memory work may take, and where an array lies: in memory, or mapped from a file without a name."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from consilience._sizes import parse_size
from consilience.exceptions import InvalidInputError
from consilience.run import Run

SHARE_OF_MACHINE = 0.25
"""By default, work may take this share of the memory."""
SHARE_OF_BUDGET = 1 / 8
"""Of the memory that work may take, for one array: several are there at once, and copies of parts."""


def memory_budget(run: Run) -> int:
    """Return how many bytes work may take: what `run` says, or by default a quarter of the machine.

    Examples
    --------
    >>> from consilience.run import Run
    >>> memory_budget(Run(memory="2GB"))
    2000000000
    """
    if run.memory is not None:
        return parse_size("memory", run.memory)
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else [2**33]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of the container, of either version
        try:
            limits.append(int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return int(SHARE_OF_MACHINE * min(limits))


def new_array(shape: tuple[int, ...], run: Run, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array of zeros to fill: in memory, or mapped from a file where that takes too much.

    The file has no name: it is gone with the array, also after a crash.

    Examples
    --------
    >>> from consilience.run import Run
    >>> type(new_array((3, 2), Run())).__name__, type(new_array((1000, 2), Run(memory="10KB"))).__name__
    ('ndarray', 'memmap')
    """
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes <= SHARE_OF_BUDGET * memory_budget(run):
        return np.zeros(shape, dtype)
    return mapped_array(shape, dtype)


def mapped_array(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros that is mapped from a file without a name."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile() as file:
        if hasattr(os, "posix_fallocate"):  # a disk that is full later would end the process
            with growing():
                os.posix_fallocate(file.fileno(), 0, n_bytes)
        return np.memmap(file, dtype, "w+", shape=shape)


@contextmanager
def growing() -> Iterator[None]:
    """Say what to do where the disk has no room for a temporary file."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"A temporary file cannot grow: {error.strerror or error}. Set the environment variable TMPDIR "
            "to a folder with more space."
        ) from error
