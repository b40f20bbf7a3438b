"""Fitted scikit-learn-style classifiers as teachers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from consilience.exceptions import TeacherError
from consilience.options import takes
from consilience.teachers.base import (
    Adapter,
    TeacherOptions,
    check_embed_function,
    own_or_given,
    teacher_name,
)
from consilience.teachers.fingerprints import fingerprint_of
from consilience.teachers.outputs import PROBA_TOLERANCE, Output, as_numbers, ensure

# Embeddings are dense. A bag of words with a hundred thousand columns would take too much memory.
MAX_SPARSE_COLUMNS = 4096
_DEEPEST = 16  # searches of pipelines of searches
_ACTIVATIONS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "identity": lambda Z: Z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda Z: np.maximum(Z, 0),
}
_SEVERAL = "predicts {} outputs at once. Give a classifier with one output, or one function per output."
_BY_PAIRS = (
    "gives a margin per pair of its {} classes (one-vs-one), not one per class. "
    "Set decision_function_shape='ovr' on it, or wrap it in CalibratedClassifierCV."
)


class Sklearn(Adapter):
    """A fitted scikit-learn-style classifier with `predict_proba`, or else `decision_function`.

    Margins count as logits: a binary margin d as [0, d] (so that softmax is sigmoid(d)), those of several
    classes as they are. ``output="logits"`` prefers `decision_function`. The embedding is the input of the
    last layer, if there is one: of a linear model or an MLPClassifier; or the output of the pipeline's step
    that `embed` names.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> Sklearn(LogisticRegression().fit([[0.0], [1.0]], ["a", "b"])).classes.tolist()
    ['a', 'b']
    """

    _takes_arrays = True

    @takes(TeacherOptions)
    def __init__(
        self, model: Any, classes: ArrayLike | None = None, name: str | None = None, options: Any = None
    ) -> None:
        kind = type(model).__name__
        shown = teacher_name(name, kind)
        _check_fitted(model, shown)
        self._model, (self._before, self._last) = model, open_model(model)
        self._method = _method(model, options.output, shown)
        proba = self._method == "predict_proba"
        if proba:
            self._tolerance = PROBA_TOLERANCE
        own: Any = getattr(model, "classes_", None)
        several = isinstance(own, list) and own and isinstance(own[0], np.ndarray)
        ensure(not several, shown, _SEVERAL.format(len(own) if several else 1))
        found = own_or_given(own, classes, shown, what=f"a {kind} without classes_")
        # with three classes there are three pairs, too: the shape alone would not tell
        by_pairs = getattr(self._last, "decision_function_shape", None) == "ovo" and len(found) > 2
        ensure(proba or not by_pairs, shown, _BY_PAIRS.format(len(found)))
        known: Output = "probabilities" if proba else "logits"
        super().__init__(shown, found, options, output=known if options.output == "auto" else None)
        self._named = isinstance(options.embed, str)
        if self._named:
            self._before, self._last = _until(model, options.embed, shown)
        else:
            check_embed_function(options.embed, shown, "the name of a pipeline's step")

    def _run(self, X: Any, rows: int, features: bool) -> tuple[Any, Any]:
        inside = X
        for step in self._before if features else ():
            inside = step.transform(inside)
        # a pipeline is passed once for both
        once = features and not self._named and self._before
        model, given = (self._last, inside) if once else (self._model, X)
        raw, k = getattr(model, self._method)(given), len(self.classes)
        seen = inside if self._named or not features else last_layer_input(self._last, inside)
        if self._method == "predict_proba":
            several = isinstance(raw, list) and raw and getattr(raw[0], "ndim", 0) == 2
            ensure(not several, self.name, _SEVERAL.format(len(raw)))
            return raw, seen
        margins = as_numbers(raw, self.name)
        if k == 2 and margins.size == rows:
            margins = binary_logits(margins)
        pairs = margins.ndim == 2 and margins.shape[1] != k and margins.shape[1] == k * (k - 1) // 2
        ensure(not pairs, self.name, _BY_PAIRS.format(k))
        return margins, seen

    def _embeddable(self) -> bool:
        return self._embed is not None or self.class_weights is not None

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of a linear model, or of the last layer of an MLPClassifier."""
        # steps that resample do not transform; a named step may feed a network's first layer
        closed = not all(hasattr(step, "transform") for step in self._before)
        if callable(self._embed) or closed or (self._named and hasattr(self._last, "coefs_")):
            return None
        return last_layer_weights(self._last, len(self.classes))

    def _model_fingerprint(self) -> str | None:
        return fingerprint_of(self._model)


def is_estimator(obj: Any) -> bool:
    """Tell whether an object has a scoring method of scikit-learn classifiers."""
    methods = ("predict_proba", "decision_function", "predict")
    return not isinstance(obj, type) and any(hasattr(obj, member) for member in methods)


def _method(model: Any, output: str, name: str) -> str:
    """Return the method that scores: `predict_proba`, unless there is none or logits are asked for."""
    proba, margin = hasattr(model, "predict_proba"), hasattr(model, "decision_function")
    ensure(
        proba or margin,
        name,
        "has neither predict_proba nor decision_function. Give a function that returns its scores (n, k), or "
        "its predictions as an array of hard labels.",
    )
    problem = "has no predict_proba. Drop {argument} to use its margins as logits."
    ensure(proba or output != "probabilities", name, problem, argument="output", value=output)
    problem = "has no decision_function and so no logits. Drop {argument}."
    ensure(margin or output != "logits", name, problem, argument="output", value=output)
    return "decision_function" if not proba or output == "logits" else "predict_proba"


def binary_logits(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [0, d] for each margin d, so that softmax gives sigmoid(d) for the second class.

    Examples
    --------
    >>> binary_logits(np.array([1.5, -2.0])).tolist()
    [[0.0, 1.5], [0.0, -2.0]]
    """
    return np.column_stack([np.zeros(margins.size), margins.ravel()])


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


def open_model(model: Any) -> tuple[list[Any], Any]:
    """Open pipelines and hyperparameter searches: return the steps before the classifier, and that."""
    before: list[Any] = []
    for _ in range(_DEEPEST):
        model = getattr(model, "best_estimator_", model)
        if isinstance(getattr(model, "steps", None), list) and model.steps:
            before += [step for _, step in model.steps[:-1] if step not in (None, "passthrough")]
            model = model.steps[-1][1]
    return before, model


def _until(model: Any, step: str, name: str) -> tuple[list[Any], Any]:
    """Return a pipeline up to and including the named step, and the classifier if it comes right after."""
    for _ in range(_DEEPEST):
        model = getattr(model, "best_estimator_", model)
    names = [key for key, _ in getattr(model, "steps", ())][:-1]
    ensure(
        step in names,
        name,
        f"has no step {step!r} before its last; it has {', '.join(map(repr, names)) or 'none'}. "
        "Give {remedy} the name of a pipeline's step, or a function of X.",
        remedy="embed",
    )
    place = names.index(step) + 1
    return [model[:place]], model.steps[-1][1] if place == len(names) else None


def last_layer_weights(last: Any, n_classes: int) -> NDArray[np.float64] | None:
    """Return the weights (k, d) of a linear model, or of the last layer of an MLPClassifier, or None.

    The single row w of a binary model becomes [-w / 2, w / 2]: the same probabilities, with a row per class.
    """
    # dual_coef_ marks a support vector machine, whose coef_ has one row per pair of classes
    found = None if hasattr(last, "dual_coef_") else getattr(last, "coef_", None)
    found = last.coefs_[-1].T if _is_mlp(last) else found
    if found is None:
        return None
    weights = np.atleast_2d(as_numbers(found, "last layer"))
    if n_classes == 2 and len(weights) == 1:
        weights = np.vstack([-weights, weights]) / 2
    return weights if weights.ndim == 2 and len(weights) == n_classes else None


def last_layer_input(last: Any, X: Any) -> Any:
    """Return the input of the last layer: X for a linear model, the last hidden layer for an MLPClassifier.

    None for sparse rows with very many columns.
    """
    sparse = hasattr(X, "toarray")
    if not _is_mlp(last):
        large = sparse and X.shape[1] > MAX_SPARSE_COLUMNS
        return None if large else X.toarray() if sparse else np.asarray(X)
    hidden = X if sparse else np.asarray(X, dtype=np.float64)
    for weights, bias in zip(last.coefs_[:-1], last.intercepts_[:-1], strict=True):
        hidden = _ACTIVATIONS[last.activation](np.asarray(hidden @ weights) + bias)
    return hidden


def _is_mlp(last: Any) -> bool:
    return hasattr(last, "coefs_") and hasattr(last, "intercepts_") and last.activation in _ACTIVATIONS
