"""Any scikit-learn classifier as a student: it learns soft labels as weighted hard labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning as NotConverged
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

from consilience._validation import as_random_state, check_fitted, take_rows
from consilience._words import shorten
from consilience.exceptions import ConsilienceError, CoverageWarning, InvalidInputError
from consilience.files.export import sklearn_to_onnx
from consilience.kernels.collision.entropy import collision_probability, responsibilities, weigh
from consilience.kernels.held_out import resample, thin
from consilience.kernels.linear_model import targets
from consilience.options import anything, option
from consilience.students.estimator import EstimatorStudent, min_label

# How many rows a classifier without sample_weight gets for each row of the transfer set.
COPIES = 10
# The most copies per row if all copies together would have more numbers than SMALL (64 MB).
FEW_COPIES = 2
SMALL = 2**23
# Rows whose copies are drawn together.
THINNED_ROWS = 2**14
# The most refits that minimise the collision cross-entropy, and the least relative fall worth another one.
REFITS = 4
LEAST_FALL = 1e-3


class WeightedStudent(EstimatorStudent):
    """Fit a scikit-learn classifier on soft labels.

    Each row is repeated for every class whose probability is at least `threshold`, and always for its most
    probable class. The class is its label. Its sample weight is the probability, renormalised over the
    classes kept, times the class weight. A classifier whose `fit` takes no ``sample_weight`` gets ten rows
    per row instead, drawn in proportion to these weights.

    If all copies together had more than 2^23 numbers, there are at most two per row, and one more per class.
    Copies with large weights stay. The others are drawn, and the weights of those drawn make up for the rest.

    Weighted rows make a classifier minimise Shannon's cross-entropy, and few classifiers have another loss.
    ``loss="collision"`` minimises the collision cross-entropy by EM: it refits to the soft labels times the
    classifier's own predictions, renormalised (`responsibilities`), as long as the loss falls by a
    thousandth, and at most four times. Training takes that many times as long.

    Attributes
    ----------
    estimator_, columns_, n_iter_
        See `EstimatorStudent`.
    collision_losses_ : list of float
        With ``loss="collision"``, the mean loss after the first fit and after each refit.
    """

    min_label: float = min_label()

    def fit(
        self,
        X: Any,
        Q: NDArray[np.float64],
        class_weights: NDArray[np.float64],
        row_weights: NDArray[np.float64] | None = None,
    ) -> Self:
        """Fit on soft labels Q (n, L), weighted by class (L,) and by row (n,)."""
        self.check_options()
        random = as_random_state(self.random_state)
        of_row = np.ones(len(Q)) if row_weights is None else row_weights
        # no name holds the targets here, so that a student can free them
        self._fit_targets(X, _weighted_targets(Q, class_weights, of_row, self.min_label), random)
        if self.loss == "collision":
            target, mass = weigh(Q, class_weights)
            self._lower_collision(X, target, mass * of_row, random)
        return self

    def to_onnx(self, X_example: Any) -> Any:
        """Return the classifier as an ONNX model with one output, probabilities (n, k)."""
        check_fitted(self, "estimator_")
        return sklearn_to_onnx(self.estimator_, X_example)

    def _fit_targets(self, X: Any, T: NDArray[np.float64], random: np.random.RandomState) -> None:
        """Fit a clone of the estimator to weights T (n, L) of the classes of each row, and keep it."""
        estimator = self._seeded_clone(random)
        weight_name = _sample_weight_name(estimator)
        most = max(FEW_COPIES * len(T), int(SMALL / numbers_per_row(X, len(T))))
        if weight_name is None:
            drawn = resample(T.ravel(), random.uniform(size=min(COPIES * len(T), most)))
            rows, labels = np.divmod(drawn, T.shape[1])
            del T, drawn  # the copies are large enough
            fit_foreign(estimator, take_rows(X, rows), labels)
        else:
            rows, labels, weights = _copies(T, most, random)
            del T
            fit_foreign(estimator, take_rows(X, rows), labels, **{weight_name: weights})
        self._keep(estimator, np.asarray(estimator.classes_, dtype=np.intp))

    def _lower_collision(
        self,
        X: Any,
        target: NDArray[np.float64],
        mass: NDArray[np.float64],
        random: np.random.RandomState,
    ) -> None:
        """Refit by EM while the mean collision cross-entropy, weighted by mass, falls; keep the best fit."""
        n_classes = target.shape[1]
        proba = self.predict_all(X, n_classes)
        self.collision_losses_ = [mean_collision(proba, target, mass)]
        for _ in range(REFITS):
            shares = responsibilities(proba, target)
            T = targets(shares, np.ones(n_classes), self.min_label) * mass[:, None]
            best, columns = self.estimator_, self.columns_
            self._fit_targets(X, T, random)
            proba = self.predict_all(X, n_classes)
            before, after = self.collision_losses_[-1], mean_collision(proba, target, mass)
            self.collision_losses_.append(after)
            if not after < before:
                self._keep(best, columns)
            if not after < before - LEAST_FALL * abs(before):
                break


class Classifier(WeightedStudent):
    """Any scikit-learn-style classifier or pipeline with `predict_proba`.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> Classifier(GaussianNB(), min_label=0.05)
    Classifier(estimator=GaussianNB(), min_label=0.05)
    """

    estimator: Any = option(  # type: ignore[misc]
        anything("classifier"), "A classifier or pipeline with `predict_proba`. It is cloned, never changed."
    )

    def unfitted(self) -> Any:
        """Return the classifier to fit."""
        return self.estimator


class Mlp(WeightedStudent):
    """A multilayer perceptron of scikit-learn, for those who have no torch.

    How many epochs it has is our choice, as for the network in torch. scikit-learn would warn that these were
    not enough, and name an option that cannot be set here.

    Examples
    --------
    >>> Mlp(loss="collision")
    Mlp(loss='collision')
    """

    def unfitted(self) -> Pipeline:
        """Return the classifier to fit."""
        return make_pipeline(StandardScaler(), MLPClassifier((256,), max_iter=60, n_iter_no_change=5))

    def _fit_targets(self, X: Any, T: NDArray[np.float64], random: np.random.RandomState) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)
            super()._fit_targets(X, T, random)


def numbers_per_row(X: Any, n: int) -> float:
    """Estimate how many numbers a row has; sparse matrices count what they store."""
    size = X.numel() if hasattr(X, "numel") else getattr(X, "size", 0)
    return max(float(size) / n, 32.0)  # texts have no columns, but become numbers later


def _copies(
    T: NDArray[np.float64], most: int, random: np.random.RandomState
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Return rows, labels and weights of at most `most` copies for weights T (n, L), and one per class."""
    n, n_classes = T.shape
    if np.count_nonzero(T) <= most:
        rows, labels = np.nonzero(T)
        return rows, labels, T[rows, labels]
    sure = np.flatnonzero(T.any(axis=0))  # a draw must not lose a class, so each keeps its best row
    best = T[:, sure].argmax(axis=0) if len(sure) < n_classes else T.argmax(axis=0)
    found = [(best, sure, T[best, sure])]
    for start in range(0, n, THINNED_ROWS):  # all at once would take many times the memory of T
        rest = T[start : start + THINNED_ROWS].copy()
        inside = (start <= best) & (best < start + len(rest))
        rest[best[inside] - start, sure[inside]] = 0.0
        size = max(1, most * len(rest) // n)
        drawn, weights = thin(rest.ravel(), size, random.uniform(size=size))
        rows, labels = np.divmod(drawn, n_classes)
        found.append((rows + start, labels, weights))
    rows, labels, weights = (np.concatenate(values) for values in zip(*found, strict=True))
    return rows, labels, weights


def mean_collision(
    proba: NDArray[np.float64], target: NDArray[np.float64], mass: NDArray[np.float64]
) -> float:
    """Return the mean collision cross-entropy of probabilities and targets (n, L), weighted by mass (n,)."""
    # One row where no collision is possible would make the mean infinite, whatever the others do.
    p = np.maximum(collision_probability(proba, target), np.finfo(np.float64).tiny)
    return float(-(mass * np.log(p)).sum() / mass.sum())


def _sample_weight_name(estimator: Any) -> str | None:
    """Return the keyword of `fit` that takes sample weights, if there is one."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = _sample_weight_name(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def fit_foreign(estimator: Any, X: Any, labels: NDArray[Any] | None = None, **options: Any) -> None:
    """Fit a foreign classifier, and turn its errors about bad rows into ours."""
    with foreign_errors():
        estimator.fit(X, labels, **options)


@contextmanager
def foreign_errors() -> Iterator[None]:
    """Turn the errors of a foreign classifier about bad rows into ours."""
    try:
        yield
    except ConsilienceError:
        raise
    except ValueError as error:
        raise InvalidInputError(f"The student cannot learn from X: {' '.join(str(error).split())}") from error


def learnt_columns(T: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the classes that have weights in T (n, L), or raise if there is only one."""
    columns = np.flatnonzero(T.any(axis=0))
    if len(columns) < 2:
        raise InvalidInputError(
            "The student cannot learn from X: every row has the same class, and one class is too few."
        )
    return columns


def _weighted_targets(
    Q: NDArray[np.float64],
    class_weights: NDArray[np.float64],
    row_weights: NDArray[np.float64],
    least: float,
) -> NDArray[np.float64]:
    """Return the weights (n, L) of the classes of each row; warn of classes without any."""
    T = targets(Q, class_weights, least)
    T *= row_weights[:, None]
    warn_of_missing(np.asarray(T.any(axis=0)), stacklevel=5)
    return T


def warn_of_missing(occurs: NDArray[np.bool_], stacklevel: int) -> None:
    """Warn of classes (L,) that do not occur, since the student cannot predict them."""
    missing = np.flatnonzero(~occurs)
    if len(missing):
        warnings.warn(
            CoverageWarning(
                f"No row has a soft label of at least min_label for {len(missing)} of {len(occurs)} classes "
                f"(positions {shorten(missing)}), so the student cannot predict them. "
                "Lower {remedy}, or add rows of these classes.",
                remedy="min_label",
            ),
            stacklevel=stacklevel,
        )
