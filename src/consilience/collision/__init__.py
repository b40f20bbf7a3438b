"""The collision cross-entropy, its pseudo-labels, and the reader of priors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy

if TYPE_CHECKING:
    from consilience.collision.entropy import collision_cross_entropy, collision_entropy
    from consilience.collision.pseudo_labels import collision_pseudo_labels

__all__ = ["collision_cross_entropy", "collision_entropy", "collision_pseudo_labels"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "collision_cross_entropy": "entropy",
        "collision_entropy": "entropy",
        "collision_pseudo_labels": "pseudo_labels",
    },
)
