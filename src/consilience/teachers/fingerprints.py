"""Hash what a model computes: its data, and its code that is not installed.

It is hashed as it would be pickled, by joblib; nothing is ever unpickled. What cannot be pickled has no
fingerprint. Running a model again costs time, but trusting the old outputs of another model costs more.
"""

from __future__ import annotations

import inspect
import sys
import sysconfig
import warnings
import weakref
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from joblib.hashing import NumpyHasher  # type: ignore[import-untyped]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_STATE = ("_parameters", "_buffers", "_modules", *_HOOKS)
_INSTALLED = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, FunctionType, list, dict)


def fingerprint_of(model: Any) -> str | None:
    """Return a hash of a model; None if it holds what cannot be compared, such as an open file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return str(_Content("sha256").hash(model))
    except Exception:  # attributes can be anything
        return None


class _Content(NumpyHasher):  # type: ignore[misc]
    """A pickler whose bytes are hashed; code and tensors become plain values first."""

    def __init__(self, hash_name: str) -> None:
        super().__init__(hash_name)
        self._seen: dict[int, tuple[int, Any]] = {}  # keeps the object alive, so that no other gets its id

    def save(self, obj: Any) -> None:
        """Hash a value; what was made plain before, by its number, so that cycles end."""
        if id(obj) in self._seen:
            plain = "again", self._seen[id(obj)][0]
        else:
            plain = _plain(obj)
            if plain is not obj:
                self._seen[id(obj)] = len(self._seen), obj
        super().save(plain)


def _plain(value: Any) -> Any:
    """Return plain values in place of code, of tensors and of modules; all else as it is."""
    match value:
        case FunctionType():
            return _function(value)
        case type():
            return _class(value)
        case CodeType():
            return value.co_code, value.co_names, value.co_consts
        case property():
            return "property", value.fget
        case weakref.ref():
            return "reference", value()
        case ModuleType():
            return "module", value.__name__
        case staticmethod() | classmethod():
            return type(value).__name__, value.__func__
        case frozenset():
            return set(value)
    return _torch(value) if "torch" in sys.modules else value


def _function(function: FunctionType) -> tuple[Any, ...]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    found = set[str]() if _is_installed(function.__module__) else _names(function.__code__)
    used = {
        name: value
        for name, value in function.__globals__.items()
        if name in found and isinstance(value, (*_CONSTANTS, np.ndarray, np.generic))
    }
    return (
        *("function", function.__module__, function.__qualname__, function.__code__),
        *(function.__defaults__, function.__kwdefaults__, cells, used),
    )


def _class(kind: type) -> tuple[Any, ...]:
    members = []
    for parent in kind.__mro__:
        for name, member in () if _is_installed(parent.__module__) else sorted(vars(parent).items()):
            dunder = name.startswith("__") and name.endswith("__")
            if name != "_abc_impl" and (not dunder or isinstance(member, FunctionType)):
                members.append((name, member))
    return "class", kind.__module__, kind.__qualname__, inspect.getattr_static(kind, "forward", None), members


def _torch(value: Any) -> Any:
    import torch

    match value:
        case torch.Tensor():
            flat = value.detach().cpu().contiguous().reshape(-1)
            data = flat.view(torch.uint8).numpy() if flat.numel() else None
            return "tensor", str(value.dtype), tuple(value.shape), data
        case torch.jit.ScriptModule():
            return value.save_to_buffer()
        case torch.nn.Module():
            return type(value), _state(value)
    return value


def _state(module: Any) -> dict[str, Any]:
    """Return what a module holds, without what follows from the rest."""
    import torch

    plain = type(module).__module__.partition(".")[0] == "torch"
    ignored = vars(torch.nn.Module()).keys() - set(_STATE)
    # the private state of torch's own modules follows from the rest; the keys of hooks count all hooks of the
    # process
    return {
        key: list(entry.values()) if key in _HOOKS else entry
        for key, entry in vars(module).items()
        if key in _STATE or not (key in ignored or (plain and key.startswith("_")))
    }


def _is_installed(module: str | None) -> bool:
    """Tell whether a module belongs to Python or an installed package, which do not change between cells."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if file is None or module == "__main__":
        return module in sys.builtin_module_names
    return any(Path(file).is_relative_to(folder) for folder in _INSTALLED)


def _names(code: CodeType) -> set[str]:
    """Return the names that a function and its inner functions may look up."""
    inner = [_names(part) for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*inner)
