"""Small products get one BLAS thread, and what was set before comes back."""

from __future__ import annotations

from threadpoolctl import threadpool_info, threadpool_limits

from consilience.kernels.threads import SMALL, threads_for


def blas_threads() -> set[int]:
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


def test_small_products_have_one_thread_and_large_ones_all() -> None:
    with threadpool_limits(2, "blas"):
        with threads_for(SMALL - 1):
            assert blas_threads() == {1}
        assert blas_threads() == {2}
        with threads_for(SMALL):
            assert blas_threads() == {2}
