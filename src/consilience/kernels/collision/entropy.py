r"""Cross-entropies of a prediction and a soft target, from probabilities and, with gradients, from logits.

Legend, in the symbols of "Collision Cross-entropy": sigma = softmax(logits) the prediction, y the target,
p = sum_k y_k sigma_k the probability that predicted and true class collide.

The losses from logits have one signature, ``f(logits, target, q)``, and return the loss of each row and its
gradient by the row's logits. With t = p or t = sigma_k, the power q turns -ln t into (1 - t^q) / q. This is
-ln t in the limit q -> 0. It is bounded by 1 / q, so rows that cannot be fitted count little.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel, part

# A sum of products below this may have lost terms to denormal numbers. It is then computed in log space.
_SAFE = 1e-200


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


def shannon_from_logits(logits: Floats, target: Floats) -> tuple[Floats, Floats]:
    r"""Return Shannon's cross-entropy, eq. (8), of each row and its gradient; shapes as in the collision's.

    .. math:: \ell_i = -\sum_k y_{ik} \ln \sigma_{ik}, \qquad
              \partial \ell_i / \partial z_{ik} = \sigma_{ik} \sum_j y_{ij} - y_{ik}
    """
    return gce_from_logits(logits, target, 0.0)


def gce_from_logits(logits: Floats, target: Floats, q: float = 0.7) -> tuple[Floats, Floats]:
    r"""Return the generalised cross-entropy of Zhang and Sabuncu (2018) for soft targets, and its gradient.

    .. math:: \ell_i = \sum_k y_{ik} (1 - \sigma_{ik}^q) / q, \qquad
              \partial \ell_i / \partial z_{ik} = \sigma_{ik} \sum_j y_{ij} \sigma_{ij}^q
                                                  - y_{ik} \sigma_{ik}^q

    Shannon's cross-entropy for q = 0. Shapes as in the collision's; 0.7 is their choice of q.
    """
    return _power(*_contiguous(logits, target), float(q))  # type: ignore[no-any-return]


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


def renyi_entropy(proba: Floats, alpha: float) -> Floats:
    r"""Return :math:`H_\alpha(p) = \frac{1}{1 - \alpha} \ln \sum_k p_k^\alpha` over the last axis."""
    return renyi_cross_entropy(proba, proba, alpha)


def uniform_transition(n_classes: int, noise_rate: float) -> Floats:
    """Return Q = (1 - eta) I + eta / K: a share eta of labels was redrawn, each class equally likely."""
    return (1.0 - noise_rate) * np.eye(n_classes) + noise_rate / n_classes


def _contiguous(logits: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Return both as one type of array, so that the loops are compiled once."""
    return np.ascontiguousarray(logits, np.float64), np.ascontiguousarray(target, np.float64)


@part()
def _shifted_exp(z, out):  # type: ignore[no-untyped-def]
    """Write exp(z - max z) to `out`; return the maximum and the sum."""
    top = z[0]
    for k in range(1, len(z)):
        top = max(top, z[k])
    total = 0.0
    for k in range(len(z)):
        out[k] = np.exp(z[k] - top)
        total += out[k]
    return top, total


@kernel()
def _collision(logits, target, q):  # type: ignore[no-untyped-def]
    n, K = logits.shape
    losses, gradient = np.empty(n), np.empty((n, K))
    for i in range(n):
        z, y, g = logits[i], target[i], gradient[i]
        top, total = _shifted_exp(z, g)
        collided = 0.0
        for k in range(K):
            collided += y[k] * g[k]
        if collided > _SAFE:
            log_p = np.log(collided / total)
            scale = np.exp(q * log_p) if q > 0 else 1.0
            for k in range(K):
                g[k] *= scale * (1.0 / total - y[k] / collided)
        else:
            log_p = _collision_in_log_space(z, y, g, top, total, q)
        losses[i] = -np.expm1(q * log_p) / q if q > 0 else -log_p
    return losses, gradient


@part()
def _collision_in_log_space(z, y, g, top, total, q):  # type: ignore[no-untyped-def]
    """Turn `g` from exp(z - top) into the gradient of a row whose p underflows; return ln p."""
    largest = -np.inf
    for k in range(len(z)):
        if y[k] > 0:
            largest = max(largest, z[k] + np.log(y[k]))
    if largest == -np.inf:  # no class is possible
        g[:] = 0.0
        return -np.inf
    mass = 0.0
    for k in range(len(z)):
        if y[k] > 0:
            mass += np.exp(z[k] + np.log(y[k]) - largest)
    log_p = largest - top + np.log(mass) - np.log(total)
    scale = np.exp(q * log_p) if q > 0 else 1.0
    for k in range(len(z)):
        # given a collision, the probability that it is in class k
        share = np.exp(z[k] + np.log(y[k]) - largest) / mass if y[k] > 0 else 0.0
        g[k] = scale * (g[k] / total - share)
    return log_p


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
