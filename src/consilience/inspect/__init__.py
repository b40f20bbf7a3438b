"""Look at a fitted classifier: is it good, why does it say so, which classes are the same?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy

if TYPE_CHECKING:
    from consilience.inspect.aliases import AliasSuggestions, SameClass, SameName, suggest_aliases

__all__ = ["AliasSuggestions", "SameClass", "SameName", "suggest_aliases"]

__getattr__, __dir__ = lazy(__name__, dict.fromkeys(__all__, "aliases"))
