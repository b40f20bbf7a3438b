"""Transported labels: what a teacher's prediction becomes among the classes of a student."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience.transport.distance import sinkhorn

Floats = NDArray[np.float64]


def conditional_plan(cost: Floats, epsilon: float, beta: Floats | None = None) -> Floats:
    """Return P (m, K), the share of the teacher's class m that goes to each class of the student.

    The p_S that minimises the Sinkhorn distance of SCTD, eq. (5), is p_T P with P[m, n] proportional to
    exp((beta_n - M_mn) / epsilon) and beta = 0: the student is pulled towards this transported label.

    Parameters
    ----------
    cost : (m, K) array
    epsilon : float
    beta : (K,) array, optional
        Added to what each class of the student attracts; see `balancing`.
    """
    shift = 0.0 if beta is None else beta
    return np.asarray(softmax((shift - cost) / epsilon, axis=1))


def balancing(proba: Floats, prior: Floats, cost: Floats, epsilon: float) -> Floats:
    """Return the beta (K,) with which transported labels have the class shares of the task, on average.

    It is the dual of one transport problem, from the mean of `proba` to `prior`. Without it a class of the
    student that is not the nearest to any class of the teacher never gets a transported label, and its rows
    are pulled towards other classes.

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
