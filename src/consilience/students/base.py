"""The base of classifiers that are made from a student: predict with it once trained, and save it."""

from __future__ import annotations

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

from consilience._validation import check_fitted, take_rows
from consilience.exceptions import InvalidInputError
from consilience.files.card import Card, carded
from consilience.files.export import finish, write_model
from consilience.kernels.expansion import sharpen
from consilience.students.soft_label import SoftLabelStudent
from consilience.teachers import Teacher


class Origin(NamedTuple):
    """Where a classifier comes from; for its file and its card."""

    description: str
    about: Mapping[str, str]


class StudentClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier that predicts with the student it has trained."""

    student: Any
    random_state: Any
    classes_: NDArray[Any]
    teachers_: list[Teacher]
    student_: Any
    seconds_: dict[str, float]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, L) in the order of `classes_`, at temperature 1."""
        self._check_fitted()
        if self.student_.scores == "logits":
            return np.asarray(softmax(self.student_.predict_logits(X), axis=1))
        return sharpen(self.student_.predict_all(X, len(self.classes_)), self._student_temperature())

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class (n,) of each row."""
        self._check_fitted()
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the classifier as one file, and its card next to it; ``as_teacher(path)`` makes it a teacher.

        The file is an ONNX model: it takes ``X`` (any number of rows) and gives ``probabilities`` (n, L) and
        ``label`` (n,); the class names are in its metadata. A student that learns soft labels itself, such as
        `consilience.text.NgramClassifier`, writes its own ``.npz`` file instead.

        Parameters
        ----------
        path : path
            A file name that ends in ``.onnx`` (or ``.npz``, see above), in a folder that exists.
        """
        self._check_fitted()
        target = Path(path)
        own = isinstance(self.student_, SoftLabelStudent)
        self._check_target(target, ".npz" if own else ".onnx")
        origin = self._origin()
        details: dict[str, Any] = dict(origin.about)
        if hasattr(self, "teachers_"):
            details["teachers"] = [teacher.name for teacher in self.teachers_]
        if own:
            self.student_.estimator_.save(
                target,
                classes=self.classes_,
                temperature=self._student_temperature(),
                description=origin.description,
                details=details,
            )
            return target
        model = finish(
            self.student_.to_onnx(self._example),
            classes=self.classes_,
            columns=getattr(self.student_, "columns_", np.arange(len(self.classes_))),
            temperature=self._student_temperature(),
            scores=self.student_.scores,
            metadata={"producer": "consilience", **origin.about},
        )
        card = Card(
            name=target.stem,
            classes=tuple(self.classes_.tolist()),
            output="probabilities",
            description=origin.description,
            details=details,
        )
        with carded(target, card):
            write_model(model, target)
        return target

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

    def _keep_student(self, student: Any, X: Any) -> None:
        """Predict with this fitted student from now on."""
        self.student_ = student
        self.n_iter_: int | None = student.n_iter_
        self._example = take_rows(X, slice(0, 2))
        if len(getattr(X, "shape", ())) > 1:
            self.n_features_in_ = int(X.shape[1])
        elif hasattr(self, "n_features_in_"):  # from an earlier fit on other rows
            del self.n_features_in_

    def _check_fitted(self) -> None:
        check_fitted(self, "student_")

    def __sklearn_clone__(self) -> Self:
        # A plain clone would also clone, and so un-fit, the scikit-learn teachers in the list.
        params = self.get_params(deep=False)
        params["student"] = clone(self.student, safe=False)
        return type(self)(**params)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "student_")


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Record under `name` how many seconds the block took."""
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started
