"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


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
