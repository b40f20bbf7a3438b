"""Cluster: classes from rows without labels, or with few; and learn from noisy ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy

if TYPE_CHECKING:
    from consilience.cluster.classifier import CollisionClassifier
    from consilience.cluster.clustering import CollisionClustering
    from consilience.cluster.options import (
        GCE,
        IIC,
        MI,
        MIADM,
        SELA,
        Collision,
        GeneralisedCollision,
        Linear,
        Network,
        Own,
        Softmax,
    )
    from consilience.cluster.report import clustering_accuracy

__all__ = [
    "GCE",
    "IIC",
    "MI",
    "MIADM",
    "SELA",
    "Collision",
    "CollisionClassifier",
    "CollisionClustering",
    "GeneralisedCollision",
    "Linear",
    "Network",
    "Own",
    "Softmax",
    "clustering_accuracy",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(__all__, "options"),
        "CollisionClassifier": "classifier",
        "CollisionClustering": "clustering",
        "clustering_accuracy": "report",
    },
)
