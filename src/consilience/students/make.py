"""Turn the option ``student=`` into an unfitted student."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scipy.sparse import issparse
from sklearn.base import clone

from consilience._optional import installed, is_instance_of
from consilience._progress import Progress, silent
from consilience._validation import check_choice, take_rows
from consilience.exceptions import InvalidInputError
from consilience.files.preprocess import ImagePreprocess
from consilience.rows.images import differ_in_size
from consilience.rows.tables import is_table
from consilience.students.estimator import Loss, Student, student_name
from consilience.students.expansion import Classifier, Mlp
from consilience.students.logistic import Logistic, logistic
from consilience.students.soft_label import LearnsSoftLabels, SoftLabelStudent
from consilience.students.trees import Boosting, Forest, boosting, forest

STUDENTS: dict[str, Callable[[], Any]] = {
    "logistic": logistic,
    "forest": forest,
    "boosting": boosting,
    "mlp": lambda: Mlp().unfitted(),
}
"""scikit-learn classifiers by name."""


def _network() -> Any:
    from consilience.students.network import Network

    return Network()


def _ngrams() -> Any:
    from consilience.students.ngrams import Ngrams

    return Ngrams()


NAMES: dict[str, Callable[[], Any]] = {
    "torch": _network,
    "logistic": Logistic,
    "forest": Forest,
    "boosting": Boosting,
    "mlp": Mlp,
    "ngrams": _ngrams,
}
"""What a short name stands for."""


def make_student(
    student: Any,
    *,
    X: Any = None,
    random_state: Any,
    threshold: float | None = None,
    loss: Loss | None = None,
    progress: Progress | None = None,
) -> Any:
    """Return an unfitted student of its own for what is given as ``student=``.

    Parameters
    ----------
    student : Student, classifier, torch.nn.Module, factory, name or None
        A student with a random state keeps it.
    X : rows, optional
        What the student will learn from: this decides which student None stands for.
    random_state : int, RandomState or None
    threshold, loss, progress
        For callers that have these options themselves still.
    """
    made = as_student(student, X)
    _check_takes(made, X, student)
    if isinstance(made, SoftLabelStudent):
        made.progress = progress or silent
    if threshold is not None and hasattr(made, "min_label"):
        made.min_label = threshold
    if loss is not None:
        made.loss = loss
    if made.random_state is None:
        made.random_state = random_state
    if made.scores == "logits":
        from consilience.teachers.torch import check_device

        check_device(made.device)  # now: teachers may take hours before the student is trained
    return made


def as_student(student: Any, X: Any = None) -> Any:
    """Return the unfitted student that an object, or a short name, stands for, as an object of its own."""
    if student is None:
        student = "ngrams" if holds_texts(X) else "torch" if installed("torch") else "mlp"
    if isinstance(student, str):
        check_choice("student", student, NAMES)
        if student == "torch" and differ_in_size(X):
            return _image_student()
        student = NAMES[student]()
    elif isinstance(student, type) and (hasattr(student, "predict_proba") or issubclass(student, Student)):
        raise InvalidInputError(f"student is the class {student.__name__}; give an instance of it.")
    if isinstance(student, LearnsSoftLabels) and not isinstance(student, type):
        options = {name: getattr(student, name) for name in ("loss", "self_label") if hasattr(student, name)}
        return SoftLabelStudent(clone(student), **options)
    if isinstance(student, Student):
        return clone(student)
    if is_instance_of(student, "torch.nn", "Module") or (callable(student) and not hasattr(student, "fit")):
        from consilience.students.network import Network

        return Network(student)
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


def _check_takes(student: Any, X: Any, given: Any) -> None:
    """Raise if a student of ours cannot learn from such rows: teachers may take hours before it would."""
    network = student.scores == "logits"
    if network and student.preprocess is not None:
        return
    if isinstance(student, SoftLabelStudent):
        if given == "ngrams" and getattr(X, "ndim", 0) > 1 and not is_table(X):
            raise InvalidInputError(
                "{argument} learns from texts, and X holds numbers. Use {remedy}, or another student.",
                argument="student",
                value=given,
                remedy=("student", "logistic"),
            )
        return
    if type(student) is Classifier:
        return
    if holds_texts(X):
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
    if issparse(X) and not isinstance(student, Forest):
        what = repr(given) if isinstance(given, str) else f"({student_name(student)})"
        raise InvalidInputError(
            f"X is sparse, and the student {what} needs dense rows. Give X.toarray(), use {{remedy}}, or a "
            "classifier that takes such rows, such as SGDClassifier(loss='log_loss').",
            remedy=("student", "forest"),
        )


def _image_student() -> Any:
    """Return the network that learns from images of several sizes, if the user names no other."""
    from consilience.students import Network
    from consilience.students.modules import VGG4

    return Network(VGG4, preprocess=ImagePreprocess(32, mean=0.5, std=0.25))


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
    """Tell whether `student` is a torch module or a `Network`, without importing torch."""
    return is_instance_of(student, "torch.nn", "Module") or is_instance_of(
        student, "consilience.students.network", "Network"
    )


def check_model(model: Any) -> None:
    """Raise unless a model that is not a name can be trained as a network."""
    if not (is_torch_student(model) or callable(model)):
        raise InvalidInputError(
            f"model is a {type(model).__name__}; give 'linear', a torch module, a factory of one, "
            "or a Network."
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
