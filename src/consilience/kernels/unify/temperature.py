"""Fit the temperature at which a teacher's probabilities best match given classes."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from consilience.kernels.arrays import Floats, Ints

# The search covers this factor above and below the mean distance of a teacher's logits from their row's top.
RANGE = 1e3


def fit_temperature(logits: Floats, codes: Ints, weight: Floats, prior: float) -> float:
    r"""Return the T that minimises the cross-entropy of a teacher's softmax(z / T) to given classes.

    .. math:: F(\beta) = \sum_r w_r \Big(\log \sum_k e^{\beta z_{rk}} - \beta z_{r y_r}\Big)
              + \frac{a}{n} \sum_r \Big(\log \sum_k e^{\beta z_{rk}}
              - \frac{\beta}{K} \sum_k z_{rk}\Big), \qquad \beta = 1 / T

    The second sum is Laplace's rule: an extra row of weight a in which every class is equally right. Without
    it, a teacher that is right n times out of n would count as never wrong. F is convex in beta, so its slope
    has one zero.

    Parameters
    ----------
    logits : (n, K) array
    codes : (n,) array of int
        The class y of each row, a column of `logits`.
    weight : (n,) array
        w, not negative.
    prior : float
        a, above 0.

    Returns
    -------
    float
        Infinite if all logits of each row are equal: no temperature changes such predictions. A teacher that
        is right no more often than chance gets a thousand times the scale of its logits.
    """
    z, scale, unit = _scaled(logits)
    if scale == 0.0:
        return np.inf
    total = weight + prior / len(z)
    given = float(weight @ z[np.arange(len(z)), codes] + prior * z.mean())

    def slope(log_beta: float) -> float:
        e = np.exp(np.exp(log_beta) * z)
        return float(total @ ((e * z).sum(axis=1) / e.sum(axis=1))) - given

    edge = float(np.log(RANGE))
    log_beta = -edge
    if slope(-edge) < 0.0:
        log_beta = edge if slope(edge) <= 0.0 else brentq(slope, -edge, edge, xtol=1e-9)
    return float(min(scale / np.exp(log_beta) * unit, np.finfo(np.float64).max))


def is_at_bound(logits: Floats, temperature: float) -> bool:
    """Tell whether a temperature from `fit_temperature` lies at the edge of its search range."""
    _, scale, unit = _scaled(logits)
    beta = scale / (temperature / unit)
    return not 1.001 / RANGE < beta < RANGE / 1.001


def _scaled(logits: Floats) -> tuple[Floats, float, float]:
    """Return logits minus the largest of their row, over their mean distance to it; that mean; its unit."""
    # a power of two rounds nothing, and keeps differences and their sum within the range of a float
    unit = float(2.0 ** (np.frexp(max(np.abs(logits).max(), np.finfo(np.float64).tiny))[1] - 1))
    z = logits / unit
    z -= z.max(axis=1, keepdims=True)
    scale = -float(z.mean())
    return z / (scale or 1.0), scale, unit
