"""Optional dependencies: imported when needed, with a sentence that tells what to install."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

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


def is_instance_of(obj: object, module: str, name: str) -> bool:
    """Tell whether `obj` is a `module.name`, without importing `module`.

    An object of a class can only exist when the module of the class is loaded already.
    """
    loaded = sys.modules.get(module)
    kind = getattr(loaded, name, None)
    return isinstance(kind, type) and isinstance(obj, kind)
