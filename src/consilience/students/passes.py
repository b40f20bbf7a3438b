"""Students that learn from rows read block by block: which of them can, and how scikit-learn's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.sources.targets import ArrayTargets, TargetRows, read_everything
from consilience.students.estimator import student_name
from consilience.students.expansion import ExpansionStudent
from consilience.students.partial_fit import fit_by_partial_fit, learns_by_parts
from consilience.students.soft_label import SoftLabelStudent

__all__ = [
    "ArrayTargets",
    "TargetRows",
    "check_student_streams",
    "fit_in_memory",
    "how_it_streams",
]

X_COPIES = 3.0
"""How often the rows are in memory, at most, while a student learns from all of them at once."""
LABEL_COPIES = 4.0
"""The same for soft labels in double precision."""

Learn = Callable[..., None]


def how_it_streams(student: Any) -> Learn | None:
    """Return the function that fits a scikit-learn student by passes over the rows; None if it cannot be."""
    if type(student) is ExpansionStudent and learns_by_parts(student.estimator):
        return fit_by_partial_fit
    if isinstance(student, SoftLabelStudent) and hasattr(student.estimator, "fit_by_passes"):
        return SoftLabelStudent.fit_by_passes
    return None


def check_student_streams(student: Any, n_rows: int, n_bytes: int, n_classes: int, memory: int) -> None:
    """Raise unless a student can learn from so many rows with so much memory.

    Parameters
    ----------
    student : TorchStudent, ExpansionStudent or SoftLabelStudent
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
    each = X_COPIES * n_bytes / max(1, n_rows) + LABEL_COPIES * 8 * n_classes
    most = int(memory / each)
    if n_rows > most:
        raise InvalidInputError(
            f"The student ({student_name(student)}) learns from all rows at once, and "
            f"{n_rows:,} rows would take about {n_rows * each / 1e9:.1f} GB; with memory of "
            f"{memory / 1e9:.1f} GB it can learn from about {most:,}. Use {{remedy}} or 'mlp', which "
            "learn block by block, allow more memory, or give a random sample of the rows.",
            remedy=("student", "torch"),
        )


def fit_in_memory(student: Any, rows: TargetRows, class_weights: Floats, **_: Any) -> None:
    """Read all rows, and fit a student that learns from all of them at once."""
    X, targets, weights = read_everything(rows)
    by_row = None if weights is None else weights.astype(np.float64)
    student.fit(X, targets.astype(np.float64), class_weights, by_row)
