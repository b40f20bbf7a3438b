"""Students from scikit-learn: any classifier learns soft labels by weighted expansion."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from consilience._optional import is_instance_of
from consilience._validation import check_choice, check_number, take_rows
from consilience.exceptions import CoverageWarning, InvalidInputError
from consilience.export import sklearn_to_onnx
from consilience.kernels.expansion import expand, resample
from consilience.labels import shorten

# How many rows a student without sample_weight gets for each row of the transfer set.
COPIES = 10


class ExpansionStudent(BaseEstimator):
    """Fit a scikit-learn classifier on soft labels.

    Each row is repeated for every class whose probability is above `threshold` (and always for its most
    probable class), with that class as its label and the probability, renormalised over the classes kept,
    times the class weight as its sample weight. A classifier whose `fit` takes no ``sample_weight`` gets ten
    rows per row, drawn in proportion to these weights.

    Parameters
    ----------
    estimator : classifier
        A scikit-learn-style classifier or pipeline with `predict_proba`; it is cloned, never changed.
    threshold : float
        Classes less probable than this are left out of a row's expansion; in [0, 1).
    random_state : int, RandomState or None
        Seeds the draw, and every ``random_state`` of the estimator that is None.

    Attributes
    ----------
    estimator_ : classifier
        The fitted one; its classes are positions among the L classes.
    columns_ : (k,) array of int
        The classes that it learnt, of the L.
    n_iter_ : int or None
        Its own ``n_iter_``, where it has one.
    """

    scores = "probabilities"

    def __init__(self, estimator: Any, *, threshold: float = 0.01, random_state: Any = None) -> None:
        self.estimator = estimator
        self.threshold = threshold
        self.random_state = random_state

    def fit(self, X: Any, Q: NDArray[np.float64], class_weights: NDArray[np.float64]) -> ExpansionStudent:
        """Fit on soft labels Q (n, L), class l weighted by ``class_weights[l]`` (L,)."""
        threshold = check_number("threshold", self.threshold, at_least=0)
        if threshold >= 1:
            raise InvalidInputError(f"threshold={self.threshold!r} must be below 1.")
        random = check_random_state(self.random_state)
        estimator = _seeded(clone(self.estimator), random)
        rows, labels, weights = expand(Q, class_weights, threshold)
        _warn_of_missing(labels, Q.shape[1])
        weight_name = _sample_weight_name(estimator)
        if weight_name is None:
            drawn = resample(weights, random.uniform(size=COPIES * len(Q)))
            estimator.fit(take_rows(X, rows[drawn]), labels[drawn])
        else:
            estimator.fit(take_rows(X, rows), labels, **{weight_name: weights})
        self.estimator_ = estimator
        self.columns_ = np.asarray(estimator.classes_, dtype=np.intp)
        self.n_iter_ = _iterations(estimator)
        return self

    def predict_scores(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, k) over the classes in `columns_`."""
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)

    def to_onnx(self, X_example: Any) -> Any:
        """Return the classifier as an ONNX model with one output, probabilities (n, k)."""
        check_is_fitted(self, "estimator_")
        return sklearn_to_onnx(self.estimator_, X_example)


STUDENTS = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "forest": lambda: RandomForestClassifier(n_estimators=200, min_samples_leaf=2, n_jobs=-1),
    "boosting": lambda: HistGradientBoostingClassifier(),
    "mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier((256,), max_iter=60, n_iter_no_change=5)),
}
"""Students by name, for those who need not choose: see `named_student`."""


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


def _seeded(estimator: Any, random: np.random.RandomState) -> Any:
    """Set every random_state that is None, so that one seed reproduces the whole."""
    seeds = {
        name: int(random.randint(2**31 - 1))
        for name, value in sorted(estimator.get_params(deep=True).items())
        if (name == "random_state" or name.endswith("__random_state")) and value is None
    }
    return estimator.set_params(**seeds) if seeds else estimator


def _sample_weight_name(estimator: Any) -> str | None:
    """Return the keyword of `fit` that takes sample weights, if there is one."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = _sample_weight_name(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def _iterations(estimator: Any) -> int | None:
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    n_iter = getattr(last, "n_iter_", None)
    return None if n_iter is None else int(np.max(n_iter))


def _warn_of_missing(labels: NDArray[np.intp], n_classes: int) -> None:
    missing = np.setdiff1d(np.arange(n_classes), labels)
    if len(missing):
        warnings.warn(
            f"No row has a soft label above the threshold for {len(missing)} of {n_classes} classes "
            f"(positions {shorten(missing)}), so the student cannot predict them. "
            "Lower threshold=, or add rows of these classes.",
            CoverageWarning,
            stacklevel=4,
        )
