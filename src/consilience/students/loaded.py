"""Read a saved classifier back: whatever `save` wrote becomes a scikit-learn classifier again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from consilience._validation import n_rows
from consilience._words import counted, shorten
from consilience.exceptions import InvalidInputError
from consilience.files.card import Card, find_card, read_made
from consilience.files.ngram_model import is_text_model
from consilience.inspect.evaluate import read_truth
from consilience.labels import LabelSpace
from consilience.teachers import Teacher, as_teacher
from consilience.teachers.onnx import Onnx

__all__ = ["LoadedClassifier", "load"]


class LoadedClassifier(ClassifierMixin, BaseEstimator):
    """A saved classifier that predicts: what `load` returns.

    It is fitted, and `clone` leaves it so. `as_teacher` and `Unifier` take it as a teacher.

    Parameters
    ----------
    path : path
        A file that `save` wrote.

    Attributes
    ----------
    classes_ : (L,) array
    feature_names_in_ : (d,) array
        The names of the columns, if it was fitted on a table with names. New rows may have them in any order.
    n_features_in_ : int
        How many columns it takes, if it takes columns.
    card_ : Card or None
        What the card next to the file says.
    teacher_ : Teacher
        The model as a teacher.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        teacher, self.card_ = _open(path)
        self.teacher_: Teacher = teacher
        self.classes_: NDArray[Any] = teacher.classes
        names = teacher.columns.names if isinstance(teacher, Onnx) else None
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        width = teacher.width if isinstance(teacher, Onnx) else None
        if width is not None:
            self.n_features_in_ = width

    @property
    def takes_texts(self) -> bool:
        """Whether its rows are texts."""
        return not isinstance(self.teacher_, Onnx)

    @property
    def column_kinds(self) -> list[str] | None:
        """What each column of a table holds, such as ``"text"``; None if all hold numbers."""
        return self.teacher_.columns.kinds if isinstance(self.teacher_, Onnx) else ["text"]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Do nothing: the model is fitted already, as in scikit-learn's FrozenEstimator."""
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, L) in the order of `classes_`.

        Rows with missing values raise an error, as in the student that was saved, unless it can use them.
        """
        scores = np.asarray(self.teacher_.raw_scores(X), dtype=np.float64)  # type: ignore[attr-defined]
        lost = np.isnan(scores).any(axis=1)
        if lost.any():  # an ONNX model carries NaN through, and argmax would take it for the first class
            raise InvalidInputError(
                f"The model has no answer for row {{row}} ({counted(int(lost.sum()), 'such row')}): a value "
                "is missing or not finite. Fill missing values first.",
                row=int(lost.argmax()),
            )
        return np.asarray(softmax(scores, axis=1)) if self.takes_texts else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class (n,) of each row."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of rows whose class is predicted.

        Parameters
        ----------
        X : array, data frame or list
            n rows.
        y : (n,) sequence
            Their classes. They may be the aliases that the card names. Rows without a label are left out. A
            class that the model does not know counts as an error.
        sample_weight : (n,) array, optional
            The weight of each row.
        """
        space = LabelSpace([self.classes_], self._aliases(), disconnected="ignore")
        order = space.encode(self.classes_)  # the space is sorted; the columns of a model may not be
        guesses = order[self.predict_proba(X).argmax(axis=1)]
        return read_truth(y, n_rows(X), space).accuracy(guesses, sample_weight)

    def _aliases(self) -> Mapping[Any, Any] | None:
        """Return the aliases on the card that name a class of the model."""
        found = read_made(self.card_).get("aliases")
        if not isinstance(found, Mapping):
            return None
        known = set(self.classes_.tolist())
        # JSON has only texts as keys
        plain = {key: name for key, name in found.items() if isinstance(name, str | int | float)}
        kept = {key: name for key, name in plain.items() if name in known}
        if self.classes_.dtype.kind in "iu":
            kept = {int(key): name for key, name in kept.items() if key.removeprefix("-").isdecimal()}
        return {key: name for key, name in kept.items() if key not in known}

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self) -> Self:
        return self  # there is nothing to fit anew

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = self.takes_texts
        return tags


def load(path: str | os.PathLike[str]) -> LoadedClassifier:
    """Read a classifier that `save` wrote.

    Parameters
    ----------
    path : path
        An ``.onnx`` file, or the ``.npz`` file of a model of texts. The checksum on its card is compared.

    Returns
    -------
    LoadedClassifier
        With `predict`, `predict_proba`, `score`, `classes_` and `feature_names_in_`.

    Raises
    ------
    InvalidInputError
        The file is none that we wrote, or its card belongs to another file or names other classes.

    Examples
    --------
    >>> import tempfile
    >>> from consilience import SoftLabelClassifier
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), ["low", "low", "high", "high"]
    >>> path = Path(tempfile.mkdtemp()) / "model.onnx"
    >>> _ = SoftLabelClassifier("logistic").fit(X, y).save(path)
    >>> load(path).predict([[0.5], [2.5]]).tolist()
    ['low', 'high']
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError("{argument} must be the name of a file.", argument="path", value=path)
    found = LoadedClassifier(path)
    inside = found.teacher_.own_classes if isinstance(found.teacher_, Onnx) else None
    if inside is not None and inside != found.classes_.tolist():
        raise InvalidInputError(
            f"The card next to {Path(path).name} names the classes {shorten(found.classes_, 5)}, and the "
            f"model in {Path(path).name} {shorten(inside, 5)}. Remove the card, or restore it."
        )
    return found


def _open(path: str | os.PathLike[str]) -> tuple[Any, Card | None]:
    """Return a file of ours as a teacher, and its card."""
    source = Path(path)
    if source.suffix.lower() not in (".onnx", ".npz"):
        raise InvalidInputError(f"load reads .onnx and .npz; {source.name!r} has another ending.")
    if not source.is_file():
        raise InvalidInputError(f"{source} does not exist, or is no file.")
    if source.suffix.lower() == ".npz" and not is_text_model(source):
        raise InvalidInputError(
            f"{source} holds arrays, and no model of texts. If these are the outputs of a model, use "
            "as_teacher(path)."
        )
    teacher = as_teacher(source)
    if isinstance(teacher, Onnx) and not teacher.ours:
        raise InvalidInputError(
            f"{source} is an ONNX model of others: its output may be anything. Use as_teacher(path), or "
            "'consilience score'; load reads what save wrote."
        )
    return teacher, find_card(source)
