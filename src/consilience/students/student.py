"""What learns soft labels: the base of all students, and any classifier of scikit-learn as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

from consilience._validation import as_random_state, check_distributions, check_fitted, take_rows
from consilience._words import shorten, size_text
from consilience.exceptions import (
    ConsilienceError,
    CoverageWarning,
    InvalidInputError,
    InvalidTypeError,
    warn,
)
from consilience.files.export import sklearn_to_onnx
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.held_out import resample, thin
from consilience.kernels.linear_model import targets
from consilience.labels import class_list, read_labels
from consilience.options import anything, option
from consilience.rows import Rows, memory_budget
from consilience.rows.targets import TargetRows
from consilience.run import Run, resolve_run
from consilience.students.options import StudentOptions, WeightedOptions

COPIES = 10
"""How many rows a classifier without sample_weight gets for each row."""
FEW_COPIES = 2
"""The most copies per row if all copies together would have more numbers than `SMALL` (64 MB)."""
SMALL = 2**23
THINNED_ROWS = 2**14
"""Rows whose copies are drawn together."""
REFITS, LEAST_FALL = 4, 1e-3
"""The most refits that minimise the collision cross-entropy, and the relative fall worth another one."""
FORESTS = (ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier)
NODE_BYTES = 80
"""A node of a tree of scikit-learn's, without the probabilities in it."""


class Student(StudentOptions, ABC):
    """What learns soft labels. It is cloned before it is fitted, so one object can serve many fits.

    A student of your own is a subclass with `learn_rows` and `predict_all`.

    Attributes
    ----------
    temperature_ : float
        That of the soft labels it has learnt, and of the probabilities that `predict_all` returns.

    Examples
    --------
    >>> from consilience.students import Logistic
    >>> isinstance(Logistic(loss="collision"), Student)
    True
    """

    scores: ClassVar[str] = "probabilities"
    learns_from: ClassVar[str] = "numbers"  # or "texts", or "anything"
    takes_missing: ClassVar[bool] = False
    takes_sparse: ClassVar[bool] = False
    train: Any = "estimate"
    n_iter_: int | None = None

    def learn(
        self,
        rows: TargetRows,
        class_weights: Floats,
        *,
        temperature: float = 1.0,
        run: Run | None = None,
        key: str = "",
    ) -> Self:
        """Learn soft labels by passes over rows.

        Parameters
        ----------
        rows : TargetRows
            Rows and their soft labels (n, L), read block by block. Rows in memory are one block.
        class_weights : (L,) array
            Multiply each class's part of the loss.
        temperature : float
            That of the soft labels.
        run : Run, optional
            Memory, progress, where checkpoints go.
        key : str
            Names rows and labels, for checkpoints.
        """
        self.check_options()
        if rows.n_rows == 0:
            raise InvalidInputError("X has no rows to train on.")
        self.temperature_ = float(temperature)
        self.learn_rows(rows, class_weights, resolve_run(run), key)
        return self

    @abstractmethod
    def learn_rows(self, rows: TargetRows, class_weights: Floats, run: Run, key: str) -> None:
        """Learn soft labels at `temperature_`: what `learn` does once options and rows are checked."""

    @abstractmethod
    def predict_all(self, X: Any, n_classes: int) -> Floats:
        """Return probabilities (n, L) of all L classes, at the temperature of the soft labels."""

    def check_memory(self, rows: Rows, n_classes: int, run: Run) -> None:
        """Raise unless the student can learn from so many rows with the memory of `run`."""


class WeightedStudent(Student, WeightedOptions):
    """Fit a scikit-learn classifier on soft labels.

    Each row is repeated for every class whose probability is at least `min_label`, and always for its most
    probable class. The class is its label. Its sample weight is the probability, renormalised over the
    classes kept, times the class weight. A classifier whose `fit` takes no ``sample_weight`` gets ten rows
    per row instead, drawn in proportion to these weights.

    If all copies together had more than 2^23 numbers, there are at most two per row, and one more per class.
    Copies with large weights stay. The others are drawn, and the weights of those drawn make up for the rest.

    Weighted rows make a classifier minimise Shannon's cross-entropy, and few classifiers have another loss.
    ``loss="collision"`` minimises the collision cross-entropy by EM: it refits to the soft labels times the
    classifier's own predictions, renormalised (`responsibilities`), as long as the loss falls by a
    thousandth, and at most four times. Training takes that many times as long.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier. Its classes are positions among the L classes.
    columns_ : (k,) array of int
        Which of the L classes it learnt.
    n_iter_ : int or None
        The classifier's own ``n_iter_``, if it has one.
    collision_losses_ : list of float
        With ``loss="collision"``, the mean loss after the first fit and after each refit.
    """

    # How often the rows, and the soft labels in double precision, are in memory at the most, measured on 50
    # columns and 30 classes: two weighted copies, and what the classifier makes of them.
    most_copies: ClassVar[tuple[float, float]] = (5.0, 5.0)

    @abstractmethod
    def unfitted(self) -> Any:
        """Return the classifier to fit; it is cloned, never changed."""

    def for_labels(self) -> Any:
        """Return an unfitted classifier of this kind for hard labels."""
        return self.unfitted()

    def learn_rows(self, rows: TargetRows, class_weights: Floats, run: Run, key: str) -> None:
        """Learn by passes if the classifier has `partial_fit`, else from all rows at once."""
        random = as_random_state(self.random_state)
        if self.learns_by_parts:
            from consilience.students.partial_fit import learn_by_parts

            learn_by_parts(self, rows, class_weights, run, random)
            return
        X, Q, by_row = rows.everything()
        # no name holds the weights here, so that a student can free them
        self._fit_weights(X, self._weights(Q, class_weights, by_row, warned=True), random)
        if self.loss == "collision":
            from consilience.kernels.collision.entropy import weigh

            target, mass = weigh(Q.astype(np.float64), class_weights)
            self._lower_collision(X, target, mass if by_row is None else mass * by_row, random)

    def predict_scores(self, X: Any) -> Floats:
        """Return probabilities (n, k) of the classes in `columns_`."""
        check_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)

    def predict_all(self, X: Any, n_classes: int) -> Floats:
        """Return probabilities (n, L) of all L classes: zero for those that it did not learn."""
        scores = self.predict_scores(X)
        proba = np.zeros((len(scores), n_classes))
        proba[:, self.columns_] = scores
        return proba

    def to_onnx(self, X_example: Any) -> Any:
        """Return the classifier as an ONNX model with one output, probabilities (n, k)."""
        check_fitted(self, "estimator_")
        return sklearn_to_onnx(self.estimator_, X_example)

    def check_memory(self, rows: Rows, n_classes: int, run: Run) -> None:
        """Raise unless all rows fit in memory, as often as the classifier needs them."""
        if self.learns_by_parts or (rows.held and run.memory is None):
            return
        memory, n = memory_budget(run), len(rows)
        needed = self.bytes_in_memory(n, rows.n_bytes, n_classes)
        if needed > memory:
            raise InvalidInputError(
                f"The student ({student_name(self)}) learns from all rows at once, and {n:,} rows would take "
                f"about {size_text(round(needed))}; with memory of {size_text(memory)} it can learn from "
                f"about {int(memory * n / needed):,}. Use {{remedy}} or 'mlp', which learn block by block, "
                "allow more memory, or give a random sample of the rows.",
                remedy=("student", "torch"),
            )

    def bytes_in_memory(self, n_rows: int, n_bytes: int, n_classes: int) -> float:
        """Return about how much memory it takes to learn from all rows at once."""
        of_X, of_labels = self.most_copies
        model = self.unfitted()
        # a full tree has two nodes for each row, with a probability for each class
        nodes = 2 * int(model.n_estimators) if isinstance(model, FORESTS) else 0
        return of_X * n_bytes + n_rows * (8 * of_labels * n_classes + nodes * (8 * n_classes + NODE_BYTES))

    @property
    def learns_by_parts(self) -> bool:
        """Whether the classifier, or the last step of a pipeline, learns by `partial_fit`."""
        return False

    def _weights(
        self, Q: NDArray[Any], class_weights: Floats, by_row: NDArray[Any] | None, *, warned: bool = False
    ) -> Floats:
        """Return the weights (n, L) of the classes of each row; `warned`, if some classes have none."""
        T = targets(Q.astype(np.float64), class_weights, self.min_label)
        if by_row is not None:
            T *= by_row[:, None]
        if warned:
            warn_of_missing(np.asarray(T.any(axis=0)))
        return T

    def _fit_weights(self, X: Any, T: Floats, random: np.random.RandomState) -> None:
        """Fit a clone of the estimator to weights T (n, L) of the classes of each row, and keep it."""
        estimator = self.seeded_clone(random)
        weight_name = _sample_weight_name(estimator)
        most = max(FEW_COPIES * len(T), int(SMALL / numbers_per_row(X, len(T))))
        given = {}
        if weight_name is None:
            drawn = resample(T.ravel(), random.uniform(size=min(COPIES * len(T), most)))
            rows, labels = np.divmod(drawn, T.shape[1])
        else:
            rows, labels, given[weight_name] = _copies(T, most, random)
        del T  # the copies are large enough
        fit_foreign(estimator, take_rows(X, rows), labels, **given)
        self.keep(estimator, np.asarray(estimator.classes_, dtype=np.intp))

    def _lower_collision(self, X: Any, target: Floats, mass: Floats, random: np.random.RandomState) -> None:
        """Refit by EM while the mean collision cross-entropy, weighted by mass, falls; keep the best fit."""
        from consilience.kernels.collision.entropy import responsibilities

        n_classes = target.shape[1]
        proba = self.predict_all(X, n_classes)
        self.collision_losses_ = [mean_collision(proba, target, mass)]
        for _ in range(REFITS):
            shares = responsibilities(proba, target)
            best, columns = self.estimator_, self.columns_
            self._fit_weights(X, self._weights(shares, np.ones(n_classes), mass), random)
            proba = self.predict_all(X, n_classes)
            before, after = self.collision_losses_[-1], mean_collision(proba, target, mass)
            self.collision_losses_.append(after)
            if not after < before:
                self.keep(best, columns)
            if not after < before - LEAST_FALL * abs(before):
                break

    def keep(self, estimator: Any, columns: Ints) -> None:
        """Make a fitted classifier the one to predict with."""
        self.estimator_, self.columns_ = estimator, columns
        n_iter = getattr(last_step(estimator), "n_iter_", None)
        self.n_iter_ = None if n_iter is None else int(np.max(n_iter))

    def seeded_clone(self, random: np.random.RandomState) -> Any:
        """Return an unfitted copy with every `random_state` of None set: one seed reproduces it all."""
        estimator = clone(self.unfitted())
        seeds = {
            name: int(random.randint(2**31 - 1))
            for name, value in sorted(estimator.get_params(deep=True).items())
            if (name == "random_state" or name.endswith("__random_state")) and value is None
        }
        return estimator.set_params(**seeds) if seeds else estimator


class Classifier(WeightedStudent):
    """Any scikit-learn-style classifier or pipeline with `predict_proba`.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> Classifier(GaussianNB(), min_label=0.05)
    Classifier(min_label=0.05, estimator=GaussianNB())
    """

    learns_from = "anything"

    estimator: Any = option(  # type: ignore[misc]
        anything("classifier"), "A classifier or pipeline with `predict_proba`. It is cloned, never changed."
    )

    def unfitted(self) -> Any:
        """Return the classifier to fit."""
        return self.estimator

    @property
    def learns_by_parts(self) -> bool:
        """Whether the classifier, or the last step of a pipeline, learns by `partial_fit`."""
        last = last_step(self.estimator)
        # scikit-learn refuses these two in partial_fit
        refused = getattr(last, "early_stopping", False) or getattr(last, "class_weight", None) == "balanced"
        return hasattr(last, "partial_fit") and not refused


class Mlp(WeightedStudent):
    """A multilayer perceptron of scikit-learn, for those who have no torch.

    How many epochs it has is our choice, as for the network in torch. scikit-learn would warn that these were
    not enough, and name an option that cannot be set here.

    Examples
    --------
    >>> Mlp(loss="collision")
    Mlp(loss='collision')
    """

    learns_by_parts = True

    def unfitted(self) -> Pipeline:
        """Return the classifier to fit."""
        return make_pipeline(StandardScaler(), MLPClassifier((256,), max_iter=60, n_iter_no_change=5))


def student_name(student: Any) -> str:
    """Return what a student is, in a word or two: the class of its model, or "torch network"."""
    if student.scores == "logits":
        return "torch network"
    if not hasattr(student, "unfitted"):
        return type(student).__name__
    return type(last_step(getattr(student, "estimator_", None) or student.unfitted())).__name__


def last_step(estimator: Any) -> Any:
    """Return the last step of a pipeline, or the classifier itself."""
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def numbers_per_row(X: Any, n: int) -> float:
    """Estimate how many numbers a row has; sparse matrices count what they store."""
    size = X.numel() if hasattr(X, "numel") else getattr(X, "size", 0)
    return max(float(size) / n, 32.0)  # texts have no columns, but become numbers later


def _copies(T: Floats, most: int, random: np.random.RandomState) -> tuple[Ints, Ints, Floats]:
    """Return rows, labels and weights of at most `most` copies for weights T (n, L), and one per class."""
    n, n_classes = T.shape
    if np.count_nonzero(T) <= most:
        rows, labels = np.nonzero(T)
        return rows, labels, T[rows, labels]
    sure = np.flatnonzero(T.any(axis=0))  # a draw must not lose a class, so each keeps its best row
    best = T[:, sure].argmax(axis=0) if len(sure) < n_classes else T.argmax(axis=0)
    found = [(best, sure, T[best, sure])]
    for start in range(0, n, THINNED_ROWS):  # all at once would take many times the memory of T
        rest = T[start : start + THINNED_ROWS].copy()
        inside = (start <= best) & (best < start + len(rest))
        rest[best[inside] - start, sure[inside]] = 0.0
        size = max(1, most * len(rest) // n)
        drawn, weights = thin(rest.ravel(), size, random.uniform(size=size))
        rows, labels = np.divmod(drawn, n_classes)
        found.append((rows + start, labels, weights))
    rows, labels, weights = (np.concatenate(values) for values in zip(*found, strict=True))
    return rows, labels, weights


def mean_collision(proba: Floats, target: Floats, mass: Floats) -> float:
    """Return the mean collision cross-entropy of probabilities and targets (n, L), weighted by mass (n,)."""
    from consilience.kernels.collision.entropy import collision_probability

    # One row where no collision is possible would make the mean infinite, whatever the others do.
    p = np.maximum(collision_probability(proba, target), np.finfo(np.float64).tiny)
    return float(-(mass * np.log(p)).sum() / mass.sum())


def _sample_weight_name(estimator: Any) -> str | None:
    """Return the keyword of `fit` that takes sample weights, if there is one."""
    name = f"{estimator.steps[-1][0]}__sample_weight" if isinstance(estimator, Pipeline) else "sample_weight"
    return name if has_fit_parameter(last_step(estimator), "sample_weight") else None


def fit_foreign(estimator: Any, X: Any, labels: NDArray[Any] | None = None, **options: Any) -> None:
    """Fit a foreign classifier, and turn its errors about bad rows into ours."""
    with foreign_errors():
        estimator.fit(X, labels, **options)


@contextmanager
def foreign_errors(problem: str = "The student cannot learn from X", advice: str = "") -> Iterator[None]:
    """Turn whatever a classifier of others raises about rows into an error of ours: '`problem`: what'."""
    try:
        yield
    except (ConsilienceError, Warning):  # a warning may be an error, by the user's wish
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        kind = InvalidTypeError if isinstance(error, TypeError) else InvalidInputError
        raise kind(f"{problem}: {lines[0][:300].rstrip('.:')}.{advice}") from error


def learnt_columns(T: NDArray[Any]) -> Ints:
    """Return the classes that have weights in T (n, L), or raise if there is only one."""
    columns = np.flatnonzero(T.any(axis=0))
    if len(columns) < 2:
        raise InvalidInputError(
            "The student cannot learn from X: every row has the same class, and one class is too few."
        )
    return columns


def warn_of_missing(occurs: NDArray[np.bool_]) -> None:
    """Warn of classes (L,) that do not occur, since the student cannot predict them."""
    missing = np.flatnonzero(~occurs)
    if len(missing):
        warn(
            CoverageWarning(
                f"No row has a soft label of at least min_label for {len(missing)} of {len(occurs)} classes "
                f"(positions {shorten(missing)}), so the student cannot predict them. "
                "Lower {remedy}, or add rows of these classes.",
                remedy="min_label",
            )
        )


def read_soft_labels(y: Any, classes: Any) -> tuple[NDArray[Any], Floats]:
    """Return class names (L,) and soft labels (n, L), with NaN in rows without a label.

    Parameters
    ----------
    y : (n, L) array of soft labels, or (n,) sequence of labels
        Soft labels are checked: not negative, and rows sum to 1. Labels become rows of zeros and a one.
    classes : (L,) sequence, optional
        The names of the columns; by default 0 to L - 1, or the labels that occur.

    Examples
    --------
    >>> read_soft_labels([[0.9, 0.1], [0.2, 0.8]], ["cat", "dog"])[0].tolist()
    ['cat', 'dog']
    >>> read_soft_labels(["dog", "cat", None], None)[1].tolist()
    [[0.0, 1.0], [1.0, 0.0], [nan, nan]]
    """
    if not _is_table(y):
        names, codes = read_labels(y, classes=classes)
        hard = np.eye(len(names))[codes]
        hard[codes < 0] = np.nan
        return names, hard
    soft = check_distributions("y", y)
    if classes is None:
        return np.arange(soft.shape[1]), soft
    listed = class_list(classes)
    if len(listed) != soft.shape[1]:
        raise InvalidInputError(
            f"There are {len(listed)} classes for {soft.shape[1]} columns of soft labels."
        )
    return np.asarray(listed), soft


def _is_table(y: Any) -> bool:
    """Tell whether y has several columns, as soft labels do."""
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError:  # rows of different lengths, which are no soft labels either
        return True
    return len(shape) == 2 and shape[1] > 1


def encoder_of(classes: NDArray[Any]) -> Callable[[Any], NDArray[Any]]:
    """Return the function from labels to positions in `classes`."""
    return lambda y: read_labels(y, classes=classes, where="y of validation")[1]
