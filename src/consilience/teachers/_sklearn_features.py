"""The features of a fitted scikit-learn model, and the weights of its last layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from consilience.exceptions import TeacherError

# Embeddings are dense. A bag of words with a hundred thousand columns would take too much memory.
MAX_SPARSE_COLUMNS = 4096

_ACTIVATIONS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "identity": lambda Z: Z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda Z: np.maximum(Z, 0),
}


@dataclass(frozen=True)
class Parts:
    """A model, split into its last step and the steps before it.

    Attributes
    ----------
    before : tuple of transformers
        Applied in turn.
    last : estimator
        The classifier. Its input is the output of the other steps.
    """

    before: tuple[Any, ...]
    last: Any

    @property
    def opens(self) -> bool:
        """Whether all steps transform. Steps that resample do not, and prediction skips them."""
        return all(hasattr(step, "transform") for step in self.before)

    def transform(self, X: Any) -> Any:
        """Return the input of the last step."""
        for step in self.before:
            X = step.transform(X)
        return X


def split(model: Any) -> Parts:
    """Open pipelines and hyperparameter searches."""
    before: list[Any] = []
    for _ in range(16):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif isinstance(getattr(model, "steps", None), list) and model.steps:
            before += [step for _, step in model.steps[:-1] if step not in (None, "passthrough")]
            model = model.steps[-1][1]
        else:
            break
    return Parts(tuple(before), model)


def step_parts(model: Any, step: str, name: str) -> Parts:
    """Return a pipeline up to and including the named step, and the classifier if it comes right after."""
    for _ in range(16):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
    names = [key for key, _ in getattr(model, "steps", ())][:-1]
    if step not in names:
        raise TeacherError(
            name,
            f"has no step {step!r} before its last; it has {', '.join(map(repr, names)) or 'none'}. "
            "Give {remedy} the name of a pipeline's step, or a function of X.",
            remedy="embed",
        )
    place = names.index(step) + 1
    return Parts((model[:place],), model.steps[-1][1] if place == len(names) else None)


def last_layer_weights(last: Any, n_classes: int) -> NDArray[np.float64] | None:
    """Return the weights (k, d) of a linear model, or of the last layer of an MLPClassifier, or None.

    The single row w of a binary model becomes [-w / 2, w / 2]: the same probabilities, with a row per class.
    """
    if _is_mlp(last):
        weights = np.asarray(last.coefs_[-1], dtype=np.float64).T
    elif getattr(last, "coef_", None) is not None and not hasattr(last, "dual_coef_"):
        # dual_coef_ marks a support vector machine, whose coef_ has one row per pair of classes
        found = last.coef_
        dense = found.toarray() if hasattr(found, "toarray") else found
        weights = np.atleast_2d(np.asarray(dense, dtype=np.float64))
    else:
        return None
    if weights.ndim == 2 and n_classes == 2 and len(weights) == 1:
        weights = np.vstack([-weights, weights]) / 2
    return weights if weights.ndim == 2 and len(weights) == n_classes else None


def last_layer_input(last: Any, X: Any) -> NDArray[Any] | None:
    """Return the input of the last layer: X for a linear model, the last hidden layer for an MLPClassifier.

    None for sparse rows with very many columns.
    """
    if hasattr(X, "toarray"):
        if not _is_mlp(last) and X.shape[1] > MAX_SPARSE_COLUMNS:
            return None
        hidden = X if _is_mlp(last) else X.toarray()
    else:
        hidden = np.asarray(X)
        if hidden.dtype.kind == "O":
            hidden = hidden.astype(np.float64)
    if _is_mlp(last):
        activate = _ACTIVATIONS[last.activation]
        for weights, bias in zip(last.coefs_[:-1], last.intercepts_[:-1], strict=True):
            hidden = activate(np.asarray(hidden @ weights) + bias)
    return np.asarray(hidden)


def _is_mlp(last: Any) -> bool:
    return hasattr(last, "coefs_") and hasattr(last, "intercepts_") and last.activation in _ACTIVATIONS
