"""Classify: a classifier that learns from soft labels, or from hard labels some of which are wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from consilience._progress import Progress, silent
from consilience._validation import (
    as_random_state,
    check_choice,
    check_count,
    check_fitted,
    check_number,
    check_transition,
    validated_rows,
)
from consilience.cluster.noise import DEFAULT_DECAY, choose_noise, fit_linear
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import (
    collision_from_logits,
    gce_from_logits,
    shannon_from_logits,
    uniform_transition,
)
from consilience.kernels.columns import column_moments
from consilience.students.make import check_model
from consilience.students.training import encode_validation, encoder_of, read_soft_labels

Loss = Literal["collision", "generalised-collision", "cross-entropy", "gce"]

DEFAULT_Q = {"collision": 0.0, "generalised-collision": 0.5, "cross-entropy": 0.0, "gce": 0.7}
"""The losses, and the power q of each: 0.7 is the choice of the authors of GCE."""

_FROM_LOGITS: dict[str, Callable[[Floats, Floats, float], tuple[Floats, Floats]]] = {
    "collision": collision_from_logits,
    "generalised-collision": collision_from_logits,
    "cross-entropy": lambda logits, target, q: shannon_from_logits(logits, target),
    "gce": gce_from_logits,
}


class CollisionClassifier(ClassifierMixin, BaseEstimator):
    """Learn a classifier from soft labels, or from hard labels some of which are wrong.

    Parameters
    ----------
    loss : {"collision", "generalised-collision", "cross-entropy", "gce"}
        What to minimise between prediction and soft label. The collision cross-entropy is -ln p, with p the
        probability that predicted and true class are equal. Its generalised form (1 - p^q) / q is better
        still if many labels are wrong. The others are Shannon's cross-entropy, and the generalised
        cross-entropy of Zhang and Sabuncu.
    model : "linear", torch.nn.Module, factory of one, or Network
        A linear model is trained by L-BFGS from zero weights, and needs no torch. A network is trained by a
        `consilience.students.Network`; give one to set epochs, learning rate and so on.
    q : float, optional
        Power of ``"generalised-collision"`` (0.5 by default) and of ``"gce"`` (0.7).
    noise_rate : float or "auto", optional
        Share of labels that were replaced by one drawn from all classes with equal probability: eta of Fig.
        2. An observed label becomes the soft label eta / K + (1 - eta) * onehot. "auto" estimates it by
        cross-validation on the labels as they are. It needs a linear model, and about ten times as long.
    transition : (K, K) array, optional
        For noise of any kind, instead of `noise_rate`: ``transition[l, k]`` is the probability to observe
        label l if class k is true, in the order of `classes_` (Sec. 3: the forward correction).
    classes : sequence, optional
        Names of the columns of soft labels; 0 to K - 1 by default. For hard labels they are the labels that
        occur. Give `classes` if some never occur, in the order of `transition`.
    weight_decay : float, optional
        Half of it times the squared weights, without biases, is added to the mean loss of the linear model.
        By default 0.01, or chosen by cross-validation if `noise_rate` is "auto".
    standardize : bool or "common", optional
        True trains the linear model on features of mean 0 and variance 1. "common" divides all features by
        one number, so that their variance is 1 on average: for features in the same unit, such as pixels.
        False leaves them alone. `coef_` and `intercept_` are for X as you give it in any case. By default
        True, or, if `noise_rate` is "auto", True or "common" by cross-validation.
    max_iter : int
        Most steps of L-BFGS.
    tol : float
        Stop when no entry of the linear model's gradient exceeds this.
    progress : callable, optional
        Called with (task, done, total) while a network is trained.
    random_state : int, RandomState or None
        Makes the training of a network reproducible, and cross-validation for ``noise_rate="auto"``. Nothing
        else is random.

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
    student_ : Network
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
    >>> scores = [CollisionClassifier(loss, noise_rate=0.7).fit(X, noisy).score(X, y) for loss in losses]
    >>> scores == sorted(scores), scores[2] > 0.88
    (True, True)
    >>> model = CollisionClassifier("generalised-collision", noise_rate="auto", random_state=0).fit(X, noisy)
    >>> abs(model.noise_rate_ - 0.7) < 0.05, model.score(X, y) > 0.88
    (True, True)
    """

    def __init__(
        self,
        loss: Loss = "collision",
        model: Any = "linear",
        *,
        q: float | None = None,
        noise_rate: float | Literal["auto"] | None = None,
        transition: ArrayLike | None = None,
        classes: Any = None,
        weight_decay: float | None = None,
        standardize: bool | Literal["common"] | None = None,
        max_iter: int = 500,
        tol: float = 1e-4,
        progress: Progress | None = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.model = model
        self.q = q
        self.noise_rate = noise_rate
        self.transition = transition
        self.classes = classes
        self.weight_decay = weight_decay
        self.standardize = standardize
        self.max_iter = max_iter
        self.tol = tol
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> CollisionClassifier:
        """Train on rows X and their labels.

        Parameters
        ----------
        X : (n, d) array, or (n, ...) for networks
        y : (n,) sequence of labels, or (n, K) array of soft labels
            Rows without a label (None, NaN, -1) are left out.
        """
        self._check_params()
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
        if self._is_linear:
            self._fit_linear(X, observed)
        else:
            self._fit_network(X, observed)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return probabilities (n, K) in the order of `classes_`."""
        check_fitted(self, "classes_")
        rows = self._check_rows(X, reset=False)
        if self._is_linear:
            logits = rows @ self.coef_.T + self.intercept_
        else:
            logits = self.student_.predict_logits(rows)
        return np.asarray(softmax(logits, axis=1))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class (n,) of each row."""
        proba = self.predict_proba(X)
        return np.asarray(self.classes_[proba.argmax(axis=1)])

    @property
    def _is_linear(self) -> bool:
        return isinstance(self.model, str)

    @property
    def _power(self) -> float:
        return DEFAULT_Q[self.loss] if self.q is None else float(self.q)

    def _check_params(self) -> None:
        check_choice("loss", self.loss, DEFAULT_Q)
        if self._is_linear:
            check_choice("model", self.model, ("linear",))
        else:
            check_model(self.model)
        if self.q is not None:
            if self.loss in ("collision", "cross-entropy"):
                raise InvalidInputError(
                    "{argument} has no q; use 'generalised-collision' or 'gce' with it.",
                    argument="loss",
                    value=self.loss,
                )
            check_number("q", self.q, above=0)
        if self.noise_rate is not None:
            if self.transition is not None:
                raise InvalidInputError("Give noise_rate or transition, not both.")
            self._check_noise_rate()
        if self.weight_decay is not None:
            check_number("weight_decay", self.weight_decay, at_least=0)
        check_number("tol", self.tol, above=0)
        check_count("max_iter", self.max_iter)
        if self.standardize is not None:
            check_choice("standardize", self.standardize, (True, False, "common"))

    def _check_noise_rate(self) -> None:
        if not isinstance(self.noise_rate, str):
            check_number("noise_rate", self.noise_rate, at_least=0, at_most=1)
            return
        check_choice("noise_rate", self.noise_rate, ("auto",))
        if not self._is_linear:
            raise InvalidInputError(
                "{argument} needs model='linear'. Estimate the rate with a linear model, and give its "
                "noise_rate_ to the network.",
                argument="noise_rate",
                value=self.noise_rate,
            )

    def _check_rows(self, X: Any, *, reset: bool) -> NDArray[Any]:
        if self._is_linear:
            kinds: Any = [np.float64, np.float32]
            return validated_rows(self, X, reset=reset, dtype=kinds)
        # integers stay integers, for embeddings; the size of images may vary after training
        return validated_rows(self, X, reset=reset, dtype=None, allow_nd=True)

    def _targets(self, y: Any) -> Floats:
        """Return the labels as observed, (n, K), and set `classes_` and `transition_`."""
        self.classes_, observed = read_soft_labels(y, self.classes)
        n_classes = len(self.classes_)
        self.transition_: Floats | None = None
        if self.transition is not None:
            self.transition_ = check_transition(self.transition, n_classes)
        self.noise_rate_: float | None = None
        if self.noise_rate is not None and self.noise_rate != "auto":
            self._set_noise_rate(float(self.noise_rate))
        never: Any = ()
        if self.transition_ is not None:
            never = np.flatnonzero((observed @ self.transition_).sum(axis=1) == 0)
        if len(never):
            seen = self.classes_[observed[never[0]].argmax()]
            raise InvalidInputError(
                f"y has the label {seen!r} in row {{row}}, which transition says is never observed: "
                "its row of the matrix is zero. Correct it, or leave these rows out.",
                row=never[0],
            )
        return observed

    def _set_noise_rate(self, rate: float) -> None:
        self.noise_rate_, self.transition_ = rate, uniform_transition(len(self.classes_), rate)

    def _fit_linear(self, X: NDArray[Any], observed: Floats) -> None:
        self.weight_decay_ = DEFAULT_DECAY if self.weight_decay is None else float(self.weight_decay)
        self.standardize_: bool | str = True if self.standardize is None else self.standardize
        if self.noise_rate == "auto":
            self._estimate_noise(X, observed)
        Z, mean, scale = _scaled(X, self.standardize_)
        target = observed if self.transition_ is None else observed @ self.transition_
        fit = fit_linear(Z, target, self._row_loss, **self._stop, weight_decay=self.weight_decay_)
        if not fit.converged:
            warnings.warn(
                f"L-BFGS stopped after {fit.n_iter} steps with a gradient of up to {fit.gradient:.1e} "
                f"(tol {self.tol:.1e}). Raise max_iter (now {self.max_iter}), tol or weight_decay.",
                ConvergenceWarning,
                stacklevel=3,
            )
        weights = fit.W[:-1] / scale[:, None]
        self.coef_, self.intercept_ = weights.T, fit.W[-1] - mean @ weights
        self.objective_, self.n_iter_ = fit.objective, fit.n_iter

    def _estimate_noise(self, X: NDArray[Any], observed: Floats) -> None:
        """Set the noise rate, and weight decay and scale of features where they are left open."""
        kinds = (True, "common") if self.standardize is None else (self.standardize,)
        chosen = choose_noise(
            {kind: _scaled(X, kind)[0].astype(np.float32) for kind in kinds},
            observed,
            self._row_loss,
            weight_decay=None if self.weight_decay is None else float(self.weight_decay),
            rng=as_random_state(self.random_state),
            **self._stop,
        )
        self._set_noise_rate(0.0 if chosen is None else chosen.rate)
        if chosen is not None:
            self.noise_rate_ = chosen.estimate.rate
            self.weight_decay_, self.standardize_ = chosen.weight_decay, chosen.standardize

    def _row_loss(self, logits: Floats, target: Floats) -> tuple[Floats, Floats]:
        return _FROM_LOGITS[self.loss](logits, target, self._power)

    @property
    def _stop(self) -> dict[str, Any]:
        return {"max_iter": int(self.max_iter), "tol": float(self.tol)}

    def _fit_network(self, X: NDArray[Any], observed: Floats) -> None:
        from consilience.nn import CollisionCrossEntropy, GeneralisedCrossEntropy, SoftCrossEntropy
        from consilience.students.network import as_torch_student

        criterion: Any = SoftCrossEntropy(transition=self.transition_)
        if self.loss == "gce":
            criterion = GeneralisedCrossEntropy(self._power, transition=self.transition_)
        elif self.loss != "cross-entropy":
            criterion = CollisionCrossEntropy(self._power, transition=self.transition_)
        student = as_torch_student(self.model, self.random_state)
        encode_validation(student, encoder_of(self.classes_))
        student.fit(
            X,
            observed,
            n_classes=observed.shape[1],
            criterion=criterion,
            progress=self.progress or silent,
        )
        self.student_, self.n_iter_ = student, student.n_iter_
        self.objective_ = float(student.history_[-1]["train_loss"])


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
