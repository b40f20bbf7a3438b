"""One thread for small matrix products: two wait for each other longer than they work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

SMALL = 30_000_000
"""Multiplications of a product below which one thread is at least as fast."""


def threads_for(multiplications: int) -> AbstractContextManager[Any]:
    """Return a context in which BLAS has one thread if a product is small, and its usual number otherwise."""
    return nullcontext() if multiplications >= SMALL else one_thread()


def one_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS has one thread."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@cache
def _controller() -> ThreadpoolController:
    # looking for the libraries takes longer than many a product
    return ThreadpoolController()
