"""How well a teacher's classes predict the labels: NCE and LEEP, row by row.

Both estimate P(y | z) from counts; z is a class of the teacher, y is a label. They return one number per
row; the score is the mean over the rows. As published, a row is among those that were counted. A teacher that
gives every row its own class then predicts all labels, whatever they are. The held-out forms (ours) count
other rows.
"""

from __future__ import annotations

from collections.abc import Iterator

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


def leep_rows(theta: Floats, codes: Codes, n_classes: int, folds: Codes | None = None) -> Floats:
    r"""Return the log-likelihood of each row (n,) under the expected empirical predictor.

    .. math:: \hat P(y, z) = \frac{1}{n} \sum_{i: y_i = y} \theta(x_i)_z, \qquad
              \ell_i = \ln \sum_z \hat P(y_i | z) \, \theta(x_i)_z

    Nguyen et al., "LEEP" (2020), eq. (1) and (2). If theta is sure of one class in each row, this is NCE:
    Tran et al., "Transferability and hardness of supervised classification tasks" (2019), Sec. 3.

    Parameters
    ----------
    theta : (n, m) array
        The teacher's probabilities.
    folds : (n,) array of int, optional
        The fold of each row, from 0. P for a row then comes from the other folds (ours), by
        `conditional_shares`. Rows of fold -1 are never held out and count as guesses.
    """
    theta = np.ascontiguousarray(theta, dtype=np.float64)
    rows = np.full(len(theta), -np.log(n_classes))
    for own, others in _splits(folds, len(theta)):
        joint, likelihood = np.zeros((n_classes, theta.shape[1])), np.empty(len(own))
        _add_rows(theta[others], codes[others], joint)
        _dot_rows(theta[own], codes[own], conditional_shares(joint, codes[others], folds), likelihood)
        rows[own] = np.log(likelihood)
    return rows


def conditional_shares(joint: Floats, codes: Codes, folds: Codes | None) -> Floats:
    r"""Return P(y | z) (K, m) from sums N(y, z) (K, m) over rows with these labels.

    With folds, one row with the shares pi of the labels is added to each z:

    .. math:: \hat P(y | z) = \frac{N(y, z) + \pi(y)}{N(z) + 1}

    A class of the teacher that no other row has seen then tells nothing. Without it, P would not be defined
    there.
    """
    total = joint.sum(axis=0)
    if folds is None:
        return np.asarray(joint / np.where(total > 0, total, 1.0))
    shares = np.bincount(codes, minlength=len(joint)) / len(codes)
    return np.asarray((joint + shares[:, None]) / (total + 1.0))


def _splits(folds: Codes | None, n: int) -> Iterator[tuple[Codes, Codes]]:
    """Yield the rows that are judged, and those that tell about them: without folds, all."""
    if folds is None:
        yield np.arange(n), np.arange(n)
        return
    for fold in range(int(folds.max()) + 1):
        yield np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)


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


def entropy_rows(plan: Floats, codes: Codes, n_classes: int, folds: Codes | None) -> Floats:
    r"""Return :math:`\sum_z T(z, i) \ln \hat P(y_i | z)` of each row (n,); the mean is -H(Y | Z).

    P(y, z) sums T over the rows with label y; with folds, over those of the other folds.

    Parameters
    ----------
    plan : (m, n) array
        T, a transport plan from classes z to rows. Each row has a mass of 1.
    """
    T, rows = plan.T, np.full(len(codes), -np.log(n_classes))
    for own, others in _splits(folds, len(codes)):
        shares = conditional_shares(class_sums(T[others], codes[others], n_classes), codes[others], folds)
        logs = np.log(np.where(shares > 0, shares, 1.0))
        rows[own] = np.einsum("iz,iz->i", T[own], logs[codes[own]])
    return rows
