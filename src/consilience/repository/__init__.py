"""A repository of models: keep them with their cards, find those that help, and take a set that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy

if TYPE_CHECKING:
    from consilience.repository.entry import ModelEntry
    from consilience.repository.listing import Listing, RepositoryCheck, SearchResult
    from consilience.repository.repository import Repository

__all__ = ["Listing", "ModelEntry", "Repository", "RepositoryCheck", "SearchResult"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Listing": "listing",
        "ModelEntry": "entry",
        "Repository": "repository",
        "RepositoryCheck": "listing",
        "SearchResult": "listing",
    },
)
