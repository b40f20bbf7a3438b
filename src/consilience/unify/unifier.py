"""Unify: one classifier over all classes out of many, from unlabelled data alone."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from consilience._optional import keep_torch_threads
from consilience._progress import Progress, silent
from consilience._validation import (
    check_choice,
    check_count,
    check_number,
    check_packed_logits,
    n_rows,
    take_rows,
)
from consilience.collision.pseudo_labels import collision_pseudo_labels
from consilience.exceptions import CoverageWarning, InvalidInputError
from consilience.kernels.collision.entropy import responsibilities, weigh
from consilience.kernels.unify.packed import floor_blocks
from consilience.labels import Disconnected, LabelSpace
from consilience.students.base import NotFittedError, Origin, TaughtClassifier, make_student, numbered_teacher
from consilience.students.sklearn import LOSSES, Loss
from consilience.teachers.scoring.engine import score
from consilience.teachers.scoring.store import as_store
from consilience.unify.calibration import agreement_temperatures, divide_by_temperatures
from consilience.unify.soft_labels import (
    METHODS,
    Method,
    balance_weights,
    check_off_set,
    estimate_soft_labels,
)

__all__ = ["NotFittedError", "Unifier"]

# The logit of a known label, in the units of teacher logits at temperature 1: log-odds of about 1e6 : 1.
LABEL_LOGIT = 14.0
# Weight of fairness in the pseudo-labels of self_label: from 1 to 100 the digits trials hardly differ.
SELF_LABEL_LAM = 10.0


class _Scored(NamedTuple):
    """What scoring gives: everything the student may learn from."""

    logits: NDArray[np.float64]  # (n, m)
    labels: NDArray[np.intp]  # (n,) position of the known label, -1 where there is none
    covered: NDArray[np.bool_]  # (n,) whether a teacher or a label says anything


class Unifier(TaughtClassifier):
    """Make one classifier over all classes out of classifiers that each know some.

    The teachers score the unlabelled rows of X; their outputs become soft labels over the union of their
    classes (or a loss, with ``train="backprop"``), and a student learns these.

    Parameters
    ----------
    teachers : sequence
        Fitted classifiers, torch modules, paths, arrays, functions...: whatever `as_teacher` takes without
        further options, or teachers made with it.
    student : classifier, torch.nn.Module, factory, name or None
        A scikit-learn classifier (see `threshold`), ``"logistic"``, ``"forest"``, ``"boosting"`` or
        ``"mlp"``, a torch module or a factory of one, or a `consilience.nn.TorchStudent` with training
        options; for texts, ``"ngrams"`` or a `consilience.text.NgramClassifier`. None takes ``"ngrams"`` for
        texts, and a two-layer network else: in torch where it is installed, or in scikit-learn.
    method : {"mf-lf", "ce", "mf-p", "mf-lv", "sd"}
        How soft labels are estimated; see `estimate_soft_labels`.
    train : {"estimate", "backprop"}
        Estimate soft labels, then train on them; or train a torch student on the method's own loss
        (Sec. 3.5.1: CE-BP, MF-P-BP, MF-LV-BP, MF-LF-BP).
    balance : {"auto", True, "sqrt", False}
        Weight each class by the inverse of its mean soft label (Sec. 3.5.2). ``"auto"`` does so when label
        sets differ, and not when they are all equal: the paper's finding. ``"sqrt"`` takes the root of these
        weights: for many classes, of which some hardly occur and would otherwise be learnt from the noise in
        the labels of other rows. Only with ``train="estimate"``.
    temperature : float
        T of eq. (2), for the teachers' outputs and the student's alike. Probabilities are given at T = 1.
    loss : {"cross-entropy", "collision"}
        What the student minimises with ``train="estimate"``. ``"collision"`` is the collision cross-entropy
        (see `consilience.collision_cross_entropy`), with which rows of which the soft labels are unsure
        teach less: the student decides between the classes that they leave possible. Its probabilities are
        nearer to 0 and 1. scikit-learn students are refitted a few times (see `ExpansionStudent`).
    self_label : bool
        Whether the student trains again on what it found: its predictions times the soft labels enter the
        fair pseudo-label problem (`collision_pseudo_labels`), and the mean of its solution and the soft
        labels is learnt anew. Every class keeps its share of the rows: an equal one with balancing, that of
        the soft labels without. It doubles the time of training. Only with ``train="estimate"`` and
        ``loss="cross-entropy"``.
    calibrate : {None, "agreement"}
        Whether each teacher's logits are divided by a temperature of its own first, estimated from how often
        the others agree with it: see `consilience.unify.agreement_temperatures`. For teachers of which
        some are surer of themselves than others, such as models of different makers.
    off_set : bool
        Off-set weighting: a teacher's say on a row is the estimated mass of its own classes there; see
        `estimate_soft_labels`. Only with ``method="ce"`` and ``train="estimate"``. For teachers that know a
        small part of the classes each.
    aliases : mapping, optional
        Other names of classes: ``{"automobile": "car"}``.
    disconnected : {"warn", "error", "ignore"}
        What to do when teachers fall into groups that share no class; see `LabelSpace`.
    smoothing : float
        No class of a teacher's k is taken as less probable than smoothing / k: what a model says of classes
        it rules out is noise, and exact zeros (of forests, say) would rule the logits. 0 takes teachers at
        their word, as the paper does.
    threshold : float
        For scikit-learn students: classes of a row less probable than this are left out. Students that learn
        soft labels by themselves, such as ``"ngrams"``, and networks leave none out.
    cache : path or ScoreStore, optional
        A folder that keeps what the teachers say of each row, so that another fit on the same rows asks none
        of them again, and one that was stopped goes on where it was; see docs/centres.md.
    batch_size : int
        Rows per call of a teacher.
    progress : callable, optional
        Called with (task, done, total) on long work.
    random_state : int, RandomState or None
        Makes the student reproducible.

    Attributes
    ----------
    classes_ : (L,) array
        The union of the teachers' classes, sorted.
    soft_labels_ : (n, L) array or None
        The estimated soft labels at temperature T; None with ``train="backprop"``.
    class_weights_ : (L,) array or None
        The balancing weights, where balancing is on.
    pseudo_labels_ : (n, L) array or None
        With `self_label`, the fair pseudo-labels; NaN in rows that the student does not see.
    temperatures_ : (N,) array
        By what each teacher's logits were divided: 1 without `calibrate`.
    label_space_ : LabelSpace
    teachers_ : list of Teacher
    student_ : the fitted student
    seconds_ : dict
        How long scoring, calibration, soft labels and training took.
    n_abstentions_ : (N,) array of int
        On how many rows each teacher abstained.
    n_iter_ : int or None
        Epochs or iterations of the student, where it counts them.
    n_features_in_ : int
        Columns of X, where X has columns.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> teachers = [LogisticRegression(max_iter=500).fit(X[y != k], y[y != k]) for k in (0, 2)]
    >>> unified = Unifier(teachers, student="logistic", random_state=0).fit(X)  # no y: nobody has it
    >>> unified.classes_.tolist(), unified.score(X, y) > 0.8
    ([0, 1, 2], True)
    """

    def __init__(
        self,
        teachers: Sequence[Any],
        student: Any = None,
        method: Method = "mf-lf",
        train: Literal["estimate", "backprop"] = "estimate",
        balance: Literal["auto", "sqrt"] | bool = "auto",
        temperature: float = 3.0,
        loss: Loss = "cross-entropy",
        *,
        self_label: bool = False,
        calibrate: Literal["agreement"] | None = None,
        off_set: bool = False,
        aliases: Mapping[Any, Any] | None = None,
        disconnected: Disconnected = "warn",
        smoothing: float = 0.001,
        threshold: float = 0.01,
        cache: Any = None,
        batch_size: int = 4096,
        progress: Progress | None = None,
        random_state: Any = None,
    ) -> None:
        self.teachers = teachers
        self.student = student
        self.method = method
        self.train = train
        self.balance = balance
        self.temperature = temperature
        self.loss = loss
        self.self_label = self_label
        self.calibrate = calibrate
        self.off_set = off_set
        self.aliases = aliases
        self.disconnected = disconnected
        self.smoothing = smoothing
        self.threshold = threshold
        self.cache = cache
        self.batch_size = batch_size
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, logits: ArrayLike | None = None) -> Unifier:
        """Score X by every teacher and train the student.

        Parameters
        ----------
        X : array, sparse matrix, data frame or list
            n unlabelled rows, in the form that teachers and student take.
        y : (n,) sequence, optional
            Labels where they are known; None, NaN or -1 elsewhere. The soft labels of labelled rows are
            pinned to them.
        logits : (n, m) array, optional
            What the teachers say of X, from `score_teachers`: to compare methods, score once.
        """
        self._check_params()
        student = self._make_student(X)
        scored = self._prepare(X, y, logits)
        self.soft_labels_: NDArray[np.float64] | None = None
        self.class_weights_: NDArray[np.float64] | None = None
        self.pseudo_labels_: NDArray[np.float64] | None = None
        if self.train == "backprop":
            self._fit_backprop(student, X, scored)
        else:
            self._fit_estimate(student, X, scored)
        self._keep_student(student, X)
        return self

    def score_teachers(self, X: Any) -> NDArray[np.float64]:
        """Return the packed logits (n, m) of all teachers, for `fit` and `estimate`."""
        self._check_params()
        self._open_teachers()
        return score(
            self.teachers_,
            self.label_space_,
            X,
            batch_size=self.batch_size,
            store=as_store(self.cache),
            progress=self.progress or silent,
        )

    def estimate(self, X: Any, y: Any = None, *, logits: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return soft labels (n, L) for X without training a student; parameters as in `fit`."""
        self._check_params()
        return self._soft_labels(self._prepare(X, y, logits))

    def _check_params(self) -> None:
        check_choice("method", self.method, METHODS)
        check_choice("train", self.train, ("estimate", "backprop"))
        check_choice("balance", self.balance, ("auto", True, "sqrt", False))
        check_choice("loss", self.loss, LOSSES)
        check_choice("self_label", self.self_label, (True, False))
        check_choice("calibrate", self.calibrate, (None, "agreement"))
        check_off_set(self.off_set, self.method)
        check_number("temperature", self.temperature, above=0)
        check_number("smoothing", self.smoothing, at_least=0)
        if self.smoothing >= 1:
            raise InvalidInputError(f"smoothing={self.smoothing!r} must be below 1.")
        check_count("batch_size", self.batch_size)
        if isinstance(self.teachers, str | bytes | os.PathLike) or not isinstance(self.teachers, Sequence):
            raise InvalidInputError(
                f"teachers is a {type(self.teachers).__name__}; give a list with an entry per teacher."
            )
        if len(self.teachers) == 0:
            raise InvalidInputError("teachers is empty; give at least one teacher.")
        if self.self_label and (self.train, self.loss) != ("estimate", "cross-entropy"):
            raise InvalidInputError(
                "self_label=True needs train='estimate' and loss='cross-entropy'; "
                f"they are {self.train!r} and {self.loss!r}."
            )
        if self.train == "backprop":
            if self.method == "sd":
                raise InvalidInputError("method='sd' has no backprop form; use train='estimate'.")
            if self.loss != "cross-entropy":
                raise InvalidInputError(
                    f"train='backprop' has the method's own loss; use train='estimate' with {self.loss!r}."
                )
            for name, value in (("balance", self.balance), ("off_set", self.off_set)):
                if value in (True, "sqrt"):
                    raise InvalidInputError(f"{name}={value!r} needs soft labels; use train='estimate'.")

    def _make_student(self, X: Any) -> Any:
        """Return the unfitted student of rows like X; see `make_student`."""
        student = make_student(
            self.student,
            threshold=self.threshold,
            loss=self.loss,
            random_state=self.random_state,
            progress=self.progress,
            X=X,
        )
        if self.train == "backprop" and student.scores == "probabilities":
            raise InvalidInputError("train='backprop' needs a torch student; use train='estimate'.")
        return student

    def _open_teachers(self) -> None:
        self.teachers_ = [numbered_teacher(t, i, len(self.teachers)) for i, t in enumerate(self.teachers)]
        self.label_space_ = LabelSpace(
            [teacher.classes for teacher in self.teachers_],
            self.aliases,
            names=[teacher.name for teacher in self.teachers_],
            disconnected=self.disconnected,
        )
        self.classes_ = self.label_space_.classes

    def _prepare(self, X: Any, y: Any, logits: ArrayLike | None) -> _Scored:
        """Score X where it is not scored yet, and put what is known of each row together."""
        rows = n_rows(X)
        if rows == 0:
            raise InvalidInputError("X has no rows; the student needs some to learn from.")
        self.seconds_ = {}
        with self._step("scoring"):
            if logits is None:
                packed = self.score_teachers(X)
            else:
                self._open_teachers()
                packed = check_packed_logits(logits, self.label_space_)
        space = self.label_space_
        labels = np.full(rows, -1, dtype=np.intp) if y is None else space.encode(y)
        for what, count in (("y has", len(labels)), ("logits have", len(packed))):
            if count != rows:
                raise InvalidInputError(f"{what} {count} rows and X has {rows}.")
        silent_teachers = np.isnan(packed[:, space.offsets[:-1]])
        self.n_abstentions_ = silent_teachers.sum(axis=0)
        covered = ~silent_teachers.all(axis=1) | (labels >= 0)
        if not covered.any():
            raise InvalidInputError(
                "Every teacher abstains on every row of X; there is nothing to learn from."
            )
        if not covered.all():
            warnings.warn(
                f"Every teacher abstains on {int((~covered).sum())} of {rows} rows; "
                "the student does not see these.",
                CoverageWarning,
                stacklevel=3,
            )
        packed = self._calibrated(packed)
        if self.smoothing:
            with keep_torch_threads():
                packed = floor_blocks(packed, space.offsets, float(self.smoothing))
        return _Scored(packed, labels, covered)

    def _calibrated(self, packed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Divide each teacher's logits by its temperature, where that is wanted."""
        space = self.label_space_
        self.temperatures_ = np.ones(space.n_teachers)
        if self.calibrate is None:
            return packed
        with self._step("calibration"):
            self.temperatures_ = agreement_temperatures(packed, space, progress=self.progress or silent)
            return divide_by_temperatures(packed, self.temperatures_, space)

    def _soft_labels(self, scored: _Scored) -> NDArray[np.float64]:
        with self._step("soft labels"):
            Q = estimate_soft_labels(
                scored.logits,
                self.label_space_,
                self.method,
                temperature=self.temperature,
                off_set=self.off_set,
                progress=self.progress or silent,
            )
            pinned = scored.labels >= 0
            Q[pinned] = np.eye(self.label_space_.n_classes)[scored.labels[pinned]]
        return Q

    def _fit_estimate(self, student: Any, X: Any, scored: _Scored) -> None:
        space = self.label_space_
        Q = self.soft_labels_ = self._soft_labels(scored)
        seen, X_seen = (Q, X) if scored.covered.all() else (Q[scored.covered], take_rows(X, scored.covered))
        weights = np.ones(space.n_classes)
        if self.balance in (True, "sqrt") or (self.balance == "auto" and not space.identical):
            full = balance_weights(seen)
            self.class_weights_ = np.sqrt(full) if self.balance == "sqrt" else full
            # the mean weight of a row is then one, and learning rates mean what they mean without
            weights = self.class_weights_ / (self.class_weights_ * seen.mean(axis=0)).sum()
        with self._step("training"):
            self._teach(student, X_seen, seen, weights)
            if self.self_label:
                self._teach_again(student, X_seen, seen, weights, scored)

    def _teach(
        self,
        student: Any,
        X: Any,
        Q: NDArray[np.float64],
        class_weights: NDArray[np.float64],
        row_weights: NDArray[np.float64] | None = None,
    ) -> None:
        """Fit the student to soft labels Q (n, L)."""
        if student.scores == "probabilities":
            student.fit(X, Q, class_weights, row_weights)
            return
        from consilience.nn import CollisionCrossEntropy, SoftCrossEntropy

        make = CollisionCrossEntropy if self.loss == "collision" else SoftCrossEntropy
        student.fit(
            X,
            Q if row_weights is None else Q * row_weights[:, None],
            n_classes=Q.shape[1],
            criterion=make(
                class_weights=class_weights,
                temperature=self.temperature,
                weighted=row_weights is not None,
            ),
            progress=self.progress or silent,
        )

    def _teach_again(
        self,
        student: Any,
        X: Any,
        Q: NDArray[np.float64],
        class_weights: NDArray[np.float64],
        scored: _Scored,
    ) -> None:
        """Fit the student to the mean of soft labels and fair pseudo-labels, made with its predictions."""
        n_classes = Q.shape[1]
        labels, mass = weigh(Q, class_weights)
        if student.scores == "logits":
            proba = np.asarray(softmax(student.predict_logits(X) / self.temperature, axis=1))
        else:
            proba = student.predict_all(X, n_classes)
        share = (Q * class_weights).mean(axis=0)  # equal for all classes with mass, where they are balanced
        fair = collision_pseudo_labels(
            responsibilities(proba, labels),
            SELF_LABEL_LAM,
            prior=share / share.sum(),
            fixed=scored.labels[scored.covered],
        ).labels
        mean, weights = weigh((fair + labels * mass[:, None]) / 2, np.ones(n_classes))
        self._teach(student, X, mean, np.ones(n_classes), weights)
        self.pseudo_labels_ = np.full((len(scored.covered), n_classes), np.nan)
        self.pseudo_labels_[scored.covered] = fair

    def _fit_backprop(self, student: Any, X: Any, scored: _Scored) -> None:
        from consilience.nn import BACKPROP_LOSSES

        space, logits = self.label_space_, scored.logits
        pinned = scored.labels >= 0
        if pinned.any():
            # Known labels are one more teacher, who knows every class and speaks only where a label is known;
            # there the others keep silent. So every loss handles them without knowing of them.
            lists = [*space.class_lists, space.classes]
            names = [*space.names, "known labels"]
            space = LabelSpace(lists, names=names, disconnected="ignore")
            block = np.full((len(logits), len(space.classes)), np.nan)
            block[pinned] = LABEL_LOGIT * np.eye(len(space.classes))[scored.labels[pinned]]
            logits = np.hstack([np.where(pinned[:, None], np.nan, logits), block])
        if not scored.covered.all():
            logits, X = logits[scored.covered], take_rows(X, scored.covered)
        criterion = BACKPROP_LOSSES[self.method](space, temperature=self.temperature)
        with self._step("training"):
            student.fit(
                X, logits, n_classes=space.n_classes, criterion=criterion, progress=self.progress or silent
            )

    def _learnt_at(self) -> float:
        return float(self.temperature)

    def _origin(self) -> Origin:
        about = {"method": self.method, "train": self.train, "temperature": f"{self.temperature:g}"}
        if self.calibrate is not None:
            about["calibrate"] = self.calibrate
        if self.off_set:
            about["off_set"] = "True"
        return Origin(f"Unified from {len(self.teachers_)} teachers.", about)
