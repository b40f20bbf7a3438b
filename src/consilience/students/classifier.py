"""Fitted classifiers: how all predict, those that a student makes, and one of your own soft labels."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from consilience._validation import check_fitted, n_rows, take_rows
from consilience.exceptions import InvalidInputError
from consilience.files.disk import as_path
from consilience.inspect.evaluate import evaluate, score
from consilience.inspect.report import report
from consilience.kernels.arrays import Floats
from consilience.kernels.linear_model import inverse, sharpen
from consilience.options import Options, anything, choice, option, temperature
from consilience.rows import as_rows
from consilience.rows.tables import as_values, column_names, columns_of, in_order, is_table, rows_sha256
from consilience.rows.targets import TargetRows
from consilience.run import resolve_run
from consilience.students import STUDENT
from consilience.students.make import encodes, make_student, needs_encoding
from consilience.students.student import encoder_of, foreign_errors, read_soft_labels
from consilience.students.table import TableEncoder
from consilience.students.trees import Boosting
from consilience.teachers import Teacher

EXAMPLES = 64
"""How many rows are kept to compare a saved model with."""

__all__ = ["FittedClassifier", "SoftLabelClassifier", "StudentClassifier"]


class FittedClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier that predicts: rows in memory at once, and rows that lie elsewhere block by block."""

    classes_: NDArray[Any]
    score, evaluate, report = score, evaluate, report

    @abstractmethod
    def probabilities(self, X: Any) -> Floats:
        """Return probabilities (n, L) of rows in memory."""

    def predict_proba(self, X: Any) -> Floats:
        """Return probabilities (n, L) in the order of `classes_`, at temperature 1.

        X may be rows that lie elsewhere, as in `Unifier.fit`. They are read block by block.
        """
        self._check_fitted()
        return self._by_blocks(X, self.probabilities)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class (n,) of each row; X as in `predict_proba`."""
        self._check_fitted()
        return np.asarray(self.classes_[self._by_blocks(X, lambda rows: self.probabilities(rows).argmax(1))])

    def _check_fitted(self) -> None:
        check_fitted(self, "classes_")

    def _by_blocks(self, X: Any, ask: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
        rows = as_rows(X)
        seen = getattr(self, "n_features_in_", None)
        advice = "" if seen is None else f" It was fitted on X of shape (n, {seen})."
        with foreign_errors("The classifier cannot predict X", advice):
            if seen is not None and len(rows) and rows.kind == "array" and len(rows.shape) == 1:
                raise InvalidInputError(
                    f"X has shape {rows.shape}.{advice} Reshape your data: X.reshape(1, -1) is one row."
                )
            return ask(rows.given) if rows.held else np.concatenate([ask(block.X) for block in rows.blocks()])


class FitRecord(NamedTuple):
    """How a classifier was fitted; its card tells it."""

    params: Mapping[str, Any]  # those of the estimator, without the teachers
    n_rows: int
    sha256: str | None  # of the rows; None if they have no plain content, or were read block by block


class Origin(NamedTuple):
    """Where a classifier comes from; for its file and its card."""

    description: str
    about: Mapping[str, str]


@dataclass(frozen=True)
class AsSeen:
    """From rows to what a student sees of them: columns in the order of `names`, and encoded."""

    names: NDArray[Any] | None = None
    encoder: TableEncoder | None = None

    def __call__(self, X: Any) -> Any:
        """Return rows as the student sees them, in memory."""
        X = in_order(as_values(X), self.names)
        return X if self.encoder is None else self.encoder.transform(X)


class StudentClassifier(FittedClassifier):
    """A classifier that predicts with the student it has trained.

    Besides what its subclasses name, `fit` keeps what `save` needs: `example_`, some rows to compare the file
    with, `as_seen_`, how the student sees rows, and `fit_record_`, how it was made.
    """

    student: Any
    random_state: Any
    teachers_: list[Teacher]
    student_: Any
    seconds_: dict[str, float]

    def probabilities(self, X: Any) -> Floats:
        """Return probabilities (n, L) of rows in memory."""
        student = self.student_
        return sharpen(student.predict_all(self.as_seen_(X), len(self.classes_)), student.temperature_)

    def save(self, path: str | os.PathLike[str], *, measured: Any = None) -> Path:
        """Write the classifier as one file, and its card next to it; ``as_teacher(path)`` makes it a teacher.

        The file is an ONNX model: it takes ``X`` (any number of rows) and gives ``probabilities`` (n, L) and
        ``label`` (n,); the class names are in its metadata. A student that learns from texts,
        `consilience.students.Ngrams`, writes its own ``.npz`` file instead. `consilience.load` reads
        either back. The card says how the model was made: see docs/serve.md. A function ``preprocess`` of a
        `consilience.students.Network` is not saved: the model takes what that function returns, and its card
        says so. An `ImagePreprocess` is on the card, so the saved model takes images.

        Parameters
        ----------
        path : path
            A file name that ends in ``.onnx`` (or ``.npz``, see above), in a folder that exists.
        measured : Evaluation or mapping, optional
            How good it is, for the card: what `evaluate` returned, or names and numbers such as
            ``{"accuracy": 0.93, "n_rows": 400}``.
        """
        from consilience.students.saving import save_classifier

        self._check_fitted()
        return save_classifier(self, as_path(path), measured)

    @abstractmethod
    def origin(self) -> Origin:
        """Return what the saved file says about where it comes from."""

    def _read_rows(self, student: Any, X: Any, encode: Callable[[Any], NDArray[Any]]) -> AsSeen:
        """Return how a student sees rows like X: encoded, if they are a mixed table and the student ours.

        Rows to validate a network on are made so, too, and `encode` makes positions of their labels.
        """
        encoder = None
        if encodes(student) and needs_encoding(X, takes_missing=isinstance(student, Boosting)):
            encoder = TableEncoder().fit(X)
        as_seen = AsSeen(column_names(X), encoder)
        if getattr(student, "validation", None) is not None:
            rows, labels = student.validation
            student.validation = (as_seen(rows), encode(labels))
        return as_seen

    def _keep_student(self, student: Any, X: Any, as_seen: AsSeen, all_rows: int | None = None) -> None:
        """Predict with this fitted student from now on; X may be some of `all_rows` rows of `fit`."""
        self.student_, self.as_seen_ = student, as_seen
        self.n_iter_: int | None = student.n_iter_
        self.encoder_: TableEncoder | None = as_seen.encoder
        self.encoding_: dict[Any, str] | None = None if as_seen.encoder is None else as_seen.encoder.encoding_
        self.example_ = take_rows(X, _example_rows(X))
        params = {  # as they are now: `set_params` reaches into objects
            name: copy(value) if hasattr(value, "get_params") else value
            for name, value in self.get_params(deep=False).items()
            if name != "teachers"
        }
        seen = (n_rows(X), rows_sha256(X)) if all_rows is None else (all_rows, None)
        self.fit_record_ = FitRecord(params, *seen)
        for name in ("n_features_in_", "feature_names_in_"):  # from an earlier fit on other rows
            self.__dict__.pop(name, None)
        if len(getattr(X, "shape", ())) > 1:
            self.n_features_in_ = int(X.shape[1])
        if as_seen.names is not None:
            self.feature_names_in_ = as_seen.names

    def __sklearn_clone__(self) -> Self:
        # a plain clone would also clone, and so un-fit, the scikit-learn teachers in the list
        params = self.get_params(deep=False).items()
        return type(self)(**{k: v if k == "teachers" else clone(v, safe=False) for k, v in params})


def _example_rows(X: Any) -> NDArray[np.intp]:
    """Return up to 64 rows of X, evenly spaced, and some with a missing value where there are such."""
    n = n_rows(X)
    rows = np.unique(np.linspace(0, n - 1, min(n, EXAMPLES)).astype(np.intp))
    missing: Any = ()
    if needs_encoding(X):
        missing = np.any([column.is_null().to_numpy() for column in columns_of(X)], axis=0)
    elif not is_table(X) and isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind == "f":
        missing = np.isnan(X).any(axis=1) if np.isnan(X.min(initial=0)) else ()
    found = np.flatnonzero(missing)
    return np.union1d(rows, found[:: max(1, len(found) // 16)][:16])


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Record under `name` how many seconds the block took."""
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started


class SoftLabelClassifier(Options, StudentClassifier):
    """Train any student on soft labels of your own: votes of annotators, or the outputs of a model.

    `Unifier` is for soft labels that several classifiers give, and `CollisionClassifier` for labels that are
    partly wrong.

    Attributes
    ----------
    classes_ : (L,) array
    class_weights_ : (L,) array or None
        The balancing weights, where balancing is on.
    student_ : the fitted student
    seconds_ : dict
        How long training took.
    n_iter_ : int or None
        Epochs or iterations of the student, if it counts them.
    n_features_in_ : int
        Columns of X, if X has columns.
    feature_names_in_ : (d,) array
        Their names, if X is a table with names. New rows may have them in any order.
    encoding_ : dict or None
        What was done with each column of a table of mixed columns, in words; see docs/tables.md.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> votes = np.array([[5, 0], [4, 1], [1, 4], [0, 5]])
    >>> model = SoftLabelClassifier("logistic", classes=["low", "high"]).fit(X, votes / 5)
    >>> model.predict([[0.5], [2.5]]).tolist()
    ['low', 'high']
    """

    student: Any = option(STUDENT, "What learns; see `Unifier`.", default=None)
    classes: Any = option(
        anything("(L,) sequence or None"),
        "The names of the columns of soft labels; by default 0 to L - 1. With hard labels, the classes in "
        "the order wanted; by default those that occur, sorted.",
        default=None,
    )
    balance: Any = option(
        choice(False, True, "sqrt"),
        "Weight each class by the inverse of its mean soft label, or by the root of it.",
        default=False,
    )
    temperature: float = option(
        temperature(),
        "The temperature T of the soft labels: 1 unless you softened them, as `Unifier` does. Probabilities "
        "are given at T = 1.",
        default=1.0,
    )
    random_state: Any = option(
        anything("int, RandomState or None"), "Makes the student reproducible.", default=None
    )
    run: Any = option(anything("Run or None"), "How the work is run.", default=None)

    def fit(self, X: Any, y: Any) -> Self:
        """Train the student.

        Parameters
        ----------
        X : array, sparse matrix, data frame or list
            n rows, in the form that the student takes.
        y : (n, L) array of soft labels, or (n,) sequence of labels
            Rows of soft labels are probabilities and sum to 1. Rows without a label (None, NaN, -1) are left
            out.
        """
        self.check_options()
        run = resolve_run(self.run)
        if y is None:
            raise InvalidInputError(
                "requires y to be passed, but the target y is None: give soft labels or labels."
            )
        X = as_values(X)
        classes, Q = read_soft_labels(y, self.classes)
        rows = as_rows(X)
        if len(Q) != len(rows):
            raise InvalidInputError(f"y has {len(Q)} rows and X has {len(rows)}.")
        if len(rows) == 0:
            raise InvalidInputError("X has no rows; the student needs some to learn from.")
        student = make_student(self.student, X=X, random_state=self.random_state, run=run)
        known = ~np.isnan(Q[:, 0])
        some = X if known.all() else take_rows(X, known)
        as_seen = self._read_rows(student, some, encoder_of(classes))
        class_weights, used = balanced(Q[known].mean(axis=0), self.balance)
        seconds: dict[str, float] = {}
        with timed(seconds, "training"):
            learnt = TargetRows(rows, Q, used=known, as_seen=as_seen)
            student.learn(learnt, used, temperature=self.temperature, run=run)
        # only now, so that a fit that fails changes nothing
        self.classes_, self.class_weights_, self.seconds_ = classes, class_weights, seconds
        self._keep_student(student, some, as_seen)
        return self

    def origin(self) -> Origin:
        about = {"temperature": f"{self.student_.temperature_:g}"}
        return Origin(f"Trained on soft labels of {len(self.classes_)} classes.", about)


def balanced(mean: Floats, balance: Literal["sqrt"] | bool) -> tuple[Floats | None, Floats]:
    """Return the balancing weights (L,) of classes with this mean soft label, or None, and the student's.

    With the student's the mean weight of a row is one, so learning rates mean the same as without weights.
    """
    if balance is False:
        return None, np.ones(len(mean))
    weights = np.sqrt(inverse(mean)) if balance == "sqrt" else inverse(mean)
    return weights, weights / (weights * mean).sum()
