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
from consilience.teachers import Observed
from consilience.transport.centres import features

if TYPE_CHECKING:
    from torch import nn

    from consilience.nn.distillation import CrossTaskLoss


class WeightedSignal(NamedTuple):
    """A teacher in use, its weight in the loss, and whether the student follows it on rows with a label.

    With `labelled` True only on these, with False only on all others, and with None on all.
    """

    signal: TeacherSignal
    weight: float
    labelled: bool | None = None

    def rows(self, codes: NDArray[np.intp], seen: Observed) -> NDArray[np.bool_]:
        """Return the rows (n,) on which the student follows the teacher; `seen` is what it said of them."""
        answered = np.asarray(~np.isnan(seen.logits[:, 0]))
        return answered if self.labelled is None else answered & ((codes >= 0) == self.labelled)


class Target(NamedTuple):
    """What a torch student is compared with, by `loss`, times `scale`.

    `columns` makes it (n, e) of what the teacher said of some rows.
    """

    columns: Callable[[Observed], Floats]
    loss: nn.Module
    scale: float = 1.0
    of: Literal["logits", "features"] = "logits"


class SoftLabel(NamedTuple):
    """What a scikit-learn student learns: labels (n, K), made of what the teacher said, and their weight."""

    labels: Callable[[Observed], Floats]
    weight: float  # next to a true label


@dataclass(frozen=True)
class DistillationLoss:
    """One way to learn from a teacher.

    Attributes
    ----------
    targets : callable or None
        ``targets(signal, task, regularizer)`` gives the list of `Target` that a torch student learns from.
        None for a loss that uses no teacher.
    soft_label : callable or None
        ``soft_label(signal, task, weight)`` gives the `SoftLabel` that a scikit-learn student learns. None
        where only torch students can learn by it.
    checked : bool
        Whether the teacher check applies. It looks at transported labels, which tell little about losses that
        use the embedding alone.
    embeds : bool
        Whether targets are made of embeddings.
    """

    targets: Callable[[TeacherSignal, Task, str], list[Target]] | None = None
    soft_label: Callable[[TeacherSignal, Task, float], SoftLabel] | None = None
    checked: bool = False
    embeds: bool = False

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


@dataclass(frozen=True)
class MixedLabels:
    """What a scikit-learn student learns: labels and transported labels of all teachers, mixed.

    The Sinkhorn distance is about epsilon KL(p_S, q), with q the transported label (exactly so where the
    teacher is sure). So eq. (11) is least about where p_S = (y + c q) / (1 + c). Here y and q are both at
    temperature 1, and c is `TeacherSignal.label_weight`.

    Attributes
    ----------
    n_classes : int
    signals : list of WeightedSignal
    soft_labels : list of SoftLabel
        Of each signal.
    """

    n_classes: int
    signals: Sequence[WeightedSignal]
    soft_labels: Sequence[SoftLabel]

    @property
    def n_columns(self) -> int:
        """K."""
        return self.n_classes

    @classmethod
    def of(cls, task: Task, signals: Sequence[WeightedSignal], loss: DistillationLoss) -> MixedLabels:
        """Find how the labels of a task are mixed with the signals of its teachers."""
        if signals and loss.soft_label is None:
            raise ValueError("A scikit-learn student cannot learn by this loss.")
        made = [loss.soft_label(signal, task, weight) for signal, weight, _ in signals if loss.soft_label]
        return cls(len(task.classes), signals, made)

    def mix(self, codes: NDArray[np.intp], seen: Sequence[Observed]) -> tuple[Floats, Floats]:
        """Return labels (n, K) and weights of rows (n,), in which a label counts 1.

        Parameters
        ----------
        codes : (n,) array of int
            Positions of the labels; -1 for rows without one.
        seen : sequence of Observed
            What the teacher of each signal said of these rows.
        """
        sums = np.zeros((len(codes), self.n_classes))
        sums[codes >= 0, codes[codes >= 0]] = 1.0
        for signal, (labels, weight), said in zip(self.signals, self.soft_labels, seen, strict=True):
            rows = signal.rows(codes, said)
            sums[rows] += weight * labels(said)[rows]
        mass = sums.sum(axis=1)
        return sums / np.maximum(mass, np.finfo(float).tiny)[:, None], mass


@dataclass(frozen=True)
class StackedTargets:
    """What a torch student learns: the labels, one-hot, and beside them the columns of each teacher.

    Attributes
    ----------
    n_classes : int
        K.
    signals : list of WeightedSignal
    targets : list of lists of Target
        Of each signal.
    widths : list of lists of int
        The columns of each target.
    """

    n_classes: int
    signals: Sequence[WeightedSignal]
    targets: Sequence[Sequence[Target]]
    widths: Sequence[Sequence[int]]

    @classmethod
    def of(
        cls, task: Task, signals: Sequence[WeightedSignal], loss: DistillationLoss, regularizer: str
    ) -> StackedTargets:
        """Find what stands beside the labels of a task."""
        if signals and loss.targets is None:
            raise ValueError("This loss has no targets to learn from teachers.")
        targets = [loss.targets(signal, task, regularizer) for signal, _, _ in signals if loss.targets]
        firsts = [some_of(signal.observed, slice(0, 1)) for signal, _, _ in signals]
        widths = [
            [target.columns(first).shape[1] for target in of_one]
            for of_one, first in zip(targets, firsts, strict=True)
        ]
        return cls(len(task.classes), signals, targets, widths)

    @property
    def n_columns(self) -> int:
        """K, and the columns of all targets."""
        return self.n_classes + sum(map(sum, self.widths))

    def stack(self, codes: NDArray[np.intp], seen: Sequence[Observed]) -> Floats:
        """Return targets (n, K + e); parameters as in `MixedLabels.mix`.

        Rows without a label have zeros there. A teacher's columns are NaN in rows on which the student does
        not follow it.
        """
        onehot = np.zeros((len(codes), self.n_classes))
        onehot[codes >= 0, codes[codes >= 0]] = 1.0
        blocks = [onehot]
        for signal, of_one, said in zip(self.signals, self.targets, seen, strict=True):
            rows = signal.rows(codes, said)[:, None]
            blocks += [np.where(rows, target.columns(said), np.nan) for target in of_one]
        return np.hstack(blocks)

    def criterion(self, labelled: float) -> CrossTaskLoss:
        """Return the loss of eq. (11), if this share of the rows has a label."""
        from consilience.nn.distillation import CrossTaskLoss, Term

        terms, start = [], self.n_classes
        for signal, of_one, widths in zip(self.signals, self.targets, self.widths, strict=True):
            for target, width in zip(of_one, widths, strict=True):
                columns, start = slice(start, start + width), start + width
                terms.append(Term(target.loss, columns, signal.weight * target.scale, target.of))
        return CrossTaskLoss(self.n_classes, terms, labelled)


def some_of(seen: Observed, rows: Any) -> Observed:
    """Return what a teacher said of some rows."""
    return Observed(seen.logits[rows], None if seen.embeddings is None else seen.embeddings[rows])


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
    return [Target(_logits, loss, signal.strength)]


def _sinkhorn_label(signal: TeacherSignal, task: Task, weight: float) -> SoftLabel:
    def labels(seen: Observed) -> Floats:
        return signal.student_labels(signal.transported_labels(seen.logits))

    return SoftLabel(labels, signal.label_weight(weight))


def _kd_targets(signal: TeacherSignal, task: Task, regularizer: str) -> list[Target]:
    from consilience.nn.distillation import KDLoss

    return [Target(matched_logits(signal, task.classes), KDLoss(signal.options.temperature))]


def _kd_label(signal: TeacherSignal, task: Task, weight: float) -> SoftLabel:
    matched = matched_logits(signal, task.classes)
    return SoftLabel(
        lambda seen: np.asarray(softmax(matched(seen), axis=1)), weight / signal.options.temperature**2
    )


def _rkd_targets(signal: TeacherSignal, task: Task, regularizer: str) -> list[Target]:
    from consilience.nn.distillation import RKDLoss

    return [Target(standard_embeddings(signal), RKDLoss(), of="features")]


def _fitnet_targets(signal: TeacherSignal, task: Task, regularizer: str) -> list[Target]:
    from consilience.nn.distillation import FitNetLoss

    width = features(signal.observed).shape[1]
    return [Target(standard_embeddings(signal), FitNetLoss(width), of="features")]


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
    return [Target(_logits, loss)]


def _logits(seen: Observed) -> Floats:
    return seen.logits


LOSSES: dict[str, DistillationLoss] = {
    "sinkhorn": DistillationLoss(_sinkhorn_targets, _sinkhorn_label, checked=True),
    "kd": DistillationLoss(_kd_targets, _kd_label, checked=True),
    "rkd": DistillationLoss(_rkd_targets, embeds=True),
    "fitnet": DistillationLoss(_fitnet_targets, embeds=True),
    "refilled": DistillationLoss(_refilled_targets, embeds=True),
    "none": DistillationLoss(),
}
"""Every loss by its name."""


def matched_logits(signal: TeacherSignal, classes: NDArray[Any]) -> Callable[[Observed], Floats]:
    """Return what puts a teacher's logits in the order of the student's classes, which must be the same."""
    own = signal.teacher.classes.tolist()
    if set(own) != set(classes.tolist()):
        only = shorten(sorted(set(own) ^ set(classes.tolist()), key=str), 5)
        raise InvalidInputError(
            f"loss='kd' needs a teacher with the student's classes; {signal.teacher.name!r} and the "
            f"student do not share {only}. Use loss='sinkhorn', which needs no common classes."
        )
    order = [own.index(name) for name in classes.tolist()]
    return lambda seen: seen.logits[:, order]


def standard_embeddings(signal: TeacherSignal) -> Callable[[Observed], Floats]:
    """Return what gives embeddings (n, d) with mean 0 and root mean square 1 over the rows of the signal.

    So a teacher_weight means the same for all teachers.
    """
    E = np.asarray(features(signal.observed), dtype=np.float64)
    mean = np.nanmean(E, axis=0)
    size = float(np.sqrt(np.nanmean((E - mean) ** 2)))

    def standardise(seen: Observed) -> Floats:
        return np.asarray((features(seen) - mean) / (size if size > 0 else 1.0), dtype=np.float64)

    return standardise


def nearest_mean_logits(signal: TeacherSignal, task: Task) -> Callable[[Observed], Floats]:
    """Return what gives logits (n, K) of the nearest class mean in the teacher's embedding.

    They are minus the squared distances, in units of the mean squared distance of rows from the mean of their
    own class.
    """
    E, labelled = features(signal.observed), task.labelled
    means = class_means(E[labelled], task.codes[labelled], len(task.classes))

    def squares(E: NDArray[Any]) -> Floats:
        found = np.full((len(E), len(means)), np.nan)
        answered = ~np.isnan(E[:, 0])
        found[answered] = centre_distances(E[answered], means, signal.options.normalize) ** 2
        return found

    rows = np.flatnonzero(labelled & ~np.isnan(E[:, 0]))
    own = float(squares(E[rows])[np.arange(len(rows)), task.codes[rows]].mean())
    return lambda seen: -squares(features(seen)) / (own if own > 0 else 1.0)
