"""One torch thread for these tests: on a busy machine the threads of small products wait for each other."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
