"""Fitted scikit-learn-style classifiers as teachers."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.exceptions import TeacherError
from consilience.teachers._base import (
    Adapter,
    Options,
    Teacher,
    check_embed_function,
    given_classes,
    own_or_given,
)
from consilience.teachers._fingerprints import named_code
from consilience.teachers._outputs import PROBA_TOLERANCE, Output, as_numbers
from consilience.teachers._sklearn_features import (
    Parts,
    last_layer_input,
    last_layer_weights,
    split,
    step_parts,
)


class SklearnTeacher(Adapter):
    """A fitted classifier; subclasses choose the method that scores.

    Its embedding is the input of its last layer, if it has one: a linear model's or an MLPClassifier's.
    """

    _takes_arrays = True
    _model: Any
    _parts: Parts  # the model, opened up to its last step
    _until: Parts | None = None  # a pipeline up to the step that embed= names

    def _scores(self, X: Any, rows: int) -> Any:
        return self._ask(self._model, X, rows)

    @abstractmethod
    def _ask(self, model: Any, X: Any, rows: int) -> Any:
        """Return a model's raw scores (n, k)."""

    def _features(self, X: Any, rows: int) -> Any:
        if self._until is not None:
            return self._until.transform(X)
        if self._embed is not None:
            return self._embed(X)
        return last_layer_input(self._parts.last, self._parts.transform(X))

    def _both(self, X: Any, rows: int) -> tuple[Any, Any]:
        if self._embed is not None or not self._embeddable():
            return super()._both(X, rows)
        inside = self._parts.transform(X)  # once for both
        scores = self._ask(self._parts.last if self._parts.before else self._model, inside, rows)
        return scores, last_layer_input(self._parts.last, inside)

    def _embeddable(self) -> bool:
        return self._embed is not None or self.class_weights is not None

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of a linear model, or of the last layer of an MLPClassifier."""
        if callable(self._embed) or not (self._until or self._parts).opens:
            return None
        last = self._parts.last if self._until is None else self._until.last
        return None if _is_hidden(last, self._until) else last_layer_weights(last, len(self.classes))

    def _model_fingerprint(self) -> str | None:
        import joblib  # type: ignore[import-untyped]

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return f"{joblib.hash(self._model, hash_name='sha1')} {named_code(self._model)}"
        except Exception:  # what cannot be hashed, such as a lambda inside, is not stored
            return None


class ProbaTeacher(SklearnTeacher):
    """A classifier with `predict_proba`."""

    _tolerance = PROBA_TOLERANCE

    def _ask(self, model: Any, X: Any, rows: int) -> Any:
        proba = model.predict_proba(X)
        if isinstance(proba, list) and proba and getattr(proba[0], "ndim", 0) == 2:
            raise TeacherError(self.name, _several_outputs(len(proba)))
        return proba


class MarginTeacher(SklearnTeacher):
    """A classifier with `decision_function`; its margins count as logits."""

    def _ask(self, model: Any, X: Any, rows: int) -> Any:
        margins = as_numbers(model.decision_function(X), self.name)
        k = len(self.classes)
        if k == 2 and margins.size == rows:
            return binary_logits(margins)
        if margins.ndim == 2 and margins.shape[1] != k and margins.shape[1] == k * (k - 1) // 2:
            raise TeacherError(self.name, _one_vs_one(k))
        return margins


def _is_hidden(last: Any, until: Parts | None) -> bool:
    """Tell whether the named step feeds a network's first layer, or no last step at all."""
    return until is not None and (last is None or hasattr(last, "coefs_"))


def is_estimator(obj: Any) -> bool:
    """Tell whether an object has a scoring method of scikit-learn classifiers."""
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
    parts = split(model)
    teacher: SklearnTeacher
    if has_margin and (options.output == "logits" or not has_proba):
        if options.output == "probabilities":
            raise TeacherError(
                shown,
                "has no predict_proba. Drop {argument} to use its margins as logits.",
                argument="output",
            )
        # with three classes there are three pairs, too: the shape alone would not tell
        if getattr(parts.last, "decision_function_shape", None) == "ovo" and len(found) > 2:
            raise TeacherError(shown, _one_vs_one(len(found)))
        output: Output = "logits" if options.output == "auto" else options.output
        teacher = MarginTeacher(shown, found, options, output=output)
    else:
        if options.output == "logits":
            raise TeacherError(
                shown,
                "has no decision_function and so no logits. Drop {argument}.",
                argument="output",
                value=options.output,
            )
        output = "probabilities" if options.output == "auto" else options.output
        teacher = ProbaTeacher(shown, found, options, output=output)
    teacher._model, teacher._parts = model, parts
    if isinstance(options.embed, str):
        teacher._until = step_parts(model, options.embed, shown)
    else:
        check_embed_function(options.embed, shown, "the name of a pipeline's step")
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

    # classes are learnt, so they prove a fit; what has no fit cannot be checked
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


def _several_outputs(count: int) -> str:
    return f"predicts {count} outputs at once. Give a classifier with one output, or one function per output."


def _one_vs_one(n_classes: int) -> str:
    return (
        f"gives a margin per pair of its {n_classes} classes (one-vs-one), not one per class. "
        "Set decision_function_shape='ovr' on it, or wrap it in CalibratedClassifierCV."
    )
