"""Students that learn from rows read block by block: which of them can, and how scikit-learn's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier

from consilience._progress import Progress
from consilience._words import size_text
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.rows.targets import TargetRows
from consilience.students.estimator import student_name
from consilience.students.expansion import Classifier, Mlp
from consilience.students.logistic import Logistic
from consilience.students.partial_fit import fit_by_partial_fit, learns_by_parts
from consilience.students.soft_label import SoftLabelStudent
from consilience.students.trees import Boosting, Forest

FORESTS = (ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier)

__all__ = [
    "TargetRows",
    "check_student_streams",
    "fit_in_memory",
    "how_it_streams",
]


class Needs(NamedTuple):
    """What it takes to learn from all rows at once, measured on 50 columns and 30 classes."""

    X: float  # how often the rows are in memory at the most, themselves included
    labels: float  # the same for soft labels in double precision


COPIES = Needs(5.0, 5.0)
"""Two weighted copies, and what the classifier makes of them."""
DIRECT = Needs(2.5, 3.5)
"""Students that learn soft labels without copies."""
NODE_BYTES = 80
"""A node of a tree of scikit-learn's, without the probabilities in it."""

Learn = Callable[..., None]


def how_it_streams(student: Any) -> Learn | None:
    """Return the function that fits a scikit-learn student by passes over the rows; None if it cannot be."""
    if type(student) in (Classifier, Mlp) and learns_by_parts(student.unfitted()):
        return fit_by_partial_fit
    if isinstance(student, SoftLabelStudent) and hasattr(student.estimator, "fit_by_passes"):
        return SoftLabelStudent.fit_by_passes
    if isinstance(student, Logistic) and student.loss == "cross-entropy":
        return _fit_logistic
    return None


def check_student_streams(student: Any, n_rows: int, n_bytes: int, n_classes: int, memory: int) -> None:
    """Raise unless a student can learn from so many rows with so much memory.

    Parameters
    ----------
    student : Network, Classifier or SoftLabelStudent
        What `make_student` returned.
    n_rows : int
    n_bytes : int
        About how much memory all rows would take.
    n_classes : int
    memory : int
        Bytes that may be used.
    """
    if student.scores == "logits" or how_it_streams(student) is not None:
        return
    each = _bytes_in_memory(student, n_rows, n_bytes, n_classes) / max(1, n_rows)
    most = int(memory / each)
    if n_rows > most:
        raise InvalidInputError(
            f"The student ({student_name(student)}) learns from all rows at once, and "
            f"{n_rows:,} rows would take about {size_text(round(n_rows * each))}; with memory of "
            f"{size_text(memory)} it can learn from about {most:,}. Use {{remedy}} or 'mlp', which "
            "learn block by block, allow more memory, or give a random sample of the rows.",
            remedy=("student", "torch"),
        )


def fit_in_memory(student: Any, rows: TargetRows, class_weights: Floats, **_: Any) -> None:
    """Read all rows, and fit a student that learns from all of them at once."""
    X, targets, weights = rows.everything()
    by_row = None if weights is None else weights.astype(np.float64)
    student.fit(X, targets.astype(np.float64), class_weights, by_row)


def _fit_logistic(
    student: Logistic, rows: TargetRows, class_weights: Floats, *, progress: Progress, memory: int
) -> None:
    """Fit logistic regression: at once if the rows fit in memory, which saves some tens of passes."""
    if _bytes_in_memory(student, rows.n_rows, rows.n_bytes, rows.n_columns) <= memory:
        fit_in_memory(student, rows, class_weights)
    else:
        student.fit_by_passes(rows, class_weights, progress=progress, memory=memory)


def _bytes_in_memory(student: Any, n_rows: int, n_bytes: int, n_classes: int) -> float:
    """Return about how much memory it takes to learn from all rows at once."""
    needs = DIRECT if isinstance(student, Logistic | Forest | Boosting) else COPIES
    trees = 0
    if isinstance(student.unfitted(), FORESTS):
        trees = int(student.unfitted().n_estimators)
    # a full tree has two nodes for each row, with a probability for each class
    of_trees = 2 * trees * (8 * n_classes + NODE_BYTES)
    return needs.X * n_bytes + n_rows * (8 * needs.labels * n_classes + of_trees)
