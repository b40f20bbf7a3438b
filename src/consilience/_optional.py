"""What is imported when it is needed: optional dependencies, and the public names of packages."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from consilience.exceptions import MissingDependencyError


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import `module`, or say which extra brings it.

    Parameters
    ----------
    module : str
        Dotted name of the module.
    extra : str
        The extra of this package that installs it.
    purpose : str
        What needs it, as the start of a sentence: ``"Saving as ONNX"``.

    Examples
    --------
    >>> require("json", extra="none", purpose="Reading a card").loads("[1]")
    [1]
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        raise MissingDependencyError(
            f"{purpose} needs {missing}: pip install 'consilience[{extra}]'."
        ) from error


def installed(module: str) -> bool:
    """Tell whether `module` could be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Parameters
    ----------
    package : str
        The ``__name__`` of the package.
    homes : mapping
        From each public name to the module that defines it, relative to the package. A name that
        maps to itself is that module.

    Examples
    --------
    >>> get, listing = lazy("consilience.unify", {"Unifier": "unifier"})
    >>> get("Unifier").__name__, listing()
    ('Unifier', ['Unifier'])
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name]}")
        value = module if homes[name] == name else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(homes)
