"""What students learn of teachers by each loss, as columns beside the labels or mixed into them, and how.

A new loss is a class in `consilience.distil.losses` and a case of `network_targets`, or of `soft_label`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience._words import shorten
from consilience.distil.losses import KD, RKD, FitNet, Own, Refilled, Sinkhorn
from consilience.distil.teacher_signal import TeacherSignal
from consilience.exceptions import CoverageWarning, InvalidInputError, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.transport.centres import centre_distances, class_means
from consilience.rows import Rows, new_array
from consilience.rows.targets import ROW_VISITS, TargetRows
from consilience.run import Run
from consilience.scoring.blocks import observe_all, open_cache, open_teachers
from consilience.teachers import Observed, Teacher
from consilience.transport.centres import features

if TYPE_CHECKING:
    from torch import nn

    from consilience.nn.distillation import CrossTaskLoss

# A network gets at least this many steps of the optimiser, however few the rows.
MIN_STEPS = 800
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


class Part(NamedTuple):
    """What a student learns of a follower's teacher, and how many columns it adds to the labels."""

    follower: Follower
    target: Target
    width: int


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
    parts : sequence of Part
        What is made of each follower.
    """

    n_classes: int
    followers: Sequence[Follower]
    parts: Sequence[Part]

    @classmethod
    def of(cls, n_classes: int, followers: Sequence[Follower], scores: str) -> Targets:
        """Find what a student learns that gives `scores`, "logits" or "probabilities"."""
        parts = []
        for follower in followers:
            signal, weight = follower.signal, follower.weight
            if scores == "probabilities":
                parts.append(Part(follower, soft_label(signal, weight), 0))
                continue
            first = signal.observed.take(slice(0, 1))
            for target in network_targets(signal):
                weighted = target._replace(weight=weight * target.weight)
                parts.append(Part(follower, weighted, target.columns(first).shape[1]))
        return cls(n_classes, followers, parts)

    @property
    def n_columns(self) -> int:
        """K, and the columns beside the labels."""
        return self.n_classes + sum(part.width for part in self.parts)

    def columns(self, codes: NDArray[np.intp], said: Mapping[int, Observed]) -> Floats:
        """Return targets (n, K + e); columns beside the labels are NaN where a teacher is not followed.

        Parameters
        ----------
        codes : (n,) array of int
            Positions of the labels; -1 for rows without one.
        said : mapping of int to Observed
            What the teacher in each place said of these rows.
        """
        labels = np.zeros((len(codes), self.n_classes))
        labels[codes >= 0, codes[codes >= 0]] = 1.0
        blocks = [labels]
        for follower, target, _ in self.parts:
            seen = said[follower.place]
            rows, columns = follower.rows(codes, seen), target.columns(seen)
            if target.loss is None:
                labels[rows] += target.weight * columns[rows]
            else:
                blocks.append(np.where(rows[:, None], columns, np.nan))
        return np.hstack(blocks)

    def criterion(self, labelled: float) -> CrossTaskLoss:
        """Return the loss of eq. (11) for a network, if this share of the rows has a label."""
        from consilience.nn.distillation import CrossTaskLoss, Term

        terms, start = [], self.n_classes
        for _, target, width in self.parts:
            columns, start = slice(start, start + width), start + width
            if target.loss is not None:
                terms.append(Term(target.loss, columns, target.weight, target.of))
        return CrossTaskLoss(self.n_classes, terms, labelled)


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


def train(
    student: Any,
    targets: Targets,
    rows: Rows,
    codes: NDArray[np.intp],
    as_seen: Callable[[Any], Any],
    run: Run,
    *,
    teachers: Sequence[Teacher],
    observed: bool,
    own: bool,
) -> None:
    """Fit the student to all rows by passes over them.

    Parameters
    ----------
    student : unfitted student
    targets : Targets
    rows : Rows
    codes : (n,) array of int
        Positions of the labels; -1 for rows without one.
    as_seen : callable
        From rows to what the student sees of them.
    run : Run
    teachers : sequence of Teacher
        All of them, also those that are not followed.
    observed : bool
        Whether the signals of teachers have the answers to all rows, so that none is asked again.
    own : bool
        Whether the student has options of training of its own.
    """
    goals = new_array((len(rows), targets.n_columns), run)
    used, digest = codes >= 0, blake2b(digest_size=16)
    for part, said in _answers(targets.followers, rows, [] if observed else teachers, run):
        for follower in targets.followers:
            used[part] |= follower.rows(codes[part], said[follower.place])
        goals[part] = targets.columns(codes[part], said)
        digest.update(np.ascontiguousarray(goals[part], dtype=np.float32).data)
    if not used.all() and teachers:
        warn(
            CoverageWarning(
                f"{np.count_nonzero(~used)} rows without a label are not used: no teacher that is used "
                "answered them."
            )
        )
    if student.scores == "probabilities":
        mass = goals.sum(axis=1)
        for i in range(rows.n_blocks):
            part = rows.rows_of(i)
            goals[part] /= np.maximum(mass[part, None], np.finfo(np.float32).tiny)
        learnt = TargetRows(rows, goals, mass / mass.max(), used, as_seen)
        student.learn(learnt, np.ones(targets.n_classes), run=run)
        return
    learnt = TargetRows(rows, goals, None, used, as_seen)
    if not own:
        student.set_params(**training_options(learnt.n_rows))
    criterion = targets.criterion(float((codes >= 0).sum() / learnt.n_rows))
    student.learn_loss(learnt, targets.n_classes, criterion, run=run, key=digest.hexdigest())


def training_options(rows: int) -> dict[str, Any]:
    """Return how a network is trained on so many rows.

    Few rows in large batches would give too few steps; of very many, it sees `ROW_VISITS`. Nothing is held
    out: every label is needed.
    """
    batch = min(128, max(16, rows // 10))
    epochs = max(30, math.ceil(MIN_STEPS / math.ceil(rows / batch)))
    passes = epochs if rows * epochs <= ROW_VISITS else None
    return {"batch_size": batch, "max_iter": passes, "patience": None, "validation_fraction": 0.0}


def _answers(
    followers: Sequence[Follower], rows: Rows, teachers: Sequence[Teacher], run: Run
) -> Iterator[tuple[slice, Mapping[int, Observed]]]:
    """Yield the positions of some rows, and what the teachers that are followed say of them, by their place.

    Without `teachers`, it is what their signals have.
    """
    known = {follower.place: follower.signal.observed for follower in followers}
    if not (teachers and followers):
        for number in range(rows.n_blocks):
            part = rows.rows_of(number)
            yield part, {place: observed.take(part) for place, observed in known.items()}
        return
    store, tell = open_cache(run), run.counter("scoring", len(known) * len(rows))
    asked = open_teachers(teachers, rows, run, store, places=sorted(known), embeddings=True)
    for block in rows.blocks():
        yield block.rows, observe_all(asked, len(teachers), block, tell)
