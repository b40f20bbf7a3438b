"""Choose the noise rate of labels, weight decay and scale of features by the likelihood of held-out labels.

No clean label is needed: a model that knows the true classes better also predicts noisy labels better, once
its predictions are mixed with the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.cluster.losses import mean_loss
from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import NoiseEstimate, estimate_noise, uniform_transition
from consilience.kernels.held_out import held_out_folds
from consilience.kernels.linear_model import LinearFit, linear_logits, minimise_linear

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
