"""How well a teacher's classes predict the labels: NCE and LEEP, row by row.

Both estimate P(y | z) from counts; z is a class of the teacher, y is a label. They return one number per
row; the score is the mean over the rows. As published, a row is among those that were counted. A teacher that
gives every row its own class then predicts all labels, whatever they are. The held-out forms (ours) count
other rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel

Codes = NDArray[np.intp]


def class_sums(values: NDArray[np.floating], codes: Codes, n_classes: int) -> Floats:
    """Return the sum of the rows of `values` (n, m) in each class: (n_classes, m), float64."""
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=n_classes)
    some = counts > 0
    starts = (np.cumsum(counts) - counts)[some]
    sums = np.zeros((n_classes, values.shape[1]))
    if len(values):
        sums[some] = np.add.reduceat(values[order], starts, axis=0, dtype=np.float64)
    return sums


def leep_rows(theta: Floats, codes: Codes, n_classes: int) -> Floats:
    r"""Return the log-likelihood of each row (n,) under the expected empirical predictor.

    .. math:: \hat P(y, z) = \frac{1}{n} \sum_{i: y_i = y} \theta(x_i)_z, \qquad
              \ell_i = \ln \sum_z \hat P(y_i | z) \, \theta(x_i)_z

    Nguyen et al., "LEEP" (2020), eq. (1) and (2).

    Parameters
    ----------
    theta : (n, m) array
        The teacher's probabilities.
    """
    theta = np.ascontiguousarray(theta, dtype=np.float64)
    joint = np.zeros((n_classes, theta.shape[1]))
    _add_rows(theta, codes, joint)
    total = joint.sum(axis=0)
    likelihood = np.empty(len(theta))
    _dot_rows(theta, codes, joint / np.where(total > 0, total, 1.0), likelihood)
    return np.asarray(np.log(likelihood))


def held_out_leep_rows(theta: Floats, codes: Codes, n_classes: int, folds: Codes) -> Floats:
    r"""Return the log-likelihood of each row (n,) under the expected empirical predictor of the other folds.

    .. math:: \hat P_{-f}(y | z) = \frac{N_{-f}(y, z) + \pi_{-f}(y)}{N_{-f}(z) + 1}, \qquad
              \ell_i = \ln \sum_z \hat P_{-f(i)}(y_i | z) \, \theta(x_i)_z

    N sums theta over the rows of the other folds, and pi are their shares of labels. One row with these
    shares is added to each z: a class of the teacher that no other row has seen then tells nothing. Without
    it, P would not be defined there.

    Parameters
    ----------
    theta : (n, m) array
        The teacher's probabilities.
    folds : (n,) array of int
        The fold of each row, from 0. Rows of fold -1 are never held out and count as guesses.
    """
    theta = np.ascontiguousarray(theta, dtype=np.float64)
    rows = np.full(len(theta), -np.log(n_classes))
    for fold in range(int(folds.max()) + 1):
        own, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        joint = np.zeros((n_classes, theta.shape[1]))
        _add_rows(theta[others], codes[others], joint)
        likelihood = np.empty(len(own))
        _dot_rows(theta[own], codes[own], conditional_shares(joint, codes[others]), likelihood)
        rows[own] = np.log(likelihood)
    return rows


def conditional_shares(joint: Floats, codes: Codes) -> Floats:
    """Return P(y | z) (K, m) from sums (K, m) over rows with these labels, and one more row for each z."""
    shares = np.bincount(codes, minlength=len(joint)) / len(codes)
    return np.asarray((joint + shares[:, None]) / (joint.sum(axis=0) + 1.0))


@kernel()
def _add_rows(theta, codes, sums):  # type: ignore[no-untyped-def]
    for i in range(len(theta)):
        row, values = sums[codes[i]], theta[i]
        for z in range(len(values)):
            row[z] += values[z]


@kernel(fastmath=True)
def _dot_rows(theta, codes, table, out):  # type: ignore[no-untyped-def]
    for i in range(len(theta)):
        row, values = table[codes[i]], theta[i]
        total = 0.0
        for z in range(len(values)):
            total += row[z] * values[z]
        out[i] = total


def nce_rows(guesses: Codes, codes: Codes, n_classes: int, n_guesses: int) -> Floats:
    r"""Return ln P(y_i | z_i) of each row (n,), where z is the teacher's most probable class.

    .. math:: -H(Y | Z) = \frac{1}{n} \sum_i \ln \hat P(y_i | z_i)

    Tran et al., "Transferability and hardness of supervised classification tasks" (2019), Sec. 3.
    """
    joint = np.bincount(guesses * n_classes + codes, minlength=n_guesses * n_classes)
    totals = np.bincount(guesses, minlength=n_guesses)
    return np.asarray(np.log(joint[guesses * n_classes + codes] / totals[guesses]))


def held_out_nce_rows(guesses: Codes, codes: Codes, n_classes: int, n_guesses: int, folds: Codes) -> Floats:
    """Return ln P(y_i | z_i) of each row (n,), with P from the other folds: see `held_out_leep_rows`."""
    rows = np.full(len(codes), -np.log(n_classes))
    for fold in range(int(folds.max()) + 1):
        own, others = folds == fold, folds != fold
        pairs = codes[others] * n_guesses + guesses[others]
        counts = np.bincount(pairs, minlength=n_classes * n_guesses).astype(np.float64)
        shares = conditional_shares(counts.reshape(n_classes, n_guesses), codes[others])
        rows[own] = np.log(shares[codes[own], guesses[own]])
    return rows


def entropy_rows(plan: Floats, codes: Codes, n_classes: int, folds: Codes | None) -> Floats:
    r"""Return :math:`\sum_z T(z, i) \ln \hat P(y_i | z)` of each row (n,); the mean is -H(Y | Z).

    P(y, z) sums T over the rows with label y. With folds, P is that of the other folds, with one more row
    for each z: see `held_out_leep_rows`.

    Parameters
    ----------
    plan : (m, n) array
        T, a transport plan from classes z to rows. Each row has a mass of 1.
    """
    T = plan.T
    if folds is None:
        joint = class_sums(T, codes, n_classes)
        shares = joint / np.maximum(joint.sum(axis=0), np.finfo(np.float64).tiny)
        return np.asarray(np.einsum("iz,iz->i", T, np.log(np.where(shares > 0, shares, 1.0))[codes]))
    rows = np.full(len(codes), -np.log(n_classes))
    for fold in range(int(folds.max()) + 1):
        own, others = folds == fold, folds != fold
        shares = conditional_shares(class_sums(T[others], codes[others], n_classes), codes[others])
        rows[own] = np.einsum("iz,iz->i", T[own], np.log(shares)[codes[own]])
    return rows
