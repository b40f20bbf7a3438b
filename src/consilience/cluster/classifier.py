"""Classify: a classifier that learns from soft labels, or from hard labels some of which are wrong.

How many are wrong, the weight decay and the scale of features can be chosen by the likelihood of held-out
labels. No clean label is needed: a model that knows the true classes better also predicts noisy labels
better, once its predictions are mixed with the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience._validation import as_random_state, check_transition
from consilience.cluster.clustering import validated_rows
from consilience.cluster.losses import mean_loss
from consilience.cluster.options import GCE, ClassifierOptions, GeneralisedCollision, Network, Softmax
from consilience.exceptions import ConvergenceWarning, InvalidInputError, shown, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import (
    NoiseEstimate,
    collision_from_logits,
    estimate_noise,
    gce_from_logits,
    shannon_from_logits,
    uniform_transition,
)
from consilience.kernels.held_out import held_out_folds
from consilience.kernels.linear_model import LinearFit, column_moments, linear_logits, minimise_linear
from consilience.run import Run, resolve_run
from consilience.students.classifier import FittedClassifier
from consilience.students.make import make_student
from consilience.students.student import encoder_of, read_soft_labels

# logits and targets (n, K) -> (losses (n,), their gradient (n, K))
RowLoss = Callable[[Floats, Floats], tuple[Floats, Floats]]

DEFAULT_DECAY = 0.01
_FOLDS = 3
_FIRST_RATE = 0.5
_CLOSE = 0.1  # rates that differ by less train almost the same model
_FIRST_DECAYS = 0.1, 0.01
_FACTOR = 10**0.5
_PATIENCE = 2  # steps in a row that gain nothing
# fits of the search may stop earlier than the last one
_MAX_ITER, _LOOSER = 100, 5.0
_LEAST_DECAY, _MOST_DECAY = 1e-5, 10.0


class CollisionClassifier(ClassifierOptions, FittedClassifier):
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
        if isinstance(self.noise, str) and isinstance(self.model_, Network):
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

    def probabilities(self, X: Any) -> Floats:
        """Return probabilities (n, K) of rows in memory."""
        rows = self._check_rows(X, reset=False)
        linear = isinstance(self.model_, Softmax)
        logits = rows @ self.coef_.T + self.intercept_ if linear else self.student_.predict_logits(rows)
        return np.asarray(softmax(logits, axis=1))

    def _check_rows(self, X: Any, *, reset: bool) -> NDArray[Any]:
        # for networks, integers stay integers, for embeddings; the size of images may vary after training
        linear = isinstance(self.model_, Softmax)
        dtype = (np.float64, np.float32) if linear else None
        return validated_rows(self, X, reset=reset, dtype=dtype, allow_nd=not linear)

    def _targets(self, y: Any) -> Floats:
        """Return the labels as observed, (n, K), and set `classes_` and `transition_`."""
        self.classes_, observed = read_soft_labels(y, self.classes)
        self.transition_: Floats | None = None
        self.noise_rate_: float | None = None
        if self.noise is None or isinstance(self.noise, str):
            return observed
        if np.ndim(self.noise) == 0:
            self._set_noise_rate(float(self.noise))
        else:
            self.transition_ = check_transition(self.noise, len(self.classes_))
        never = np.flatnonzero((observed @ np.asarray(self.transition_)).sum(axis=1) == 0)
        if len(never):
            seen = self.classes_[observed[never[0]].argmax()]
            raise InvalidInputError(
                f"y has the label {shown(seen)} in row {{row}}, which noise says is never observed: its row "
                "of the matrix is zero. Correct it, or leave these rows out.",
                row=never[0],
            )
        return observed

    def _set_noise_rate(self, rate: float) -> None:
        self.noise_rate_, self.transition_ = rate, uniform_transition(len(self.classes_), rate)

    def _fit_linear(self, options: Softmax, X: NDArray[Any], observed: Floats) -> None:
        chosen_loss = self.resolved("loss")
        loss: RowLoss = shannon_from_logits
        if isinstance(chosen_loss, GeneralisedCollision | GCE):
            of_logits = gce_from_logits if isinstance(chosen_loss, GCE) else collision_from_logits
            loss = partial(of_logits, q=float(chosen_loss.q))
        stop: dict[str, Any] = {"max_iter": int(options.max_iter), "tol": float(options.tol)}
        self.weight_decay_ = DEFAULT_DECAY if options.weight_decay is None else float(options.weight_decay)
        self.standardize_: bool | str = True if options.standardize is None else options.standardize
        if isinstance(self.noise, str):
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

        loss, transition = self.resolved("loss"), self.transition_
        criterion: Any = SoftCrossEntropy(transition=transition)
        if isinstance(loss, GCE):
            criterion = GeneralisedCrossEntropy(float(loss.q), transition=transition)
        elif isinstance(loss, GeneralisedCollision):
            criterion = CollisionCrossEntropy(float(loss.q), transition=transition)
        student = make_student(model.module, random_state=self.random_state)
        if student.validation is not None:
            rows, labels = student.validation
            student.validation = (rows, encoder_of(self.classes_)(labels))
        student.fit(X, observed, n_classes=observed.shape[1], criterion=criterion, run=run)
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


class Choice(NamedTuple):
    """Settings of a linear model, and how well models with them predict held-out labels."""

    standardize: bool | str
    weight_decay: float
    trained_at: float  # the noise rate that the models assumed
    estimate: NoiseEstimate

    @property
    def rate(self) -> float:
        """The noise rate to assume in a fit to all rows: never one that no model here was trained at."""
        close = abs(self.estimate.rate - self.trained_at) <= _CLOSE
        return self.estimate.rate if close else self.trained_at


def fit_linear(
    Z: NDArray[Any], target: Floats, loss: RowLoss, *, weight_decay: float, max_iter: int, tol: float
) -> LinearFit:
    """Minimise the mean loss to soft labels (n, K) from zero weights."""
    start = np.zeros((Z.shape[1] + 1, target.shape[1]))
    of_logits = mean_loss(loss, target)
    return minimise_linear(Z, start, of_logits, weight_decay=weight_decay, max_iter=max_iter, tol=tol)


def choose_noise(
    views: Mapping[bool | str, NDArray[Any]],
    observed: Floats,
    loss: RowLoss,
    *,
    weight_decay: float | None,
    max_iter: int,
    tol: float,
    rng: np.random.RandomState,
) -> Choice | None:
    """Return the settings whose models make held-out labels likeliest; None if no row can be held out.

    Each model is trained on two thirds of the rows and predicts the others. Their labels give a noise rate
    and a likelihood. The first models assume a rate of 0.5, and all others the best estimate so far. Two
    decays are tried, then the other ways to scale features. From the best, decay goes down, or else up, by
    factors of sqrt(10), as long as the held-out labels gain a nat. Settings whose models were trained at a
    rate far from their own estimate are trained once more at that estimate.

    The decay returned is for a fit to all rows: with more rows it is weaker, so that decay and the sum of the
    losses keep their balance.

    Parameters
    ----------
    views : mapping of (n, d) arrays
        Scaled features by the value of `standardize` that makes them.
    observed : (n, K) array
        One-hot or soft labels.
    loss : function of logits and targets
    weight_decay : float or None
        None to choose it.
    max_iter, tol
        Of the fit to all rows. Those of the search stop a little earlier.
    rng : RandomState
        Deals rows to folds.
    """
    folds = held_out_folds(observed.argmax(axis=1), _FOLDS, rng)
    held_out = np.flatnonzero(folds >= 0)
    if observed.shape[1] == 1 or len(held_out) == 0:
        return None

    def tried(standardize: bool | str, decay: float, rate: float) -> Choice:
        Z, target = views[standardize], observed @ uniform_transition(observed.shape[1], rate)
        logits = np.empty(observed.shape)
        for fold in range(_FOLDS):
            out = folds == fold
            fit = fit_linear(Z[~out], target[~out], loss, weight_decay=decay, **stop)
            logits[out] = linear_logits(Z[out], fit.W)
        return Choice(standardize, decay, rate, estimate_noise(logits[held_out], observed[held_out]))

    stop: dict[str, Any] = {"max_iter": min(max_iter, _MAX_ITER), "tol": _LOOSER * tol}
    first, *others = views
    strong, weak = _FIRST_DECAYS if weight_decay is None else (weight_decay, weight_decay)
    best = tried(first, strong, _FIRST_RATE)
    if strong != weak or abs(best.estimate.rate - _FIRST_RATE) > _CLOSE:
        best = _better(best, tried(first, weak, best.estimate.rate))
    for other in others:
        best = _better(best, tried(other, best.weight_decay, best.estimate.rate))
    best = _at_own_rate(best, tried)
    if weight_decay is None:
        best = _at_own_rate(_with_best_decay(best, tried, least_gain=1.0 / len(held_out)), tried)
        best = best._replace(weight_decay=best.weight_decay * (_FOLDS - 1) / _FOLDS)
    return best


def _better(first: Choice, second: Choice) -> Choice:
    return second if second.estimate.loss < first.estimate.loss else first


def _at_own_rate(best: Choice, tried: Callable[[bool | str, float, float], Choice]) -> Choice:
    """Train once more at the rate that was estimated, if that is another one; keep what predicts better."""
    if abs(best.estimate.rate - best.trained_at) <= _CLOSE:
        return best
    return _better(best, tried(best.standardize, best.weight_decay, best.estimate.rate))


def _with_best_decay(
    best: Choice, tried: Callable[[bool | str, float, float], Choice], least_gain: float
) -> Choice:
    """Go to weaker decay while that gains, or else to stronger decay; look past one step that does not."""
    start = best
    for factor in (1.0 / _FACTOR, _FACTOR):
        decay, failed = best.weight_decay * factor, 0
        while _LEAST_DECAY < decay < _MOST_DECAY and failed < _PATIENCE:
            new = tried(best.standardize, decay, best.estimate.rate)
            failed = failed + 1 if new.estimate.loss > best.estimate.loss - least_gain else 0
            best = best if failed else new
            decay *= factor
        if best is not start:
            break
    return best
