"""Kernels run wherever compiled code can be kept and elsewhere; threads are as many as before, afterwards."""

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numba import config
from threadpoolctl import threadpool_info, threadpool_limits

import consilience
from consilience.kernels import compiled
from consilience.kernels.compiled import SMALL, OneThread, kernel, one_thread, part, threads_for

CALL = (
    "import numpy as np; from consilience.kernels.unify import packed;"
    "log_p, p = packed.block_softmax(np.zeros((3, 2)), np.array([0, 2]), 1.0);"
    "print(packed.__file__, p.sum())"
)


@part()
def twice(x):  # type: ignore[no-untyped-def]
    return 2 * x


@kernel()
def four_times(x):  # type: ignore[no-untyped-def]
    return twice(twice(x))


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """Return a copy of the package beside which numba cannot keep code, not even when root runs the tests."""
    package = tmp_path / "site" / "consilience"
    shutil.copytree(Path(consilience.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "kernels" / "__pycache__").write_text("a file, so that nobody can make this folder")
    return package.parent


def call(site: Path, temporary: Path) -> None:
    """Import the package of `site` and call a kernel, in a process without a home that can be written to."""
    hidden = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONPATH", "PYTHONHOME")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    env |= {"HOME": "/dev/null/nobody", "TMPDIR": str(temporary), "PYTHONPATH": str(site)}
    env |= {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", CALL], env=env, cwd=site, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    path, total = done.stdout.split()
    assert path == str(site / "consilience" / "kernels" / "unify" / "packed.py")
    assert float(total) == 3.0


@pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")
def test_a_package_that_cannot_be_written_to_keeps_its_code_in_a_private_temporary_folder(
    locked: Path, tmp_path: Path
) -> None:
    call(locked, tmp_path)
    folder = tmp_path / f"consilience-kernels-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    kept = list(folder.glob("*/*/packed.softmax_rows-*.nbc"))
    assert len(kept) == 1
    written = kept[0].stat().st_mtime_ns
    call(locked, tmp_path)
    assert kept[0].stat().st_mtime_ns == written  # the second process has found it


@pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")
def test_a_temporary_folder_that_others_can_open_is_not_used(locked: Path, tmp_path: Path) -> None:
    folder = tmp_path / f"consilience-kernels-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    call(locked, tmp_path)
    assert list(folder.iterdir()) == []


def test_a_part_is_compiled_within_its_kernel_and_plain_in_python() -> None:
    assert four_times(np.arange(3)).tolist() == [0, 4, 8]
    assert twice("ab") == "abab"  # which no compiled form of it takes


def test_code_is_kept_for_as_long_as_no_kernel_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.py").write_text("1")
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    folders = []
    for text in ("2", "2", "3"):
        (tmp_path / "two.py").write_text(text)
        compiled.cache_folder.cache_clear()
        folders.append(compiled.cache_folder(str(tmp_path)))
    compiled.cache_folder.cache_clear()
    assert folders[0] == folders[1] != folders[2]


def test_the_cache_folder_of_others_stays_as_it_is() -> None:
    given = config.CACHE_DIR
    kernel()(lambda x: x + 1)
    assert given == config.CACHE_DIR


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


def test_the_last_to_leave_restores_and_a_number_set_in_the_meantime_stays() -> None:
    number = [4]
    limit = OneThread(lambda: number[0], lambda n: number.__setitem__(0, n))
    first, second = limit(), limit()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert number == [1]
    second.__exit__(None, None, None)
    assert number == [4]
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
        "from consilience.kernels.compiled import kernel_threads;"
        "print(kernel_threads() >= 1, torch.get_num_threads())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "1"]
