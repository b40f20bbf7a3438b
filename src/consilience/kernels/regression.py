"""Regression weights: what a model said about some rows, carried over to others.

A linear smoother predicts from the inputs alone which mix of known rows each new row resembles. One matrix of
weights then serves all models: the stand-in for a model is the product of the weights and its answers.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from consilience.kernels.arrays import Floats

_SMALLEST = 1e-12  # of a distance that kernels are scaled by


def kernel_width(X: Floats) -> float:
    """Return the median of the squared distances between rows (n, d): the width of the kernels below."""
    distances = cdist(X, X, "sqeuclidean")
    pairs = distances[np.triu_indices(len(X), 1)]
    return max(float(np.median(pairs)), _SMALLEST) if len(pairs) else 1.0


def gaussian_kernel(A: Floats, B: Floats, width: float) -> Floats:
    r"""Return :math:`\exp(-\lVert a - b \rVert^2 / w)` for each row of A (m, d) and B (n, d): (m, n)."""
    return np.asarray(np.exp(-cdist(A, B, "sqeuclidean") / width))


def ridge_weights(known: Floats, new: Floats, width: float, ridge: float) -> Floats:
    r"""Return the weights (n, r) of kernel ridge regression.

    .. math:: W = K_{nr} (K_{rr} + \alpha r I)^{-1}

    Predictions for the new rows are ``W @ values``, with `values` (r, k) those of the known rows.

    Parameters
    ----------
    known : (r, d) array
    new : (n, d) array
    width : float
        Of the Gaussian kernel.
    ridge : float
        alpha, above 0: the penalty per known row.
    """
    K = gaussian_kernel(known, known, width)
    K[np.diag_indices_from(K)] += ridge * len(K)
    return np.asarray(cho_solve(cho_factor(K), gaussian_kernel(known, new, width)).T)


def neighbour_weights(known: Floats, new: Floats, k: int) -> Floats:
    """Return the weights (n, r) of the mean over the `k` nearest known rows."""
    nearest = np.argpartition(cdist(new, known, "sqeuclidean"), k - 1, axis=1)[:, :k]
    W = np.zeros((len(new), len(known)))
    np.put_along_axis(W, nearest, 1.0 / k, axis=1)
    return W


def mean_discrepancies(K: Floats, weights: Floats, towards: Floats) -> Floats:
    r"""Return the squared MMD (m,) between kernel means and another one, up to what they share.

    .. math:: \beta^T K \beta - 2 \beta^T t

    Parameters
    ----------
    K : (r, r) array
        The kernel between the rows that carry the means.
    weights : (m, r) array
        beta of each mean.
    towards : (r,) array
        t, the other kernel mean at the rows.
    """
    return np.asarray(np.einsum("mr,mr->m", weights @ K, weights) - 2.0 * weights @ towards)
