"""Hash what a model computes: its data, and its code that is not installed.

If something cannot be hashed, there is no fingerprint. Running a model again costs time, but trusting the old
outputs of another model costs more.
"""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
import warnings
import weakref
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from pickle import Pickler  # only writes; nothing is ever unpickled
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_CONSTANTS = (*_PLAIN, tuple)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_STATE = ("_parameters", "_buffers", "_modules", *_HOOKS)


class UnknownContentError(Exception):
    """An object's content cannot be compared."""


class _Bare:
    """An object with attributes and nothing else. Only its size is used."""


class Content:
    """A running hash of values, by content. `add` raises for objects whose content it cannot see.

    Each object is hashed once. When it occurs again, its number is hashed instead, so cycles end.
    """

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=32)
        self._seen: dict[int, tuple[int, Any]] = {}  # keeps the object alive, so that no other gets its id

    def hexdigest(self) -> str:
        """Return the hash of everything added so far."""
        return self._digest.hexdigest()

    def add(self, value: Any) -> None:
        """Hash a value."""
        if isinstance(value, _PLAIN):
            self._text(type(value).__qualname__, repr(value))
            return
        if id(value) in self._seen:
            self._text("again", str(self._seen[id(value)][0]))
            return
        self._seen[id(value)] = len(self._seen), value
        if isinstance(value, list | tuple):
            self._text(type(value).__qualname__, str(len(value)))
            self._each(*value)
        elif isinstance(value, dict):
            self._text("dict", str(len(value)))
            for key, entry in value.items():
                self._each(key, entry)
        elif isinstance(value, set | frozenset):
            self._text("set", " ".join(sorted(map(_of, value))))
        elif isinstance(value, np.ndarray | np.generic):
            self._array(np.asarray(value))
        elif isinstance(value, CodeType):
            self._text("code", value.co_code.hex(), " ".join(value.co_names))
            self._each(*value.co_consts)
        else:
            self._object(value)

    def _object(self, value: Any) -> None:
        if isinstance(value, type):
            self._class(value)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._each(value.__func__, value.__self__)
        elif isinstance(value, functools.partial):
            self._each(value.func, value.args, value.keywords)
        elif isinstance(value, staticmethod | classmethod) or hasattr(value, "__wrapped__"):
            self._each(type(value).__qualname__, value.__wrapped__)
        elif isinstance(value, property):
            self._each(value.fget)
        elif isinstance(value, slice):
            self._each(value.start, value.stop, value.step)
        elif isinstance(value, weakref.ref):
            self._each(value())
        elif isinstance(value, ModuleType | BuiltinFunctionType | Enum | np.dtype | np.ufunc | range):
            self._text(str(type(value)), str(getattr(value, "__module__", "")), str(value))
        elif type(value).__module__.partition(".")[0] == "torch" or _is_module(value):
            self._torch(value)
        elif type(value).__basicsize__ == _Bare.__basicsize__ and not type(value).__itemsize__:
            self._each(type(value), vars(value))
        else:  # its content is hidden, in C or in slots
            raise UnknownContentError(type(value).__qualname__)

    def _class(self, kind: type) -> None:
        self._text("class", kind.__module__, kind.__qualname__)
        self.add(inspect.getattr_static(kind, "forward", None))
        for parent in kind.__mro__:
            if is_installed(parent.__module__):
                continue
            for name, member in sorted(vars(parent).items()):
                dunder = name.startswith("__") and name.endswith("__")
                if name != "_abc_impl" and (not dunder or isinstance(member, FunctionType)):
                    self._each(name, member)

    def _function(self, function: FunctionType) -> None:
        self._text("function", function.__module__ or "", function.__qualname__)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        self._each(function.__code__, function.__defaults__, function.__kwdefaults__, cells)
        if not is_installed(function.__module__):
            for name in _names(function.__code__):
                found = function.__globals__.get(name)
                if isinstance(found, (*_CONSTANTS, FunctionType, np.ndarray, list, dict)):
                    self._each(name, found)

    def _torch(self, value: Any) -> None:
        """Hash a module, a tensor, or one of torch's small values."""
        import torch

        if isinstance(value, torch.Tensor):
            self._text("tensor", str(value.dtype), str(tuple(value.shape)))
            flat = value.detach().cpu().contiguous().reshape(-1)
            self._digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
        elif isinstance(value, torch.jit.ScriptModule):
            self._digest.update(value.save_to_buffer())
        elif isinstance(value, torch.nn.Module):
            own = type(value).__module__.partition(".")[0] == "torch"
            ignored = vars(torch.nn.Module()).keys() - set(_STATE)
            self.add(type(value))
            for key, entry in sorted(vars(value).items()):
                # the private state of torch's own modules follows from the rest
                if key in ignored or (own and key.startswith("_") and key not in _STATE):
                    continue
                # the keys of hooks count all hooks of the process, so leave them out
                self._each(key, list(entry.values()) if key in _HOOKS else entry)
        elif isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
            self._text("torch", str(value))
        else:
            raise UnknownContentError(type(value).__qualname__)

    def _array(self, values: np.ndarray[Any, Any]) -> None:
        self._text("array", values.dtype.str, str(values.shape))
        if values.dtype.hasobject:
            self._each(*values.reshape(-1).tolist())
        else:
            self._digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def _each(self, *values: Any) -> None:
        for value in values:
            self.add(value)

    def _text(self, *parts: str) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            self._digest.update(len(data).to_bytes(8, "little") + data)


class _Names(Pickler):
    """Collect the functions and classes that a pickle stores only by name."""

    def __init__(self) -> None:
        super().__init__(self)
        self.found: dict[str, Any] = {}

    def write(self, data: Any) -> int:
        """Discard the pickle itself."""
        return len(data)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType) and not is_installed(obj.__module__):
            self.found[f"{obj.__module__}.{obj.__qualname__}"] = obj
        return NotImplemented


def named_code(model: Any) -> str:
    """Return a hash of the code that a model's pickle stores only by name and that is not installed."""
    names = _Names()
    names.dump(model)
    return _of(sorted(names.found.items()))


def is_installed(module: str | None) -> bool:
    """Tell whether a module belongs to Python or an installed package, which do not change between cells."""
    found = sys.modules.get(module or "")
    if found is None or module == "__main__":
        return False
    file = getattr(found, "__file__", None)
    if file is None:
        return getattr(getattr(found, "__spec__", None), "origin", None) in ("built-in", "frozen")
    return any(Path(file).is_relative_to(folder) for folder in _installed_folders())


@functools.cache
def _installed_folders() -> frozenset[str]:
    paths = sysconfig.get_paths()
    return frozenset(paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib"))


def _names(code: CodeType) -> list[str]:
    """Return the names that a function and its inner functions may look up."""
    inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in _names(part)]
    return sorted({*code.co_names, *inner})


def _of(value: Any) -> str:
    content = Content()
    content.add(value)
    return content.hexdigest()


def _is_module(value: Any) -> bool:
    return any(kind.__module__ == "torch.nn.modules.module" for kind in type(value).__mro__)


def fingerprint_of(model: Any) -> str | None:
    """Return a hash of a fitted scikit-learn model, or None if it holds something that cannot be hashed."""
    import joblib  # type: ignore[import-untyped]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f"{joblib.hash(model, hash_name='sha1')} {named_code(model)}"
    except Exception:  # what cannot be hashed, such as a lambda inside, is not stored
        return None
