"""Cluster, self-label and learn from soft, few or noisy labels with the collision cross-entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._lazy import lazy

if TYPE_CHECKING:
    from consilience.collision.accuracy import clustering_accuracy
    from consilience.collision.classifier import CollisionClassifier
    from consilience.collision.clustering import CollisionClustering
    from consilience.collision.entropy import collision_cross_entropy, collision_entropy
    from consilience.collision.pseudo_labels import collision_pseudo_labels

__all__ = [
    "CollisionClassifier",
    "CollisionClustering",
    "clustering_accuracy",
    "collision_cross_entropy",
    "collision_entropy",
    "collision_pseudo_labels",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "CollisionClassifier": "classifier",
        "CollisionClustering": "clustering",
        "clustering_accuracy": "accuracy",
        "collision_cross_entropy": "entropy",
        "collision_entropy": "entropy",
        "collision_pseudo_labels": "pseudo_labels",
    },
)
