"""Classify texts by hashed character n-grams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._lazy import lazy

if TYPE_CHECKING:
    from consilience.text.ngrams import NgramClassifier

__all__ = [
    "NgramClassifier",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "NgramClassifier": "ngrams",
    },
)
