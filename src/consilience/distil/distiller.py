"""Distil: train a student with its own labels and with teachers whose classes may differ from its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, part_of, silent
from consilience._validation import (
    as_random_state,
    check_choice,
    check_count,
    check_number,
    check_temperature,
    n_rows,
)
from consilience.distil.by_blocks import TaskBlocks, sample_of, train_by_blocks
from consilience.distil.losses import DistillationLoss, find_loss, loss_name
from consilience.distil.teacher_check import Folds, TeacherCheck, check_teacher, score_weights
from consilience.distil.teacher_signal import SignalOptions, Task, TeacherSignal, make_signal
from consilience.distil.training import Follower, by_rows, train
from consilience.exceptions import ConsilienceWarning, InvalidInputError, TeacherError
from consilience.kernels.arrays import Floats
from consilience.labels.reader import read_labels
from consilience.rows import Rows, as_rows, memory_budget
from consilience.run import Run
from consilience.scoring.engine import observe
from consilience.scoring.store import as_store
from consilience.students.base import Origin, StudentClassifier, timed
from consilience.students.make import make_student
from consilience.students.passes import check_student_streams
from consilience.students.training import encode_validation, encoder_of
from consilience.teachers import Teacher
from consilience.teachers.given import OpenedTeachers, open_teachers

Loss = Literal["sinkhorn", "kd", "rkd", "fitnet", "refilled", "none"]
# With teacher_weight="auto": the weights that teachers can earn, for a network and for a scikit-learn
# student; the part of it that counts on labelled rows, where the label is known; and the weight of teachers
# that are not checked. A network takes a limited number of steps, and larger weights slow it down. See
# benchmarks/papers/harm.py for the data that chose them.
WEIGHTS = {"logits": (3.0, 10.0, 30.0), "probabilities": (10.0, 30.0, 100.0)}
LABELLED_SHARE, UNCHECKED_WEIGHT = 1 / 3, 10.0


class Examined(NamedTuple):
    """A teacher, its signal (None if it failed), and its check (None if there was none)."""

    teacher: Teacher
    signal: TeacherSignal | None
    check: TeacherCheck | None


class CrossTaskDistiller(StudentClassifier):
    """Train a student with labels and with teachers whose classes may differ from its own.

    The student minimises the cross-entropy with y plus `teacher_weight` times the Sinkhorn distance between
    its predictions and the teacher's: "Selective Cross-Task Distillation", eq. (11). Moving probability from
    one class to another costs their distance in the teacher's embedding. Teachers are asked once, before the
    training.

    Parameters
    ----------
    teachers : teacher, list, dict or Ranking
        Anything that `as_teacher` takes; a list of these, or a dict by name; or the result of
        `rank_teachers`. None only for ``loss="none"`` or ``teacher_weight=0``.
    student : classifier, torch.nn.Module, factory, name or None
        As in `Unifier`. Modules, factories and None are trained for 800 steps or more, without held-out rows.
        Give a `consilience.students.Network` to choose otherwise.
    teacher_weight : float or "auto"
        Weight of the teachers' part, lambda of eq. (11); 10 or 100 in the paper. 0 trains with the labels
        only. With "auto" each teacher has to earn its weight on held-out labels (ours): 0, 10, 30 or 100,
        and for networks 0, 3, 10 or 30.
        A third of it counts on labelled rows; see `check`. A number is used as it is, for every teacher and
        on all rows.
    temperature : float
        tau of eq. (10), for teacher and student in the teachers' part. `predict_proba` is at temperature 1.
    epsilon : float or "auto"
        Regularisation of eq. (5). "auto" is half the standard deviation of the cost, as in `sinkhorn`.
    loss : {"sinkhorn", "kd", "rkd", "fitnet", "refilled", "none"} or callable
        What the teachers add; see `consilience.nn.distillation`. ``"kd"`` needs teachers with the student's
        classes. scikit-learn students can learn by "sinkhorn", "kd" and "none". A function of your own is
        called as ``loss(student_logits, teacher_logits, cost=cost, epsilon=epsilon,
        temperature=temperature)`` with tensors (n, K), (n, m) and (m, K), and returns a scalar or a value
        for each row (n,).
    cost : {"embedding", "constant", "random", "superclass"} or (m, K) array
        A kind of `cost_matrix`, or your own matrix; for several teachers, a list of matrices.
    normalize : bool
        Whether centres are compared at unit length; see `cost_matrix`.
    match_shares : bool
        Whether to shift the costs of each class of the student so that transported labels have the class
        shares of y on average (ours). Without the shift, as in the paper, rows of a class that is nearest to
        no class of the teacher are pulled towards other classes.
    superclasses : mapping, optional
        For ``cost="superclass"``.
    regularizer : {"entropy", "kl"}
        See `sinkhorn`.
    check : {"auto", True, False}
        Whether teachers have to earn their weight on held-out labels. A teacher is dropped unless it knows
        more about them than the other labels do, and makes a student better; see
        `consilience.distil.teacher_check`. "auto" checks with ``teacher_weight="auto"`` and not with a
        number. True with a number drops teachers that do not earn this weight. Without a check "auto" means
        10 for every teacher.
    sharpness : float
        The weights of several teachers are softmax(sharpness * s), with s their scores less the mean, in
        standard deviations. 0 gives all the same weight.
    threshold : float
        For scikit-learn students: classes of a row that are less probable than this are left out.
    cache : path or ScoreStore, optional
        A folder that keeps what teachers say; see `consilience.scoring.store`.
    cache_limit : float or str, optional
        Most bytes of the cache, such as ``"20GB"``: what was not used for longest is deleted beyond it.
    memory : float or str, optional
        How much memory the work may take, such as ``"2GB"``; by default a quarter of the machine's. Rows in
        files that would take more are read block by block: teachers are checked on labelled rows and a few
        others, then asked about all rows, and the student learns by passes. See docs/large-data.md.
    batch_size : int
        Rows per call of a teacher.
    progress : callable, optional
        Called with (task, done, total) during long work.
    random_state : int, RandomState or None
        Makes the student reproducible.

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
        The cost matrix of each teacher, NaN where it failed; `cost_` is the first.
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

    def __init__(
        self,
        teachers: Any,
        student: Any = None,
        teacher_weight: float | Literal["auto"] = "auto",
        temperature: float = 3.0,
        epsilon: float | Literal["auto"] = "auto",
        loss: Loss | Callable[..., Any] = "sinkhorn",
        *,
        cost: Any = "embedding",
        normalize: bool = True,
        match_shares: bool = True,
        superclasses: Mapping[Any, Any] | None = None,
        regularizer: Literal["entropy", "kl"] = "entropy",
        check: Literal["auto"] | bool = "auto",
        sharpness: float = 1.0,
        threshold: float = 0.01,
        cache: Any = None,
        cache_limit: float | str | None = None,
        memory: float | str | None = None,
        batch_size: int = 4096,
        progress: Progress | None = None,
        random_state: Any = None,
    ) -> None:
        self.teachers = teachers
        self.student = student
        self.teacher_weight = teacher_weight
        self.temperature = temperature
        self.epsilon = epsilon
        self.loss = loss
        self.cost = cost
        self.normalize = normalize
        self.match_shares = match_shares
        self.superclasses = superclasses
        self.regularizer = regularizer
        self.check = check
        self.sharpness = sharpness
        self.threshold = threshold
        self.cache = cache
        self.cache_limit = cache_limit
        self.memory = memory
        self.batch_size = batch_size
        self.progress = progress
        self.random_state = random_state

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
        loss = self._check_params()
        X = as_rows(X).given
        if n_rows(X) == 0:
            raise InvalidInputError("X has no rows (0 sample(s)); a minimum of 1 is required.")
        if y is None:
            raise InvalidInputError("requires y to be passed, but the target y is None: give labels.")
        labels = read_labels(y, n_rows(X), at_least=2)
        few, places = sample_of(X, labels.known, self.memory)
        student = self._make_student(few, loss)
        source = X if places is not None else None  # the rest is read block by block
        if source is not None:
            check_student_streams(
                student,
                len(source),
                source.n_bytes,
                len(labels.classes),
                memory_budget(Run(memory=self.memory)),
            )
        read = self._read_rows(student, few)
        task = Task(few, labels.classes, labels.codes if places is None else labels.codes[places], read.rows)
        encode_validation(student, encoder_of(task.classes))
        labels_only = loss.targets is None or self.teacher_weight == 0
        seconds: dict[str, float] = {}
        with timed(seconds, "observing"):
            unneeded = labels_only and self.teachers is None
            opened = OpenedTeachers([], [], None) if unneeded else open_teachers(self.teachers)
            teachers = opened.teachers
            some = [teacher if places is None else teacher.part(places) or teacher for teacher in teachers]
            choices = self._choices(loss, student)
            examined = [] if labels_only else self._examine(task, some, loss, choices)
        weights = self._weigh(examined, opened.scores) if examined else np.zeros(len(teachers))
        with timed(seconds, "training"):
            followed = self._following(examined, weights, task, choices)
            if source is None:
                train(self, student, task, followed, loss, asked=bool(examined))
            else:
                train_by_blocks(
                    self, student, read, task, self._blocks(source, labels.codes, followed, teachers, loss)
                )
        # only now, so that a fit that fails changes nothing
        self.classes_, self.teachers_, self.seconds_ = task.classes, teachers, seconds
        self.n_labels_ = int(np.count_nonzero(labels.known))
        self.costs_ = [
            np.full((len(teacher.classes), len(task.classes)), np.nan) if signal is None else signal.cost
            for teacher, signal, _ in examined
        ]
        self.checks_ = [check for _, _, check in examined if check is not None]
        self.teacher_weights_: Floats = weights
        self.history_: list[dict[str, Any]] = getattr(student, "history_", [])
        self._keep_student(student, few, read, n_rows=None if source is None else len(source))
        return self

    @property
    def cost_(self) -> Floats:
        """The cost matrix (m, K) of the first teacher."""
        self._check_fitted()
        if not self.costs_:
            raise AttributeError(
                f"loss={self.loss!r} with teacher_weight={self.teacher_weight} has no costs."
            )
        return self.costs_[0]

    def _check_params(self) -> DistillationLoss:
        """Raise where an option is wrong; return the loss."""
        loss = find_loss(self.loss)
        check_choice("regularizer", self.regularizer, ("entropy", "kl"))
        check_choice("check", self.check, ("auto", True, False))
        for name in ("normalize", "match_shares"):
            check_choice(name, getattr(self, name), (True, False))
        if isinstance(self.teacher_weight, str):
            check_choice("teacher_weight", self.teacher_weight, ("auto",))
        else:
            check_number("teacher_weight", self.teacher_weight, at_least=0)
        check_temperature(self.temperature)
        check_number("sharpness", self.sharpness, at_least=0)
        if isinstance(self.epsilon, str):
            check_choice("epsilon", self.epsilon, ("auto",))
        else:
            check_number("epsilon", self.epsilon, above=0)
        if isinstance(self.cost, str):
            check_choice("cost", self.cost, ("embedding", "constant", "random", "superclass"))
        check_count("batch_size", self.batch_size)
        if (self.superclasses is not None) != (isinstance(self.cost, str) and self.cost == "superclass"):
            raise InvalidInputError("cost='superclass' needs superclasses=, and no other cost takes them.")
        return loss

    @property
    def _chooses_weights(self) -> bool:
        """Whether teachers have to earn their weights, and the user has given none."""
        return isinstance(self.teacher_weight, str) and self.check is not False

    def _make_student(self, X: Any, loss: DistillationLoss) -> Any:
        """Return an unfitted student that can learn from X by this loss."""
        student = make_student(
            self.student,
            threshold=self.threshold,
            random_state=self.random_state,
            progress=self.progress,
            X=X,
        )
        if student.scores == "probabilities" and loss.torch_only:
            if isinstance(self.loss, str):
                what, others = "{argument}", "'sinkhorn'"
            else:
                what, others = "{argument}, a function,", "'sinkhorn' or 'kd'"
            raise InvalidInputError(
                f"{what} needs a torch student; use {others}, or {{remedy}}.",
                argument="loss",
                value=self.loss if isinstance(self.loss, str) else loss_name(self.loss),
                remedy=("student", "torch"),
            )
        return student

    def _examine(
        self,
        task: Task,
        teachers: Sequence[Teacher],
        loss: DistillationLoss,
        choices: tuple[Sequence[float], float],
    ) -> list[Examined]:
        """Ask every teacher once, make its costs, and check it."""
        store = as_store(self.cache, self.cache_limit)
        costs = _cost_per_teacher(self.cost, len(teachers))
        seed = int(as_random_state(self.random_state).randint(2**31 - 1))
        checks = self._chooses_weights or self.check is True
        folds = Folds.draw(task, seed) if checks and loss.checked else None
        examined: list[Examined] = []
        failures: list[TeacherError] = []
        for i, teacher in enumerate(teachers):
            try:
                observed = observe(
                    teacher,
                    task.X,
                    batch_size=self.batch_size,
                    store=store,
                    progress=part_of(self.progress or silent, i, len(teachers)),
                )
                signal = make_signal(teacher, observed, task, self._signal_options(costs[i], seed))
            except TeacherError as error:
                failures.append(error.at(i, len(teachers)))
                if len(failures) == len(teachers):
                    raise failures[0] from error.__cause__
                unknown = TeacherCheck.unknown(teacher.name, failures[-1].problem)
                examined.append(Examined(teacher, None, unknown))
                continue
            check = None
            if folds is not None:
                check = check_teacher(signal, task, folds, *choices)
            examined.append(Examined(teacher, signal, check))
        return examined

    def _choices(self, loss: DistillationLoss, student: Any) -> tuple[Sequence[float], float]:
        """Return the weights that a teacher can have, besides 0, and the part of it on labelled rows."""
        if not isinstance(self.teacher_weight, str):
            return (float(self.teacher_weight),), 1.0
        if self._chooses_weights and loss.checked:
            return WEIGHTS[student.scores], LABELLED_SHARE
        return (UNCHECKED_WEIGHT,), 1.0

    def _signal_options(self, cost: Any, seed: int) -> SignalOptions:
        return SignalOptions(
            cost,
            float(self.temperature),
            self.epsilon,
            self.normalize,
            self.match_shares,
            self.superclasses,
            seed,
        )

    def _weigh(self, examined: Sequence[Examined], ranked: Sequence[float] | None) -> Floats:
        """Return the weight (N,) of each teacher, and warn of those that are dropped."""
        checks = [check for _, _, check in examined]
        reliability = np.array([1.0 if check is None else check.reliability for check in checks])
        if ranked is not None:
            scores = np.array(ranked)
        else:  # a teacher without a check has no score, and 0 stands for it
            scores = np.nan_to_num([0.0 if check is None else check.gain for check in checks])
        scores = np.where(reliability > 0, scores, np.nan)
        weights: Floats = reliability * score_weights(scores, float(self.sharpness))
        for check in checks:
            if check is not None and not check.used:
                hint = "" if check.failure else " {remedy} keeps it."
                warnings.warn(
                    ConsilienceWarning(
                        f"Teacher {check.name!r} was dropped because it {check.reason}.{hint}",
                        remedy=("check", False),
                    ),
                    stacklevel=3,
                )
        return weights

    def _following(
        self,
        examined: Sequence[Examined],
        weights: Floats,
        task: Task,
        choices: tuple[Sequence[float], float],
    ) -> list[Follower]:
        """Return the teachers that the student follows, apart for labelled rows if their weight differs."""
        (*_, largest), share = choices
        found: list[Follower] = []
        for i, (one, weight) in enumerate(zip(examined, weights, strict=False)):
            if one.signal is not None and weight > 0:
                found += [
                    Follower(i, part) for part in by_rows(one.signal, largest * weight, share, task.codes)
                ]
        return found

    def _blocks(
        self,
        source: Rows,
        codes: NDArray[np.intp],
        followed: Sequence[Follower],
        teachers: Sequence[Teacher],
        loss: DistillationLoss,
    ) -> TaskBlocks:
        """Return all rows of a source and whom the student follows on them."""
        store, progress = as_store(self.cache, self.cache_limit), self.progress or silent
        return TaskBlocks(source, codes, followed, teachers, loss.embeds, self.batch_size, store, progress)

    def _student_temperature(self) -> float:
        return 1.0

    def _origin(self) -> Origin:
        about = {
            "loss": loss_name(self.loss),
            "teacher_weight": str(self.teacher_weight),
            "temperature": f"{self.temperature:g}",
        }
        return Origin(f"Distilled with {len(self.teachers_)} teachers.", about)


def _cost_per_teacher(cost: Any, count: int) -> list[Any]:
    if isinstance(cost, list | tuple) and any(np.ndim(part) == 2 for part in cost):
        if len(cost) != count:
            raise InvalidInputError(f"cost has {len(cost)} matrices for {count} teachers; give one for each.")
        return list(cost)
    return [cost] * count
