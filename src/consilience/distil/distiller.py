"""Distil: train a student with its own labels and with teachers whose classes may differ from its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from consilience._validation import as_random_state
from consilience.distil.losses import DistilOptions, LabelsOnly, Loss, Own
from consilience.distil.targets import Follower, Targets, train
from consilience.distil.teacher_check import Folds, TeacherCheck, check_teacher, score_weights
from consilience.distil.teacher_signal import Task, TeacherSignal, make_signal
from consilience.exceptions import ConsilienceWarning, InvalidInputError, TeacherError, warn
from consilience.kernels.arrays import Floats
from consilience.labels.reader import LabelCodes, read_labels
from consilience.rows import Rows, as_rows, rows_that_fit
from consilience.run import Run, part_of, resolve_run
from consilience.scoring import with_open_cache
from consilience.scoring.blocks import observe
from consilience.students.classifier import Origin, StudentClassifier, timed
from consilience.students.make import make_student
from consilience.students.student import encoder_of
from consilience.teachers import Teacher
from consilience.teachers.given import OpenedTeachers, open_teachers

# With teacher_weight="auto": the weights that teachers can earn, for a network and for a scikit-learn
# student; the part of it that counts on labelled rows, where the label is known; and the weight of teachers
# that are not checked. A network takes a limited number of steps, and larger weights slow it down. See
# benchmarks/papers/harm.py for the data that chose them.
WEIGHTS = {"logits": (3.0, 10.0, 30.0), "probabilities": (10.0, 30.0, 100.0)}
LABELLED_SHARE, UNCHECKED_WEIGHT = 1 / 3, 10.0
UNLABELLED = 2**14
"""Most unlabelled rows that are in memory for checks and encoders, if not all rows fit."""


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
        loss, run, rows = self.resolved("loss"), with_open_cache(resolve_run(self.run)), as_rows(X)
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
                observed = observe(teacher, task.X, one)
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
