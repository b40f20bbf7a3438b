"""Labels of least cross-entropy with a share for every class: SELA's, and those of eq. (5) (MI-ADM)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.kernels.arrays import Floats

# Smaller predictions are raised to this: their logarithm must be finite.
_FLOOR = 1e-30
_MAX_STEPS = 50  # of Newton, for each width
_HALVINGS = 40


class Assignment(NamedTuple):
    """What `fair_assignment` returns."""

    labels: Floats  # (M, K)
    prices: Floats  # (K,) beta
    error: float  # the largest entry of the dual's gradient


def fair_assignment(
    log_proba: Floats, prior: Floats, lam: float, epsilon: float, tol: float, start: Floats | None = None
) -> Assignment:
    r"""Return the labels of least cross-entropy whose mean is close to the prior.

    .. math:: \min_y \frac1M \sum_i \Big( -\sum_k y_{ik} \ln \sigma_{ik} - \epsilon H(y_i) \Big)
              + \lambda\, KL(\bar y \| u), \qquad y_i \in \Delta^K

    This is eq. (5), with a weight, as epsilon goes to 0, and eq. (4), SELA's equipartition, as lambda goes to
    infinity: the entropy makes optimal transport cheap. Labels have the form
    :math:`y_{ik} \propto (\sigma_{ik} e^{\beta_k})^{1 / \epsilon}`, so only K numbers are unknown. Newton's
    method finds them from the dual, at widths that shrink to epsilon. (Sinkhorn's iteration has the same
    fixed point, and is slow at small epsilon.)

    Parameters
    ----------
    log_proba : (M, K) array
        ln sigma; a row of 0 and -inf pins that row's label.
    prior : (K,) array
        u, positive.
    lam : float
        Weight of fairness; infinity for equipartition.
    epsilon : float
        Above 0.
    tol : float
        Largest entry of the dual's gradient, whose entries are differences of shares.
    start : (K,) array, optional
        Prices of a similar problem.
    """
    cost = np.where(np.isneginf(log_proba), -np.inf, np.maximum(log_proba, np.log(_FLOOR)))
    beta = np.zeros(log_proba.shape[1]) if start is None else start
    if lam == 0.0:  # fair shares are not asked for, and prices over lam are undefined
        return Assignment(_labels(cost, np.zeros_like(beta), epsilon)[1], np.zeros_like(beta), 0.0)
    width = max(1.0, epsilon) if start is None else epsilon
    while width > epsilon:
        beta, _ = _newton(cost, prior, lam, width, beta, max(tol, 1e-3))
        width = max(epsilon, width / 4)
    beta, error = _newton(cost, prior, lam, epsilon, beta, tol)
    return Assignment(_labels(cost, beta, epsilon)[1], beta, error)


def _labels(cost: Floats, beta: Floats, epsilon: float) -> tuple[float, Floats]:
    z = (cost + beta) / epsilon
    top = z.max(axis=1, keepdims=True)
    Y = np.exp(z - top)
    total = Y.sum(axis=1, keepdims=True)
    return epsilon * float((top + np.log(total)).mean()), Y / total


def _dual(
    cost: Floats, prior: Floats, lam: float, epsilon: float, beta: Floats
) -> tuple[float, Floats, Floats]:
    """Return the value of the dual, the labels, and the shares that fairness asks for at these prices."""
    value, Y = _labels(cost, beta, epsilon)
    if np.isinf(lam):
        return value - float(prior @ beta), Y, prior
    with np.errstate(over="ignore"):  # too long a step, which the line search then shortens
        asked = prior * np.exp(-beta / lam)
    return value + lam * float((asked - prior).sum()), Y, asked


def _newton(
    cost: Floats, prior: Floats, lam: float, epsilon: float, beta: Floats, tol: float
) -> tuple[Floats, float]:
    value, Y, asked = _dual(cost, prior, lam, epsilon, beta)
    for _ in range(_MAX_STEPS):
        gradient = Y.mean(axis=0) - asked
        if np.abs(gradient).max() <= tol:
            break
        curvature = (np.diag(Y.mean(axis=0)) - Y.T @ Y / len(Y)) / epsilon + np.diag(asked / lam)
        # there is no curvature if all labels are hard, and never along equal prices of all classes
        curvature[np.diag_indices_from(curvature)] += 1e-9 + 1e-3 * np.abs(gradient)
        step = np.linalg.solve(curvature, gradient)
        slope = float(gradient @ step)
        size = min(1.0, 10.0 / max(np.abs(step).max(), 1e-300))
        for _ in range(_HALVINGS):
            trial = _dual(cost, prior, lam, epsilon, beta - size * step)
            if trial[0] <= value - 1e-4 * size * slope + 1e-15 * abs(value):
                break
            size /= 2
        else:
            break
        beta = beta - size * step
        value, Y, asked = trial
    return beta, float(np.abs(Y.mean(axis=0) - asked).max())
