"""consilience: one classifier out of many.

Public names are loaded when they are first used: importing the package imports neither torch nor
onnxruntime nor scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy
from consilience._version import __version__ as __version__

_EXPORTS = {
    "AliasWarning": "exceptions",
    "Card": "files.card",
    "CollisionClassifier": "cluster.classifier",
    "CollisionClustering": "cluster.clustering",
    "ConsilienceError": "exceptions",
    "ConsilienceWarning": "exceptions",
    "ConvergenceWarning": "exceptions",
    "CoverageWarning": "exceptions",
    "CrossTaskDistiller": "distil.distiller",
    "DisconnectedWarning": "exceptions",
    "InvalidInputError": "exceptions",
    "LabelSpace": "labels",
    "LabelSpaceError": "exceptions",
    "MissingDependencyError": "exceptions",
    "Repository": "repository.repository",
    "Run": "run",
    "SoftLabelClassifier": "students.classifier",
    "Teacher": "teachers",
    "TeacherError": "exceptions",
    "Unifier": "unify.unifier",
    "UnsafeFileError": "exceptions",
    "as_teacher": "teachers",
    "balance_weights": "soft_labels.estimate",
    "class_centres": "transport.centres",
    "clustering_accuracy": "cluster.report",
    "collision_pseudo_labels": "collision.pseudo_labels",
    "collision_cross_entropy": "collision.entropy",
    "collision_entropy": "collision.entropy",
    "cost_matrix": "transport.centres",
    "estimate_soft_labels": "soft_labels.estimate",
    "load": "students.loaded",
    "rank_teachers": "rank.rank",
    "sinkhorn": "transport.distance",
    "suggest_aliases": "inspect.aliases",
    "using": "run",
}

__all__ = [  # noqa: RUF022  # the verbs first
    "LabelSpace",
    "Teacher",
    "as_teacher",
    "estimate_soft_labels",
    "balance_weights",
    "suggest_aliases",
    "load",
    "collision_pseudo_labels",
    "rank_teachers",
    "sinkhorn",
    "Unifier",
    "CrossTaskDistiller",
    "Repository",
    "Run",
    "using",
    "SoftLabelClassifier",
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
    "AliasWarning",
]

if TYPE_CHECKING:
    from consilience.cluster.classifier import CollisionClassifier
    from consilience.cluster.clustering import CollisionClustering
    from consilience.cluster.report import clustering_accuracy
    from consilience.collision.entropy import collision_cross_entropy, collision_entropy
    from consilience.collision.pseudo_labels import collision_pseudo_labels
    from consilience.distil.distiller import CrossTaskDistiller
    from consilience.exceptions import (
        AliasWarning,
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
    from consilience.files.card import Card
    from consilience.inspect.aliases import suggest_aliases
    from consilience.labels import LabelSpace
    from consilience.rank.rank import rank_teachers
    from consilience.repository.repository import Repository
    from consilience.run import Run, using
    from consilience.soft_labels.estimate import balance_weights, estimate_soft_labels
    from consilience.students.classifier import SoftLabelClassifier
    from consilience.students.loaded import load
    from consilience.teachers import Teacher, as_teacher
    from consilience.transport.centres import class_centres, cost_matrix
    from consilience.transport.distance import sinkhorn
    from consilience.unify.unifier import Unifier


__getattr__, _names = lazy(__name__, {**_EXPORTS, "methods": "methods", "nn": "nn", "students": "students"})


def __dir__() -> list[str]:
    return sorted([*_names(), "__version__"])
