r"""The share of labels that are wrong, from predictions for rows that were held out of training.

Legend: p_i the probability that a prediction and the observed label of row i are equal, eta the noise rate,
K the number of classes, s the sharpness: predictions are softmax(s * logits).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import collision_probability

_TINY = 1e-300
# A model that decay has almost erased has tiny logits. Sharpness would bring them back, and hide that.
_SHARPNESS = tuple(2.0**power for power in (-2, -1, 0, 1, 2))


class NoiseEstimate(NamedTuple):
    """The likeliest noise rate for some predictions."""

    rate: float
    sharpness: float
    loss: float  # mean of -ln likelihood over rows


def estimate_noise(logits: Floats, observed: Floats) -> NoiseEstimate:
    r"""Return the noise rate under which the observed labels are likeliest, given predictions.

    .. math:: \min_{\eta, s} \; -\frac{1}{n} \sum_i \ln \Big( (1 - \eta) \sum_k y_{ik} \,
              \mathrm{softmax}(s z_i)_k + \frac{\eta}{K} \Big) - \frac{1}{n} \ln(1 - \eta)

    Overconfident predictions look like noise, and timid ones hide it: s makes up for both. The last term is
    one more row whose label is right. It keeps eta below 1, where nothing could be learnt.

    Parameters
    ----------
    logits : (n, K) array
        Of a model that was not trained on these rows.
    observed : (n, K) array
        One-hot or soft labels y.
    """
    coarse = min((_at_sharpness(logits, observed, s) for s in _SHARPNESS), key=_loss)
    finer = (coarse.sharpness / np.sqrt(2), min(coarse.sharpness * np.sqrt(2), _SHARPNESS[-1]))
    return min(coarse, *(_at_sharpness(logits, observed, s) for s in finer), key=_loss)


def _loss(estimate: NoiseEstimate) -> float:
    return estimate.loss


def _at_sharpness(logits: Floats, observed: Floats, sharpness: float) -> NoiseEstimate:
    p, n_classes = collision_probability(softmax(sharpness * logits, axis=1), observed), logits.shape[1]
    rate = _likeliest_rate(p, n_classes)
    likelihood = np.maximum((1.0 - rate) * p + rate / n_classes, _TINY)
    return NoiseEstimate(rate, float(sharpness), -float(np.log(likelihood).sum() + np.log1p(-rate)) / len(p))


def _likeliest_rate(p: Floats, n_classes: int) -> float:
    """Return eta by bisection: the likelihood is concave in it."""
    gain = 1.0 / n_classes - p

    def slope(rate: float) -> float:
        return float((gain / np.maximum(p + rate * gain, _TINY)).sum()) - 1.0 / (1.0 - rate)

    low, high = 0.0, 1.0
    if slope(low) <= 0.0:
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
    return low
