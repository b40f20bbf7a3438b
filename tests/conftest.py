"""One thread for each test process; and the longest tests come first, so no worker ends with them alone."""

import os

import pytest

# two processes with two threads each would wait for one another
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the science folder first; everything else keeps its order."""
    items.sort(key=lambda item: "science" not in item.path.parts)
