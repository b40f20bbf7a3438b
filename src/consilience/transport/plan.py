"""Transported labels: a teacher's prediction, moved to the classes of a student."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience.transport.distance import sinkhorn

Floats = NDArray[np.float64]


def conditional_plan(cost: Floats, epsilon: float, beta: Floats | None = None) -> Floats:
    """Return P (m, K), the share of the teacher's class m that goes to each class of the student.

    The p_S that minimises the Sinkhorn distance of SCTD, eq. (5), is the transported label p_T P. Here
    P[m, n] is proportional to exp((beta_n - M_mn) / epsilon) with beta = 0. The loss pulls the student
    towards this label.

    Parameters
    ----------
    cost : (m, K) array
    epsilon : float
    beta : (K,) array, optional
        A bonus for each class of the student; see `balancing`.
    """
    shift = 0.0 if beta is None else beta
    return np.asarray(softmax((shift - cost) / epsilon, axis=1))


def balancing(proba: Floats, prior: Floats, cost: Floats, epsilon: float) -> Floats:
    """Return the beta (K,) that gives transported labels the task's class shares, on average.

    It is the dual of one transport problem, from the mean of `proba` to `prior`. Without it, a class of the
    student that is nearest to no class of the teacher would never get a transported label: its rows would be
    pulled towards other classes.

    Parameters
    ----------
    proba : (n, m) array
        The teacher's predictions.
    prior : (K,) array
        The shares of the classes.
    cost : (m, K) array
    epsilon : float
    """
    mean = proba.mean(axis=0, keepdims=True)
    return np.asarray(sinkhorn(mean, prior[None], cost, epsilon, tol=1e-6, max_iter=100_000).beta[0])
