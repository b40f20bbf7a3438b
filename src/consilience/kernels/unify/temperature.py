"""Fit the temperature at which a teacher's probabilities best match given classes."""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import kernel
from consilience.kernels.elementary import FUSE, exp

# The search covers this factor above and below the mean distance of a teacher's logits from their row's top.
RANGE = 1e3
_MOST_STEPS = 100
_TOL = 1e-9  # on log T


def fit_temperature(logits: Floats, codes: Ints, weight: Floats, prior: float) -> float:
    r"""Return the T that minimises the cross-entropy of a teacher's softmax(z / T) to given classes.

    .. math:: F(\beta) = \sum_r w_r \Big(\log \sum_k e^{\beta z_{rk}} - \beta z_{r y_r}\Big)
              + \frac{a}{n} \sum_r \Big(\log \sum_k e^{\beta z_{rk}}
              - \frac{\beta}{K} \sum_k z_{rk}\Big), \qquad \beta = 1 / T

    The second sum is Laplace's rule: an extra row of weight a in which every class is equally right. Without
    it, a teacher that is right n times out of n would count as never wrong. F is convex in beta. Newton's
    method finds the zero of its slope. If a step would leave the bracket (of log beta), it is halved instead.

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
    low, high, beta = 1.0 / RANGE, RANGE, 1.0
    for _ in range(_MOST_STEPS):
        mean, variance = tempered_moments(z, total, beta)
        slope = mean - given
        low, high = (low, beta) if slope > 0.0 else (beta, high)
        step = beta - slope / variance if variance > 0.0 else np.inf
        if not low < step < high:
            step = float(np.sqrt(low * high))
        done = abs(np.log(step / beta)) < _TOL
        beta = step
        if done:
            break
    return min(scale / beta * unit, float(np.finfo(np.float64).max))


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


@kernel(fastmath=FUSE)
def tempered_moments(z, weight, beta):  # type: ignore[no-untyped-def]
    """Return the weighted sums over rows of the mean and the variance of z under softmax(beta z).

    They are the slope and the curvature of sum_r w_r log sum_k exp(beta z_rk).

    Parameters
    ----------
    z : (n, K) array
        The largest entry of each row is 0.
    weight : (n,) array
    beta : float
    """
    first = second = 0.0
    e = np.empty(z.shape[1])
    for r in range(len(z)):
        for k in range(len(e)):
            e[k] = exp(beta * z[r, k])
        total = mean = square = 0.0
        for k in range(len(e)):
            total += e[k]
            mean += e[k] * z[r, k]
            square += e[k] * z[r, k] * z[r, k]
        mean /= total
        first += weight[r] * mean
        second += weight[r] * max(square / total - mean * mean, 0.0)
    return first, second
