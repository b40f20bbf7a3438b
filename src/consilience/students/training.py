"""What every classifier that learns soft labels does: read them, and fit the student to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._validation import check_distributions
from consilience.exceptions import InvalidInputError
from consilience.files.storage import StoragePath
from consilience.labels import class_list, read_labels
from consilience.scoring import RayOptions
from consilience.students.estimator import Loss, student_name
from consilience.students.passes import TargetRows, fit_in_memory, how_it_streams

Floats = NDArray[np.float64]


def read_soft_labels(y: Any, classes: Any) -> tuple[NDArray[Any], Floats]:
    """Return class names (L,) and soft labels (n, L), with NaN in rows without a label.

    Parameters
    ----------
    y : (n, L) array of soft labels, or (n,) sequence of labels
        Soft labels are checked: not negative, and rows sum to 1. Labels become rows of zeros and a one.
    classes : (L,) sequence, optional
        The names of the columns; by default 0 to L - 1, or the labels that occur.

    Examples
    --------
    >>> read_soft_labels([[0.9, 0.1], [0.2, 0.8]], ["cat", "dog"])[0].tolist()
    ['cat', 'dog']
    >>> read_soft_labels(["dog", "cat", None], None)[1].tolist()
    [[0.0, 1.0], [1.0, 0.0], [nan, nan]]
    """
    if not _is_table(y):
        names, codes = read_labels(y, classes=classes)
        hard = np.eye(len(names))[codes]
        hard[codes < 0] = np.nan
        return names, hard
    soft = check_distributions("y", y)
    if classes is None:
        return np.arange(soft.shape[1]), soft
    listed = class_list(classes)
    if len(listed) != soft.shape[1]:
        raise InvalidInputError(
            f"There are {len(listed)} classes for {soft.shape[1]} columns of soft labels."
        )
    return np.asarray(listed), soft


def encode_validation(student: Any, encode: Callable[[Any], NDArray[Any]]) -> None:
    """Read the labels of a network's own validation rows; `encode` gives their positions, -1 for no label."""
    if getattr(student, "validation", None) is not None:
        student.encode_validation(encode)


def encoder_of(classes: NDArray[Any]) -> Callable[[Any], NDArray[Any]]:
    """Return the function from labels to positions in `classes`."""
    return lambda y: read_labels(y, classes=classes, where="y of validation")[1]


def fit_student(
    student: Any,
    X: Any,
    Q: Floats,
    class_weights: Floats,
    row_weights: Floats | None = None,
    *,
    loss: Loss,
    temperature: float,
    progress: Progress | None,
) -> None:
    """Fit a student of `make_student` to soft labels Q (n, L) at a temperature, weighted by class and row."""
    if student.scores == "probabilities":
        student.fit(X, Q, class_weights, row_weights)
        return
    from consilience.nn import CollisionCrossEntropy, SoftCrossEntropy

    make = CollisionCrossEntropy if loss == "collision" else SoftCrossEntropy
    student.fit(
        X,
        # Shannon's cross-entropy is linear in the label, so a row's weight can be part of the label.
        Q if row_weights is None else Q * row_weights[:, None],
        n_classes=Q.shape[1],
        criterion=make(weight=class_weights, temperature=temperature, weighted=row_weights is not None),
        progress=progress or silent,
    )


def fit_student_by_passes(
    student: Any,
    rows: TargetRows,
    class_weights: Floats,
    *,
    loss: Loss,
    temperature: float,
    progress: Progress | None,
    memory: int,
    checkpoint: StoragePath | None = None,
    key: str = "",
    on_ray: RayOptions | None = None,
) -> None:
    """Fit a student of `make_student` to soft labels that are read block by block.

    The parameters are those of `fit_student`. `memory` is how many bytes the rows may take. A student that
    cannot learn by passes gets all rows at once; `check_student_streams` tells beforehand whether they fit.
    A network writes checkpoints to the folder `checkpoint`; `key` names the rows and their soft labels. It
    learns on Ray if `on_ray` has ``train_workers``.
    """
    if student.scores == "logits":
        from consilience.nn import CollisionCrossEntropy, SoftCrossEntropy

        make = CollisionCrossEntropy if loss == "collision" else SoftCrossEntropy
        weighted = rows.sample(1, 0)[2] is not None
        fit_network(
            student,
            rows,
            on_ray,
            n_classes=rows.n_columns,
            criterion=make(weight=class_weights, temperature=temperature, weighted=weighted),
            progress=progress or silent,
            memory=memory,
            checkpoint=checkpoint,
            key=key,
        )
        return
    learn = how_it_streams(student) or fit_in_memory
    learn(student, rows, class_weights, progress=progress or silent, memory=memory)


def fit_network(student: Any, rows: TargetRows, on_ray: RayOptions | None, **options: Any) -> None:
    """Fit a torch student by passes over the rows: here, or with ``train_workers`` of Ray.

    `options` are the others of `Network.fit_by_passes`.
    """
    if on_ray is None or on_ray.train_workers is None:
        student.fit_by_passes(rows, **options)
        return
    from consilience.students._ray_train import fit_on_ray

    fit_on_ray(student, rows, options=on_ray, **options)


def check_trains_on_ray(student: Any, on_ray: RayOptions | None) -> None:
    """Raise if ``train_workers`` are asked for, and the student is no network."""
    if on_ray is not None and on_ray.train_workers is not None and student.scores != "logits":
        raise InvalidInputError(
            "{argument} is no torch network, and only those learn in several processes. Use {remedy}, or "
            "leave train_workers out.",
            argument="student",
            value=student_name(student),
            remedy=("student", "torch"),
        )


def _is_table(y: Any) -> bool:
    """Tell whether y has several columns, as soft labels do."""
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError:  # rows of different lengths, which are no soft labels either
        return True
    return len(shape) == 2 and shape[1] > 1
