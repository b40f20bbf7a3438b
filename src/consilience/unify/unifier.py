"""Unify: one classifier over all classes out of many, from unlabelled data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._progress import Progress
from consilience.exceptions import InvalidInputError
from consilience.inspect.inspection import Inspection
from consilience.kernels.arrays import Floats
from consilience.labels import Disconnected, LabelSpace
from consilience.rows import as_rows
from consilience.run import Run
from consilience.scoring import score
from consilience.soft_labels.estimate import Method, OwnMethod, method_name, resolve_temperature
from consilience.soft_labels.methods import spread_out
from consilience.students.classifier import Origin, StudentClassifier, timed
from consilience.students.loaded import load
from consilience.students.make import make_student
from consilience.students.student import Loss
from consilience.teachers.given import open_teachers
from consilience.unify.answers import Opened
from consilience.unify.estimate import collect_answers, estimate, find_soft_labels
from consilience.unify.settings import check_settings, describe_settings
from consilience.unify.training import train, train_backprop

# Rows that show the names of columns, and from which an encoder of mixed columns learns: at most so many, and
# about so many bytes, since images are large and a few show of what kind they are.
SHOWN_ROWS, SHOWN_BYTES = 2**15, 2**26
# Rows among which `explain` ranks a new one: more change its soft label little.
REFERENCE_ROWS = 2000

__all__ = ["Unifier"]


class Unifier(Inspection, StudentClassifier):
    """Make one classifier over all classes out of classifiers that each know some.

    The teachers score the unlabelled rows of X. Their outputs become soft labels over the union of their
    classes (or a loss, with ``train="backprop"``), and a student learns these.

    Parameters
    ----------
    teachers : sequence, dict, Ranking or teacher
        Fitted classifiers, torch modules, paths, arrays, functions...: whatever `as_teacher` takes without
        further options, or teachers made with it. A list of them, a dict by name, what `rank_teachers`
        returned (all that have a score), or a single one.
    student : classifier, torch.nn.Module, factory, name or None
        A scikit-learn classifier (see `threshold`), ``"logistic"``, ``"forest"``, ``"boosting"`` or
        ``"mlp"``, a torch module or a factory of one, or a `consilience.students.Network` with training
        options. For texts, ``"ngrams"`` or a `consilience.students.Ngrams`. None means ``"ngrams"`` for
        texts and a two-layer network otherwise: in torch if it is installed, else in scikit-learn.
    method : {"auto", "ranks", "mf-lf", "ce", "mf-p", "mf-lv", "sd"} or callable
        How soft labels are estimated, or your own function: see `estimate_soft_labels`. ``"auto"`` pools
        ranks with the paper's ``"mf-lf"`` and ``"ce"``, weighted by how well each predicts a teacher from the
        others. With ``train="backprop"`` it means ``"mf-lf"``.
    train : {"estimate", "backprop"}
        Estimate soft labels, then train on them; or train a torch student on the method's own loss
        (Sec. 3.5.1: CE-BP, MF-P-BP, MF-LV-BP, MF-LF-BP).
    balance : {"auto", True, "sqrt", False}
        Weight each class by the inverse of its mean soft label (Sec. 3.5.2). ``"auto"`` does so if the label
        sets differ, and not if they are all equal: the paper's finding. ``"sqrt"`` takes the root of these
        weights. It is for many classes, some of which hardly occur: with full weights the student would learn
        them from the noise in the labels of other rows. Only with ``train="estimate"``.
    temperature : float or "auto"
        T of eq. (2), for the teachers' outputs and the student's alike; from 1e-6 to 1e6. Probabilities are
        given at T = 1. ``"auto"`` is 1 for the methods ``"auto"`` and ``"ranks"``, and the paper's 3 for all
        others.
    loss : {"cross-entropy", "collision"}
        What the student minimises with ``train="estimate"``. ``"collision"`` is the collision cross-entropy
        (see `consilience.collision_cross_entropy`). With it, rows with uncertain soft labels get less weight:
        the student decides between the classes that they leave possible. Its probabilities are nearer to 0
        and 1. scikit-learn students are refitted a few times (see `Classifier`).
    self_label : bool
        Whether the student trains once more on its own findings. Its predictions times the soft labels enter
        the fair pseudo-label problem (`collision_pseudo_labels`), and the student learns the mean of the
        solution and the soft labels. Every class keeps its share of the rows: an equal one with balancing,
        that of the soft labels without. Training takes twice as long. Only with ``train="estimate"`` and
        ``loss="cross-entropy"``.
    calibrate : {None, "agreement"}
        Whether to divide each teacher's logits by its own temperature first, estimated from how often the
        others agree with it: see `consilience.unify.agreement_temperatures`. Use it if some teachers are
        surer of themselves than others, such as models of different makers.
    off_set : bool
        Off-set weighting: a teacher's weight on a row is the estimated mass of its own classes there; see
        `estimate_soft_labels`. Only with ``method="ce"`` and ``train="estimate"``. Use it if each teacher
        knows a small part of the classes.
    n_neighbors : int, optional
        Average the soft labels over this many nearest rows of X, 0 for none. Neighbours weigh up to one half,
        and less if they often disagree: see docs/how/default.md. None means 10 with ``method="auto"`` if X is
        made of numbers (up to 100,000 rows and 67 million entries) and the student is ``"logistic"`` or a
        network, and 0 otherwise. Only with ``train="estimate"``.
    tol, max_iter : float and int, optional
        When the solver of soft labels stops; see `estimate_soft_labels`. None takes the method's own rule.
        Only with ``train="estimate"``.
    aliases : mapping, optional
        Other names of classes: ``{"automobile": "car"}``; `suggest_aliases` finds some.
    disconnected : {"warn", "error", "ignore"}
        What to do if teachers fall into groups that share no class: see `LabelSpace`. The methods ``"auto"``
        and ``"ranks"`` compare such groups, if every class occurs in X.
    smoothing : float
        A teacher of k classes gives each of them a probability of at least smoothing / k. What a model says
        about classes it rules out is noise, and exact zeros (from forests, say) would dominate the logits.
        0 takes the teachers' outputs as they are, as the paper does.
    threshold : float
        For scikit-learn students: leave out classes of a row that are less probable than this. Networks, and
        students that learn soft labels themselves, such as ``"ngrams"``, leave none out.
    memory : int or str, optional
        How much memory the work may take, such as ``"2GB"``; by default a quarter of the machine's. If it
        would take more, X is read block by block: see docs/large-data.md.
    cache : path or ScoreStore, optional
        A folder that keeps the teachers' outputs for each row. Another fit on the same rows asks no teacher
        again, and a fit that was stopped continues where it was; see docs/cache.md.
    cache_limit : float or str, optional
        Most bytes of the cache, such as ``"20GB"``: what was not used for longest is deleted beyond it.
    batch_size : int
        Rows per call of a teacher.
    engine : {"local", "ray"}
        Where teachers run: on this machine, or on a Ray cluster, which also is chosen for a Ray dataset.
    engine_options : dict, optional
        For "ray": `address`, `workers`, `timeout`, `teachers`, `train_workers`; see docs/ray.md.
    progress : callable, optional
        Called with (task, done, total) during long work.
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
    pool_weights_ : dict or None
        With ``method="auto"``, the share of each estimate in the pool.
    neighbor_weight_ : float
        What the neighbours weigh in the soft labels of a row; 0 without them.
    temperatures_ : (N,) array
        What each teacher's logits were divided by: 1 without `calibrate`.
    label_space_ : LabelSpace
    teachers_ : list of Teacher
    student_ : the fitted student
    seconds_ : dict
        How long scoring, calibration, soft labels and training took.
    n_abstentions_ : (N,) array of int
        On how many rows each teacher abstained.
    n_iter_ : int or None
        Epochs or iterations of the student, if it counts them.
    n_features_in_ : int
        Columns of X, if X has columns.
    feature_names_in_ : (d,) array
        Their names, if X is a table with names. New rows may have them in any order.
    encoding_ : dict or None
        What was done with each column of a table of mixed columns, in words; see docs/tables.md.

    Only `fit` sets them, at its end: a fit that fails leaves them as they were.

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
        teachers: Any,
        student: Any = None,
        method: Method | OwnMethod = "auto",
        train: Literal["estimate", "backprop"] = "estimate",
        balance: Literal["auto", "sqrt"] | bool = "auto",
        temperature: float | Literal["auto"] = "auto",
        loss: Loss = "cross-entropy",
        *,
        self_label: bool = False,
        calibrate: Literal["agreement"] | None = None,
        off_set: bool = False,
        n_neighbors: int | None = None,
        tol: float | None = None,
        max_iter: int | None = None,
        aliases: Mapping[Any, Any] | None = None,
        disconnected: Disconnected = "warn",
        smoothing: float = 0.001,
        threshold: float = 0.01,
        memory: Any = None,
        cache: Any = None,
        cache_limit: float | str | None = None,
        batch_size: int = 4096,
        engine: Literal["local", "ray"] = "local",
        engine_options: Mapping[str, Any] | None = None,
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
        self.n_neighbors = n_neighbors
        self.tol = tol
        self.max_iter = max_iter
        self.aliases = aliases
        self.disconnected = disconnected
        self.smoothing = smoothing
        self.threshold = threshold
        self.memory = memory
        self.cache = cache
        self.cache_limit = cache_limit
        self.batch_size = batch_size
        self.engine = engine
        self.engine_options = engine_options
        self.progress = progress
        self.random_state = random_state

    load = staticmethod(load)

    def fit(self, X: Any, y: Any = None, *, logits: ArrayLike | None = None) -> Unifier:
        """Score X by every teacher and train the student.

        Parameters
        ----------
        X : array, sparse matrix, data frame, list, torch dataset, or rows that lie elsewhere
            n unlabelled rows, in the form that teachers and student take. Items of a dataset are x or
            (x, ...); see docs/torch.md. Rows that lie elsewhere are files (a path, a folder, a list of
            paths), datasets of Arrow, Hugging Face or Ray, or an iterator of batches: see
            docs/large-data.md.
        y : (n,) sequence, optional
            Labels where they are known; None, NaN or -1 elsewhere. The soft labels of labelled rows are
            pinned to them.
        logits : (n, m) array, optional
            The teachers' outputs for X, from `score_teachers`: score once to compare methods.
        """
        run, opened, rows = self.prepare(), self.open_teachers(), as_rows(X)
        few = max(1, min(SHOWN_ROWS, SHOWN_BYTES // max(1, rows.n_bytes // max(1, len(rows)))))
        some = (
            rows.take(rows.sample_rows(few)) if len(rows) else rows.given
        )  # names and encoding come from these
        student = self._make_student(some)
        student.check_memory(rows, opened.space.n_classes, run)
        read = self._read_rows(student, some)
        seconds: dict[str, float] = {}
        answers = collect_answers(self, rows, y, logits, opened, run, seconds, student)
        found = find_soft_labels(self, answers, run, seconds) if self.train == "estimate" else None
        class_weights = pseudo_labels = None
        with timed(seconds, "training"):
            if found is None:
                train_backprop(self, student, read, answers, run)
            else:
                class_weights, pseudo_labels = train(self, student, read, answers, found.soft_labels, run)
        # at the end: a fit that fails leaves what was learnt before as it was
        self.teachers_, self.label_space_ = opened
        self.classes_ = opened.space.classes
        self.n_abstentions_ = answers.n_abstentions
        self.temperatures_ = answers.temperatures
        self.soft_labels_: NDArray[Any] | None
        self.pool_weights_: dict[str, float] | None
        self.soft_labels_, self.pool_weights_, self.neighbor_weight_ = found or (None, None, 0.0)
        self.class_weights_: Floats | None = class_weights
        self.pseudo_labels_: NDArray[Any] | None = pseudo_labels
        self.seconds_ = seconds
        self._covered = answers.covered
        self._reference = answers.logits(spread_out(np.arange(len(rows)), REFERENCE_ROWS))
        self._temperature = self.resolved_temperature
        self._about = describe_settings(self)
        self._keep_student(student, some, read, n_rows=None if few >= len(rows) else len(rows))
        return self

    def label_space(self) -> LabelSpace:
        """Return the label space of the teachers: its classes are the columns of what `estimate` returns."""
        self.prepare()
        return self.open_teachers().space

    def score_teachers(self, X: Any) -> NDArray[Any]:
        """Return the packed logits (n, m) of all teachers, for `fit` and `estimate`.

        They are float32; of rows that do not fit in memory they are mapped from a temporary file.
        """
        return score(*self.open_teachers(), as_rows(X), self.prepare())

    def estimate(self, X: Any, y: Any = None, *, logits: ArrayLike | None = None) -> NDArray[Any]:
        """Return soft labels (n, L) for X without training a student; parameters as in `fit`.

        Columns are in the order of ``label_space().classes``. They are float32; of rows that do not fit in
        memory they are mapped from a temporary file.
        """
        return np.asanyarray(estimate(self, X, y, logits).soft_labels)

    def prepare(self) -> Run:
        """Check all options, and return how the work is run."""
        check_settings(self)
        return Run(
            memory=self.memory,
            cache=self.cache,
            cache_limit=self.cache_limit,
            rows_per_call=self.batch_size,
            engine=self.engine,
            engine_options=self.engine_options,
            progress=self.progress,
        )

    def open_teachers(self) -> Opened:
        """Return the teachers, and their label space."""
        opened = open_teachers(self.teachers)
        classes = [teacher.classes for teacher in opened.teachers]
        return Opened(
            opened.teachers,
            LabelSpace(classes, self.aliases, names=opened.names, disconnected=self.disconnected),
        )

    def _make_student(self, X: Any) -> Any:
        """Return the unfitted student for rows like X; see `make_student`."""
        student = make_student(
            self.student,
            X=X,
            random_state=self.random_state,
            run=self.prepare(),
        )
        student.loss = self.loss
        if hasattr(student, "min_label"):
            student.min_label = self.threshold
        if self.train == "backprop" and student.scores == "probabilities":
            raise InvalidInputError(
                "{argument} needs a torch student; use {remedy}.",
                argument="train",
                value="backprop",
                remedy=("train", "estimate"),
            )
        return student

    @property
    def backprop_method(self) -> str:
        """The method whose loss a student is trained on."""
        return "mf-lf" if self.method == "auto" else method_name(self.method)

    @property
    def resolved_temperature(self) -> float:
        """The temperature as a number."""
        return resolve_temperature("mf-lf" if self.train == "backprop" else self.method, self.temperature)

    def _student_temperature(self) -> float:
        return self._temperature

    def _origin(self) -> Origin:
        return Origin(f"Unified from {len(self.teachers_)} teachers.", self._about)
