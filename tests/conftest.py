"""One thread for each test process, little work for its garbage collector, and the longest tests first."""

import gc
import os
from collections.abc import Iterator

import pytest

# two processes with two threads each would wait for one another
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Do not search the millions of objects that modules and tests are made of: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the science folder first, so no worker ends with them alone."""
    items.sort(key=lambda item: "science" not in item.path.parts)
