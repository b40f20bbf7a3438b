"""Small work gets one thread, and what was set before comes back, however many threads use the library."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from consilience.kernels.threads import SMALL, OneThread, one_thread, threads_for


def blas_threads() -> set[int]:
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


def test_small_products_have_one_thread_and_large_ones_all() -> None:
    with threadpool_limits(2, "blas"):
        with threads_for(SMALL - 1):
            assert blas_threads() == {1}
        assert blas_threads() == {2}
        with threads_for(SMALL):
            assert blas_threads() == {2}


def test_many_threads_at_once_leave_the_number_as_it_was() -> None:
    def hammer(seed: int) -> None:
        a = np.random.default_rng(seed).normal(size=(20, 20))
        for _ in range(50):
            with one_thread(), one_thread():
                a @ a

    with threadpool_limits(2, "blas"):
        for _ in range(5):
            with ThreadPoolExecutor(10) as pool:
                list(pool.map(hammer, range(10)))
            assert blas_threads() == {2}


def test_the_last_to_leave_restores() -> None:
    number = [4]
    limit = OneThread(lambda: number[0], lambda n: number.__setitem__(0, n))
    first, second = limit(), limit()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert number == [1]
    second.__exit__(None, None, None)
    assert number == [4]


def test_a_number_set_in_the_meantime_stays() -> None:
    number = [4]
    limit = OneThread(lambda: number[0], lambda n: number.__setitem__(0, n))
    with limit():
        number[0] = 3
    assert number == [3]


def test_threads_with_numbers_of_their_own_get_them_back() -> None:
    here = threading.local()
    shared = [4]  # what a new thread starts with, as in torch

    def read() -> int:
        if not hasattr(here, "number"):
            here.number = shared[0]
        return int(here.number)

    def write(number: int) -> None:
        here.number = shared[0] = number

    limit = OneThread(read, write, own=True)
    entered, leave = threading.Event(), threading.Event()

    def other() -> int:
        with limit(), limit():
            entered.set()
            leave.wait()
        return read()

    with ThreadPoolExecutor(1) as pool:
        with limit():
            late = pool.submit(other)
            entered.wait()
            assert read() == 1
        assert read() == 4
        leave.set()
        assert late.result() == 4
    assert shared == [4]


def test_the_first_kernel_leaves_torch_its_threads() -> None:
    pytest.importorskip("torch")
    code = (
        "import torch; torch.set_num_threads(1);"
        "from consilience.kernels.threads import kernel_threads;"
        "print(kernel_threads() >= 1, torch.get_num_threads())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "1"]
