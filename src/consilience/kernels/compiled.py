"""How kernels are compiled, and how many threads they and the libraries take.

`kernel` compiles what Python calls, `part` what only kernels call. A first call waits for the compiler, so
compiled code is kept on disk. numba looks at a kernel's own file to see whether it has changed, but its parts
come from others: so the folder's name has a digest of all kernels.

Small work gets one thread, where more cost more than they save. Each limit is for the whole process, and
several threads may want it at once: see `OneThread`.

numba is imported by the functions that need it: whoever only limits BLAS needs no compiler.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController

Relaxed = set[str] | bool

SMALL = 30_000_000
"""One thread is at least as fast for products of fewer multiplications than this."""
_launching = threading.Lock()


def kernel(fastmath: Relaxed = False) -> Any:
    """Compile a function that Python calls. It releases the interpreter's lock, and is kept on disk.

    Parameters
    ----------
    fastmath : set of str or bool
        Which rules of floating-point arithmetic the compiler may relax.
    """
    from numba import config, njit

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = njit(nogil=True, no_cfunc_wrapper=True, error_model="numpy", fastmath=fastmath)(function)
        if not config.DISABLE_JIT:
            given = config.CACHE_DIR
            config.CACHE_DIR = cache_folder(given)
            with suppress(RuntimeError):  # nowhere to write: compile in every process
                compiled.enable_caching()
            config.CACHE_DIR = given
        return compiled

    return decorate


def part(fastmath: Relaxed = False) -> Any:
    """Let kernels call a function, and compile it with them. Python runs it as plain Python.

    Parameters
    ----------
    fastmath : set of str or bool
        As in `kernel`.
    """
    from numba.extending import register_jitable

    return register_jitable(
        fastmath=fastmath, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
    )


@cache
def cache_folder(given: str) -> str:
    """Return where to keep compiled code: the given folder, beside the kernels, or in one of the user's own.

    numba unpickles what it finds there, so a folder that we choose is this user's alone. It is empty if there
    is none.
    """
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py"))]
    name = f"consilience-{hashlib.sha256(b''.join(sources)).hexdigest()[:16]}"
    if given:
        return str(Path(given) / name)
    user = os.getuid() if hasattr(os, "getuid") else None  # elsewhere, each user has folders of their own
    temporary = Path(tempfile.gettempdir()) / f"consilience-kernels-{user}"
    for folders in ([Path(__file__).parent / "__pycache__" / name], [temporary, temporary / name]):
        with suppress(OSError):
            folders[0].parent.mkdir(exist_ok=True)
            if all(_is_private(folder, user) for folder in folders):
                return str(folders[-1])
    return ""


def _is_private(folder: Path, user: int | None) -> bool:
    """Make a folder if there is none; tell whether only this user can write to it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    ours = user is None or (status.st_uid == user and status.st_mode & 0o022 == 0)
    return ours and stat.S_ISDIR(status.st_mode) and os.access(folder, os.W_OK)


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
    """Return how many threads numba has.

    Starting them also sets the number of OpenMP threads, which torch uses. Torch gets its own number back: a
    user may have limited it.
    """
    from numba import get_num_threads

    torch = sys.modules.get("torch")
    if torch is None:
        return int(get_num_threads())
    with _launching:
        before = torch.get_num_threads()
        count = int(get_num_threads())
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
    return count


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
