"""Unify: one classifier over all classes out of many, from unlabelled rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.exceptions import CoverageWarning, InvalidInputError, warn
from consilience.inspect.comparison import compare
from consilience.inspect.explanation import disagreements, explain
from consilience.inspect.matching import warn_of_names, warn_of_unused
from consilience.kernels.arrays import Floats
from consilience.kernels.unify.packed import floor_blocks
from consilience.labels import LabelSpace, check_packed_logits
from consilience.methods import Method
from consilience.rows import Rows, as_rows, new_array
from consilience.rows.targets import TargetRows
from consilience.run import Run, resolve_run
from consilience.scoring import score, with_open_cache
from consilience.soft_labels.agreement import agreement_temperatures, divide_by_temperatures
from consilience.soft_labels.estimate import fill_soft_labels, rows_to_compare
from consilience.soft_labels.neighbours import N_NEIGHBORS, average_over_neighbours
from consilience.soft_labels.solvers import spread_out
from consilience.students.classifier import AsSeen, Origin, StudentClassifier, balanced, timed
from consilience.students.loaded import load
from consilience.students.logistic import Logistic
from consilience.students.make import as_student, make_student
from consilience.students.student import Mlp
from consilience.teachers import Teacher
from consilience.teachers.given import open_teachers
from consilience.unify.options import UnifierOptions
from consilience.unify.training import method_with_loss, own_labels, train_backprop

# Rows that show the names of columns, and from which an encoder of mixed columns learns: at most so many, and
# about so many bytes, since images are large and a few show of what kind they are.
SHOWN_ROWS, SHOWN_BYTES = 2**15, 2**26
# Rows among which `explain` ranks a new one: more change its soft label little.
REFERENCE_ROWS = 2000

__all__ = ["Unifier"]


@dataclass
class Estimate:
    """What the teachers say about rows, what else is known of them, and the soft labels made of it.

    Attributes
    ----------
    method : Method
    teachers : list of Teacher
    space : LabelSpace
    rows : Rows
    raw : (n, m) array
        Packed logits as the teachers gave them.
    labels : (n,) array of int
        The position of each known label, -1 without one.
    covered : (n,) array of bool
        Whether a teacher answers or a label is known.
    n_abstentions, temperatures : (N,) array
    soft_labels : (n, L) array or None
    pool_weights : dict or None
        The share of each estimate in the pool.
    neighbor_weight : float
    seconds : dict
    """

    method: Method
    teachers: list[Teacher]
    space: LabelSpace
    rows: Rows
    raw: NDArray[Any]
    labels: NDArray[np.intp]
    covered: NDArray[np.bool_]
    n_abstentions: NDArray[np.intp]
    temperatures: Floats
    soft_labels: NDArray[Any] | None = None
    pool_weights: dict[str, float] | None = None
    neighbor_weight: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)

    def logits(self, rows: Any) -> Floats:
        """Return the packed logits (k, m) of some rows as methods take them: calibrated and smoothed."""
        logits = np.ascontiguousarray(self.raw[rows], dtype=np.float64)
        if (self.temperatures != 1).any():
            logits = divide_by_temperatures(logits, self.temperatures, self.space)
        return floor_blocks(logits, self.space.offsets, np.array([one.smoothing for one in self.teachers]))


class Unifier(UnifierOptions, StudentClassifier):
    """Make one classifier over all classes out of classifiers that each know some.

    The teachers score the unlabelled rows of X. Their outputs become soft labels over the union of their
    classes, and a student learns these (or a network the loss of a method, with ``train="backprop"``).

    Attributes
    ----------
    classes_ : (L,) array
        The union of the teachers' classes, sorted.
    method_ : Method
        The method, with its options.
    soft_labels_ : (n, L) array or None
        The estimated soft labels at the temperature of the method; None with ``train="backprop"``.
    class_weights_ : (L,) array or None
        The balancing weights, where balancing is on.
    pseudo_labels_ : (n, L) array or None
        With ``self_label`` of the student, the fair pseudo-labels; NaN in rows that it does not see.
    pool_weights_ : dict or None
        With ``method="auto"``, the share of each estimate in the pool.
    neighbor_weight_ : float
        What the neighbours weigh in the soft labels of a row; 0 without them.
    temperatures_ : (N,) array
        What each teacher's logits were divided by: 1 without ``teacher_temperatures`` of the method.
    label_space_ : LabelSpace
    teachers_ : list of Teacher
    student_ : the fitted student
    seconds_ : dict
        How long scoring, calibration, soft labels and training took.
    covered_ : (n,) array of bool
        On which rows a teacher answered or a label was known: the student saw these.
    n_abstentions_ : (N,) array of int
        On how many rows each teacher abstained.
    reference_ : (r, m) array
        The packed logits of up to 2,000 rows, calibrated and smoothed.
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

    load = staticmethod(load)
    compare, explain, disagreements = compare, explain, disagreements

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
        run = self._start()
        teachers, space = self.open_teachers()
        rows = as_rows(X)
        few = max(1, min(SHOWN_ROWS, SHOWN_BYTES // max(1, rows.n_bytes // max(1, len(rows)))))
        # names and encoding come from these
        some = rows.take(rows.sample_rows(few)) if len(rows) else rows.given
        student = self._make_student(some, run)
        student.check_memory(rows, space.n_classes, run)
        as_seen = self._read_rows(student, some, partial(space.encode, where="y of validation"))
        backprop = student.train == "backprop"
        method = self.resolved("method")
        if backprop:
            method = method_with_loss(method, self.balance)
        labelled = y is not None or getattr(student, "validation", None) is not None
        found = collect(method, teachers, space, rows, y, logits, run, labelled=labelled)
        if not backprop:
            make_soft_labels(found, self._neighbours(method), run)
        with timed(found.seconds, "training"):
            class_weights, pseudo_labels = train(found, student, as_seen, self.balance, run)
        # at the end: a fit that fails leaves what was learnt before as it was
        self.teachers_, self.label_space_, self.classes_ = teachers, space, space.classes
        self.method_ = method
        self.covered_, self.n_abstentions_ = found.covered, found.n_abstentions
        self.temperatures_, self.seconds_ = found.temperatures, found.seconds
        self.soft_labels_, self.pool_weights_ = found.soft_labels, found.pool_weights
        self.neighbor_weight_ = found.neighbor_weight
        self.class_weights_, self.pseudo_labels_ = class_weights, pseudo_labels
        self.reference_ = found.logits(spread_out(np.arange(len(rows)), REFERENCE_ROWS))
        self._keep_student(student, some, as_seen, None if few >= len(rows) else len(rows))
        return self

    def label_space(self) -> LabelSpace:
        """Return the label space of the teachers: its classes are the columns of what `estimate` returns."""
        self.check_options()
        return self.open_teachers()[1]

    def score_teachers(self, X: Any) -> NDArray[Any]:
        """Return the packed logits (n, m) of all teachers, for `fit` and `estimate`.

        They are float32; of rows that do not fit in memory they are mapped from a temporary file.
        """
        run = self._start()
        return score(*self.open_teachers(), as_rows(X), run)

    def estimate(self, X: Any, y: Any = None, *, logits: ArrayLike | None = None) -> NDArray[Any]:
        """Return soft labels (n, L) for X without training a student; parameters as in `fit`.

        Columns are in the order of ``label_space().classes``. They are float32; of rows that do not fit in
        memory they are mapped from a temporary file.
        """
        return np.asanyarray(self.make_estimate(X, y, logits).soft_labels)

    def make_estimate(self, X: Any, y: Any = None, logits: ArrayLike | None = None) -> Estimate:
        """Return what `estimate` returns, and how it was made."""
        run, method = self._start(), self.resolved("method")
        found = collect(method, *self.open_teachers(), as_rows(X), y, logits, run, labelled=y is not None)
        make_soft_labels(found, self._neighbours(method), run)
        return found

    def open_teachers(self) -> tuple[list[Teacher], LabelSpace]:
        """Return the teachers, and their label space."""
        opened = open_teachers(self.teachers)
        classes = [teacher.classes for teacher in opened.teachers]
        space = LabelSpace(classes, self.aliases, names=opened.names, disconnected=self.disconnected)
        return opened.teachers, space

    def _start(self) -> Run:
        """Check all options, and return how the work is run."""
        self.check_options()
        return with_open_cache(resolve_run(self.run))

    def _make_student(self, X: Any, run: Run) -> Any:
        """Return the unfitted student for rows like X; see `make_student`."""
        student = make_student(self.student, X=X, random_state=self.random_state, run=run)
        if student.self_label and (student.train, student.loss) != ("estimate", "cross-entropy"):
            raise InvalidInputError(
                "self_label=True needs train='estimate' and loss='cross-entropy'; "
                f"they are {student.train!r} and {student.loss!r}."
            )
        if student.train == "backprop" and student.loss != "cross-entropy":
            raise InvalidInputError(
                f"{{argument}} has the method's own loss; use {{remedy}} with {student.loss!r}.",
                argument="train",
                value="backprop",
                remedy=("train", "estimate"),
            )
        return student

    def _neighbours(self, method: Method) -> int | None:
        """Return over how many neighbours to average; None if it is 10, where rows can be compared.

        By default, this is done where it was measured to help: for the method ``"auto"``, and for students
        that are linear models or networks. Trees average over near rows themselves.
        """
        student = self.student
        if method.n_neighbors is not None:
            return method.n_neighbors
        if student is None or isinstance(student, str):
            helps = student in (None, "logistic", "mlp", "torch")
        else:
            made = as_student(student)
            helps = made.scores == "logits" or isinstance(made, Logistic | Mlp)
        return None if helps else 0

    def origin(self) -> Origin:
        about = {
            "method": self.method_.name,
            "train": self.student_.train,
            "temperature": f"{self.method_.temperature:g}",
        }
        for name, option in self.method_.declared().items():
            value = getattr(self.method_, name)
            if not option.required and name not in ("temperature", "n_neighbors") and value != option.default:
                about[name] = str(value)
        if self.neighbor_weight_:
            about["neighbor_weight"] = f"{self.neighbor_weight_:.3g}"
        return Origin(f"Unified from {len(self.teachers_)} teachers.", about)


def collect(
    method: Method,
    teachers: list[Teacher],
    space: LabelSpace,
    rows: Rows,
    y: Any,
    logits: Any,
    run: Run,
    *,
    labelled: bool,
) -> Estimate:
    """Score all rows, unless `logits` are given, and collect what is known about each row."""
    seconds: dict[str, float] = {}
    with timed(seconds, "scoring"):
        labels = _read_labels(y, len(rows), space)  # first: teachers may take hours
        warn_of_unused(space, labels_given=labelled)
        if logits is None:
            raw: NDArray[Any] = score(teachers, space, rows, run)
        elif hasattr(logits, "toarray") or getattr(logits, "shape", None) != (len(rows), space.n_columns):
            raw = check_packed_logits(logits, space, len(rows))
        else:  # they may be mapped, so they are checked by blocks
            raw = np.asanyarray(logits)
        covered, n_abstentions = _coverage(raw, rows, space, labels)
    some = rows_to_compare(*raw.shape)
    compared = np.asarray(raw if some is None else raw[some], dtype=np.float64)
    warn_of_names(compared, space)
    temperatures = np.ones(space.n_teachers)
    if method.teacher_temperatures is not None:
        with timed(seconds, "calibration"):
            temperatures = agreement_temperatures(compared, space, progress=run.report)
    return Estimate(
        method, teachers, space, rows, raw, labels, covered, n_abstentions, temperatures, seconds=seconds
    )


def _read_labels(y: Any, n_rows: int, space: LabelSpace) -> NDArray[np.intp]:
    """Return the position of each known label, -1 without one."""
    if n_rows == 0:
        raise InvalidInputError("X has no rows; the student needs some to learn from.")
    # one number for all rows: of very many, the labels that nobody knows would fill the memory
    labels = np.broadcast_to(np.intp(-1), n_rows) if y is None else space.encode(y)
    if len(labels) != n_rows:
        raise InvalidInputError(f"y has {len(labels)} rows and X has {n_rows}.")
    return labels


def _coverage(
    raw: NDArray[Any], rows: Rows, space: LabelSpace, labels: NDArray[np.intp]
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return on which rows something is known, and how often each teacher abstains; check the logits."""
    covered = labels >= 0
    n_abstentions = np.zeros(space.n_teachers, dtype=np.intp)
    for number in range(rows.n_blocks):
        where = rows.rows_of(number)
        try:
            packed = check_packed_logits(raw[where], space)
        except InvalidInputError as error:
            raise error.moved(where.start) from None
        answered = ~np.isnan(packed[:, space.offsets[:-1]])
        covered[where] |= answered.any(axis=1)
        n_abstentions += (~answered).sum(axis=0)
    if not covered.any():
        raise InvalidInputError("Every teacher abstains on every row of X; there is nothing to learn from.")
    if not covered.all():
        warn(
            CoverageWarning(
                f"Every teacher abstains on {int((~covered).sum())} of {len(covered)} rows; "
                "the student does not see these."
            )
        )
    return covered, n_abstentions


def make_soft_labels(found: Estimate, n_neighbors: int | None, run: Run) -> None:
    """Make soft labels of what the teachers say, block by block."""
    with timed(found.seconds, "soft labels"):
        Q = found.soft_labels = new_array((len(found.rows), found.space.n_classes), run)
        some = rows_to_compare(*found.raw.shape)
        found.pool_weights = fill_soft_labels(
            Q,
            found.logits,
            found.logits(slice(None) if some is None else some),
            found.space,
            found.method,
            ranked=some is None,
            progress=run.report,
        )
        _pin(Q, found.labels)
        if n_neighbors != 0:
            found.neighbor_weight = average_over_neighbours(
                found.rows,
                Q,
                found.covered,
                n_neighbors or N_NEIGHBORS,
                required=n_neighbors is not None,
                progress=run.report,
            )
            _pin(Q, found.labels)


def train(
    found: Estimate, student: Any, as_seen: AsSeen, balance: Any, run: Run
) -> tuple[Floats | None, NDArray[Any] | None]:
    """Fit the student; return the balancing weights, and its fair pseudo-labels."""
    if student.train == "backprop":
        train_backprop(found, student, as_seen, run)
        return None, None
    Q, rows, covered = np.asanyarray(found.soft_labels), found.rows, found.covered
    mean = np.asarray(np.mean(Q, axis=0, dtype=np.float64, where=covered[:, None]))
    class_weights, weights = balanced(mean, not found.space.identical if balance == "auto" else balance)
    key = "" if run.cache is None else blake2b(np.ascontiguousarray(Q).data, digest_size=16).hexdigest()

    def learn(key: str, class_weights: Floats, labels: NDArray[Any], row_weights: Any = None) -> None:
        targets = TargetRows(rows, labels, row_weights, covered, as_seen)
        student.learn(targets, class_weights, temperature=found.method.temperature, run=run, key=key)

    learn(key, weights, Q)
    if not student.self_label:
        return class_weights, None
    share = mean * weights / (mean * weights).sum()  # an equal one, with balancing
    fair, labels, row_weights = own_labels(found, student, as_seen, weights, share, run)
    learn(key and f"{key}-own", np.ones(len(mean)), labels, row_weights)
    return class_weights, fair


def _pin(Q: NDArray[Any], labels: NDArray[np.intp]) -> None:
    """Set soft labels (n, L) to the known labels, where there are any."""
    known = np.flatnonzero(labels >= 0)
    Q[known] = 0.0
    Q[known, labels[known]] = 1.0
