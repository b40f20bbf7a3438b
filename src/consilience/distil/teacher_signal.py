"""One teacher made ready for one task: what it says, what its classes cost, and whether to trust it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience._validation import check_cost, take_rows
from consilience.distil.teacher_check import (
    TeacherCheck,
    check_teacher,
    learn_alone,
    make_folds,
)
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.kernels.transport.centres import centre_distances, class_means
from consilience.kernels.transport.sinkhorn import automatic_epsilon
from consilience.labels import shorten
from consilience.teachers import Teacher
from consilience.teachers.scoring.engine import Observed
from consilience.transport.centres import cost_matrix, features, teacher_centres
from consilience.transport.plan import balancing, conditional_plan

Floats = NDArray[np.float64]

# With an automatic epsilon, what lam = 1 is worth in units of it: lam = 10 gives teachers three times the
# weight of the labels. Chosen on digits and CIFAR-100, on seeds that no test or table uses.
STRENGTH = 0.3


@dataclass(frozen=True)
class Task:
    """What the student is to learn.

    Attributes
    ----------
    X : rows
        All n of them.
    classes : (K,) array
    codes : (n,) array of int
        The place of each label among the classes; -1 where there is none.
    """

    X: Any
    classes: NDArray[Any]
    codes: NDArray[np.intp]

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which rows (n,) have a label."""
        return self.codes >= 0

    @property
    def prior(self) -> Floats:
        """The share (K,) of each class among the labels."""
        counts = np.bincount(self.codes[self.labelled], minlength=len(self.classes))
        return np.asarray(counts / counts.sum())


@dataclass(frozen=True)
class Settings:
    """How costs are made; the options of `CrossTaskDistiller` of the same names."""

    cost: Any
    temperature: float
    epsilon: float | str
    normalize: bool
    balance: bool
    superclasses: Any
    seed: int


@dataclass(frozen=True)
class Trial:
    """How teachers are checked: which labelled rows are held out when, and what labels alone tell of them."""

    folds: NDArray[np.intp]
    log_alone: Floats

    @classmethod
    def of(cls, task: Task, seed: int) -> Trial:
        """Draw the folds and learn from the labels alone."""
        codes = task.codes[task.labelled]
        folds = make_folds(codes, np.random.RandomState(seed))
        return cls(folds, learn_alone(take_rows(task.X, task.labelled), codes, len(task.classes), folds))


@dataclass(frozen=True, eq=False)
class Lesson:
    """A teacher's part in a task.

    Attributes
    ----------
    teacher : Teacher
    seen : Observed
        Logits (n, m) and embeddings (n, d) of all rows.
    cost : (m, K) array
        M of SCTD, eq. (7).
    beta : (K,) array
        What is taken off each column of it, so that transported labels have the task's class shares.
    epsilon : float
    automatic : bool
        Whether epsilon was chosen by the cost.
    check : TeacherCheck or None
    """

    teacher: Teacher
    seen: Observed
    cost: Floats
    beta: Floats
    epsilon: float
    automatic: bool
    check: TeacherCheck | None = None

    def transported(self, temperature: float) -> Floats:
        """Return the transported label (n, K) of each row; NaN where the teacher abstains."""
        proba = softmax(self.seen.logits / temperature, axis=1)
        return np.asarray(proba @ conditional_plan(self.cost, self.epsilon, self.beta))

    @property
    def strength(self) -> float:
        """What the Sinkhorn distance is multiplied with, besides lam.

        It is worth about epsilon KL(p_S, q). An automatic epsilon grows with the costs, whose units differ
        from teacher to teacher; counted in units of it, lam means the same for all.
        """
        return STRENGTH / self.epsilon if self.automatic else 1.0

    def heard(self, task: Task) -> NDArray[np.bool_]:
        """Return on which rows (n,) a student listens: where y is known, and elsewhere if this knows more."""
        spoken = ~np.isnan(self.seen.logits[:, 0])
        return spoken if self.check is None or self.check.leads else spoken & task.labelled

    def balanced_cost(self) -> Floats:
        """Return the cost (m, K) less beta, with its least entry where it was: SCTD has no beta."""
        balanced = self.cost - self.beta
        return np.asarray(balanced - balanced.min() + self.cost.min())


def prepare(teacher: Teacher, seen: Observed, task: Task, settings: Settings, trial: Trial | None) -> Lesson:
    """Make costs for a teacher, and check it."""
    labelled = task.labelled
    codes = task.codes[labelled]
    proba = np.asarray(softmax(seen.logits[labelled] / settings.temperature, axis=1))
    spoken = ~np.isnan(proba[:, 0])
    if not spoken.any():
        raise TeacherError(teacher.name, "abstains on every labelled row; there is nothing to learn from it.")
    cost_from = _costs(teacher, seen, task, settings)
    cost = cost_from(spoken)
    automatic = isinstance(settings.epsilon, str)
    epsilon = automatic_epsilon(cost) if automatic else float(settings.epsilon)

    def shift(M: Floats, rows: NDArray[np.bool_]) -> Floats:
        return balancing(proba[rows], task.prior, M, epsilon) if settings.balance else np.zeros(M.shape[1])

    def label(train: NDArray[np.bool_]) -> Callable[[Floats], Floats]:
        M = cost_from(train)
        plan = conditional_plan(M, epsilon, shift(M, train))
        return lambda p: np.asarray(p @ plan)

    verdict = None
    if trial is not None:
        verdict = check_teacher(teacher.name, proba, codes, trial.log_alone, trial.folds, label)
    return Lesson(teacher, seen, cost, shift(cost, spoken), epsilon, automatic, verdict)


def failed_lesson(teacher: Teacher, task: Task, problem: str) -> Lesson:
    """Return the lesson of a teacher that failed: nothing is known of it, and it is dropped."""
    m, K = len(teacher.classes), len(task.classes)
    nothing = Observed(np.full((len(task.codes), m), np.nan), None)
    check = TeacherCheck.failed(teacher.name, problem)
    return Lesson(teacher, nothing, np.full((m, K), np.nan), np.zeros(K), np.nan, False, check)


def _costs(
    teacher: Teacher, seen: Observed, task: Task, settings: Settings
) -> Callable[[NDArray[np.bool_]], Floats]:
    """Return a function that makes M (m, K) of some of the labelled rows."""
    if not isinstance(settings.cost, str):
        own_cost = check_cost(settings.cost, len(teacher.classes), len(task.classes))
        return lambda rows: own_cost
    labelled = task.labelled
    X, codes = take_rows(task.X, labelled), task.codes[labelled]
    heard = Observed(seen.logits[labelled], None if seen.embeddings is None else seen.embeddings[labelled])
    if settings.cost != "embedding":
        fixed = cost_matrix(
            teacher,
            X,
            task.classes[codes],
            kind=settings.cost,  # type: ignore[arg-type]
            superclasses=settings.superclasses,
            normalize=settings.normalize,
            observed=heard,
            random_state=settings.seed,
        )
        return lambda rows: fixed
    own, E = teacher_centres(teacher, X, observed=heard), features(heard)

    def cost_from(rows: NDArray[np.bool_]) -> Floats:
        means = class_means(E[rows], codes[rows], len(task.classes))
        gone = np.isnan(means).any(axis=1)
        if gone.any():  # the teacher abstains on all rows of a class: nothing tells it from the others
            means[gone] = np.nanmean(means[~gone], axis=0)
        return centre_distances(own, means, settings.normalize)

    return cost_from


def matched_logits(lesson: Lesson, classes: NDArray[Any]) -> Floats:
    """Return the teacher's logits (n, K) in the order of the student's classes, which must be the same."""
    own = lesson.teacher.classes.tolist()
    if set(own) != set(classes.tolist()):
        only = shorten(sorted(set(own) ^ set(classes.tolist()), key=str), 5)
        raise InvalidInputError(
            f"{{argument}} needs a teacher with the student's classes, and {lesson.teacher.name!r} and the "
            f"student do not share {only}. Use {{remedy}}, which needs no common classes.",
            argument="loss",
            value="kd",
            remedy=("loss", "sinkhorn"),
        )
    return lesson.seen.logits[:, [own.index(name) for name in classes.tolist()]]


def standard_embeddings(lesson: Lesson) -> Floats:
    """Return embeddings (n, d) of mean 0 and root mean square 1, so that lam means the same for all."""
    E = np.asarray(features(lesson.seen), dtype=np.float64)
    E = E - np.nanmean(E, axis=0)
    size = float(np.sqrt(np.nanmean(E**2)))
    return np.asarray(E / (size if size > 0 else 1.0))


def nearest_mean_logits(lesson: Lesson, task: Task, normalize: bool) -> Floats:
    """Return logits (n, K) of the nearest class mean in the teacher's embedding.

    Minus the squared distance, in units of what rows have from the mean of their own class.
    """
    E, labelled = features(lesson.seen), task.labelled
    means = class_means(E[labelled], task.codes[labelled], len(task.classes))
    squares = np.full((len(E), len(means)), np.nan)
    spoken = ~np.isnan(E[:, 0])
    squares[spoken] = centre_distances(E[spoken], means, normalize) ** 2
    rows = np.flatnonzero(labelled & spoken)
    own = float(squares[rows, task.codes[rows]].mean())
    return np.asarray(-squares / (own if own > 0 else 1.0))
