"""The base of classifiers that are made from a student: predict with it once trained, and save it."""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from consilience._dataset_rows import read_rows
from consilience._validation import check_fitted, take_rows
from consilience.exceptions import InvalidInputError
from consilience.files.card import KEY, Card, carded
from consilience.files.export import (
    TOLERANCE,
    check_export,
    finish,
    write_model,
)
from consilience.files.preprocess import ImagePreprocess
from consilience.inspect.evaluate import evaluate, score
from consilience.inspect.report import report
from consilience.kernels.linear_model import sharpen
from consilience.rows import as_rows
from consilience.rows.tables import (
    as_values,
    column_names,
    columns_of,
    in_order,
    is_numeric,
    is_table,
    kind_of,
)
from consilience.students.provenance import describe_fit, describe_model
from consilience.students.soft_label import SoftLabelStudent
from consilience.students.table import TableEncoder, check_rows, encodes, example_rows, needs_encoding
from consilience.students.trees import Boosting
from consilience.teachers import Teacher

PREPROCESSED = "What preprocess= of the student returned, such as token ids. The function is not in the file."
"""What a saved model says of its input if a function makes it."""
PREPARED = "Images, prepared as its card says."
"""What a saved model says of its input if an `ImagePreprocess` makes it, which the card has."""


class Origin(NamedTuple):
    """Where a classifier comes from; for its file and its card."""

    description: str
    about: Mapping[str, str]


class StudentRows(NamedTuple):
    """Rows as a student sees them, the names of their columns, and what encoded them, if anything did."""

    names: NDArray[Any] | None
    encoder: TableEncoder | None
    rows: Any


class StudentClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier that predicts with the student it has trained."""

    student: Any
    random_state: Any
    classes_: NDArray[Any]
    teachers_: list[Teacher]
    student_: Any
    seconds_: dict[str, float]
    score, evaluate, report = score, evaluate, report

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, L) in the order of `classes_`, at temperature 1.

        X may be rows that lie elsewhere, as in `Unifier.fit`. They are read block by block.
        """
        self._check_fitted()
        rows = as_rows(X)
        if not rows.held:
            return np.concatenate([self.predict_proba(block.X) for block in rows.blocks()])
        X = self._student_input(rows.given)
        if self.student_.scores == "logits":
            return np.asarray(softmax(self.student_.predict_logits(X), axis=1))
        return sharpen(self.student_.predict_all(X, len(self.classes_)), self._student_temperature())

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class (n,) of each row; X as in `predict_proba`."""
        self._check_fitted()
        rows = as_rows(X)
        if not rows.held:
            return np.concatenate([self.predict(block.X) for block in rows.blocks()])
        return np.asarray(self.classes_[self.predict_proba(rows).argmax(axis=1)])

    def save(self, path: str | os.PathLike[str], *, measured: Any = None) -> Path:
        """Write the classifier as one file, and its card next to it; ``as_teacher(path)`` makes it a teacher.

        The file is an ONNX model: it takes ``X`` (any number of rows) and gives ``probabilities`` (n, L) and
        ``label`` (n,); the class names are in its metadata. A student that learns soft labels itself, such as
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
        self._check_fitted()
        target = Path(path)
        own = isinstance(self.student_, SoftLabelStudent)
        self._check_target(target, ".npz" if own else ".onnx")
        origin = self._origin()
        details: dict[str, Any] = dict(origin.about)
        if hasattr(self, "teachers_"):
            details["teachers"] = [teacher.name for teacher in self.teachers_]
        prepared = self._image_preprocess
        if self._preprocessed and prepared is None:
            details["input"] = PREPROCESSED
        teachers = getattr(self, "teachers_", None)
        details[KEY] = describe_model(self._fit_record, self.student_, teachers, measured)
        if own:
            self.student_.estimator_.save(
                target,
                classes=self.classes_,
                temperature=self._student_temperature(),
                description=origin.description,
                details=details,
            )
            return target
        model, names = self._as_onnx(origin), self._names_in()
        card = Card(
            name=target.stem,
            classes=tuple(self.classes_.tolist()),
            output="probabilities",
            description=origin.description,
            details=details,
            feature_names=None if names is None else tuple(names),
            preprocess=prepared,
        )
        with carded(target, card):
            write_model(model, target)
        return target

    def _as_onnx(self, origin: Origin) -> Any:
        """Return the classifier as an ONNX model, after a comparison with its own probabilities."""
        temperature, example = self._student_temperature(), self._example
        model = self.student_.to_onnx(self._student_input(example))
        names, kinds = self._names_in(), self._column_kinds()
        metadata = {"producer": "consilience", **origin.about}
        if self._preprocessed:
            metadata["input"] = PREPROCESSED if self._image_preprocess is None else PREPARED
            example = self.student_.prepare(example)
        if names is not None:
            metadata["feature_names"] = json.dumps(names)
        if kinds is not None:
            metadata["feature_kinds"] = json.dumps(kinds)
        if self.encoder_ is not None:
            model = self.encoder_.prepend_to(model)
        model = finish(
            model,
            classes=self.classes_,
            columns=getattr(self.student_, "columns_", np.arange(len(self.classes_))),
            temperature=temperature,
            scores=self.student_.scores,
            metadata=metadata,
            rows=example if self.encoder_ is None else None,
        )
        tolerance = TOLERANCE * max(10.0, temperature)  # probabilities to the power of the temperature
        check_export(model, example, kinds, self.predict_proba(self._example), tolerance)
        return model

    @property
    def _preprocessed(self) -> bool:
        """Whether a function of the user's turns rows into what the student's network takes."""
        return getattr(self.student_, "preprocess", None) is not None

    @property
    def _image_preprocess(self) -> ImagePreprocess | None:
        """How the student prepares images, if a card can say so."""
        found = getattr(self.student_, "preprocess", None)
        return found if isinstance(found, ImagePreprocess) else None

    def _names_in(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None or self._preprocessed else [str(name) for name in names]

    def _column_kinds(self) -> list[str] | None:
        """Return what each column holds if the saved model has an input for each; else None."""
        if self.encoder_ is not None:
            return None if self.encoder_.only_numbers else self.encoder_.kinds
        if self._preprocessed or not is_table(self._example) or is_numeric(self._example):
            return None
        return [kind_of(column) for column in columns_of(self._example)]

    def _check_target(self, target: Path, ending: str) -> None:
        """Raise unless the student can be saved under this name."""
        if ending == ".npz":
            kind = type(self.student_.estimator_).__name__
            if not hasattr(self.student_.estimator_, "save"):
                raise InvalidInputError(f"The student {kind} has no method save, so it cannot be saved.")
            what = f"The student {kind} is saved as .npz"
        else:
            what = "save writes ONNX"
        if target.suffix != ending:
            raise InvalidInputError(f"{what}; give a file name that ends in {ending}, not {target.name!r}.")
        if not target.parent.is_dir():
            raise InvalidInputError(f"The folder {str(target.parent)!r} does not exist. Make it first.")
        if target.is_dir():
            raise InvalidInputError(f"{str(target)!r} is a folder; give the name of a file.")

    @abstractmethod
    def _student_temperature(self) -> float:
        """Return the temperature of the soft labels on which a scikit-learn student was trained."""

    @abstractmethod
    def _origin(self) -> Origin:
        """Return what the saved file says about where it comes from."""

    def _read_rows(self, student: Any, X: Any) -> StudentRows:
        """Return X as the student sees it: encoded, if it is a table of mixed columns and the student ours.

        Raise where the student cannot learn from X; this is before any teacher is asked.
        """
        names = column_names(X)
        check_rows(self.student, student, X)
        encoder = None
        if encodes(student) and needs_encoding(X, takes_missing=isinstance(student, Boosting)):
            encoder = TableEncoder().fit(X)
        if getattr(student, "validation", None) is not None:
            other, labels = student.validation
            student.validation = (as_student_sees(student, other, names, encoder), labels)
        return StudentRows(names, encoder, as_student_sees(student, X, names, encoder))

    def _keep_student(self, student: Any, X: Any, rows: StudentRows, n_rows: int | None = None) -> None:
        """Predict with this fitted student from now on; X may be some of the `n_rows` rows of `fit`."""
        self.student_ = student
        self.n_iter_: int | None = student.n_iter_
        self.encoder_: TableEncoder | None = rows.encoder
        self.encoding_: dict[Any, str] | None = None if rows.encoder is None else rows.encoder.encoding_
        self._example = read_rows(take_rows(X, example_rows(X)))
        self._fit_record = describe_fit(self, X, n_rows)
        for name in ("n_features_in_", "feature_names_in_"):  # from an earlier fit on other rows
            if hasattr(self, name):
                delattr(self, name)
        if len(getattr(X, "shape", ())) > 1:
            self.n_features_in_ = int(X.shape[1])
        if rows.names is not None:
            self.feature_names_in_ = rows.names

    def _student_input(self, X: Any) -> Any:
        """Return new rows as the student sees them: columns in order, and encoded as in `fit`."""
        return as_student_sees(self.student_, X, getattr(self, "feature_names_in_", None), self.encoder_)

    def _check_fitted(self) -> None:
        check_fitted(self, "student_")

    def __sklearn_clone__(self) -> Self:
        # a plain clone would also clone, and so un-fit, the scikit-learn teachers in the list
        params = self.get_params(deep=False).items()
        return type(self)(**{k: v if k == "teachers" else clone(v, safe=False) for k, v in params})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "student_")


def as_student_sees(student: Any, X: Any, names: NDArray[Any] | None, encoder: TableEncoder | None) -> Any:
    """Return rows with their columns in the order of `names`, and encoded.

    A torch dataset is read batch by batch by a network. All other students need its rows in memory.
    """
    X = in_order(as_values(X), names)
    if student.scores == "probabilities":
        X = read_rows(X)
    return X if encoder is None else encoder.transform(X)


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Record under `name` how many seconds the block took."""
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started
