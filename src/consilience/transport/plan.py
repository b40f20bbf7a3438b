"""Transported labels: what a teacher's prediction becomes among the classes of a student."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from consilience.exceptions import ConvergenceWarning, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.transport.sinkhorn import solve

SHARE_TOL, SHARE_MAX_ITER = 1e-6, 100_000  # of the transport problem behind `class_share_shift`


def conditional_plan(cost: Floats, epsilon: float, shift: Floats | None = None) -> Floats:
    """Return P (m, K): the share of each class of the teacher that goes to each class of the student.

    The p_S that minimises the Sinkhorn distance of SCTD, eq. (5), is p_T P, with P[m, n] proportional to
    exp((shift_n - M_mn) / epsilon) and shift = 0. The distance pulls the student towards this transported
    label.

    Parameters
    ----------
    cost : (m, K) array
        M.
    epsilon : float
    shift : (K,) array, optional
        How much more each class of the student attracts; see `class_share_shift`.
    """
    return np.asarray(softmax(((0.0 if shift is None else shift) - cost) / epsilon, axis=1))


def class_share_shift(proba: Floats, shares: Floats, cost: Floats, epsilon: float) -> Floats:
    """Return the shift (K,) with which transported labels have the class shares of a task, on average.

    It is the dual of one transport problem, from the mean of `proba` to `shares`. Without it, a class of the
    student that is nearest to no class of the teacher gets no transported labels, and its rows are pulled
    towards other classes.

    Parameters
    ----------
    proba : (n, m) array
        The teacher's predictions.
    shares : (K,) array
        The share of each class among the labels.
    cost : (m, K) array
    epsilon : float
    """
    source, target = proba.mean(axis=0, keepdims=True), shares[None]
    solved = solve(
        source / source.sum(),
        target / target.sum(),
        np.ascontiguousarray(cost),
        epsilon,
        SHARE_TOL,
        SHARE_MAX_ITER,
    )
    if not solved.residual[0] <= SHARE_TOL:
        warn(
            ConvergenceWarning(
                f"Matching the class shares stopped after {int(solved.n_iter[0])} iterations with an error "
                f"of {solved.residual[0]:.1e} (above {SHARE_TOL:g}). Raise epsilon, or set {{remedy}}.",
                remedy=("match_shares", False),
            )
        )
    return np.asarray(solved.beta[0])
