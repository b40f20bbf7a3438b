"""What Unifier and CrossTaskDistiller share: a classifier that a student became."""

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

from consilience._optional import installed
from consilience._progress import Progress, silent
from consilience._validation import check_choice, check_fitted, take_rows
from consilience.exceptions import InvalidInputError
from consilience.files.card import Card, carded
from consilience.files.export import finish, write_model
from consilience.files.ngram_model import holds_texts
from consilience.kernels.expansion import sharpen
from consilience.students.sklearn import (
    STUDENTS,
    ExpansionStudent,
    LearnsSoftLabels,
    Loss,
    SoftLabelStudent,
    is_torch_student,
    named_student,
)
from consilience.teachers import Teacher


class Origin(NamedTuple):
    """Where a classifier comes from, for its file and its card."""

    description: str
    about: Mapping[str, str]


class TaughtClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Predicts with a fitted student, and saves it."""

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
        return sharpen(self.student_.predict_all(X, len(self.classes_)), self._learnt_at())

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class (n,) of each row."""
        self._check_fitted()
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the classifier as one file, and its card next to it; ``as_teacher(path)`` makes it a teacher.

        The file is an ONNX model: it takes ``X`` (any number of rows) and gives ``probabilities`` (n, L) and
        ``label`` (n,); the class names are in its metadata. A student that learns soft labels by itself, such
        as `consilience.text.NgramClassifier`, writes its own ``.npz`` file instead.

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
        details = {**origin.about, "teachers": [teacher.name for teacher in self.teachers_]}
        if own:
            self.student_.estimator_.save(
                target,
                classes=self.classes_,
                temperature=self._learnt_at(),
                description=origin.description,
                details=details,
            )
            return target
        model = finish(
            self.student_.to_onnx(self._example),
            classes=self.classes_,
            columns=getattr(self.student_, "columns_", np.arange(len(self.classes_))),
            temperature=self._learnt_at(),
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
                raise InvalidInputError(f"The student {kind} has no method save, so that it stays in memory.")
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
    def _learnt_at(self) -> float:
        """Return the temperature of the soft labels that a scikit-learn student learnt."""

    @abstractmethod
    def _origin(self) -> Origin:
        """Return what the saved file says of where it comes from."""

    def _keep_student(self, student: Any, X: Any) -> None:
        """Make `student` the one to predict with."""
        self.student_ = student
        self.n_iter_: int | None = student.n_iter_
        self._example = take_rows(X, slice(0, 2))
        if len(getattr(X, "shape", ())) > 1:
            self.n_features_in_ = int(X.shape[1])

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        with timed(self.seconds_, name):
            yield

    def _check_fitted(self) -> None:
        check_fitted(self, "student_")

    def __sklearn_clone__(self) -> Self:
        # a plain clone would clone, and so un-fit, scikit-learn teachers in a list
        params = self.get_params(deep=False)
        params["student"] = clone(self.student, safe=False)
        return type(self)(**params)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "student_")


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Write down under `name` how long something took."""
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started


def make_student(
    student: Any,
    *,
    threshold: float,
    random_state: Any,
    loss: Loss = "cross-entropy",
    progress: Progress | None = None,
    X: Any = None,
) -> Any:
    """Return an unfitted ExpansionStudent, SoftLabelStudent or TorchStudent; parameters as in `Unifier`.

    X is what it will learn from: it tells which student None is.
    """
    if student is None:
        network = "torch" if installed("torch") and installed("skorch") else "mlp"
        student = "ngrams" if holds_texts(X) else network
    if isinstance(student, str) and student in ("torch", *STUDENTS) and holds_texts(X):
        raise InvalidInputError(
            "{argument} learns from numbers, and X holds texts. Use {remedy}, or a "
            "pipeline of a vectoriser (such as TfidfVectorizer) and a classifier.",
            argument="student",
            value=student,
            remedy=("student", "ngrams"),
        )
    if isinstance(student, str) and student == "ngrams":
        from consilience.text.ngrams import NgramClassifier

        student = NgramClassifier()
    elif isinstance(student, str) and student != "torch":
        check_choice("student", student, ("torch", "ngrams", *STUDENTS))
        student = named_student(student)
    if hasattr(student, "fit") and not isinstance(student, type) and not is_torch_student(student):
        if not hasattr(student, "predict_proba"):
            raise InvalidInputError(
                f"student={type(student).__name__} has no predict_proba; "
                "set probability=True, or wrap it in CalibratedClassifierCV."
            )
        if isinstance(student, LearnsSoftLabels):
            return SoftLabelStudent(
                student, loss=loss, random_state=random_state, progress=progress or silent
            )
        return ExpansionStudent(student, threshold=threshold, loss=loss, random_state=random_state)
    if isinstance(student, type) and hasattr(student, "predict_proba"):
        raise InvalidInputError(f"student is the class {student.__name__}; give an instance of it.")
    if not (student == "torch" or is_torch_student(student) or callable(student)):
        raise InvalidInputError(
            f"student is a {type(student).__name__}; give a scikit-learn classifier, a torch module, "
            "a factory of one, a name, or None."
        )
    from consilience.nn import as_torch_student

    return as_torch_student(None if isinstance(student, str) else student, random_state)
