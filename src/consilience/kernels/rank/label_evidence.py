"""How well a teacher's classes predict the labels: NCE and LEEP, row by row.

Both estimate P(y | z) from counts; z is a class of the teacher, y is a label. They return one number per
row; the score is the mean over the rows.
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
