"""Fair labels from prices of the classes.

Labels of least cross-entropy with a share for every class: SELA's, and those of eq. (5) (MI-ADM).

Fair labels of single rows, at given prices of the classes.

Fair pseudo-labels couple rows only through the column means: at the optimum, the label y of a row minimises

    -log(sigma . y) + nu . y    over the simplex,

with prices nu_k = -lam u_k / (mean label of k). So prices that were found from some rows label any others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel
from consilience.kernels.unify.packed import in_turns

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


def fair_prices(labels: Floats, prior: Floats, lam: float) -> Floats:
    """Return the prices (K,) at which labels (M, K) are fair: those of classes without a share are 0."""
    mean = labels.mean(axis=0)
    return np.asarray(-lam * np.divide(prior, mean, out=np.zeros_like(mean), where=mean > 0))


def labels_at_prices(sigma: Floats, prices: Floats) -> Floats:
    """Return the labels (n, K) of rows with predictions sigma (n, K) at prices (K,).

    With s = 1 / (sigma . y), the dual of a row is max over s of min_k (nu_k - s sigma_k) + log s. It is found
    by cutting planes: of all lines, only the two that meet at the optimum matter, and these are the support.
    """
    labels = np.zeros(sigma.shape)
    in_turns(lambda rows: _label_rows(sigma[rows], prices, labels[rows]), len(sigma))
    return labels


@kernel()
def _label_rows(sigma, prices, labels):  # type: ignore[no-untyped-def]
    """Fill labels (n, K), which are zero, as in `labels_at_prices`."""
    n, K = sigma.shape
    for row in range(n):
        b = 0  # the line that is lowest for large s
        for k in range(1, K):
            if sigma[row, k] > sigma[row, b] or (sigma[row, k] == sigma[row, b] and prices[k] < prices[b]):
                b = k
        if sigma[row, b] <= 0.0:  # no class has mass: the cheapest
            labels[row, np.argmin(prices)] = 1.0
            continue
        s = 1.0 / sigma[row, b]
        a, share = b, 1.0  # the support is a and b, and b has this share
        for _ in range(K + 1):
            lowest, value = b, prices[b] - s * sigma[row, b]
            for k in range(K):
                if prices[k] - s * sigma[row, k] < value - 1e-12 * (1.0 + abs(value)):
                    lowest, value = k, prices[k] - s * sigma[row, k]
            if lowest in (a, b):
                break
            if sigma[row, lowest] * s < 1.0:
                a = lowest
            else:
                b = lowest
            if a == b:
                s, share = 1.0 / sigma[row, b], 1.0
                continue
            meet = (prices[b] - prices[a]) / (sigma[row, b] - sigma[row, a])  # below it, a is lower than b
            if sigma[row, b] * meet <= 1.0:
                s, share = 1.0 / sigma[row, b], 1.0
            elif sigma[row, a] * meet >= 1.0:
                s, share = 1.0 / sigma[row, a], 0.0
            else:
                s = meet
                share = (1.0 / meet - sigma[row, a]) / (sigma[row, b] - sigma[row, a])
        labels[row, a] += 1.0 - share
        labels[row, b] += share
