"""How a `Unifier` trains its student: by passes over the rows and what it is to learn of them."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience._progress import silent
from consilience.kernels.arrays import Floats
from consilience.kernels.linear_model import inverse
from consilience.rows import memory_budget, new_array
from consilience.rows.targets import TargetRows
from consilience.run import Run
from consilience.scoring.ray_options import read_options
from consilience.scoring.store import as_store
from consilience.students.base import StudentRows, as_student_sees
from consilience.students.checkpoints import checkpoint_folder
from consilience.students.training import fit_network, fit_student_by_passes
from consilience.unify.answers import Answers, with_labels_as_teacher
from consilience.unify.self_labels import own_labels

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier


def train(
    unifier: Unifier, student: Any, read: StudentRows, answers: Answers, Q: NDArray[Any], run: Run
) -> tuple[Floats | None, NDArray[Any] | None]:
    """Fit the student to soft labels Q (n, L); return the balancing weights, and its pseudo-labels."""
    as_seen = partial(as_student_sees, student, names=read.names, encoder=read.encoder)
    rows, covered, L = answers.rows, answers.covered, Q.shape[1]
    mean = np.asarray(np.mean(Q, axis=0, dtype=np.float64, where=covered[:, None]))
    balances = unifier.balance in (True, "sqrt") or (
        unifier.balance == "auto" and not answers.space.identical
    )
    class_weights = inverse(mean) if balances else None
    if unifier.balance == "sqrt":
        class_weights = np.sqrt(inverse(mean))
    # with these the mean weight of a row is one, so learning rates mean the same as without weights
    weights = np.ones(L) if class_weights is None else class_weights / (class_weights * mean).sum()
    key = "" if run.cache is None else blake2b(np.ascontiguousarray(Q).data, digest_size=16).hexdigest()
    targets = TargetRows(rows, Q, None, covered, as_seen)
    _fit(unifier, student, targets, weights, run, key)
    if not unifier.self_label:
        return class_weights, None
    share = mean * weights / (mean * weights).sum()  # an equal one, with balancing
    own = own_labels(student, as_seen, answers, Q, weights, share, unifier.resolved_temperature, run)
    targets = TargetRows(rows, own.targets, own.row_weights, covered, as_seen)
    _fit(unifier, student, targets, np.ones(L), run, f"{key}-own")
    return class_weights, own.labels


def _fit(
    unifier: Unifier, student: Any, targets: TargetRows, class_weights: Floats, run: Run, key: str
) -> None:
    with checkpoint_folder(as_store(run.cache, run.cache_limit), key) as folder:
        fit_student_by_passes(
            student,
            targets,
            class_weights,
            loss=unifier.loss,
            temperature=unifier.resolved_temperature,
            progress=run.progress,
            memory=memory_budget(run),
            checkpoint=folder,
            key=key,
            on_ray=read_options(run.engine_options),
        )


def train_backprop(unifier: Unifier, student: Any, read: StudentRows, answers: Answers, run: Run) -> None:
    """Fit a torch student to the loss of the method. Known labels are one more teacher."""
    from consilience.nn import BACKPROP_LOSSES

    space, labels, rows = answers.space, answers.labels, answers.rows
    known = bool((labels >= 0).any())
    if known:
        space = with_labels_as_teacher(space, answers.logits(slice(0, 0)), labels[:0])[0]
    targets = new_array((len(rows), space.n_columns), run)
    for i in range(rows.n_blocks):
        part = rows.rows_of(i)
        logits = answers.logits(part)
        targets[part] = with_labels_as_teacher(answers.space, logits, labels[part])[1] if known else logits
    as_seen = partial(as_student_sees, student, names=read.names, encoder=read.encoder)
    fit_network(
        student,
        TargetRows(rows, targets, None, answers.covered, as_seen),
        read_options(run.engine_options),
        n_classes=space.n_classes,
        criterion=BACKPROP_LOSSES[unifier.backprop_method](space, temperature=unifier.resolved_temperature),
        progress=run.progress or silent,
        memory=memory_budget(run),
    )
