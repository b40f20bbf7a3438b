"""How kernels are compiled: `kernel` for what Python calls, `part` for what only kernels call.

A first call waits for the compiler. numba optimises each function by itself, makes machine code and a Python
wrapper of it, and then optimises the same code again inside every caller. A part skips all that: it is
optimised once, inside the kernel that calls it, which halves the wait.

Nothing but this module decides how compiled code is kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from numba import njit
from numba.extending import register_jitable

try:
    from consilience.kernels.numba_internals import KernelCache, KernelCompiler, PartCompiler
except (ImportError, AttributeError):  # another numba: compiling takes longer, and results are the same
    KernelCache = KernelCompiler = PartCompiler = None  # type: ignore[assignment, misc]

Relaxed = set[str] | bool


def kernel(fastmath: Relaxed = False) -> Any:
    """Compile a function that Python calls. It releases the interpreter's lock, and is kept on disk.

    Parameters
    ----------
    fastmath : set of str or bool
        Which rules of floating-point arithmetic the compiler may relax.
    """

    options: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    options["fastmath"] = fastmath
    if KernelCompiler is not None:
        options["pipeline_class"] = KernelCompiler

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher: Any = njit(**options)(function)
        with suppress(RuntimeError):  # no folder can be written to: compile in every process
            if KernelCache is None:
                dispatcher.enable_caching()
            else:
                dispatcher._cache = KernelCache(function)
        return dispatcher

    return decorate


def part(fastmath: Relaxed = False, allocates: bool = False) -> Any:
    """Let kernels call a function, and compile it as a part of them. Python runs it as plain Python.

    Parameters
    ----------
    fastmath : set of str or bool
        As in `kernel`.
    allocates : bool
        Whether the function makes or returns arrays, or reduces them with numpy. If not, numba counts no
        references in it, which saves a fifth of the compiler's time.
    """
    options: dict[str, Any] = {"fastmath": fastmath, "error_model": "numpy"}
    if PartCompiler is None:
        return register_jitable(**options)
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": PartCompiler}
    options["_nrt"] = allocates

    def decorate(function: Any) -> Any:
        function.is_part = True  # parts that call it check whether it passes arrays on
        return register_jitable(**options)(function)

    return decorate
