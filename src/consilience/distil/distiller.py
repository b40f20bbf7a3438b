"""Distil: train a student with its own labels and with teachers whose classes may differ from its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._validation import as_random_state
from consilience.distil.losses import DistilOptions, LabelsOnly, Loss, Own
from consilience.distil.teacher_check import Folds, TeacherCheck, check_teacher, score_weights
from consilience.distil.teacher_signal import (
    Target,
    Task,
    TeacherSignal,
    make_signal,
    network_targets,
    soft_label,
)
from consilience.exceptions import ConsilienceWarning, CoverageWarning, InvalidInputError, TeacherError, warn
from consilience.kernels.arrays import Floats
from consilience.labels.reader import LabelCodes, read_labels
from consilience.rows import Rows, as_rows, new_array, rows_that_fit
from consilience.rows.targets import ROW_VISITS, TargetRows
from consilience.run import Run, part_of, resolve_run
from consilience.scoring import blocks
from consilience.students.classifier import Origin, StudentClassifier, timed
from consilience.students.make import make_student
from consilience.students.student import encoder_of
from consilience.teachers import Observed, Teacher
from consilience.teachers.given import OpenedTeachers, open_teachers

if TYPE_CHECKING:
    from consilience.nn.distillation import CrossTaskLoss

# With teacher_weight="auto": the weights that teachers can earn, for a network and for a scikit-learn
# student; the part of it that counts on labelled rows, where the label is known; and the weight of teachers
# that are not checked. A network takes a limited number of steps, and larger weights slow it down. See
# benchmarks/papers/harm.py for the data that chose them.
WEIGHTS = {"logits": (3.0, 10.0, 30.0), "probabilities": (10.0, 30.0, 100.0)}
LABELLED_SHARE, UNCHECKED_WEIGHT = 1 / 3, 10.0
# A network gets at least this many steps of the optimiser, however few the rows.
MIN_STEPS = 800
UNLABELLED = 2**14
"""Most unlabelled rows that are in memory for checks and encoders, if not all rows fit."""


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
        found = [labels]
        for follower, target, _ in self.parts:
            seen = said[follower.place]
            rows, columns = follower.rows(codes, seen), target.columns(seen)
            if target.loss is None:
                labels[rows] += target.weight * columns[rows]
            else:
                found.append(np.where(rows[:, None], columns, np.nan))
        return np.hstack(found)

    def criterion(self, labelled: float) -> CrossTaskLoss:
        """Return the loss of eq. (11) for a network, if this share of the rows has a label."""
        from consilience.nn.distillation import CrossTaskLoss, Term

        terms, start = [], self.n_classes
        for _, target, width in self.parts:
            columns, start = slice(start, start + width), start + width
            if target.loss is not None:
                terms.append(Term(target.loss, columns, target.weight, target.of))
        return CrossTaskLoss(self.n_classes, terms, labelled)


class Trial(NamedTuple):
    """What teachers have to earn."""

    check: bool  # whether each is checked
    weights: Sequence[float]  # that a teacher can have, besides 0
    labelled: float  # the part of its weight that it has on labelled rows


class Examined(NamedTuple):
    """A teacher, its signal (None if it failed), and its check (None if there was none)."""

    teacher: Teacher
    signal: TeacherSignal | None
    check: TeacherCheck | None


class CrossTaskDistiller(DistilOptions, StudentClassifier):
    """Train a student with labels and with teachers whose classes may differ from its own.

    The student minimises the cross-entropy with y plus `teacher_weight` times the Sinkhorn distance between
    its predictions and the teacher's: "Selective Cross-Task Distillation", eq. (11). Moving probability from
    one class to another costs their distance in the teacher's embedding. Teachers are asked before the
    training. Where not all rows fit in memory, costs and checks come from a random sample of the labelled
    rows and some others; then the teachers are asked about all rows, block by block.

    Attributes
    ----------
    classes_ : (K,) array
        The classes of y, sorted.
    teachers_ : list of Teacher
    teacher_weights_ : (N,) array
        The share of each teacher in the teachers' part, times its reliability; 0 for those that were dropped.
    checks_ : list of TeacherCheck
        The check of each teacher; without a check only of those that failed.
    costs_ : list of (m, K) arrays
        The cost matrix of each teacher, NaN where it failed.
    n_labels_ : int
        Rows with a label.
    student_ : the fitted student
    history_ : list of dict
        For a torch student, per epoch.
    seconds_ : dict
        How long observing (with the costs and the check) and training took.
    n_iter_ : int or None
    feature_names_in_ : (d,) array
        The names of the columns of X, if X is a table with names. New rows may have them in any order.
    encoding_ : dict or None
        What was done with each column of a table of mixed columns, in words; see docs/tables.md.
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neural_network import MLPClassifier
    >>> from sklearn.utils import shuffle
    >>> X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
    >>> X, labels = X / 16, np.where(np.arange(len(y)) < 1060, y, -1)  # -1: no label
    >>> teacher = MLPClassifier(64, max_iter=60, tol=1e-2, random_state=0).fit(X[:1000], y[:1000])
    >>> student = CrossTaskDistiller(teacher, "logistic").fit(X[1000:1260], labels[1000:1260])
    >>> labels_only = CrossTaskDistiller(None, "logistic", loss="none").fit(X[1000:1060], y[1000:1060])
    >>> student.score(X[1260:], y[1260:]) > labels_only.score(X[1260:], y[1260:]) + 0.05
    True
    """

    def fit(self, X: Any, y: Any) -> CrossTaskDistiller:
        """Ask the teachers about X and train the student.

        Parameters
        ----------
        X : (n, ...) array, data frame, list, path or other source of rows
            Rows in the form that teachers and student take. The student must see the rows as the teachers saw
            them, so they cannot be augmented during training.
        y : (n,) sequence
            Labels. None, NaN or -1 stands for no label: on such rows only the teachers act (ours). If -1 is a
            class of yours, give the classes names. `n_labels_` is the number of labels that were read.
        """
        self.check_options()
        loss, run, rows = self.resolved("loss"), blocks.with_open_cache(resolve_run(self.run)), as_rows(X)
        if len(rows) == 0:
            raise InvalidInputError("X has no rows (0 sample(s)); a minimum of 1 is required.")
        if y is None:
            raise InvalidInputError("requires y to be passed, but the target y is None: give labels.")
        labels = read_labels(y, len(rows), at_least=2)
        few, places = _sample(rows, labels, run)
        student = self._make_student(few, loss, run)
        student.check_memory(rows, len(labels.classes), run)
        as_seen = self._read_rows(student, few, encoder_of(labels.classes))
        codes = labels.codes if places is None else labels.codes[places]
        task = Task(few, labels.classes, codes, as_seen(few))
        labels_only = isinstance(loss, LabelsOnly) or self.teacher_weight == 0
        seconds: dict[str, float] = {}
        with timed(seconds, "observing"):
            unneeded = labels_only and self.teachers is None
            opened = OpenedTeachers([], [], None) if unneeded else open_teachers(self.teachers)
            some = [one if places is None else one.part(places) or one for one in opened.teachers]
            trial = self._trial(loss, student.scores)
            examined = [] if labels_only else self._examine(task, some, loss, trial, run)
        weights = np.zeros(len(opened.teachers))
        if examined:
            weights = _weigh(examined, opened.scores, float(loss.sharpness))
        with timed(seconds, "training"):
            followers = _followers(examined, weights, labels, trial)
            targets = Targets.of(len(task.classes), followers, student.scores)
            train(
                student,
                targets,
                rows,
                labels.codes,
                as_seen,
                run,
                teachers=opened.teachers if examined else [],
                observed=places is None,
                own=hasattr(self.student, "max_iter"),
            )
        # only now, so that a fit that fails changes nothing
        self.classes_, self.teachers_, self.seconds_ = task.classes, opened.teachers, seconds
        self.n_labels_ = int(np.count_nonzero(labels.known))
        self.costs_ = [
            np.full((len(teacher.classes), len(task.classes)), np.nan) if signal is None else signal.cost
            for teacher, signal, _ in examined
        ]
        self.checks_ = [check for _, _, check in examined if check is not None]
        self.teacher_weights_ = weights
        self.history_ = getattr(student, "history_", [])
        self._keep_student(student, few, as_seen, None if places is None else len(rows))
        return self

    def _make_student(self, X: Any, loss: Loss, run: Run) -> Any:
        """Return an unfitted student that can learn from X by this loss."""
        student = make_student(self.student, X=X, random_state=self.random_state, run=run)
        if student.scores == "probabilities" and loss.torch_only:
            own = isinstance(loss, Own)
            what = "{argument}, a function," if own else "{argument}"
            others = "'sinkhorn' or 'kd'" if own else "'sinkhorn'"
            raise InvalidInputError(
                f"{what} needs a torch student; use {others}, or {{remedy}}.",
                argument="loss",
                value=loss.name,
                remedy=("student", "torch"),
            )
        return student

    def _trial(self, loss: Loss, scores: str) -> Trial:
        """Return what teachers have to earn, where the student gives `scores`."""
        chosen = isinstance(self.teacher_weight, str)
        check = loss.checked and (self.check is True or (chosen and self.check is not False))
        if not chosen:
            return Trial(check, (float(self.teacher_weight),), 1.0)
        return (
            Trial(True, WEIGHTS[scores], LABELLED_SHARE) if check else Trial(False, (UNCHECKED_WEIGHT,), 1.0)
        )

    def _examine(
        self, task: Task, teachers: Sequence[Teacher], loss: Loss, trial: Trial, run: Run
    ) -> list[Examined]:
        """Ask every teacher about the rows of the task, make its costs, and check it."""
        costs = _cost_per_teacher(self.resolved("cost"), len(teachers))
        seed = int(as_random_state(self.random_state).randint(2**31 - 1))
        folds = Folds.draw(task, seed) if trial.check else None
        examined, failures = list[Examined](), list[TeacherError]()
        for i, teacher in enumerate(teachers):
            try:
                one = run.changed(progress=part_of(run.report, i, len(teachers)))
                observed = blocks.observe(teacher, task.X, one)
                signal = make_signal(teacher, observed, task, loss, costs[i], seed)
            except TeacherError as error:
                failures.append(error)
                failed = TeacherCheck.unknown(teacher.name, error.problem)
                examined.append(Examined(teacher, None, failed))
                continue
            check = None if folds is None else check_teacher(signal, folds, trial.weights, trial.labelled)
            examined.append(Examined(teacher, signal, check))
        if len(failures) == len(teachers):
            raise failures[0].at(0, len(teachers)) from failures[0].__cause__
        return examined

    def origin(self) -> Origin:
        loss = self.resolved("loss")
        about = {
            "loss": loss.name,
            "teacher_weight": str(self.teacher_weight),
            "temperature": f"{loss.temperature:g}",
        }
        return Origin(f"Distilled with {len(self.teachers_)} teachers.", about)


def _sample(rows: Rows, labels: LabelCodes, run: Run) -> tuple[Any, Any]:
    """Return rows in memory, and their positions if these are not all: labelled ones, and some others."""
    few, places = rows_that_fit(rows.given, labels.known, run, seed=0, most_others=UNLABELLED)
    n_labelled = int(labels.known.sum())
    if places is not None and (kept := int(labels.known[places].sum())) < n_labelled:
        warn(
            ConsilienceWarning(
                f"Costs and checks of teachers come from {kept:,} random rows of the {n_labelled:,} that "
                "have a label: all of them would take more memory. The student learns from all. Raise "
                "memory= for more."
            )
        )
    return few, places


def _weigh(examined: Sequence[Examined], ranked: Sequence[float] | None, sharpness: float) -> Floats:
    """Return the weight (N,) of each teacher, and warn of those that are dropped."""
    checks = [check for _, _, check in examined]
    reliability = np.array([1.0 if check is None else check.reliability for check in checks])
    if ranked is not None:
        scores = np.array(ranked)
    else:  # a teacher without a check has no score, and 0 stands for it
        scores = np.nan_to_num([0.0 if check is None else check.gain for check in checks])
    scores = np.where(reliability > 0, scores, np.nan)
    for check in checks:
        if check is not None and not check.used:
            hint = "" if check.failure else " {remedy} keeps it."
            warn(
                ConsilienceWarning(
                    f"Teacher {check.name!r} was dropped because it {check.reason}.{hint}",
                    remedy=("check", False),
                )
            )
    weights: Floats = reliability * score_weights(scores, sharpness)
    return weights


def _followers(
    examined: Sequence[Examined], weights: Floats, labels: LabelCodes, trial: Trial
) -> list[Follower]:
    """Return the teachers that the student follows, apart for labelled rows if their weight differs."""
    found: list[Follower] = []
    for place, (one, share) in enumerate(zip(examined, weights, strict=False)):
        if one.signal is None or share <= 0:
            continue
        weight = trial.weights[-1] * share
        if trial.labelled == 1.0:
            found.append(Follower(place, one.signal, weight))
            continue
        found.append(Follower(place, one.signal, trial.labelled * weight, labelled=True))
        if not labels.known.all():
            found.append(Follower(place, one.signal, weight, labelled=False))
    return found


def _cost_per_teacher(cost: Any, count: int) -> list[Any]:
    if isinstance(cost, list | tuple) and any(np.ndim(part) == 2 for part in cost):
        if len(cost) != count:
            raise InvalidInputError(f"cost has {len(cost)} matrices for {count} teachers; give one for each.")
        return list(cost)
    return [cost] * count


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
    store, tell = blocks.open_cache(run), run.counter("scoring", len(known) * len(rows))
    asked = blocks.open_teachers(teachers, rows, run, store, places=sorted(known), embeddings=True)
    for block in rows.blocks():
        yield block.rows, blocks.observe_all(asked, len(teachers), block, tell)
