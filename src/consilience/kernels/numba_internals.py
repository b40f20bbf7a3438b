"""Parts of numba that are not its public interface: how parts are linked, and where kernels are kept.

`compiled` does without this file where another version of numba has them no longer.
"""

from __future__ import annotations

import gc
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.errors import TypingError
from numba.core.typed_passes import NopythonTypeInference
from numba.core.untyped_passes import IRProcessing


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code that is linked into kernels, and neither optimised nor turned into machine code by itself."""

    # what numba would need to call the function from Python
    codegen = SimpleNamespace(set_env=lambda name, env: None)

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=True)
class _ChooseLibrary(AnalysisPass):  # type: ignore[misc]
    _name = "consilience_part"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


@register_pass(mutates_CFG=False, analysis_only=True)
class _CheckReferences(AnalysisPass):  # type: ignore[misc]
    """Refuse a part that passes arrays on but counts no references: they would be freed early, or never."""

    _name = "consilience_references"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        if state.flags.nrt:
            return False

        def owns_memory(kind: Any) -> bool:
            return bool(state.targetctx.data_model_manager[kind].contains_nrt_meminfo())

        def is_part(call: Any) -> bool:
            function = getattr(state.typemap[call.func.name], "typing_key", None)
            return bool(getattr(function, "is_part", False))

        calls = [call for call in state.calltypes if getattr(call, "op", "") == "call" and is_part(call)]
        given = [state.calltypes[call].return_type for call in calls]
        if any(owns_memory(kind) for kind in (state.return_type, *given)):
            name = state.func_id.func_qualname
            raise TypingError(f"{name} makes or returns arrays: declare it as part(allocates=True).")
        return False


class PartCompiler(Compiler):  # type: ignore[misc]
    """numba's compiler, with a library of our own for the result."""

    def define_pipelines(self) -> list[Any]:
        pipelines: list[Any] = super().define_pipelines()
        for passes in pipelines:
            passes.add_pass_after(_ChooseLibrary, IRProcessing)
            passes.add_pass_after(_CheckReferences, NopythonTypeInference)
            passes.finalize()
        return pipelines


class KernelCompiler(Compiler):  # type: ignore[misc]
    """numba's compiler, without breaks for the garbage collector.

    A compiler makes and keeps many small objects. The collector searches them again and again, finds next to
    nothing, and takes a tenth of the time.
    """

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(function)
        finally:
            if was_enabled:
                gc.enable()


class _TemporaryFolder(InTreeCacheLocator):  # type: ignore[misc]
    """Where to keep code if neither the package's folder nor the user's can be written to.

    numba unpickles what it finds there, so the folder must be ours alone.
    """

    def ensure_cache_path(self) -> None:
        user = os.getuid() if hasattr(os, "getuid") else None  # elsewhere, each user has an own folder
        folder = Path(tempfile.gettempdir()) / f"consilience-kernels-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        ours = user is None or (status.st_uid == user and stat.S_IMODE(status.st_mode) & 0o077 == 0)
        if not (ours and stat.S_ISDIR(status.st_mode)):
            raise PermissionError(f"{folder} is not a folder that only this user can open.")
        self._cache_path = str(folder / self.get_suitable_cache_subpath(self._py_file))
        super().ensure_cache_path()


class _CacheFiles(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (*CompileResultCacheImpl._locator_classes, _TemporaryFolder)

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        # numba looks at the kernel's own file only, but its parts may come from others
        stamp = (self.locator.get_source_stamp(), _digest_of_sources())
        self.locator.get_source_stamp = lambda: stamp


class KernelCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _CacheFiles

    def save_overload(self, signature: Any, compiled: Any) -> None:
        with suppress(OSError):  # a full disk must not break the call
            super().save_overload(signature, compiled)


@cache
def _digest_of_sources() -> str:
    """Return a digest of all kernels, parts included."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("**/*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
