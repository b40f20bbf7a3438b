"""consilience: one classifier out of many.

Public names are loaded when they are first used: importing the package imports neither torch nor
onnxruntime nor scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "Card": "consilience.card",
    "CollisionClassifier": "consilience.classifier",
    "CollisionClustering": "consilience.clustering",
    "ConsilienceError": "consilience.exceptions",
    "ConsilienceWarning": "consilience.exceptions",
    "ConvergenceWarning": "consilience.exceptions",
    "CoverageWarning": "consilience.exceptions",
    "CrossTaskDistiller": "consilience.distil",
    "DisconnectedWarning": "consilience.exceptions",
    "InvalidInputError": "consilience.exceptions",
    "LabelSpace": "consilience.labels",
    "LabelSpaceError": "consilience.exceptions",
    "MissingDependencyError": "consilience.exceptions",
    "Teacher": "consilience.teachers",
    "TeacherError": "consilience.exceptions",
    "Unifier": "consilience.unify",
    "UnsafeFileError": "consilience.exceptions",
    "as_teacher": "consilience.teachers",
    "balance_weights": "consilience.soft_labels",
    "class_centres": "consilience.centres",
    "clustering_accuracy": "consilience.metrics",
    "collision_pseudo_labels": "consilience.pseudo_labels",
    "collision_cross_entropy": "consilience.entropy",
    "collision_entropy": "consilience.entropy",
    "cost_matrix": "consilience.centres",
    "estimate_soft_labels": "consilience.soft_labels",
    "rank_teachers": "consilience.assess",
    "sinkhorn": "consilience.transport",
}

__all__ = [  # noqa: RUF022  # the verbs first
    "LabelSpace",
    "Teacher",
    "as_teacher",
    "estimate_soft_labels",
    "balance_weights",
    "collision_pseudo_labels",
    "rank_teachers",
    "sinkhorn",
    "Unifier",
    "CrossTaskDistiller",
    "CollisionClassifier",
    "CollisionClustering",
    "collision_cross_entropy",
    "collision_entropy",
    "clustering_accuracy",
    "class_centres",
    "cost_matrix",
    "Card",
    "ConsilienceError",
    "InvalidInputError",
    "LabelSpaceError",
    "TeacherError",
    "UnsafeFileError",
    "MissingDependencyError",
    "ConsilienceWarning",
    "ConvergenceWarning",
    "CoverageWarning",
    "DisconnectedWarning",
]

if TYPE_CHECKING:
    from consilience.assess import rank_teachers
    from consilience.card import Card
    from consilience.centres import class_centres, cost_matrix
    from consilience.classifier import CollisionClassifier
    from consilience.clustering import CollisionClustering
    from consilience.distil import CrossTaskDistiller
    from consilience.entropy import collision_cross_entropy, collision_entropy
    from consilience.exceptions import (
        ConsilienceError,
        ConsilienceWarning,
        ConvergenceWarning,
        CoverageWarning,
        DisconnectedWarning,
        InvalidInputError,
        LabelSpaceError,
        MissingDependencyError,
        TeacherError,
        UnsafeFileError,
    )
    from consilience.labels import LabelSpace
    from consilience.metrics import clustering_accuracy
    from consilience.pseudo_labels import collision_pseudo_labels
    from consilience.soft_labels import balance_weights, estimate_soft_labels
    from consilience.teachers import Teacher, as_teacher
    from consilience.transport import sinkhorn
    from consilience.unify import Unifier


def __getattr__(name: str) -> Any:
    if name == "nn":
        return importlib.import_module("consilience.nn")
    if name not in _EXPORTS:
        raise AttributeError(f"module 'consilience' has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "nn"])
