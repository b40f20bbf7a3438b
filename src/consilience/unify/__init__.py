"""Unify: one classifier over all classes out of many, from unlabelled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._lazy import lazy

if TYPE_CHECKING:
    from consilience.unify.aliases import AliasSuggestions, SameClass, SameName, suggest_aliases
    from consilience.unify.calibration import agreement_temperatures, divide_by_temperatures
    from consilience.unify.soft_labels import balance_weights, estimate_soft_labels
    from consilience.unify.unifier import Unifier

__all__ = [
    "AliasSuggestions",
    "SameClass",
    "SameName",
    "Unifier",
    "agreement_temperatures",
    "balance_weights",
    "divide_by_temperatures",
    "estimate_soft_labels",
    "suggest_aliases",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "AliasSuggestions": "aliases",
        "SameClass": "aliases",
        "SameName": "aliases",
        "Unifier": "unifier",
        "agreement_temperatures": "calibration",
        "balance_weights": "soft_labels",
        "divide_by_temperatures": "calibration",
        "estimate_soft_labels": "soft_labels",
        "suggest_aliases": "aliases",
    },
)
