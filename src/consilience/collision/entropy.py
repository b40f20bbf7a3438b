"""Entropies and cross-entropies of probability vectors: collision, Shannon, and Renyi of any order.

All work on the last axis and return a value per row; to train with them from logits see `consilience.nn`.
Equation numbers are those of "Collision Cross-entropy for Soft Class Labels and Entropy-based Clustering".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from consilience._validation import (
    as_numbers,
    check_count,
    check_distributions,
    check_number,
    check_order,
    check_transition,
)
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.kernels.collision import entropy as kernels

# Nearer to 1 than this, orders other than 1 itself lose half of their digits.
_NEAR_ONE = 1e-8


def collision_cross_entropy(
    proba: ArrayLike, target: ArrayLike, *, q: float = 0.0, transition: ArrayLike | None = None
) -> Floats:
    r"""Return minus the log-probability that predicted and true class are equal.

    .. math:: H_2(y, \sigma) = -\ln \sum_k y_k \sigma_k

    Eq. (9). It is Shannon's cross-entropy for one-hot targets, symmetric, bounded by :math:`-\ln \min_k y_k`,
    and constant for a uniform target. With p the collision probability, the generalised form
    :math:`(1 - p^q) / q` lies between it (q = 0) and one minus p (q = 1), and is bounded by 1 / q.

    Parameters
    ----------
    proba : (n, K) or (K,) array
        Predictions sigma.
    target : (n, K) or (K,) array of probabilities, or (n,) array of int
        Soft labels y, or class indices.
    q : float
        Power of the generalised form, at least 0. With large values, rows that do not fit count little.
    transition : (K, K) array, optional
        For noisy labels: ``transition[l, k]`` is the probability to observe label l if class k is true.
        An observed label l then counts as the target ``transition[l]`` (Sec. 3, the forward correction).

    Returns
    -------
    (n,) array, or a scalar for (K,)

    Examples
    --------
    >>> collision_cross_entropy([[0.7, 0.2, 0.1]] * 2, [[0.5, 0.5, 0.0], [1 / 3] * 3]).round(4)
    array([0.7985, 1.0986])
    >>> collision_cross_entropy([[0.7, 0.2, 0.1]], [0], transition=transition_matrix(3, 0.3)).round(4)
    array([0.5276])
    """
    power = check_number("q", q, at_least=0)
    predicted, y = _pair(proba, target)
    if transition is not None:
        y = y @ check_transition(transition, y.shape[-1])
    p = kernels.collision_probability(predicted, y)
    with np.errstate(divide="ignore"):  # if no collision is possible, the result is infinite
        log_p = np.log(p)
    return _plain(-np.expm1(power * log_p) / power if power else -log_p)


def collision_entropy(proba: ArrayLike) -> Floats:
    r"""Return the collision entropy :math:`H_2(p) = -\ln \sum_k p_k^2`, eq. (6), of each row.

    Examples
    --------
    >>> collision_entropy([[0.5, 0.5], [1.0, 0.0]]).round(4) + 0.0
    array([0.6931, 0.    ])
    """
    return renyi_entropy(proba, 2.0)


def shannon_cross_entropy(proba: ArrayLike, target: ArrayLike) -> Floats:
    r"""Return Shannon's cross-entropy :math:`H(y, \sigma) = -\sum_k y_k \ln \sigma_k`, eq. (8), of each row.

    Parameters
    ----------
    proba, target
        As in `collision_cross_entropy`.

    Examples
    --------
    >>> shannon_cross_entropy([[0.5, 0.5]], [[1.0, 0.0]]).round(3)
    array([0.693])
    """
    return renyi_cross_entropy(proba, target, 1.0)


def renyi_cross_entropy(proba: ArrayLike, target: ArrayLike, alpha: float) -> Floats:
    r"""Return the Renyi cross-entropy of order alpha of each row.

    .. math:: H_\alpha(y, \sigma) = \frac{1}{1 - \alpha} \ln \sum_k y_k \sigma_k^{\alpha - 1}

    Sec. 3 names two definitions, "natural" and "shifted". This is the shifted one: order 2 is the collision
    cross-entropy, order 1 (in the limit) is Shannon's, and with y = sigma it is the Renyi entropy.

    Parameters
    ----------
    proba, target
        As in `collision_cross_entropy`.
    alpha : float
        The order, above 0; 1, or at least 1e-8 away from 1.

    Examples
    --------
    >>> [round(float(renyi_cross_entropy([0.7, 0.3], [0.5, 0.5], alpha)), 4) for alpha in (1, 2, 3)]
    [0.7803, 0.6931, 0.6189]
    """
    return _plain(kernels.renyi_cross_entropy(*_pair(proba, target), check_order(alpha, _NEAR_ONE)))


def renyi_entropy(proba: ArrayLike, alpha: float) -> Floats:
    r"""Return the Renyi entropy of order alpha of each row.

    .. math:: H_\alpha(p) = \frac{1}{1 - \alpha} \ln \sum_k p_k^\alpha

    Order 2 is the collision entropy, order 1 (by continuity) Shannon's.
    """
    p = check_distributions("proba", proba)
    return _plain(kernels.renyi_cross_entropy(p, p, check_order(alpha, _NEAR_ONE)))


def transition_matrix(n_classes: int, noise_rate: float) -> Floats:
    """Return the transition (K, K) of uniform noise: a share of labels was redrawn from all K classes.

    ``transition_matrix(K, eta)[label]`` is the soft target eta * u + (1 - eta) * onehot of Fig. 2.

    Parameters
    ----------
    n_classes : int
        K.
    noise_rate : float
        eta, from 0 to 1: the share of labels that were replaced, by each class equally often.

    Examples
    --------
    >>> transition_matrix(2, 0.5)
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    rate = check_number("noise_rate", noise_rate, at_least=0, at_most=1)
    return kernels.uniform_transition(check_count("n_classes", n_classes), rate)


def _pair(proba: ArrayLike, target: ArrayLike) -> tuple[Floats, Floats]:
    """Return predictions and targets of one shape; class indices become one-hot rows."""
    predicted = check_distributions("proba", proba)
    y = as_numbers("target", target, "expected soft labels of the shape of proba, or a class index per row")
    if y.shape == predicted.shape[:-1] and y.dtype.kind in "iu":
        n_classes = predicted.shape[-1]
        if y.size and not (y.min() >= 0 and y.max() < n_classes):
            wrong = int(y.min()) if y.min() < 0 else int(y.max())
            raise InvalidInputError(f"target has class {wrong}; expected indices from 0 to {n_classes - 1}.")
        return predicted, np.eye(n_classes)[y]
    if y.shape != predicted.shape:
        raise InvalidInputError(
            f"target has shape {y.shape} and proba {predicted.shape}; give soft labels of the same shape, "
            "or a class index per row."
        )
    return predicted, check_distributions("target", y)


def _plain(values: Floats) -> Floats:
    """Return rows as an array and a single value as a scalar; minus zero as zero."""
    return np.asarray(values + 0.0)[()]
