"""Unify: one classifier over all classes out of many, from unlabelled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier

__all__ = ["Unifier"]

__getattr__, __dir__ = lazy(__name__, {"Unifier": "unifier"})
