"""How a `CrossTaskDistiller` trains its student: whom it follows, and on rows in memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._progress import silent
from consilience._validation import take_rows
from consilience.distil.losses import DistillationLoss, MixedLabels, StackedTargets, WeightedSignal
from consilience.distil.teacher_signal import Task, TeacherSignal
from consilience.exceptions import CoverageWarning

if TYPE_CHECKING:
    from consilience.distil.distiller import CrossTaskDistiller

# A network gets at least this many steps of the optimiser, however few the rows.
MIN_STEPS = 800


class Follower(NamedTuple):
    """A signal that the student follows, and the place of its teacher in the list of teachers."""

    teacher: int
    signal: WeightedSignal


def by_rows(
    signal: TeacherSignal, weight: float, labelled_share: float, codes: NDArray[np.intp]
) -> list[WeightedSignal]:
    """Return a teacher's signal, apart for labelled rows if its weight there is another."""
    if labelled_share == 1.0:
        return [WeightedSignal(signal, weight)]
    parts = (
        WeightedSignal(signal, labelled_share * weight, labelled=True),
        WeightedSignal(signal, weight, labelled=False),
    )
    return [part for part in parts if part.rows(codes, signal.observed).any()]


def train(
    distiller: CrossTaskDistiller,
    student: Any,
    task: Task,
    followed: Sequence[Follower],
    loss: DistillationLoss,
    *,
    asked: bool,
) -> None:
    """Fit the student to rows in memory. `asked` tells whether teachers were asked at all."""
    signals = [signal for _, signal in followed]
    seen = [signal.signal.observed for signal in signals]
    used = task.labelled
    for signal, said in zip(signals, seen, strict=True):
        used = used | signal.rows(task.codes, said)
    if asked:
        warn_of_unused(used, stacklevel=4)
    X = _pick(task.learnt_rows, used)
    if student.scores == "probabilities":
        labels, mass = MixedLabels.of(task, signals, loss).mix(task.codes, seen)
        student.fit(X, labels[used], np.ones(len(task.classes)), mass[used] / mass.max())
        return
    targets = StackedTargets.of(task, signals, loss, distiller.regularizer)
    if not hasattr(distiller.student, "max_iter"):  # a Network has options of its own
        student.set_params(**training_options(int(np.count_nonzero(used))))
    student.fit(
        X,
        _pick(targets.stack(task.codes, seen), used),
        n_classes=len(task.classes),
        criterion=targets.criterion(float(task.labelled[used].mean())),
        progress=distiller.progress or silent,
    )


def training_options(rows: int) -> dict[str, Any]:
    """Return how a network is trained on so many rows.

    Few rows in large batches would give too few steps. Nothing is held out: every label is needed.
    """
    batch = min(128, max(16, rows // 10))
    epochs = max(30, math.ceil(MIN_STEPS / math.ceil(rows / batch)))
    return {"batch_size": batch, "max_iter": epochs, "patience": None, "validation_fraction": 0.0}


def warn_of_unused(used: NDArray[np.bool_], stacklevel: int) -> None:
    """Warn if some rows (n,) teach nothing."""
    if not used.all():
        warnings.warn(
            f"{np.count_nonzero(~used)} rows without a label are not used: no teacher that is used "
            "answered them.",
            CoverageWarning,
            stacklevel=stacklevel,
        )


def _pick(X: Any, rows: NDArray[np.bool_]) -> Any:
    """Return some rows, or X itself if these are all."""
    return X if rows.all() else take_rows(X, rows)
