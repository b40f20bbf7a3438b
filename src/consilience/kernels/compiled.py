"""How kernels are compiled: `kernel` for what Python calls, `part` for what only kernels call.

A first call waits for the compiler, so compiled code is kept on disk. numba looks at a kernel's own file to
see whether it has changed, but its parts come from others: so the folder's name has a digest of all kernels.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.extending import register_jitable

Relaxed = set[str] | bool


def kernel(fastmath: Relaxed = False) -> Any:
    """Compile a function that Python calls. It releases the interpreter's lock, and is kept on disk.

    Parameters
    ----------
    fastmath : set of str or bool
        Which rules of floating-point arithmetic the compiler may relax.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = njit(nogil=True, no_cfunc_wrapper=True, error_model="numpy", fastmath=fastmath)(function)
        if not config.DISABLE_JIT:
            given = config.CACHE_DIR
            config.CACHE_DIR = cache_folder(given)
            try:
                compiled.enable_caching()
            except RuntimeError:
                pass  # nowhere to write: compile in every process
            finally:
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
    return register_jitable(
        fastmath=fastmath, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
    )


@cache
def cache_folder(given: str) -> str:
    """Return where to keep compiled code: the given folder, beside the kernels, or in one of the user's own.

    numba unpickles what it finds there, so a folder that we choose is this user's alone. It is empty if there
    is none.
    """
    name = f"consilience-{_digest_of_sources()}"
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


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
