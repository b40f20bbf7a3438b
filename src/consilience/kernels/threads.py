"""Run small matrix products on one thread: two threads would wait for each other longer than they work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

SMALL = 30_000_000
"""One thread is at least as fast for products of fewer multiplications than this."""


def threads_for(multiplications: int) -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread for small products, and its usual number for others."""
    return nullcontext() if multiplications >= SMALL else one_thread()


def one_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@cache
def _controller() -> ThreadpoolController:
    # cached: finding the libraries takes longer than many products
    return ThreadpoolController()
