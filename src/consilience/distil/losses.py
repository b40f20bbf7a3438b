"""What teachers add to the student's loss: the table of losses, and what students of each kind learn from.

A new loss is one entry of `LOSSES`, and the functions that it names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience._validation import check_choice
from consilience._words import shorten
from consilience.distil.teacher_signal import Task, TeacherSignal
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.kernels.transport.centres import centre_distances, class_means
from consilience.transport.centres import features

if TYPE_CHECKING:
    from torch import nn

    from consilience.nn.distillation import CrossTaskLoss


class WeightedSignal(NamedTuple):
    """A teacher in use, its weight in the loss, and the rows (n,) on which the student follows it."""

    signal: TeacherSignal
    weight: float
    rows: NDArray[np.bool_]


class Target(NamedTuple):
    """What a torch student is compared with: `columns` (n, e), by `loss`, times `scale`."""

    columns: Floats
    loss: nn.Module
    scale: float = 1.0
    of: Literal["logits", "features"] = "logits"


@dataclass(frozen=True)
class DistillationLoss:
    """One way to learn from a teacher.

    Attributes
    ----------
    targets : callable or None
        ``targets(signal, task, regularizer)`` gives the list of `Target` that a torch student learns from.
        None for a loss that uses no teacher.
    soft_label : callable or None
        ``soft_label(signal, task, weight)`` gives the label (n, K) that a scikit-learn student learns, and
        its weight next to a true label. None where only torch students can learn by it.
    checked : bool
        Whether the teacher check applies. It looks at transported labels, which tell little about losses that
        use the embedding alone.
    """

    targets: Callable[[TeacherSignal, Task, str], list[Target]] | None = None
    soft_label: Callable[[TeacherSignal, Task, float], tuple[Floats, float]] | None = None
    checked: bool = False

    @property
    def torch_only(self) -> bool:
        """Whether scikit-learn students cannot learn by it."""
        return self.targets is not None and self.soft_label is None


def find_loss(loss: Any) -> DistillationLoss:
    """Return the entry of a name, or one for the user's own function."""
    if isinstance(loss, str) or not callable(loss):
        check_choice("loss", loss, LOSSES)
        return LOSSES[loss]
    try:
        inspect.signature(loss).bind(None, None, cost=None, epsilon=None, temperature=None)
    except TypeError as error:
        raise InvalidInputError(
            f"loss={loss_name(loss)} cannot be called as loss(student_logits, teacher_logits, cost=..., "
            f"epsilon=..., temperature=...): {error}."
        ) from None
    except ValueError:  # a builtin without a signature
        pass
    return DistillationLoss(partial(_own_targets, loss), checked=True)


def loss_name(loss: Any) -> str:
    """Return how a loss is called in messages and files."""
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


def mixed_labels(
    task: Task, signals: Sequence[WeightedSignal], loss: DistillationLoss
) -> tuple[Floats, Floats]:
    """Return what a scikit-learn student learns: labels (n, K) and weights of rows (n,).

    The Sinkhorn distance is about epsilon KL(p_S, q), with q the transported label (exactly so where the
    teacher is sure). So eq. (11) is least about where p_S = (y + c q) / (1 + c). Here y and q are both at
    temperature 1, and c is `TeacherSignal.label_weight`.
    """
    sums = np.zeros((len(task.codes), len(task.classes)))
    sums[task.labelled, task.codes[task.labelled]] = 1.0
    for signal, weight, rows in signals:
        if loss.soft_label is None:
            raise ValueError("A scikit-learn student cannot learn by this loss.")
        q, c = loss.soft_label(signal, task, weight)
        sums[rows] += c * q[rows]
    mass, tiny = sums.sum(axis=1), np.finfo(float).tiny
    return sums / np.maximum(mass, tiny)[:, None], mass / max(float(mass.max()), tiny)


def stacked_targets(
    task: Task,
    signals: Sequence[WeightedSignal],
    loss: DistillationLoss,
    regularizer: str,
    used: NDArray[np.bool_],
) -> tuple[Floats, CrossTaskLoss]:
    """Return what a torch student learns: targets (n, K + e) and the loss of eq. (11).

    The first K columns are the labels, one-hot. The columns of each teacher follow, NaN in rows on which the
    student does not follow it. `used` are the rows (n,) that the student learns from.
    """
    from consilience.nn.distillation import CrossTaskLoss, Term

    K = len(task.classes)
    onehot = np.zeros((len(task.codes), K))
    onehot[task.labelled, task.codes[task.labelled]] = 1.0
    blocks, terms, start = [onehot], [], K
    for signal, weight, rows in signals:
        if loss.targets is None:
            raise ValueError("This loss has no targets to learn from teachers.")
        for target in loss.targets(signal, task, regularizer):
            columns = slice(start, start + target.columns.shape[1])
            terms.append(Term(target.loss, columns, weight * target.scale, target.of))
            blocks.append(np.where(rows[:, None], target.columns, np.nan))
            start = columns.stop
    return np.hstack(blocks), CrossTaskLoss(K, terms, float(task.labelled[used].mean()))


def _sinkhorn_targets(signal: TeacherSignal, task: Task, regularizer: str) -> list[Target]:
    from consilience.nn import SinkhornLoss

    loss = SinkhornLoss(
        signal.shifted_cost(),
        signal.epsilon,
        signal.options.temperature,
        regularizer=regularizer,
        tol=1e-4,
    )
    loss.adjustable = ("epsilon",)  # a distiller has no other option for it
    return [Target(signal.observed.logits, loss, signal.strength)]


def _sinkhorn_label(signal: TeacherSignal, task: Task, weight: float) -> tuple[Floats, float]:
    return signal.student_labels(signal.transported_labels()), signal.label_weight(weight)


def _kd_targets(signal: TeacherSignal, task: Task, regularizer: str) -> list[Target]:
    from consilience.nn.distillation import KDLoss

    return [Target(matched_logits(signal, task.classes), KDLoss(signal.options.temperature))]


def _kd_label(signal: TeacherSignal, task: Task, weight: float) -> tuple[Floats, float]:
    proba = softmax(matched_logits(signal, task.classes), axis=1)
    return np.asarray(proba), weight / signal.options.temperature**2


def _rkd_targets(signal: TeacherSignal, task: Task, regularizer: str) -> list[Target]:
    from consilience.nn.distillation import RKDLoss

    return [Target(standard_embeddings(signal), RKDLoss(), of="features")]


def _fitnet_targets(signal: TeacherSignal, task: Task, regularizer: str) -> list[Target]:
    from consilience.nn.distillation import FitNetLoss

    E = standard_embeddings(signal)
    return [Target(E, FitNetLoss(E.shape[1]), of="features")]


def _refilled_targets(signal: TeacherSignal, task: Task, regularizer: str) -> list[Target]:
    from consilience.nn.distillation import KDLoss, RelationLoss

    return [
        Target(standard_embeddings(signal), RelationLoss(), of="features"),
        Target(nearest_mean_logits(signal, task), KDLoss(signal.options.temperature)),
    ]


def _own_targets(
    function: Callable[..., Any], signal: TeacherSignal, task: Task, regularizer: str
) -> list[Target]:
    from consilience.nn.distillation import FunctionLoss

    loss = FunctionLoss(function, signal.shifted_cost(), signal.epsilon, signal.options.temperature)
    return [Target(signal.observed.logits, loss)]


LOSSES: dict[str, DistillationLoss] = {
    "sinkhorn": DistillationLoss(_sinkhorn_targets, _sinkhorn_label, checked=True),
    "kd": DistillationLoss(_kd_targets, _kd_label, checked=True),
    "rkd": DistillationLoss(_rkd_targets),
    "fitnet": DistillationLoss(_fitnet_targets),
    "refilled": DistillationLoss(_refilled_targets),
    "none": DistillationLoss(),
}
"""Every loss by its name."""


def matched_logits(signal: TeacherSignal, classes: NDArray[Any]) -> Floats:
    """Return the teacher's logits (n, K) in the order of the student's classes, which must be the same."""
    own = signal.teacher.classes.tolist()
    if set(own) != set(classes.tolist()):
        only = shorten(sorted(set(own) ^ set(classes.tolist()), key=str), 5)
        raise InvalidInputError(
            f"loss='kd' needs a teacher with the student's classes; {signal.teacher.name!r} and the "
            f"student do not share {only}. Use loss='sinkhorn', which needs no common classes."
        )
    return signal.observed.logits[:, [own.index(name) for name in classes.tolist()]]


def standard_embeddings(signal: TeacherSignal) -> Floats:
    """Return embeddings (n, d) of mean 0 and root mean square 1.

    So a teacher_weight means the same for all teachers.
    """
    E = np.asarray(features(signal.observed), dtype=np.float64)
    E = E - np.nanmean(E, axis=0)
    size = float(np.sqrt(np.nanmean(E**2)))
    return np.asarray(E / (size if size > 0 else 1.0))


def nearest_mean_logits(signal: TeacherSignal, task: Task) -> Floats:
    """Return logits (n, K) of the nearest class mean in the teacher's embedding.

    They are minus the squared distances, in units of the mean squared distance of rows from the mean of their
    own class.
    """
    E, labelled = features(signal.observed), task.labelled
    means = class_means(E[labelled], task.codes[labelled], len(task.classes))
    squares = np.full((len(E), len(means)), np.nan)
    answered = ~np.isnan(E[:, 0])
    squares[answered] = centre_distances(E[answered], means, signal.options.normalize) ** 2
    rows = np.flatnonzero(labelled & answered)
    own = float(squares[rows, task.codes[rows]].mean())
    return np.asarray(-squares / (own if own > 0 else 1.0))
