"""What students learn of teachers by each loss, as columns beside the labels, or mixed into them.

A new loss is a class in `consilience.distil.losses` and one or two entries of the tables here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience._words import shorten
from consilience.distil.losses import KD, RKD, FitNet, Loss, Own, Refilled, Sinkhorn
from consilience.distil.teacher_signal import Task, TeacherSignal
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.kernels.transport.centres import centre_distances, class_means
from consilience.teachers import Observed
from consilience.transport.centres import features

if TYPE_CHECKING:
    from torch import nn

    from consilience.nn.distillation import CrossTaskLoss

Columns = Callable[[Observed], Floats]
"""From what a teacher said of some rows to columns (n, e)."""


class Follower(NamedTuple):
    """A teacher that the student follows, and how.

    With `labelled` True it does so on labelled rows only, with False on all others, and with None on all.
    """

    place: int  # among the teachers
    signal: TeacherSignal
    weight: float
    labelled: bool | None = None

    def rows(self, codes: NDArray[np.intp], said: Observed) -> NDArray[np.bool_]:
        """Return the rows (n,) on which the student follows the teacher; `said` is its answer to them."""
        answered = np.asarray(~np.isnan(said.logits[:, 0]))
        return answered if self.labelled is None else answered & ((codes >= 0) == self.labelled)


class Target(NamedTuple):
    """Columns made of what a teacher says, and the loss that compares a network with them.

    Without a loss they are soft labels (n, K), which are added to the labels.
    """

    columns: Columns
    weight: float  # of the loss; for soft labels, next to a true label
    loss: nn.Module | None = None
    of: Literal["logits", "features"] = "logits"


def make_targets(follower: Follower, task: Task, scores: str) -> list[Target]:
    """Return what a student learns of a teacher; `scores` is "logits" for networks, else "probabilities"."""
    signal, weight = follower.signal, follower.weight
    loss = signal.loss
    if scores == "probabilities":
        return [SOFT_LABELS[type(loss)](signal, task, weight)]
    found = NETWORK_TARGETS[type(loss)](signal, task)
    return [target._replace(weight=weight * target.weight) for target in found]


@dataclass(frozen=True)
class Targets:
    """What a student learns of every row.

    Networks learn labels, one-hot, beside the columns of each teacher. Other students learn labels and
    transported labels, mixed: the Sinkhorn distance is about epsilon KL(p_S, q), with q the transported label
    (exactly so where the teacher is sure). So eq. (11) is least about where p_S = (y + c q) / (1 + c). Here y
    and q are both at temperature 1, and c is `TeacherSignal.label_weight`.

    Attributes
    ----------
    n_classes : int
        K.
    followers : sequence of Follower
    made : sequence of sequences of Target
        Of each follower.
    widths : sequence of sequences of int
        The columns that each target adds.
    """

    n_classes: int
    followers: Sequence[Follower]
    made: Sequence[Sequence[Target]]
    widths: Sequence[Sequence[int]]

    @classmethod
    def of(cls, task: Task, followers: Sequence[Follower], scores: str) -> Targets:
        """Find what a student learns that gives `scores`, "logits" or "probabilities"."""
        made = [make_targets(follower, task, scores) for follower in followers]
        firsts = [follower.signal.observed.take(slice(0, 1)) for follower in followers]
        widths = [
            [0 if target.loss is None else target.columns(first).shape[1] for target in own]
            for own, first in zip(made, firsts, strict=True)
        ]
        return cls(len(task.classes), followers, made, widths)

    @property
    def n_columns(self) -> int:
        """K, and the columns beside the labels."""
        return self.n_classes + sum(map(sum, self.widths))

    def columns(self, codes: NDArray[np.intp], said: Sequence[Observed]) -> Floats:
        """Return targets (n, K + e); columns beside the labels are NaN where a teacher is not followed.

        Parameters
        ----------
        codes : (n,) array of int
            Positions of the labels; -1 for rows without one.
        said : sequence of Observed
            What the teacher of each follower said of these rows.
        """
        labels = np.zeros((len(codes), self.n_classes))
        labels[codes >= 0, codes[codes >= 0]] = 1.0
        blocks = [labels]
        for follower, own, seen in zip(self.followers, self.made, said, strict=True):
            rows = follower.rows(codes, seen)
            for target in own:
                if target.loss is None:
                    labels[rows] += target.weight * target.columns(seen)[rows]
                else:
                    blocks.append(np.where(rows[:, None], target.columns(seen), np.nan))
        return np.hstack(blocks)

    def criterion(self, labelled: float) -> CrossTaskLoss:
        """Return the loss of eq. (11) for a network, if this share of the rows has a label."""
        from consilience.nn.distillation import CrossTaskLoss, Term

        terms, start = [], self.n_classes
        for own, widths in zip(self.made, self.widths, strict=True):
            for target, width in zip(own, widths, strict=True):
                columns, start = slice(start, start + width), start + width
                if target.loss is not None:
                    terms.append(Term(target.loss, columns, target.weight, target.of))
        return CrossTaskLoss(self.n_classes, terms, labelled)


def _sinkhorn_targets(signal: TeacherSignal, task: Task) -> list[Target]:
    from consilience.nn import SinkhornLoss

    loss = SinkhornLoss(
        signal.shifted_cost(),
        signal.epsilon,
        signal.temperature,
        regularizer=signal.loss.regularizer,
        tol=1e-4,
    )
    loss.adjustable = ("epsilon",)  # a distiller has no other option for it
    return [Target(_logits, signal.strength, loss)]


def _sinkhorn_label(signal: TeacherSignal, task: Task, weight: float) -> Target:
    def labels(seen: Observed) -> Floats:
        return signal.student_labels(signal.transported_labels(seen.logits))

    return Target(labels, signal.label_weight(weight))


def _kd_targets(signal: TeacherSignal, task: Task) -> list[Target]:
    from consilience.nn.distillation import KDLoss

    return [Target(_matched_logits(signal, task.classes), 1.0, KDLoss(signal.temperature))]


def _kd_label(signal: TeacherSignal, task: Task, weight: float) -> Target:
    matched = _matched_logits(signal, task.classes)
    return Target(lambda seen: np.asarray(softmax(matched(seen), axis=1)), weight / signal.temperature**2)


def _rkd_targets(signal: TeacherSignal, task: Task) -> list[Target]:
    from consilience.nn.distillation import RKDLoss

    return [Target(_standard_embeddings(signal), 1.0, RKDLoss(), of="features")]


def _fitnet_targets(signal: TeacherSignal, task: Task) -> list[Target]:
    from consilience.nn.distillation import FitNetLoss

    width = features(signal.observed).shape[1]
    return [Target(_standard_embeddings(signal), 1.0, FitNetLoss(width), of="features")]


def _refilled_targets(signal: TeacherSignal, task: Task) -> list[Target]:
    from consilience.nn.distillation import KDLoss, RelationLoss

    return [
        Target(_standard_embeddings(signal), 1.0, RelationLoss(), of="features"),
        Target(_nearest_mean_logits(signal, task), 1.0, KDLoss(signal.temperature)),
    ]


def _own_targets(signal: TeacherSignal, task: Task) -> list[Target]:
    from consilience.nn.distillation import FunctionLoss

    loss = FunctionLoss(signal.loss.function, signal.shifted_cost(), signal.epsilon, signal.temperature)
    return [Target(_logits, 1.0, loss)]


NETWORK_TARGETS: dict[type[Loss], Callable[[TeacherSignal, Task], list[Target]]] = {
    Sinkhorn: _sinkhorn_targets,
    KD: _kd_targets,
    RKD: _rkd_targets,
    FitNet: _fitnet_targets,
    Refilled: _refilled_targets,
    Own: _own_targets,
}
"""What a network learns by each loss, at a weight of 1."""
SOFT_LABELS: dict[type[Loss], Callable[[TeacherSignal, Task, float], Target]] = {
    Sinkhorn: _sinkhorn_label,
    KD: _kd_label,
}
"""What a scikit-learn student learns."""


def _logits(seen: Observed) -> Floats:
    return seen.logits


def _matched_logits(signal: TeacherSignal, classes: NDArray[Any]) -> Columns:
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


def _standard_embeddings(signal: TeacherSignal) -> Columns:
    """Return what gives embeddings (n, d) with mean 0 and root mean square 1 over the rows of the signal.

    So a teacher_weight means the same for all teachers.
    """
    E = np.asarray(features(signal.observed), dtype=np.float64)
    mean = np.nanmean(E, axis=0)
    size = float(np.sqrt(np.nanmean((E - mean) ** 2)))
    return lambda seen: np.asarray((features(seen) - mean) / (size if size > 0 else 1.0), dtype=np.float64)


def _nearest_mean_logits(signal: TeacherSignal, task: Task) -> Columns:
    """Return what gives logits (n, K) of the nearest class mean in the teacher's embedding.

    They are minus the squared distances, in units of the mean squared distance of rows from the mean of their
    own class.
    """
    E, labelled = features(signal.observed), task.labelled
    means = class_means(E[labelled], task.codes[labelled], len(task.classes))

    def squares(E: NDArray[Any]) -> Floats:
        found = np.full((len(E), len(means)), np.nan)
        answered = ~np.isnan(E[:, 0])
        found[answered] = centre_distances(E[answered], means, signal.normalize) ** 2
        return found

    rows = np.flatnonzero(labelled & ~np.isnan(E[:, 0]))
    own = float(squares(E[rows])[np.arange(len(rows)), task.codes[rows]].mean())
    return lambda seen: -squares(features(seen)) / (own if own > 0 else 1.0)
