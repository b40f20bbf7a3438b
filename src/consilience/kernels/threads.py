"""Choose the number of threads for libraries: one for small work, where threads cost more than they save.

Each limit is for the whole process, and several threads may want it at once: see `OneThread`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, cast

from threadpoolctl import ThreadpoolController

SMALL = 30_000_000
"""One thread is at least as fast for products of fewer multiplications than this."""


class OneThread:
    """A limit of one thread, for as long as anyone is inside.

    The first to enter saves the number of threads, and the last to leave restores it. A number that someone
    else has set in the meantime is left alone.

    Parameters
    ----------
    read : callable
        Returns the number of threads.
    write : callable
        Sets it.
    own : bool
        Whether each thread has a number of its own, as in torch: then each restores its own on leaving.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None], *, own: bool = False) -> None:
        self._read, self._write, self._own = read, write, own
        self._lock, self._here = threading.Lock(), threading.local()
        self._inside, self._before = 0, None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Return the context in which the limit holds."""
        depth = getattr(self._here, "depth", 0)
        with self._lock:
            mine = self._read()
            if self._inside == 0:
                self._before = mine
            elif mine == 1:  # a thread that is new takes over the limit of others
                mine = self._before
            self._inside += 1
            self._here.depth = depth + 1
            self._write(1)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                self._here.depth = depth
                leaves = depth == 0 if self._own else self._inside == 0
                if leaves and self._read() == 1:
                    self._write(mine if self._own else self._before)


def threads_for(multiplications: int) -> AbstractContextManager[None]:
    """Return a context in which BLAS has one thread if a product is small, and its usual number otherwise."""
    return nullcontext() if multiplications >= SMALL else one_thread()


def one_thread() -> AbstractContextManager[None]:
    """Return a context in which BLAS has one thread."""
    return _blas_limit()()


def kernel_threads() -> int:
    """Return how many threads numba has."""
    return int(_launch()())


_launching = threading.Lock()


@cache
def _launch() -> Callable[[], int]:
    """Start numba's threads; return numba's function that counts them.

    Starting them also sets the number of OpenMP threads, which torch uses. Torch gets its own number back: a
    user may have limited it.
    """
    from numba import get_num_threads  # not at the top: whoever only limits BLAS needs no compiler

    with _launching:
        torch = sys.modules.get("torch")
        before = torch.get_num_threads() if torch is not None else 0
        get_num_threads()
        if torch is not None and torch.get_num_threads() != before:
            torch.set_num_threads(before)
    return cast("Callable[[], int]", get_num_threads)


@cache
def _blas_limit() -> OneThread:
    # finding the libraries takes longer than many products do
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers

    def read() -> Any:
        numbers = [library.get_num_threads() for library in libraries]
        return 1 if set(numbers) <= {1} else numbers

    def write(numbers: Any) -> None:
        for library, number in zip(libraries, [1] * len(libraries) if numbers == 1 else numbers, strict=True):
            library.set_num_threads(number)

    return OneThread(read, write)
