"""One teacher's signal for a task: what it said, the costs of its classes, its transported labels, and what a
student learns of it by each loss.

A new loss is a class in `consilience.distil.losses` and a case of `network_targets`, or of `soft_label`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience._validation import check_cost, check_epsilon, take_rows
from consilience._words import shorten
from consilience.distil.losses import KD, RKD, FitNet, Loss, Own, Refilled, Sinkhorn
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.kernels.arrays import Floats
from consilience.kernels.linear_model import sharpen
from consilience.kernels.transport.centres import centre_distances, class_means
from consilience.teachers import Observed, Teacher
from consilience.transport.centres import class_points, cost_by_name, features
from consilience.transport.costs import Constant, Embedding, Random, Superclass
from consilience.transport.distance import class_share_shift, conditional_plan

if TYPE_CHECKING:
    from torch import nn

# What teacher_weight = 1 means with an automatic epsilon, in units of epsilon: teacher_weight = 10 gives the
# teachers three times the weight of the labels. Chosen on digits and CIFAR-100, on seeds that no test and no
# table uses.
STRENGTH = 0.3
Costs = Callable[[NDArray[np.bool_]], Floats]
Columns = Callable[[Observed], Floats]
"""From what a teacher said of some rows to columns (n, e)."""


# Without them, six random labels of a class and three of another would double its share in all other rows.
FURTHER_LABELS = 5.0


class Target(NamedTuple):
    """Columns made of what a teacher says, and the loss that compares a network with them.

    Without a loss they are soft labels (n, K), which are added to the labels.
    """

    columns: Columns
    weight: float  # of the loss; for soft labels, next to a true label
    loss: nn.Module | None = None
    of: Literal["logits", "features"] = "logits"


@dataclass(frozen=True)
class Task:
    """What the student has to learn.

    Attributes
    ----------
    X : rows
        n rows in memory: all, or a sample of them.
    classes : (K,) array
    codes : (n,) array of int
        The position of each label among the classes; -1 for rows without a label.
    learnt : rows
        The same rows as the student sees them.
    """

    X: Any
    classes: NDArray[Any]
    codes: NDArray[np.intp]
    learnt: Any

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """The rows (n,) that have a label."""
        return self.codes >= 0

    def shares(self, more: float = 0.0) -> Floats:
        """Return the share (K,) of each class among the labels, with some `more` labels of each class."""
        counts = np.bincount(self.codes[self.labelled], minlength=len(self.classes)) + more
        return np.asarray(counts / counts.sum())


@dataclass(frozen=True, eq=False)
class TeacherSignal:
    """A teacher's outputs, costs and transported labels for a task.

    Attributes
    ----------
    teacher : Teacher
    observed : Observed
        Logits (n, m) and embeddings (n, d) of the rows of the task.
    task : Task
    loss : Loss
    costs : callable
        From some of the rows (n,) to the costs (m, K) that their labels give.
    normalize : bool
        Whether centres are compared at unit length.
    cost : (m, K) array
        M of SCTD, eq. (7), from all labelled rows that the teacher answered.
    epsilon : float
    shift : (K,) array
        What is subtracted from each column of the cost, so that transported labels have the class shares of
        the task; zeros with ``match_shares=False``.
    """

    teacher: Teacher
    observed: Observed
    task: Task
    loss: Any
    costs: Costs
    normalize: bool
    cost: Floats
    epsilon: float
    shift: Floats

    @property
    def temperature(self) -> float:
        """tau of eq. (10)."""
        return float(self.loss.temperature)

    @property
    def strength(self) -> float:
        """A factor of the Sinkhorn distance, besides teacher_weight.

        The distance is worth about epsilon KL(p_S, q). An automatic epsilon grows with the costs, and their
        units differ between teachers. Counted in units of epsilon, teacher_weight means the same for all.
        """
        return STRENGTH / self.epsilon if self.loss.epsilon == "auto" else 1.0

    def label_weight(self, teacher_weight: float) -> float:
        """Return c: what a transported label at temperature 1 counts next to a true label.

        The distance is about epsilon KL(p_S, q) at the temperature tau. By the logits of the student, that is
        curved as much as epsilon / tau^2 times the cross-entropy at temperature 1.
        """
        return teacher_weight * self.strength * self.epsilon / self.temperature**2

    def transported_labels(self, logits: Floats | None = None, plan: Floats | None = None) -> Floats:
        """Return the transported labels (n, K) of logits (n, m), by default of the rows of the task.

        They are NaN where the teacher abstained. `plan` stands for the one that all labelled rows give.
        """
        logits = self.observed.logits if logits is None else logits
        plan = conditional_plan(self.cost, self.epsilon, self.shift) if plan is None else plan
        return np.asarray(softmax(logits / self.temperature, axis=1) @ plan)

    def student_labels(self, transported: Floats) -> Floats:
        """Return what the student predicts at temperature 1 where it matches transported labels (n, K).

        It matches them at the temperature tau; so this is their power tau, renormalised.
        """
        return sharpen(transported, self.temperature)

    def shifted_cost(self) -> Floats:
        """Return the cost (m, K) less the shift, with the same least entry as before."""
        shifted = self.cost - self.shift
        return np.asarray(shifted - shifted.min() + self.cost.min())


def make_signal(
    teacher: Teacher, observed: Observed, task: Task, loss: Loss, cost: Any, seed: int
) -> TeacherSignal:
    """Make the costs of a teacher from what it said about the labelled rows.

    Parameters
    ----------
    teacher : Teacher
    observed : Observed
        Of the rows of the task.
    task : Task
    loss : Loss
    cost : Cost or (m, K) array
    seed : int
        Of a `Random` cost.
    """
    answered = _answered(observed, task)
    if not answered.any():
        raise TeacherError(teacher.name, "abstains on every labelled row; there is nothing to learn from it.")
    costs = _costs(teacher, observed, task, cost, seed)
    M = costs(answered)
    epsilon = check_epsilon(loss.epsilon, M)
    shift = _shift(observed, task, loss, answered, M, epsilon)
    normalize = bool(getattr(cost, "normalize", True))
    return TeacherSignal(teacher, observed, task, loss, costs, normalize, M, epsilon, shift)


def plans_by_fold(signal: TeacherSignal, fold: NDArray[np.intp]) -> dict[int, Floats]:
    """Return the plan (m, K) of each fold, made with the labels of all other rows.

    Parameters
    ----------
    signal : TeacherSignal
    fold : (n,) array of int
        The fold in which a row is held out; -1 for rows that never are.
    """
    observed, task, epsilon, plans = signal.observed, signal.task, signal.epsilon, dict[int, Floats]()
    answered = _answered(observed, task)
    for held_out in np.unique(fold[answered & (fold >= 0)]).tolist():
        others = answered & (fold != held_out)
        if others.any():
            cost = signal.costs(others)
            shift = _shift(observed, task, signal.loss, others, cost, epsilon)
            plans[held_out] = conditional_plan(cost, epsilon, shift)
    return plans


def out_of_fold_labels(signal: TeacherSignal, fold: NDArray[np.intp], plans: Mapping[int, Floats]) -> Floats:
    """Return transported labels (n, K), each by the plan of the row's own fold.

    They are NaN for rows that are never held out, and for those that the teacher did not answer.
    """
    labels = np.full((len(fold), signal.cost.shape[1]), np.nan)
    for held_out, plan in plans.items():
        rows = fold == held_out
        labels[rows] = signal.transported_labels(signal.observed.logits[rows], plan)
    return labels


def _answered(observed: Observed, task: Task) -> NDArray[np.bool_]:
    """Return which labelled rows (n,) the teacher answered."""
    return np.asarray(task.labelled & ~np.isnan(observed.logits[:, 0]))


def _shift(
    observed: Observed, task: Task, loss: Loss, rows: NDArray[np.bool_], cost: Floats, epsilon: float
) -> Floats:
    """Return the shift (K,) of costs that come from these rows."""
    if not loss.match_shares:
        return np.zeros(cost.shape[1])
    proba = np.asarray(softmax(observed.logits[rows] / float(loss.temperature), axis=1))
    return class_share_shift(proba, task.shares(FURTHER_LABELS), cost, epsilon)


def _costs(teacher: Teacher, observed: Observed, task: Task, cost: Any, seed: int) -> Costs:
    """Return what gives M (m, K) of SCTD, eq. (7), from some of the labelled rows (n,)."""
    codes, K = task.codes[task.labelled], len(task.classes)
    if not isinstance(cost, Embedding | Random):
        named = isinstance(cost, Constant | Superclass)
        fixed = cost_by_name(teacher, task.classes, cost) if named else cost
        M = check_cost(fixed, len(teacher.classes), K)
        return lambda rows: M
    X = take_rows(task.X, task.labelled)
    elsewhere = isinstance(cost, Embedding) and cost.other is not None
    said = None if elsewhere else observed.take(task.labelled)
    centres, points = class_points(teacher, X, cost, said, seed)

    def from_rows(rows: NDArray[np.bool_]) -> Floats:
        seen = rows[task.labelled]
        means = class_means(points[seen], codes[seen], K)
        missing = np.isnan(means).any(axis=1)
        if missing.any():  # no answer on any row of a class: nothing tells it apart from the others
            means[missing] = np.nanmean(means[~missing], axis=0)
        return centre_distances(centres, means, cost.normalize)

    return from_rows


def network_targets(signal: TeacherSignal) -> list[Target]:
    """Return what a network learns of a teacher, at a weight of 1."""
    from consilience.nn import SinkhornLoss
    from consilience.nn.distillation import FitNetLoss, FunctionLoss, KDLoss, RelationLoss, RKDLoss

    heat, epsilon, loss = signal.temperature, signal.epsilon, signal.loss

    def logits(seen: Observed) -> Floats:
        return seen.logits

    if isinstance(loss, Sinkhorn):
        distance = SinkhornLoss(signal.shifted_cost(), epsilon, heat, regularizer=loss.regularizer, tol=1e-4)
        distance.adjustable = ("epsilon",)  # a distiller has no other option for it
        return [Target(logits, signal.strength, distance)]
    if isinstance(loss, Own):
        return [Target(logits, 1.0, FunctionLoss(loss.function, signal.shifted_cost(), epsilon, heat))]
    if isinstance(loss, KD):
        return [Target(_matched_logits(signal), 1.0, KDLoss(heat))]
    width = features(signal.observed).shape[1]
    compared: nn.Module = RKDLoss() if isinstance(loss, RKD) else RelationLoss()
    if isinstance(loss, FitNet):
        compared = FitNetLoss(width)
    found = [Target(_standard_embeddings(signal), 1.0, compared, of="features")]
    if isinstance(loss, Refilled):
        found.append(Target(_nearest_mean_logits(signal), 1.0, KDLoss(heat)))
    return found


def soft_label(signal: TeacherSignal, weight: float) -> Target:
    """Return what a scikit-learn student learns of a teacher: soft labels, and what they count."""
    if isinstance(signal.loss, KD):
        matched = _matched_logits(signal)
        return Target(lambda seen: np.asarray(softmax(matched(seen), axis=1)), weight / signal.temperature**2)
    return Target(
        lambda seen: signal.student_labels(signal.transported_labels(seen.logits)),
        signal.label_weight(weight),
    )


def _matched_logits(signal: TeacherSignal) -> Columns:
    """Return what puts a teacher's logits in the order of the student's classes, which must be the same."""
    own, classes = signal.teacher.classes.tolist(), signal.task.classes.tolist()
    if set(own) != set(classes):
        only = shorten(sorted(set(own) ^ set(classes), key=str), 5)
        raise InvalidInputError(
            f"loss='kd' needs a teacher with the student's classes; {signal.teacher.name!r} and the "
            f"student do not share {only}. Use loss='sinkhorn', which needs no common classes."
        )
    order = [own.index(name) for name in classes]
    return lambda seen: seen.logits[:, order]


def _standard_embeddings(signal: TeacherSignal) -> Columns:
    """Return what gives embeddings (n, d) with mean 0 and root mean square 1 over the rows of the signal.

    So a teacher_weight means the same for all teachers.
    """
    E = np.asarray(features(signal.observed), dtype=np.float64)
    mean = np.nanmean(E, axis=0)
    size = float(np.sqrt(np.nanmean((E - mean) ** 2)))
    return lambda seen: np.asarray((features(seen) - mean) / (size if size > 0 else 1.0), dtype=np.float64)


def _nearest_mean_logits(signal: TeacherSignal) -> Columns:
    """Return what gives logits (n, K) of the nearest class mean in the teacher's embedding.

    They are minus the squared distances, in units of the mean squared distance of rows from the mean of their
    own class.
    """
    E, task, labelled = features(signal.observed), signal.task, signal.task.labelled
    means = class_means(E[labelled], task.codes[labelled], len(task.classes))

    def squares(E: NDArray[Any]) -> Floats:
        found = np.full((len(E), len(means)), np.nan)
        answered = ~np.isnan(E[:, 0])
        found[answered] = centre_distances(E[answered], means, signal.normalize) ** 2
        return found

    rows = np.flatnonzero(labelled & ~np.isnan(E[:, 0]))
    own = float(squares(E[rows])[np.arange(len(rows)), task.codes[rows]].mean())
    return lambda seen: -squares(features(seen)) / (own if own > 0 else 1.0)
