"""Students without torch: any classifier learns soft labels by weighted expansion, and some by themselves."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

from consilience._optional import is_instance_of
from consilience._progress import Progress, silent
from consilience._validation import (
    as_random_state,
    check_choice,
    check_fitted,
    check_number,
    n_rows,
    take_rows,
)
from consilience.exceptions import CoverageWarning, InvalidInputError
from consilience.files.export import sklearn_to_onnx
from consilience.kernels.collision.entropy import collision_probability, responsibilities, weigh
from consilience.kernels.expansion import expand, resample
from consilience.labels import shorten

# How many rows a student without sample_weight gets for each row of the transfer set.
COPIES = 10
Loss = Literal["cross-entropy", "collision"]
LOSSES = ("cross-entropy", "collision")
# Refits of a student that minimises the collision cross-entropy, and the least fall of it worth another.
REFITS = 4
LEAST_FALL = 1e-3


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
    loss : {"cross-entropy", "collision"}
        Weighted rows make a classifier minimise Shannon's cross-entropy, and few know another loss.
        ``"collision"`` minimises the collision cross-entropy by EM: refit to the soft labels times the
        classifier's own predictions, renormalised (`responsibilities`), as long
        as the loss falls by a thousandth, and at most four times. It takes as many times as long.
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
    collision_losses_ : list of float
        With ``loss="collision"``, the mean loss after the first fit and after each refit.
    """

    scores = "probabilities"

    def __init__(
        self,
        estimator: Any,
        *,
        threshold: float = 0.01,
        loss: Loss = "cross-entropy",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.threshold = threshold
        self.loss = loss
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        Q: NDArray[np.float64],
        class_weights: NDArray[np.float64],
        row_weights: NDArray[np.float64] | None = None,
    ) -> ExpansionStudent:
        """Fit on soft labels Q (n, L), weighted by class (L,) and by row (n,)."""
        threshold = check_number("threshold", self.threshold, at_least=0)
        if threshold >= 1:
            raise InvalidInputError("{argument} must be below 1.", argument="threshold", value=self.threshold)
        check_choice("loss", self.loss, LOSSES)
        random = as_random_state(self.random_state)
        rows, labels, weights = expand(Q, class_weights, threshold)
        each = np.ones(len(Q)) if row_weights is None else row_weights
        weights = weights * each[rows]
        _warn_of_missing(labels, Q.shape[1])
        self._keep(self._fit_expanded(X, rows, labels, weights, len(Q), random))
        if self.loss == "collision":
            target, mass = weigh(Q, class_weights)
            self._lower_collision(X, target, mass * each, random)
        return self

    def _fit_expanded(
        self,
        X: Any,
        rows: NDArray[np.intp],
        labels: NDArray[np.intp],
        weights: NDArray[np.float64],
        n: int,
        random: np.random.RandomState,
    ) -> Any:
        """Return a clone of the estimator, fitted to weighted hard labels."""
        estimator = _seeded(clone(self.estimator), random)
        weight_name = _sample_weight_name(estimator)
        if weight_name is None:
            drawn = resample(weights, random.uniform(size=COPIES * n))
            return estimator.fit(take_rows(X, rows[drawn]), labels[drawn])
        return estimator.fit(take_rows(X, rows), labels, **{weight_name: weights})

    def _lower_collision(
        self,
        X: Any,
        target: NDArray[np.float64],
        mass: NDArray[np.float64],
        random: np.random.RandomState,
    ) -> None:
        """Refit by EM while the mean collision cross-entropy falls, rows weighted by mass; keep the best."""
        proba = self.predict_all(X, target.shape[1])
        self.collision_losses_ = [_mean_collision(proba, target, mass)]
        for _ in range(REFITS):
            rows, labels, weights = expand(
                responsibilities(proba, target), np.ones(target.shape[1]), self.threshold
            )
            best = self.estimator_
            self._keep(self._fit_expanded(X, rows, labels, weights * mass[rows], len(target), random))
            proba = self.predict_all(X, target.shape[1])
            before, after = self.collision_losses_[-1], _mean_collision(proba, target, mass)
            self.collision_losses_.append(after)
            if not after < before:
                self._keep(best)
            if not after < before - LEAST_FALL * abs(before):
                break

    def _keep(self, estimator: Any) -> None:
        self.estimator_ = estimator
        self.columns_ = np.asarray(estimator.classes_, dtype=np.intp)
        self.n_iter_ = _iterations(estimator)

    def predict_scores(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, k) over the classes in `columns_`."""
        check_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)

    def predict_all(self, X: Any, n_classes: int) -> NDArray[np.float64]:
        """Return probabilities (n, L) over all L classes, zero for those that it did not learn."""
        proba = np.zeros((n_rows(X), n_classes))
        proba[:, self.columns_] = self.predict_scores(X)
        return proba

    def to_onnx(self, X_example: Any) -> Any:
        """Return the classifier as an ONNX model with one output, probabilities (n, k)."""
        check_fitted(self, "estimator_")
        return sklearn_to_onnx(self.estimator_, X_example)


@runtime_checkable
class LearnsSoftLabels(Protocol):
    """A classifier that learns soft labels by itself, such as `consilience.text.NgramClassifier`.

    Optional member: ``save(path, *, classes, temperature, description, details)`` writes an ``.npz`` file
    that `consilience.as_teacher` reads; without it, nothing that this student became can be saved.
    """

    def fit_soft_labels(
        self,
        X: Any,
        Q: NDArray[np.float64],
        *,
        class_weights: NDArray[np.float64],
        row_weights: NDArray[np.float64] | None,
        loss: Loss,
        progress: Progress,
    ) -> Any:
        """Fit on soft labels Q (n, L), weighted by class (L,) and by row (n,); classes are 0 to L - 1."""
        ...

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, L)."""
        ...


class SoftLabelStudent(BaseEstimator):
    """Fit a classifier that learns soft labels by itself, without expansion.

    Parameters
    ----------
    estimator : LearnsSoftLabels
        It is cloned, never changed.
    loss : {"cross-entropy", "collision"}
        What it minimises.
    random_state : int, RandomState or None
        Seeds every ``random_state`` of the estimator that is None.
    progress : callable
        Handed to the estimator.

    Attributes
    ----------
    estimator_ : LearnsSoftLabels
        The fitted one; its classes are positions among the L classes.
    columns_ : (L,) array of int
        0 to L - 1: it learns them all.
    n_iter_ : int or None
        Its own ``n_iter_``, where it has one.
    """

    scores = "probabilities"

    def __init__(
        self,
        estimator: LearnsSoftLabels,
        *,
        loss: Loss = "cross-entropy",
        random_state: Any = None,
        progress: Progress = silent,
    ) -> None:
        self.estimator = estimator
        self.loss = loss
        self.random_state = random_state
        self.progress = progress

    def fit(
        self,
        X: Any,
        Q: NDArray[np.float64],
        class_weights: NDArray[np.float64],
        row_weights: NDArray[np.float64] | None = None,
    ) -> SoftLabelStudent:
        """Fit on soft labels Q (n, L), weighted by class (L,) and by row (n,)."""
        check_choice("loss", self.loss, LOSSES)
        estimator = _seeded(clone(self.estimator), as_random_state(self.random_state))
        estimator.fit_soft_labels(  # which may return anything
            X,
            Q,
            class_weights=class_weights,
            row_weights=row_weights,
            loss=self.loss,
            progress=self.progress,
        )
        self.estimator_ = estimator
        self.columns_ = np.arange(Q.shape[1])
        self.n_iter_ = _iterations(estimator)
        return self

    def predict_scores(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, L)."""
        check_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)

    def predict_all(self, X: Any, n_classes: int) -> NDArray[np.float64]:
        """Return probabilities (n, L) over all L classes."""
        return self.predict_scores(X)


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


def check_model(model: Any) -> None:
    """Raise unless a model that is no name can be trained as a network."""
    if not (is_torch_student(model) or callable(model)):
        raise InvalidInputError(
            f"model is a {type(model).__name__}; give 'linear', a torch module, a factory of one, "
            "or a TorchStudent."
        )


def _mean_collision(
    proba: NDArray[np.float64], target: NDArray[np.float64], mass: NDArray[np.float64]
) -> float:
    # rows where no collision is possible would make it infinite whatever the others do
    p = np.maximum(collision_probability(proba, target), np.finfo(np.float64).tiny)
    return float(-(mass * np.log(p)).sum() / mass.sum())


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
            CoverageWarning(
                f"No row has a soft label above the threshold for {len(missing)} of {n_classes} classes "
                f"(positions {shorten(missing)}), so the student cannot predict them. "
                "Lower {remedy}, or add rows of these classes.",
                remedy="threshold",
            ),
            stacklevel=4,
        )
