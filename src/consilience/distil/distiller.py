"""Distil: a student learns from its own labels and from teachers whose classes need not be its own."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import softmax

from consilience._progress import Progress, part_of, silent
from consilience._validation import (
    as_random_state,
    check_choice,
    check_count,
    check_number,
    n_rows,
    take_rows,
)
from consilience.distil.teacher_signal import (
    Lesson,
    Settings,
    Task,
    Trial,
    failed_lesson,
    matched_logits,
    nearest_mean_logits,
    prepare,
    standard_embeddings,
)
from consilience.exceptions import ConsilienceWarning, CoverageWarning, InvalidInputError, TeacherError
from consilience.kernels.columns import column_moments
from consilience.labels import read_labels
from consilience.students.base import Origin, StudentClassifier, timed
from consilience.students.make import make_student
from consilience.teachers import Teacher
from consilience.teachers.given import numbered_teacher
from consilience.teachers.scoring.engine import observe
from consilience.teachers.scoring.store import as_store
from consilience.transport.centres import KINDS

Floats = NDArray[np.float64]
Loss = Literal["sinkhorn", "kd", "rkd", "fitnet", "refilled", "none"]
LOSSES = ("sinkhorn", "kd", "rkd", "fitnet", "refilled", "none")
# Steps of the optimiser that a network of ours gets at least, however few the rows.
LEAST_STEPS = 800


class Sources(NamedTuple):
    """The teachers that were given, and what an assessment thinks of them."""

    names: list[str | None]
    teachers: list[Any]
    scores: list[float] | None


class CrossTaskDistiller(StudentClassifier):
    """Train a student with labels and with teachers whose classes may be others.

    The student minimises the cross-entropy with y plus `lam` times the Sinkhorn distance of its predictions
    from the teacher's, in which moving mass between classes costs what they are apart in the teacher's
    embedding: "Selective Cross-Task Distillation", eq. (11). Teachers are asked once, before the training.

    Parameters
    ----------
    teacher : teacher, list, dict or Ranking
        Whatever `as_teacher` takes; several of them, by name or not; or what `rank_teachers` gives. None, for
        ``loss="none"`` or ``lam=0`` alone.
    student : classifier, torch.nn.Module, factory, name or None
        As in `Unifier`. Modules, factories and None are trained for 800 steps or more, without held-out rows;
        give a `consilience.nn.TorchStudent` to choose.
    lam : float
        Weight of the teachers' part; 10 or 100 in the paper. 0 trains with the labels alone.
    temperature : float
        tau of eq. (10), for teacher and student in the teachers' part. Probabilities are given at T = 1.
    epsilon : float or "auto"
        Regularisation of eq. (5). "auto" is half the standard deviation of the cost, as in `sinkhorn`.
    loss : {"sinkhorn", "kd", "rkd", "fitnet", "refilled", "none"}
        What the teacher adds, to compare in one line: see `consilience.nn.distillation`. ``"kd"`` needs the
        student's classes. scikit-learn students know "sinkhorn", "kd" and "none".
    cost : {"embedding", "constant", "random", "superclass"} or (m, K) array
        A kind of `cost_matrix`, or the user's own; for several teachers a list of arrays, too.
    normalize : bool
        Whether centres are compared at unit length; see `cost_matrix`.
    balance : bool
        Whether the costs of a class are shifted alike so that transported labels have the class shares of y
        on average (ours). Without, as in the paper, a class of the student that is nearest to no class of the
        teacher is pulled towards others.
    superclasses : mapping, optional
        For ``cost="superclass"``.
    regularizer : {"entropy", "kl"}
        See `sinkhorn`.
    check : {"auto", False}
        Whether teachers whose transported labels tell nothing of labels held out are dropped; see
        `consilience.distil.teacher_check`. The others count by how much they tell.
    sharpness : float
        Several teachers have weights softmax(sharpness * s), with s their scores less the mean, in standard
        deviations. 0 weighs all alike.
    threshold : float
        For scikit-learn students: classes of a row less probable than this are left out.
    cache : path or ScoreStore, optional
        A folder that keeps what teachers say; see `consilience.teachers.scoring.store`.
    batch_size : int
        Rows per call of a teacher.
    progress : callable, optional
        Called with (task, done, total) on long work.
    random_state : int, RandomState or None
        Makes the student reproducible.

    Attributes
    ----------
    classes_ : (K,) array
        The classes of y, sorted.
    teachers_ : list of Teacher
    teacher_weights_ : (N,) array
        The share of each teacher in the teachers' part; 0 for those that were dropped.
    checks_ : list of TeacherCheck
        What was found out about each teacher; with ``check=False`` only about those that failed.
    costs_ : list of (m, K) arrays
        The cost matrix of each teacher, NaN where it failed; `cost_` is the first.
    n_labels_ : int
        Rows with a label.
    student_ : the fitted student
    history_ : list of dict
        Of a torch student, per epoch.
    seconds_ : dict
        How long observing (with the costs and the check) and training took.
    n_iter_ : int or None
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neural_network import MLPClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X, few = X / 16, slice(1000, 1060)
    >>> teacher = MLPClassifier(64, max_iter=60, tol=1e-2, random_state=0).fit(X[:1000], y[:1000])
    >>> student = CrossTaskDistiller(teacher, "logistic", random_state=0).fit(X[few], y[few])
    >>> alone = CrossTaskDistiller(teacher, "logistic", loss="none", random_state=0).fit(X[few], y[few])
    >>> student.score(X[1060:], y[1060:]) > alone.score(X[1060:], y[1060:])
    True
    """

    def __init__(
        self,
        teacher: Any,
        student: Any = None,
        lam: float = 10.0,
        temperature: float = 3.0,
        epsilon: float | Literal["auto"] = "auto",
        loss: Loss = "sinkhorn",
        *,
        cost: Any = "embedding",
        normalize: bool = True,
        balance: bool = True,
        superclasses: Mapping[Any, Any] | None = None,
        regularizer: Literal["entropy", "kl"] = "entropy",
        check: Literal["auto"] | bool = "auto",
        sharpness: float = 1.0,
        threshold: float = 0.01,
        cache: Any = None,
        batch_size: int = 4096,
        progress: Progress | None = None,
        random_state: Any = None,
    ) -> None:
        self.teacher = teacher
        self.student = student
        self.lam = lam
        self.temperature = temperature
        self.epsilon = epsilon
        self.loss = loss
        self.cost = cost
        self.normalize = normalize
        self.balance = balance
        self.superclasses = superclasses
        self.regularizer = regularizer
        self.check = check
        self.sharpness = sharpness
        self.threshold = threshold
        self.cache = cache
        self.batch_size = batch_size
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> CrossTaskDistiller:
        """Ask the teachers about X and train the student.

        Parameters
        ----------
        X : (n, ...) array, data frame or list
            Rows in the form that teachers and student take. Rows must reach the student as the teachers saw
            them: augmentation while training is not possible.
        y : (n,) sequence
            Labels; None, NaN or -1 for rows without one, on which only the teachers act (ours). Where -1 is a
            class of yours, give the classes names. `n_labels_` tells how many labels were read.
        """
        self._check_params()
        if n_rows(X) == 0:
            raise InvalidInputError("X has no rows (0 sample(s)); a minimum of 1 is required.")
        if y is None:
            raise InvalidInputError("requires y to be passed, but the target y is None: give labels.")
        task = Task(X, *read_labels(y, n_rows(X), at_least=2))
        student = self._make_student(X)
        self._check_rows(X, student)
        seconds: dict[str, float] = {}
        with timed(seconds, "observing"):
            # labels alone need no teacher, and look at none that is given
            nobody = self._is_alone() and self.teacher is None
            sources = Sources([], [], None) if nobody else open_sources(self.teacher)
            teachers = [
                numbered_teacher(source, i, len(sources.teachers), sources.names[i])
                for i, source in enumerate(sources.teachers)
            ]
            lessons = [] if self._is_alone() else self._prepare(task, teachers)
        weights = self._weigh(lessons, sources) if lessons else np.zeros(len(teachers))
        with timed(seconds, "training"):
            power = self._teach(student, task, lessons, weights)
        # only now, so that a fit that fails leaves what was learnt before as it was
        self.classes_, self.teachers_, self.seconds_, self._power = task.classes, teachers, seconds, power
        self.n_labels_ = int(np.count_nonzero(task.labelled))
        self.costs_ = [lesson.cost for lesson in lessons]
        self.checks_ = [lesson.check for lesson in lessons if lesson.check is not None]
        self.teacher_weights_: Floats = weights
        self.history_: list[dict[str, Any]] = getattr(student, "history_", [])
        self._keep_student(student, X)
        return self

    @property
    def cost_(self) -> Floats:
        """The cost matrix (m, K) of the first teacher."""
        self._check_fitted()
        if not self.costs_:
            raise AttributeError(f"loss={self.loss!r} with lam={self.lam:g} has no costs.")
        return self.costs_[0]

    def _is_alone(self) -> bool:
        return self.loss == "none" or self.lam == 0

    def _check_params(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        check_choice("regularizer", self.regularizer, ("entropy", "kl"))
        check_choice("check", self.check, ("auto", True, False))
        for name in ("normalize", "balance"):
            check_choice(name, getattr(self, name), (True, False))
        check_number("lam", self.lam, at_least=0)
        check_number("temperature", self.temperature, above=0)
        check_number("sharpness", self.sharpness, at_least=0)
        if isinstance(self.epsilon, str):
            check_choice("epsilon", self.epsilon, ("auto",))
        else:
            check_number("epsilon", self.epsilon, above=0)
        if isinstance(self.cost, str):
            check_choice("cost", self.cost, KINDS)
        check_count("batch_size", self.batch_size)
        if (self.superclasses is not None) != (isinstance(self.cost, str) and self.cost == "superclass"):
            raise InvalidInputError(
                "cost='superclass' needs superclasses=, and superclasses= is for it alone."
            )

    def _make_student(self, X: Any) -> Any:
        student = make_student(
            self.student,
            threshold=self.threshold,
            random_state=self.random_state,
            progress=self.progress,
            X=X,
        )
        if student.scores == "probabilities" and self.loss not in ("sinkhorn", "kd", "none"):
            raise InvalidInputError(
                "{argument} needs a torch student; use 'sinkhorn', or {remedy}.",
                argument="loss",
                value=self.loss,
                remedy=("student", "torch"),
            )
        return student

    def _check_rows(self, X: Any, student: Any) -> None:
        """Raise where X is sparse and a student of ours would fail on it in the words of others."""
        named = self.student is None or (isinstance(self.student, str) and self.student != "forest")
        if issparse(X) and (named or student.scores == "logits"):
            raise InvalidInputError(
                f"X is sparse, and the student {_short_name(self.student)} needs dense rows. Give "
                "X.toarray(), or a student that takes sparse rows: 'forest', or LogisticRegression()."
            )

    def _prepare(self, task: Task, teachers: Sequence[Teacher]) -> list[Lesson]:
        """Observe every teacher once, make its costs, and check it."""
        store = as_store(self.cache)
        count = len(teachers)
        costs = _cost_per_teacher(self.cost, count)
        seed = int(as_random_state(self.random_state).randint(2**31 - 1))
        # the others use the embedding alone, of which transported labels say little
        checked = self.check is not False and self.loss in ("sinkhorn", "kd")
        trial = Trial.of(task, seed) if checked else None
        lessons: list[Lesson] = []
        failures: list[TeacherError] = []
        for i, teacher in enumerate(teachers):
            settings = Settings(
                costs[i],
                float(self.temperature),
                self.epsilon,
                self.normalize,
                self.balance,
                self.superclasses,
                seed,
            )
            try:
                seen = observe(
                    teacher,
                    task.X,
                    batch_size=self.batch_size,
                    store=store,
                    progress=part_of(self.progress or silent, i, count),
                )
                lessons.append(prepare(teacher, seen, task, settings, trial))
            except TeacherError as error:
                failures.append(error.at(i, count))
                if len(failures) == count:
                    raise failures[0] from error.__cause__
                lessons.append(failed_lesson(teacher, task, failures[-1].problem))
        return lessons

    def _weigh(self, lessons: Sequence[Lesson], sources: Sources) -> Floats:
        """Return the weight (N,) of each teacher, and say which were dropped."""
        trusts = np.array([1.0 if lesson.check is None else lesson.check.trust for lesson in lessons])
        if sources.scores is not None:
            scores = np.array(sources.scores)
        else:
            scores = np.array([0.0 if lesson.check is None else lesson.check.added for lesson in lessons])
            scores = np.nan_to_num(scores)  # unchecked
        weights: Floats = trusts * score_weights(np.where(trusts > 0, scores, np.nan), float(self.sharpness))
        for lesson in lessons:
            if lesson.check is not None and not lesson.check.kept:
                hint = "" if lesson.check.failure else " {remedy} keeps it."
                warnings.warn(
                    ConsilienceWarning(
                        f"Teacher {lesson.teacher.name!r} was dropped, since it {lesson.check.reason}.{hint}",
                        remedy=("check", False),
                    ),
                    stacklevel=3,
                )
        return weights

    def _teach(self, student: Any, task: Task, lessons: Sequence[Lesson], weights: Floats) -> float:
        """Fit the student; return the power that its probabilities are to be raised to."""
        kept = [
            (lesson, float(self.lam) * weight)
            for lesson, weight in zip(lessons, weights, strict=False)
            if weight > 0
        ]
        used = task.labelled | np.any([lesson.heard(task) for lesson, _ in kept], axis=0)
        if lessons and not used.all():
            warnings.warn(
                f"{np.count_nonzero(~used)} rows without a label were left out: no teacher that was kept "
                "knows more by itself than the labels do.",
                CoverageWarning,
                stacklevel=3,
            )
        if student.scores == "probabilities":
            Q, row_weights, power = self._soft_labels(task, kept)
            student.fit(pick(task.X, used), Q[used], np.ones(len(task.classes)), row_weights[used])
            return power
        self._train(student, task, kept, used)
        return 1.0

    def _soft_labels(self, task: Task, kept: Sequence[tuple[Lesson, float]]) -> tuple[Floats, Floats, float]:
        """Return the labels (n, K) of a scikit-learn student, the weight (n,) of each row, and their power.

        The Sinkhorn distance is about epsilon KL(p_S, q) with q the transported label (exactly so where the
        teacher is sure), so that eq. (11) is least about where p_S = (y + c q) / (1 + c), c = lam epsilon.
        q is at the temperature tau and y at 1. A student of both learns probabilities that are to be raised
        to a power in between, by the share of each in all weight.
        """
        n, K = len(task.codes), len(task.classes)
        labels, mass = np.zeros((n, K)), np.zeros(n)
        labels[task.labelled, task.codes[task.labelled]] = 1.0
        mass[task.labelled] = 1.0
        for lesson, lam in kept:
            if self.loss == "kd":
                logits = matched_logits(lesson, task.classes) / self.temperature
                q, c = np.asarray(softmax(logits, axis=1)), lam
            else:
                q = lesson.transported(float(self.temperature))
                c = lam * lesson.strength * lesson.epsilon
            spoken = lesson.heard(task)
            labels[spoken] += c * q[spoken]
            mass[spoken] += c
        tiny = np.finfo(float).tiny
        taught = 1.0 - np.count_nonzero(task.labelled) / max(float(mass.sum()), tiny)
        power = 1.0 + taught * (float(self.temperature) - 1.0)
        return labels / np.maximum(mass, tiny)[:, None], mass / max(float(mass.max()), tiny), power

    def _train(
        self, student: Any, task: Task, kept: Sequence[tuple[Lesson, float]], used: NDArray[np.bool_]
    ) -> None:
        """Fit a network to eq. (11); its targets are the labels and what each teacher said, side by side."""
        from consilience.nn.distillation import CrossTaskLoss

        K = len(task.classes)
        onehot = np.zeros((len(task.codes), K))
        onehot[task.labelled, task.codes[task.labelled]] = 1.0
        blocks, terms = [onehot], []
        for lesson, lam in kept:
            silent_on = ~lesson.heard(task)
            for columns, make_term in self._goals(lesson, task):
                start = sum(block.shape[1] for block in blocks)
                terms.append(make_term(slice(start, start + columns.shape[1]), lam))
                blocks.append(np.where(silent_on[:, None], np.nan, columns))
        if not hasattr(self.student, "max_iter"):  # a TorchStudent knows what it wants
            student.set_params(**training_options(int(np.count_nonzero(used))))
        student.fit(
            pick(task.X, used),
            pick(np.hstack(blocks), used),
            n_classes=K,
            criterion=CrossTaskLoss(K, terms, float(task.labelled[used].mean())),
            progress=self.progress or silent,
        )

    def _goals(self, lesson: Lesson, task: Task) -> list[tuple[Floats, Any]]:
        """Return what the student is shown of a teacher, and the term of the loss for it."""
        from consilience.nn import SinkhornLoss
        from consilience.nn.distillation import FitNetLoss, KDLoss, RelationLoss, RKDLoss, Term

        tau = float(self.temperature)
        if self.loss == "sinkhorn":
            loss = SinkhornLoss(
                lesson.balanced_cost(), lesson.epsilon, tau, regularizer=self.regularizer, tol=1e-4
            )
            return [(lesson.seen.logits, lambda columns, lam: Term(loss, columns, lam * lesson.strength))]
        if self.loss == "kd":
            logits = matched_logits(lesson, task.classes)
            return [(logits, lambda columns, lam: Term(KDLoss(tau), columns, lam))]
        E = standard_embeddings(lesson)
        if self.loss == "rkd":
            return [(E, lambda columns, lam: Term(RKDLoss(), columns, lam, "features"))]
        if self.loss == "fitnet":
            return [(E, lambda columns, lam: Term(FitNetLoss(E.shape[1]), columns, lam, "features"))]
        near = nearest_mean_logits(lesson, task, self.normalize)
        return [
            (E, lambda columns, lam: Term(RelationLoss(), columns, lam, "features")),
            (near, lambda columns, lam: Term(KDLoss(tau), columns, lam)),
        ]

    def _student_temperature(self) -> float:
        return self._power

    def _origin(self) -> Origin:
        about = {"loss": self.loss, "lam": f"{self.lam:g}", "temperature": f"{self.temperature:g}"}
        return Origin(f"Distilled with {len(self.teachers_)} teachers.", about)


def open_sources(teacher: Any) -> Sources:
    """Return the teachers of a list, a dict or a Ranking, or the one that is given."""
    rows = getattr(teacher, "rows", None)
    if isinstance(rows, Sequence) and all(hasattr(row, "teacher") and hasattr(row, "score") for row in rows):
        good = [row for row in rows if row.score is not None and np.isfinite(row.score)]
        if not good:
            raise InvalidInputError("The Ranking has no teacher with a score; there is none to learn from.")
        return Sources(
            [row.name for row in good], [row.teacher for row in good], [float(row.score) for row in good]
        )
    if isinstance(teacher, Mapping):
        named = {str(name): source for name, source in teacher.items()}
        sources = Sources(list(named), list(named.values()), None)
    else:
        given = list(teacher) if isinstance(teacher, list | tuple) else [teacher]
        sources = Sources([None] * len(given), given, None)
    if not sources.teachers:
        raise InvalidInputError("teacher is empty; give at least one teacher.")
    return sources


def training_options(rows: int) -> dict[str, Any]:
    """Return how a network is trained on so many rows.

    Few rows in large batches would make too few steps; and where labels are few, held-out ones are missed.
    """
    batch = min(128, max(16, rows // 10))
    epochs = max(30, math.ceil(LEAST_STEPS / math.ceil(rows / batch)))
    return {"batch_size": batch, "max_iter": epochs, "patience": None, "validation_fraction": 0.0}


def score_weights(scores: ArrayLike, sharpness: float) -> Floats:
    """Return weights (N,) that sum to one from assessment scores, of which higher is better.

    softmax(sharpness * s) with s the scores less their mean, in standard deviations: metrics have scales of
    their own. NaN has no weight.

    Examples
    --------
    >>> score_weights([-0.9, -0.7, np.nan], 1.0).round(3).tolist()
    [0.119, 0.881, 0.0]
    """
    values = np.asarray(scores, dtype=np.float64)
    weights = np.zeros(len(values))
    there = ~np.isnan(values)
    if not there.any():
        return weights
    mean, spread = column_moments(values[there, None])
    standard = (values[there] - mean) / (spread if spread > 0 else 1.0)
    weights[there] = softmax(sharpness * standard)
    return weights


def pick(X: Any, rows: NDArray[np.bool_]) -> Any:
    """Return some rows, or X itself where these are all."""
    return X if rows.all() else take_rows(X, rows)


def _cost_per_teacher(cost: Any, count: int) -> list[Any]:
    if isinstance(cost, list | tuple) and any(np.ndim(part) == 2 for part in cost):
        if len(cost) != count:
            raise InvalidInputError(f"cost has {len(cost)} matrices for {count} teachers; give one for each.")
        return list(cost)
    return [cost] * count


def _short_name(student: Any) -> str:
    return repr(student) if student is None or isinstance(student, str) else type(student).__name__
