"""Losses of predictions: cross-entropies, mutual information, the noise rate.

Cross-entropies of a prediction and a soft target, from probabilities and, with gradients, from logits.

Legend, in the symbols of "Collision Cross-entropy": sigma = softmax(logits) the prediction, y the target,
p = sum_k y_k sigma_k the probability that predicted and true class collide.

The losses from logits have one signature, ``f(logits, target, q)``, and return the loss of each row and its
gradient by the row's logits. With t = p or t = sigma_k, the power q turns -ln t into (1 - t^q) / q. This is
-ln t in the limit q -> 0. It is bounded by 1 / q, so rows that cannot be fitted count little.

The loss of pseudo-labels, eq. (11), in total form, and a lower bound of it: letters as in `first_order`.

Clustering losses that need no labels: mutual information (MI, IMSAT) and invariant information (IIC).

Legend: S (n, K) predictions sigma; A (n, K) predictions of other views of the same rows, such as means over
neighbours; u the prior. Each function returns the loss and its gradient by the predictions.

The share of labels that are wrong, from predictions for rows that were held out of training.

Legend: p_i the probability that a prediction and the observed label of row i are equal, eta the noise rate,
K the number of classes, s the sharpness: predictions are softmax(s * logits).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel, part
from consilience.kernels.elementary import FUSE, exp

_TINY = 1e-300
# A model that decay has almost erased has tiny logits. Sharpness would bring them back, and hide that.
_SHARPNESS = tuple(2.0**power for power in (-2, -1, 0, 1, 2))


def collision_from_logits(logits: Floats, target: Floats, q: float = 0.0) -> tuple[Floats, Floats]:
    r"""Return the collision cross-entropy of each row, or its generalised form, and the gradient.

    .. math:: p_i = \sum_k y_{ik} \sigma_{ik}, \qquad
              \ell_i = -\ln p_i \ (q = 0), \quad \ell_i = (1 - p_i^q) / q \ (q > 0), \qquad
              \partial \ell_i / \partial z_{ik} = p_i^q (\sigma_{ik} - y_{ik} \sigma_{ik} / p_i)

    Eq. (9) for q = 0. It is exact for one-hot targets, zeros in the target and logits far apart. A target
    without mass has the upper bound of the loss (infinity for q = 0) and no gradient.

    Parameters
    ----------
    logits, target : (n, K) arrays
        Rows of the target need not sum to one.
    q : float
        At least 0.

    Returns
    -------
    losses : (n,) array
    gradient : (n, K) array
    """
    return _collision(*_contiguous(logits, target), float(q))  # type: ignore[no-any-return]


def gce_from_logits(logits: Floats, target: Floats, q: float = 0.7) -> tuple[Floats, Floats]:
    r"""Return the generalised cross-entropy of Zhang and Sabuncu (2018) for soft targets, and its gradient.

    .. math:: \ell_i = \sum_k y_{ik} (1 - \sigma_{ik}^q) / q, \qquad
              \partial \ell_i / \partial z_{ik} = \sigma_{ik} \sum_j y_{ij} \sigma_{ij}^q
                                                  - y_{ik} \sigma_{ik}^q

    Shannon's cross-entropy, eq. (8), for q = 0. Shapes as in the collision's; 0.7 is their choice of q.
    """
    return _power(*_contiguous(logits, target), float(q))  # type: ignore[no-any-return]


# eq. (8)
shannon_from_logits = partial(gce_from_logits, q=0.0)


def collision_probability(proba: Floats, target: Floats) -> Floats:
    """Return p = sum_k y_k sigma_k over the last axis."""
    return np.asarray(np.einsum("...k,...k->...", target, proba))


def responsibilities(proba: Floats, target: Floats) -> Floats:
    r"""Return r_k = y_k sigma_k / p: given a collision, the probability that it is in class k.

    By Jensen's inequality :math:`-\ln \sum_k y_k \sigma_k \le -\sum_k r_k \ln \sigma_k + const`, tight
    at the sigma from which r was made. So a model fitted to r by Shannon's cross-entropy has a lower
    collision cross-entropy to y. This is the M step of an EM algorithm, for models that have no other loss.

    Parameters
    ----------
    proba, target : (n, K) arrays

    Returns
    -------
    (n, K) array; the target itself where no collision is possible.
    """
    joint = target * proba
    mass = joint.sum(axis=1, keepdims=True)
    return np.where(mass > 0, joint / np.where(mass > 0, mass, 1.0), target)


def weigh(target: Floats, class_weights: Floats) -> tuple[Floats, Floats]:
    """Return the soft labels w * y / w.y (n, K), and the weight w.y (n,) of each row.

    Shannon's cross-entropy with a weight per class is that of these labels with these row weights. A row
    without weight keeps its label.
    """
    weighted = target * class_weights
    mass = weighted.sum(axis=1)
    some = mass > 0
    return np.where(some[:, None], weighted / np.where(some, mass, 1.0)[:, None], target), mass


def renyi_cross_entropy(proba: Floats, target: Floats, alpha: float) -> Floats:
    r"""Return the "shifted" Renyi cross-entropy of order alpha over the last axis.

    .. math:: H_\alpha(y, \sigma) = \frac{1}{1 - \alpha} \ln \sum_k y_k \sigma_k^{\alpha - 1}

    Of the two definitions in use (Sec. 3), this is the one whose order 2 is the collision cross-entropy.
    Order 1 is Shannon's, by continuity.
    """
    with np.errstate(divide="ignore"):
        # a class that the target rules out does not count, whatever its prediction
        log_sigma = np.log(np.where(target > 0, proba, 1.0))
    if alpha == 1.0:
        return np.asarray(-np.einsum("...k,...k->...", target, log_sigma))
    log_sum = logsumexp((alpha - 1.0) * log_sigma, b=target, axis=-1)
    return np.asarray(log_sum / (1.0 - alpha))


def uniform_transition(n_classes: int, noise_rate: float) -> Floats:
    """Return Q = (1 - eta) I + eta / K: a share eta of labels was redrawn, each class equally likely."""
    return (1.0 - noise_rate) * np.eye(n_classes) + noise_rate / n_classes


def _contiguous(logits: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Return both as one type of array, so that the loops are compiled once."""
    return np.ascontiguousarray(logits, np.float64), np.ascontiguousarray(target, np.float64)


@part(fastmath=FUSE)
def _shifted_exp(z, out):  # type: ignore[no-untyped-def]
    """Write exp(z - max z) to `out`; return the maximum and the sum."""
    top = np.float64(z[0])
    for k in range(1, len(z)):
        top = max(top, z[k])
    for k in range(len(z)):
        out[k] = exp(z[k] - top)
    return top, out.sum()


@kernel()
def _collision(logits, target, q):  # type: ignore[no-untyped-def]
    n, K = logits.shape
    losses, gradient = np.empty(n), np.empty((n, K))
    for i in range(n):
        z, y, g = logits[i], target[i], gradient[i]
        top, total = _shifted_exp(z, g)
        reach = -np.inf  # the largest logit that can collide: relative to it, the sum cannot underflow
        for k in range(K):
            if y[k] > 0:
                reach = max(reach, z[k])
        collided = 0.0
        for k in range(K):
            if y[k] > 0:
                collided += y[k] * (g[k] if reach == top else np.exp(z[k] - reach))
        log_p = np.log(collided) + (reach - top) - np.log(total)
        scale = np.exp(q * log_p) if q > 0 else 1.0
        if collided == 0:
            scale = 0.0
        for k in range(K):
            # given a collision, the probability that it is in class k
            share = 0.0
            if y[k] > 0:
                share = y[k] * (g[k] if reach == top else np.exp(z[k] - reach)) / collided
            g[k] = scale * (g[k] / total - share)
        losses[i] = -np.expm1(q * log_p) / q if q > 0 else -log_p
    return losses, gradient


@kernel()
def _power(logits, target, q):  # type: ignore[no-untyped-def]
    n, K = logits.shape
    losses, gradient = np.empty(n), np.empty((n, K))
    for i in range(n):
        z, y, g = logits[i], target[i], gradient[i]
        top, total = _shifted_exp(z, g)
        log_total = np.log(total)
        loss, mass = 0.0, 0.0
        for k in range(K):
            if y[k] > 0:  # 0 times an infinite logarithm is 0
                log_sigma = z[k] - top - log_total
                loss += y[k] * (-np.expm1(q * log_sigma) / q if q > 0 else -log_sigma)
                mass += y[k] * (np.exp(q * log_sigma) if q > 0 else 1.0)
        losses[i] = loss
        for k in range(K):
            own = 0.0
            if y[k] > 0:
                own = y[k] * (np.exp(q * (z[k] - top - log_total)) if q > 0 else 1.0)
            g[k] = g[k] / total * mass - own
    return losses, gradient


@part()
def fairness(c: Floats, weight: Floats) -> float:
    """Return N lam KL(u || c / N), which is sum_k w_k log(u_k N / c_k)."""
    scale = c.sum() / weight.sum()
    total = 0.0
    for k in range(len(c)):
        if weight[k] > 0.0:
            total += weight[k] * np.log(weight[k] * scale / c[k])
    return total


@part()
def collisions(sigma: Floats, Y: Floats) -> Floats:
    """Return p_i = sigma_i . y_i, the probability of a collision in each row (M,)."""
    p = np.empty(len(Y))
    for i in range(len(Y)):
        total = 0.0
        for k in range(Y.shape[1]):
            total += sigma[i, k] * Y[i, k]
        p[i] = total
    return p


@kernel()
def total_loss(sigma: Floats, Y: Floats, weight: Floats, offset: Floats) -> float:
    """Return N F(Y) of the free rows, eq. (11) times N."""
    return float(fairness(offset + Y.sum(axis=0), weight) - np.log(collisions(sigma, Y)).sum())


@kernel()
def lower_bound(sigma: Floats, pi: Floats, nu: Floats, weight: Floats, offset: Floats) -> float:
    """Return a lower bound of N F(Y), from any positive multipliers.

    The Lagrange dual of eq. (11), with gamma_i = max_k (sigma_ik pi_i + nu_k) the least that is feasible, is

        sum_i (1 + log pi_i) + sum_k w_k (1 + log(nu_k / w_k)) - sum_i gamma_i - nu . offset + constant.

    Along t (pi, nu) it is concave. The bound returned is that of the best t,
    (M + sum(w)) / (sum(gamma) + nu . offset).

    Parameters
    ----------
    sigma : (M, K) array
    pi : (M,) array, positive
    nu : (K,) array, positive where `weight` is, zero elsewhere
    weight, offset : (K,) arrays
    """
    n_classes = len(weight)
    constant = np.log((len(sigma) + offset.sum()) / weight.sum())
    total = slack = degree = 0.0
    for k in range(n_classes):
        if weight[k] > 0.0:
            total += weight[k] * (np.log(nu[k]) + constant)
            degree += weight[k]
            slack += nu[k] * offset[k]
    for i in range(len(sigma)):
        gamma = 0.0
        for k in range(n_classes):
            gamma = max(gamma, sigma[i, k] * pi[i] + nu[k])
        slack += gamma
        total += np.log(pi[i])
    degree += len(sigma)
    return float(total + degree * np.log(degree / slack))


def mutual_information(S: Floats, prior: Floats, lam: float) -> tuple[float, Floats]:
    r"""Return the entropy of rows and, weighted, the unfairness of their mean, with the gradient by S.

    .. math:: \overline{H(\sigma)} + \lambda\, KL(\bar\sigma \| u)

    For lambda = 1 and a uniform prior this is eq. (1), the negative mutual information, plus ln K.
    """
    mean = np.einsum("ij->j", S) / len(S)
    log_S, log_mean = np.log(np.maximum(S, _TINY)), np.log(np.maximum(mean, _TINY) / prior)
    value = lam * float(mean @ log_mean) - float(np.vdot(S, log_S)) / len(S)
    log_S *= -1.0 / len(S)
    log_S += (lam * (log_mean + 1.0) - 1.0) / len(S)
    return value, log_S


def invariant_information(S: Floats, A: Floats, lam: float) -> tuple[float, Floats, Floats]:
    r"""Return the negative mutual information between two views' classes, with the gradients by S and by A.

    .. math:: P = \tfrac{1}{2n} \sum_i (\sigma_i a_i^\top + a_i \sigma_i^\top), \qquad
              -\sum_{kl} P_{kl} \big( \ln P_{kl} - \lambda \ln P_{k \cdot} - \lambda \ln P_{\cdot l} \big)

    (Ji, Henriques and Vedaldi, 2019; lambda > 1 asks for equal shares more strongly.)
    """
    joint = S.T @ A / len(S)
    P = np.maximum((joint + joint.T) / 2, _TINY)
    share = P.sum(axis=0)
    log_P, log_share = np.log(P), np.log(share)
    value = -float((P * (log_P - lam * (log_share[:, None] + log_share))).sum())
    # d/dP_kl, each marginal depending on a whole row or column of P
    slope = -(log_P + 1.0) + lam * (log_share[:, None] + log_share + 2.0)
    return value, A @ slope / len(S), S @ slope / len(S)


def softmax_rows(logits: NDArray[Any]) -> Floats:
    """Return the softmax of each row (n, K) in double precision; numpy is slow at maxima of short rows."""
    out: Floats = _below_top(logits)
    np.exp(out, out=out)
    out /= np.einsum("ij->i", out)[:, None]
    return out


@kernel()
def _below_top(logits):  # type: ignore[no-untyped-def]
    """Return the logits less the largest of their row."""
    out = np.empty(logits.shape)
    for i in range(len(logits)):
        top = logits[i, 0]
        for k in range(1, logits.shape[1]):
            top = max(top, logits[i, k])
        for k in range(logits.shape[1]):
            out[i, k] = np.float64(logits[i, k]) - np.float64(top)
    return out


def through_softmax(S: Floats, gradient: Floats) -> Floats:
    """Return the gradient by the logits from that by the predictions S = softmax(logits)."""
    out: Floats = S * (gradient - np.einsum("ij,ij->i", S, gradient)[:, None])
    return out


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

    def at_sharpness(s: float) -> NoiseEstimate:
        p = collision_probability(softmax(s * logits, axis=1), observed)
        rate, n_classes = _likeliest_rate(p, logits.shape[1]), logits.shape[1]
        likelihood = np.maximum((1.0 - rate) * p + rate / n_classes, _TINY)
        return NoiseEstimate(rate, s, -float(np.log(likelihood).sum() + np.log1p(-rate)) / len(p))

    coarse = min(map(at_sharpness, _SHARPNESS), key=lambda estimate: estimate.loss)
    finer = (coarse.sharpness / 2**0.5, min(coarse.sharpness * 2**0.5, _SHARPNESS[-1]))
    return min(coarse, *map(at_sharpness, finer), key=lambda estimate: estimate.loss)


def _likeliest_rate(p: Floats, n_classes: int) -> float:
    """Return eta, of which the likelihood is a concave function."""
    gain = 1.0 / n_classes - p

    def slope(rate: float) -> float:
        return float((gain / np.maximum(p + rate * gain, _TINY)).sum()) - 1.0 / (1.0 - rate)

    return 0.0 if slope(0.0) <= 0.0 else float(brentq(slope, 0.0, 1.0 - 1e-12, xtol=1e-4))
