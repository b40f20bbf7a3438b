"""How a `Unifier` trains its student on rows in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from consilience._progress import silent
from consilience._validation import take_rows
from consilience.kernels.arrays import Floats
from consilience.labels import LabelSpace
from consilience.students.training import fit_student
from consilience.unify.scored import Scored, with_labels_as_teacher
from consilience.unify.self_labels import fair_share, find, label_fairly

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier


def train(
    unifier: Unifier, student: Any, X: Any, Q: Floats, class_weights: Floats | None, scored: Scored
) -> Floats | None:
    """Fit the student to soft labels Q (n, L); return the pseudo-labels (n, L) of `self_label`."""
    covered = scored.covered
    if not covered.all():
        Q, X = Q[covered], take_rows(X, covered)
    weights = normalised(class_weights, Q.mean(axis=0))
    _fit(unifier, student, X, Q, weights)
    if not unifier.self_label:
        return None
    pseudo_labels = np.full((len(covered), Q.shape[1]), np.nan)
    findings = find(student, X, Q, weights, unifier.resolved_temperature)
    fair = label_fairly(findings, fair_share(Q.mean(axis=0), weights), scored.labels[covered])
    _fit(unifier, student, X, fair.targets, np.ones(Q.shape[1]), fair.row_weights)
    pseudo_labels[covered] = fair.labels
    return pseudo_labels


def normalised(class_weights: Floats | None, mean: Floats) -> Floats:
    """Return class weights with which the mean weight of a row is one; `mean` (L,) is that of soft labels.

    So learning rates mean the same as without weights.
    """
    if class_weights is None:
        return np.ones(len(mean))
    return np.asarray(class_weights / (class_weights * mean).sum())


def _fit(
    unifier: Unifier, student: Any, X: Any, Q: Floats, class_weights: Floats, of_row: Floats | None = None
) -> None:
    """Fit the student to soft labels Q (n, L)."""
    fit_student(
        student,
        X,
        Q,
        class_weights,
        of_row,
        loss=unifier.loss,
        temperature=unifier.resolved_temperature,
        progress=unifier.progress,
    )


def train_backprop(unifier: Unifier, student: Any, X: Any, scored: Scored) -> None:
    """Fit a torch student to the loss of the method."""
    space, logits = with_labels_as_teacher(scored.space, scored.logits, scored.labels)
    if not scored.covered.all():
        logits, X = logits[scored.covered], take_rows(X, scored.covered)
    criterion = method_loss(unifier, space)
    student.fit(
        X, logits, n_classes=space.n_classes, criterion=criterion, progress=unifier.progress or silent
    )


def method_loss(unifier: Unifier, space: LabelSpace) -> Any:
    """Return the loss of the unifier's method, a torch module."""
    from consilience.nn import BACKPROP_LOSSES

    return BACKPROP_LOSSES[unifier.backprop_method](space, temperature=unifier.resolved_temperature)
