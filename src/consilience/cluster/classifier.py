"""Classify: a classifier that learns from soft labels, or from hard labels some of which are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from consilience._validation import as_random_state, check_fitted, check_transition, validated_rows
from consilience.cluster.noise import DEFAULT_DECAY, RowLoss, choose_noise, fit_linear
from consilience.cluster.options import GCE, ClassifierOptions, GeneralisedCollision, Network, Softmax
from consilience.exceptions import ConvergenceWarning, InvalidInputError, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import (
    collision_from_logits,
    gce_from_logits,
    shannon_from_logits,
    uniform_transition,
)
from consilience.kernels.linear_model import column_moments
from consilience.run import Run, resolve_run
from consilience.students.training import encode_validation, encoder_of, read_soft_labels


class CollisionClassifier(ClassifierOptions, ClassifierMixin, BaseEstimator):
    """Learn a classifier from soft labels, or from hard labels some of which are wrong.

    Attributes
    ----------
    classes_ : (K,) array
        The class of each column of `predict_proba`.
    transition_ : (K, K) array or None
        Turns observed labels into soft labels.
    noise_rate_ : float or None
        The noise rate that you gave, or the estimate.
    weight_decay_, standardize_ : float; bool or "common"
        As you gave them, or as chosen. Only for linear models.
    coef_, intercept_ : (K, d) and (K,) arrays
        The linear model: logits are ``X @ coef_.T + intercept_``.
    student_ : students.Network
        The trained network.
    objective_ : float
        Mean loss on the training rows, with weight decay for a linear model.
    n_iter_ : int
        Steps of L-BFGS, or epochs.
    n_features_in_ : int
    feature_names_in_ : (d,) array
        The names of the columns, if X is a table with names. New rows may have them in any order.

    Notes
    -----
    The collision cross-entropy is not convex in the logits, except for one-hot labels. At zero weights its
    gradient is that of Shannon's cross-entropy, so the first step of L-BFGS is the same. Starting from the
    finished Shannon fit gained nothing in trials on digits, and cost up to four points.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> random = np.random.RandomState(0)
    >>> noisy = np.where(random.uniform(size=len(y)) < 0.7, random.randint(10, size=len(y)), y)
    >>> losses = ("cross-entropy", "collision", "generalised-collision")
    >>> scores = [CollisionClassifier(loss, noise=0.7).fit(X, noisy).score(X, y) for loss in losses]
    >>> scores == sorted(scores), scores[2] > 0.88
    (True, True)
    >>> model = CollisionClassifier("generalised-collision", noise="auto", random_state=0).fit(X, noisy)
    >>> abs(model.noise_rate_ - 0.7) < 0.05, model.score(X, y) > 0.88
    (True, True)
    """

    def fit(self, X: Any, y: Any) -> CollisionClassifier:
        """Train on rows X and their labels.

        Parameters
        ----------
        X : (n, d) array, or (n, ...) for networks
        y : (n,) sequence of labels, or (n, K) array of soft labels
            Rows without a label (None, NaN, -1) are left out.
        """
        self.check_options()
        run, self.model_ = resolve_run(self.run), self.resolved("model")
        if self._learns_noise and isinstance(self.model_, Network):
            raise InvalidInputError(
                "{argument} needs model='linear'. Estimate the rate with a linear model, and give its "
                "noise_rate_ to the network.",
                argument="noise",
                value=self.noise,
            )
        if y is None:
            raise InvalidInputError(
                "requires y to be passed, but the target y is None: give labels or soft labels."
            )
        X = self._check_rows(X, reset=True)
        observed = self._targets(y)
        if len(observed) != len(X):
            raise InvalidInputError(f"y has {len(observed)} rows and X has {len(X)}.")
        known = ~np.isnan(observed[:, 0])
        if not known.all():
            X, observed = X[known], observed[known]
        if isinstance(self.model_, Softmax):
            self._fit_linear(self.model_, X, observed)
        else:
            self._fit_network(self.model_, X, observed, run)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return probabilities (n, K) in the order of `classes_`."""
        check_fitted(self, "classes_")
        rows = self._check_rows(X, reset=False)
        if isinstance(self.model_, Softmax):
            logits = rows @ self.coef_.T + self.intercept_
        else:
            logits = self.student_.predict_logits(rows)
        return np.asarray(softmax(logits, axis=1))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class (n,) of each row."""
        proba = self.predict_proba(X)
        return np.asarray(self.classes_[proba.argmax(axis=1)])

    @property
    def _learns_noise(self) -> bool:
        return isinstance(self.noise, str)

    def _check_rows(self, X: Any, *, reset: bool) -> NDArray[Any]:
        if isinstance(self.model_, Softmax):
            return validated_rows(self, X, reset=reset, dtype=(np.float64, np.float32))
        # integers stay integers, for embeddings; the size of images may vary after training
        return validated_rows(self, X, reset=reset, dtype=None, allow_nd=True)

    def _targets(self, y: Any) -> Floats:
        """Return the labels as observed, (n, K), and set `classes_` and `transition_`."""
        self.classes_, observed = read_soft_labels(y, self.classes)
        self.transition_: Floats | None = None
        self.noise_rate_: float | None = None
        if self.noise is None or self._learns_noise:
            return observed
        if np.ndim(self.noise) == 0:
            self._set_noise_rate(float(self.noise))
        else:
            self.transition_ = check_transition(self.noise, len(self.classes_))
        never = np.flatnonzero((observed @ np.asarray(self.transition_)).sum(axis=1) == 0)
        if len(never):
            seen = self.classes_[observed[never[0]].argmax()]
            raise InvalidInputError(
                f"y has the label {seen!r} in row {{row}}, which noise says is never observed: its row of "
                "the matrix is zero. Correct it, or leave these rows out.",
                row=never[0],
            )
        return observed

    def _set_noise_rate(self, rate: float) -> None:
        self.noise_rate_, self.transition_ = rate, uniform_transition(len(self.classes_), rate)

    def _fit_linear(self, options: Softmax, X: NDArray[Any], observed: Floats) -> None:
        loss = _row_loss(self.resolved("loss"))
        stop: dict[str, Any] = {"max_iter": int(options.max_iter), "tol": float(options.tol)}
        self.weight_decay_ = DEFAULT_DECAY if options.weight_decay is None else float(options.weight_decay)
        self.standardize_: bool | str = True if options.standardize is None else options.standardize
        if self._learns_noise:
            kinds = (True, "common") if options.standardize is None else (options.standardize,)
            chosen = choose_noise(
                {kind: _scaled(X, kind)[0].astype(np.float32) for kind in kinds},
                observed,
                loss,
                weight_decay=None if options.weight_decay is None else self.weight_decay_,
                rng=as_random_state(self.random_state),
                **stop,
            )
            self._set_noise_rate(0.0 if chosen is None else chosen.rate)
            if chosen is not None:
                self.noise_rate_ = chosen.estimate.rate
                self.weight_decay_, self.standardize_ = chosen.weight_decay, chosen.standardize
        Z, mean, scale = _scaled(X, self.standardize_)
        target = observed if self.transition_ is None else observed @ self.transition_
        fit = fit_linear(Z, target, loss, **stop, weight_decay=self.weight_decay_)
        if not fit.converged:
            warn(
                ConvergenceWarning(
                    f"L-BFGS stopped after {fit.n_iter} steps with a gradient of up to {fit.gradient:.1e} "
                    f"(tol {options.tol:.1e}). Raise max_iter (now {options.max_iter}), tol or weight_decay "
                    "of cluster.Softmax."
                )
            )
        weights = fit.W[:-1] / scale[:, None]
        self.coef_, self.intercept_ = weights.T, fit.W[-1] - mean @ weights
        self.objective_, self.n_iter_ = fit.objective, fit.n_iter

    def _fit_network(self, model: Network, X: NDArray[Any], observed: Floats, run: Run) -> None:
        from consilience.nn import CollisionCrossEntropy, GeneralisedCrossEntropy, SoftCrossEntropy
        from consilience.students.network import as_torch_student

        loss, transition = self.resolved("loss"), self.transition_
        criterion: Any = SoftCrossEntropy(transition=transition)
        if isinstance(loss, GCE):
            criterion = GeneralisedCrossEntropy(float(loss.q), transition=transition)
        elif isinstance(loss, GeneralisedCollision):
            criterion = CollisionCrossEntropy(float(loss.q), transition=transition)
        student = as_torch_student(model.module, self.random_state)
        encode_validation(student, encoder_of(self.classes_))
        student.fit(X, observed, n_classes=observed.shape[1], criterion=criterion, progress=run.report)
        self.student_, self.n_iter_ = student, student.n_iter_
        self.objective_ = float(student.history_[-1]["train_loss"])


def _row_loss(loss: Any) -> RowLoss:
    """Return the loss of logits and soft labels (n, K)."""
    if isinstance(loss, GeneralisedCollision):
        return lambda logits, target: collision_from_logits(logits, target, float(loss.q))
    if isinstance(loss, GCE):
        return lambda logits, target: gce_from_logits(logits, target, float(loss.q))
    return shannon_from_logits


def _scaled(X: NDArray[Any], standardize: bool | str) -> tuple[NDArray[Any], Floats, Floats]:
    """Return Z = (X - mean) / scale (n, d) in X's precision, with mean and scale (d,)."""
    mean, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
    if standardize:
        mean, scale = column_moments(X)
    constant = scale == 0
    if standardize == "common" and not constant.all():
        scale[:] = np.sqrt(np.mean(scale**2))
    scale[constant] = 1.0
    Z = ((X - mean) / scale).astype(X.dtype)
    Z[:, constant] = 0.0  # without rounding, a constant column has no coefficient
    return Z, mean, scale
