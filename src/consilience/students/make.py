"""Turn the option ``student=`` into an unfitted student that can learn from the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone

from consilience import students
from consilience._optional import installed
from consilience._validation import check_choice, take_rows
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.rows.images import ImagePreprocess
from consilience.rows.tables import differ_in_size, has_missing, is_instance_of, is_numeric, is_table, quoted
from consilience.run import Run
from consilience.scoring.ray import engine_options
from consilience.students.student import Classifier, Student, student_name


def make_student(student: Any, *, X: Any = None, random_state: Any = None, run: Run | None = None) -> Any:
    """Return an unfitted student of its own for what is given as ``student=``.

    Raise where it could not learn from rows like X: teachers may take hours before it would say so itself.

    Parameters
    ----------
    student : Student, classifier, torch.nn.Module, factory, name or None
        A student with a random state keeps it.
    X : rows, optional
        They decide which student None stands for.
    random_state : int, RandomState or None
    run : Run, optional
    """
    made = as_student(student, X)
    made.check_options()
    if X is not None:
        check_rows(made, X, student)
    if made.random_state is None:
        made.random_state = random_state
    on_ray = run is not None and run.engine == "ray" and engine_options(run).train_workers is not None
    if on_ray and made.scores != "logits":
        raise InvalidInputError(
            "{argument} is no torch network, and only those learn in several processes. Use {remedy}, or "
            "leave train_workers out.",
            argument="student",
            value=student_name(made),
            remedy=("student", "torch"),
        )
    return made


def as_student(student: Any, X: Any = None) -> Any:
    """Return the unfitted student that an object, or a short name, stands for, as an object of its own."""
    if student is None:
        student = "ngrams" if holds_texts(X) else "torch" if installed("torch") else "mlp"
    if isinstance(student, str):
        check_choice("student", student, students.NAMES)
        if student == "torch" and differ_in_size(X):
            from consilience.students.modules import VGG4

            return students.Network(VGG4, preprocess=ImagePreprocess(32, mean=0.5, std=0.25))
        return getattr(students, students.NAMES[student])()
    if isinstance(student, type) and (hasattr(student, "predict_proba") or issubclass(student, Student)):
        raise InvalidInputError(f"student is the class {student.__name__}; give an instance of it.")
    if isinstance(student, Student):
        return clone(student)
    if callable(student) and not hasattr(student, "fit"):  # a torch module, or a factory of one
        return students.Network(student)
    if not hasattr(student, "fit"):
        raise InvalidInputError(
            f"student is a {type(student).__name__}; give a scikit-learn classifier, a torch module, "
            "a factory of one, a name, or None."
        )
    if not hasattr(student, "predict_proba"):
        raise InvalidInputError(
            f"student={type(student).__name__} has no predict_proba; "
            "set probability=True, or wrap it in CalibratedClassifierCV."
        )
    return Classifier(estimator=student)


def named_student(name: str) -> Any:
    """Return an unfitted scikit-learn classifier for hard labels by its short name.

    Examples
    --------
    >>> type(named_student("forest")).__name__
    'RandomForestClassifier'
    """
    check_choice("student", name, ("logistic", "forest", "boosting", "mlp"))
    return getattr(students, students.NAMES[name])().for_labels()


def check_model(model: Any) -> None:
    """Raise unless a model that is not a name can be trained as a network."""
    if not (callable(model) or is_instance_of(model, "consilience.students.network", "Network")):
        raise InvalidInputError(
            f"model is a {type(model).__name__}; give 'linear', a torch module, a factory of one, "
            "or a Network."
        )


def encodes(student: Student) -> bool:
    """Tell whether a student needs numbers, so that tables are encoded for it.

    Classifiers of others take rows as they are, and so does a network with a function ``preprocess``.
    """
    return student.learns_from == "numbers" and getattr(student, "preprocess", None) is None


def needs_encoding(X: Any, *, takes_missing: bool = False) -> bool:
    """Tell whether a student of numbers needs `TableEncoder` for X."""
    return is_table(X) and not (is_numeric(X) and (takes_missing or not has_missing(X)))


def check_rows(student: Any, X: Any, given: Any) -> None:
    """Raise where a student of ours cannot learn from rows like X; `given` is the option ``student=``."""
    if student.learns_from == "anything" or (student.learns_from == "numbers" and not encodes(student)):
        return
    network = student.scores == "logits"
    if differ_in_size(X):
        learns = "numbers of one shape" if network else "a table or texts"
        raise InvalidInputError(
            f"X has images of several sizes, and the student learns from {learns}. Give a network that "
            "prepares them itself: Network(module, preprocess=ImagePreprocess(size=...)). Or give embeddings "
            "of the images as X."
        )
    if student.learns_from == "texts":
        _check_texts(X, given)
    elif holds_texts(X):
        if network and given != "torch":
            raise InvalidInputError(
                "The student is a network, which learns from numbers, and X holds texts. Give "
                "Network(module, {remedy}) a function that turns texts into numbers, such as token ids.",
                remedy="preprocess",
            )
        raise InvalidInputError(
            "{argument} learns from numbers, and X holds texts. Use {remedy}, or a "
            "pipeline of a vectoriser (such as TfidfVectorizer) and a classifier.",
            argument="student",
            value=given,
            remedy=("student", "ngrams"),
        )
    elif issparse(X) and not student.takes_sparse:
        what = repr(given) if isinstance(given, str) else f"({student_name(student)})"
        raise InvalidInputError(
            f"X is sparse, and the student {what} needs dense rows. Give X.toarray(), use {{remedy}}, or a "
            "classifier that takes such rows, such as SGDClassifier(loss='log_loss').",
            remedy=("student", "forest"),
        )
    elif not is_table(X) and hasattr(X, "dtype"):
        _check_array(student, X, given)


def _check_texts(X: Any, given: Any) -> None:
    if is_table(X):
        raise InvalidInputError(
            f"X is a table with the columns {quoted(list(X.columns), 5)}, and the student learns from "
            "texts. Give the column that holds them as a list: X['text'].tolist()."
        )
    if getattr(X, "ndim", 0) > 1:
        raise InvalidInputError(
            "{argument} learns from texts, and X holds numbers. Use {remedy}, or another student.",
            argument="student",
            value=given,
            remedy=("student", "logistic"),
        )


def _check_array(student: Any, X: Any, given: Any) -> None:
    shape = np.shape(X)
    if student.scores == "probabilities" and len(shape) > 2:
        raise InvalidInputError(
            f"X has shape {shape}, such as images have, and {{argument}} learns from a table (n, d). Give "
            "X.reshape(len(X), -1), or use {remedy}.",
            argument="student",
            value=given,
            remedy=("student", "torch"),
        )
    if not isinstance(X, np.ndarray):
        return
    if len(shape) > 1 and _has_texts(X):
        raise InvalidInputError(
            f"X is an array of {X.dtype} of shape {shape} with texts in it. Give a pandas data frame: its "
            "columns have types, so each can be encoded."
        )
    if student.takes_missing or X.dtype.kind != "f" or X.size == 0:  # trees learn from missing values
        return
    if np.isfinite(X.min()) and np.isfinite(X.max()):
        return
    bad = ~np.isfinite(X).reshape(len(X), -1).all(axis=1)
    raise InvalidInputError(
        f"The student cannot learn from X: it contains NaN or infinity in row {{row}} "
        f"({counted(int(bad.sum()), 'such row')}). Fill missing values, or give a data frame: those in its "
        "columns are filled for you.",
        row=int(np.flatnonzero(bad)[0]),
    )


def _has_texts(values: NDArray[Any]) -> bool:
    if values.dtype.kind != "O":
        return values.dtype.kind in "UST"
    return any(isinstance(cell, str) for cell in values[:100].flat)


def holds_texts(X: Any) -> bool:
    """Tell whether X looks like a list of texts, by its first entry.

    Examples
    --------
    >>> holds_texts(["a", "b"]), holds_texts([[1.0]]), holds_texts("a")
    (True, False, False)
    """
    if isinstance(X, str | bytes) or len(getattr(X, "shape", (0,))) != 1:
        return False
    first = take_rows(X, slice(0, 1)) if isinstance(X, list | tuple) or hasattr(X, "shape") else ()
    return any(isinstance(text, str) for text in first)
