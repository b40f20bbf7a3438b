"""Fitted scikit-learn-style classifiers as teachers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.exceptions import TeacherError
from consilience.teachers._base import Adapter, Options, Teacher, given_classes, own_or_given
from consilience.teachers._outputs import Output, as_numbers


class ProbaTeacher(Adapter):
    """A classifier with `predict_proba`."""

    _model: Any

    def _scores(self, X: Any, rows: int) -> Any:
        proba = self._model.predict_proba(X)
        if isinstance(proba, list) and proba and getattr(proba[0], "ndim", 0) == 2:
            raise TeacherError(self.name, _several_outputs(len(proba)))
        return proba


class MarginTeacher(Adapter):
    """A classifier with `decision_function`; its margins count as logits."""

    _model: Any

    def _scores(self, X: Any, rows: int) -> Any:
        margins = as_numbers(self._model.decision_function(X), self.name)
        k = len(self.classes)
        if k == 2 and margins.size == rows:
            return binary_logits(margins)
        if margins.ndim == 2 and margins.shape[1] != k and margins.shape[1] == k * (k - 1) // 2:
            raise TeacherError(self.name, _one_vs_one(k))
        return margins


def is_estimator(obj: Any) -> bool:
    """Tell whether an object scores like a scikit-learn classifier, or says it is an estimator."""
    if isinstance(obj, type):
        return False
    return any(hasattr(obj, member) for member in ("predict_proba", "decision_function", "predict"))


def sklearn_teacher(model: Any, classes: ArrayLike | None, name: str | None, options: Options) -> Teacher:
    """Make a teacher of a fitted classifier."""
    shown = name or type(model).__name__
    _check_fitted(model, shown)
    found = _classes(model, classes, shown)
    has_proba, has_margin = hasattr(model, "predict_proba"), hasattr(model, "decision_function")
    if not has_proba and not has_margin:
        raise TeacherError(
            shown,
            "has neither predict_proba nor decision_function. Give a function that returns its scores "
            "(n, k), or its predictions as an array of hard labels.",
        )
    teacher: ProbaTeacher | MarginTeacher
    if has_margin and (options.output == "logits" or not has_proba):
        if options.output == "probabilities":
            raise TeacherError(shown, "has no predict_proba. Drop output= to use its margins as logits.")
        # with three classes there are three pairs, too: the shape alone would not tell
        if getattr(_last_step(model), "decision_function_shape", None) == "ovo" and len(found) > 2:
            raise TeacherError(shown, _one_vs_one(len(found)))
        output: Output = "logits" if options.output == "auto" else options.output
        teacher = MarginTeacher(shown, found, output, options.floor)
    else:
        if options.output == "logits":
            raise TeacherError(shown, "has no decision_function and so no logits. Drop output='logits'.")
        output = "probabilities" if options.output == "auto" else options.output
        teacher = ProbaTeacher(shown, found, output, options.floor)
    teacher._model = model
    return teacher


def binary_logits(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [0, d] for each margin d, so that softmax gives sigmoid(d) for the second class.

    Examples
    --------
    >>> binary_logits(np.array([1.5, -2.0])).tolist()
    [[0.0, 1.5], [0.0, -2.0]]
    """
    logits = np.zeros((margins.size, 2))
    logits[:, 1] = margins.ravel()
    return logits


def _check_fitted(model: Any, name: str) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    # what only looks like an estimator is taken at its word; classes are learnt, so they prove a fit
    if not hasattr(model, "fit") or getattr(model, "classes_", None) is not None:
        return
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise TeacherError(name, "is not fitted. Call fit before making a teacher of it.") from error
    except TypeError:
        return


def _classes(model: Any, given: ArrayLike | None, name: str) -> NDArray[Any]:
    own = getattr(model, "classes_", None)
    if own is None:
        return given_classes(given, name, f"a {type(model).__name__} without classes_")
    if isinstance(own, list) and own and isinstance(own[0], np.ndarray):
        raise TeacherError(name, _several_outputs(len(own)))
    return own_or_given(own, given, name)


def _last_step(model: Any) -> Any:
    """Return the classifier inside pipelines and searches."""
    for _ in range(16):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif isinstance(getattr(model, "steps", None), list) and model.steps:
            model = model.steps[-1][1]
        else:
            break
    return model


def _several_outputs(count: int) -> str:
    return f"predicts {count} outputs at once. Give a classifier with one output, or one function per output."


def _one_vs_one(n_classes: int) -> str:
    return (
        f"gives a margin per pair of its {n_classes} classes (one-vs-one), not one per class. "
        "Set decision_function_shape='ovr' on it, or wrap it in CalibratedClassifierCV."
    )
