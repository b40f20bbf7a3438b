"""Turn the option ``student=`` into an unfitted student."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scipy.sparse import issparse
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience._images import differ_in_size
from consilience._optional import installed, is_instance_of
from consilience._progress import Progress, silent
from consilience._tables import is_table
from consilience._validation import check_choice, take_rows
from consilience.exceptions import InvalidInputError
from consilience.files.preprocess import ImagePreprocess
from consilience.students.estimator import Loss
from consilience.students.expansion import ExpansionStudent, NetworkStudent
from consilience.students.logistic import LogisticStudent, logistic
from consilience.students.soft_label import LearnsSoftLabels, SoftLabelStudent
from consilience.students.trees import BoostingStudent, ForestStudent, boosting, forest

STUDENTS: dict[str, Callable[[], Any]] = {
    "logistic": logistic,
    "forest": forest,
    "boosting": boosting,
    "mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier((256,), max_iter=60, n_iter_no_change=5)),
}
"""scikit-learn classifiers by name."""

DIRECT: dict[str, Callable[..., ExpansionStudent]] = {
    "logistic": LogisticStudent,
    "forest": ForestStudent,
    "boosting": BoostingStudent,
}
"""Students that learn soft labels without copies of rows; a model like the classifier of that name."""
DENSE = ("torch", "logistic", "boosting", "mlp")
"""Students by name that do not take sparse matrices."""


def make_student(
    student: Any,
    *,
    threshold: float,
    loss: Loss = "cross-entropy",
    X: Any = None,
    progress: Progress | None = None,
    random_state: Any,
) -> Any:
    """Return an unfitted ExpansionStudent, SoftLabelStudent or TorchStudent; parameters as in `Unifier`.

    X is what the student will learn from: it decides which student None stands for.
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
    if issparse(X) and isinstance(student, str) and student in DENSE:
        raise _needs_dense_rows(repr(student))
    if isinstance(student, str) and student == "ngrams":
        if getattr(X, "ndim", 0) > 1 and not is_table(X):
            raise InvalidInputError(
                "{argument} learns from texts, and X holds numbers. Use {remedy}, or another student.",
                argument="student",
                value=student,
                remedy=("student", "logistic"),
            )
        from consilience.text.ngrams import NgramClassifier

        student = NgramClassifier()
    elif isinstance(student, str) and student in DIRECT:
        return DIRECT[student](threshold=threshold, loss=loss, random_state=random_state)
    elif isinstance(student, str) and student != "torch":
        check_choice("student", student, ("torch", "ngrams", *STUDENTS))
        classifier = named_student(student)  # "mlp": the others are above
        return NetworkStudent(classifier, threshold=threshold, loss=loss, random_state=random_state)
    if hasattr(student, "fit") and not isinstance(student, type) and not is_torch_student(student):
        if not hasattr(student, "predict_proba"):
            raise InvalidInputError(
                f"student={type(student).__name__} has no predict_proba; "
                "set probability=True, or wrap it in CalibratedClassifierCV."
            )
        if isinstance(student, LearnsSoftLabels):
            return SoftLabelStudent(
                student, loss=loss, progress=progress or silent, random_state=random_state
            )
        return ExpansionStudent(student, threshold=threshold, loss=loss, random_state=random_state)
    if isinstance(student, type) and hasattr(student, "predict_proba"):
        raise InvalidInputError(f"student is the class {student.__name__}; give an instance of it.")
    if not (isinstance(student, str) or is_torch_student(student) or callable(student)):
        raise InvalidInputError(
            f"student is a {type(student).__name__}; give a scikit-learn classifier, a torch module, "
            "a factory of one, a name, or None."
        )
    from consilience.nn import as_torch_student

    if isinstance(student, str):
        student = _image_student() if differ_in_size(X) else None
    made = as_torch_student(student, random_state)
    if made.preprocess is None and holds_texts(X):
        raise InvalidInputError(
            "The student is a network, which learns from numbers, and X holds texts. Give "
            "TorchStudent(module, {remedy}) a function that turns texts into numbers, such as token ids.",
            remedy="preprocess",
        )
    if made.preprocess is None and issparse(X):
        raise _needs_dense_rows("(a network)")
    return made


def _needs_dense_rows(student: str) -> InvalidInputError:
    """Return the error for sparse rows: now, since teachers may take hours before the student sees them."""
    return InvalidInputError(
        f"X is sparse, and the student {student} needs dense rows. Give X.toarray(), use {{remedy}}, or a "
        "classifier that takes such rows, such as SGDClassifier(loss='log_loss').",
        remedy=("student", "forest"),
    )


def _image_student() -> Any:
    """Return the network that learns from images of several sizes, if the user names no other."""
    from consilience.nn import VGG4, TorchStudent

    return TorchStudent(VGG4, preprocess=ImagePreprocess(32, mean=0.5, std=0.25))


def named_student(name: str) -> Any:
    """Return an unfitted scikit-learn classifier by its short name.

    Examples
    --------
    >>> type(named_student("forest")).__name__
    'RandomForestClassifier'
    """
    check_choice("student", name, STUDENTS)
    return STUDENTS[name]()


def is_torch_student(student: Any) -> bool:
    """Tell whether `student` is a torch module or a `TorchStudent`, without importing torch."""
    return is_instance_of(student, "torch.nn", "Module") or is_instance_of(
        student, "consilience.nn", "TorchStudent"
    )


def check_model(model: Any) -> None:
    """Raise unless a model that is not a name can be trained as a network."""
    if not (is_torch_student(model) or callable(model)):
        raise InvalidInputError(
            f"model is a {type(model).__name__}; give 'linear', a torch module, a factory of one, "
            "or a TorchStudent."
        )


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
