"""What stands in for a student or a teacher: a probe, regression weights; and how scores are resampled.

Equation numbers are those of "Selective Cross-Task Distillation" (SCTD).

A linear smoother predicts from the inputs alone which mix of known rows each new row resembles. One matrix of
weights then carries over what any model said about the known rows: it is multiplied by the model's answers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.linear_model import fit_softmax_regression, linear_logits

_SMALLEST = 1e-12  # of a distance that kernels are scaled by


class Probe(NamedTuple):
    """Logits (n, K) of the fictitious student, and the largest gradient entry at the end of its fits."""

    logits: NDArray[np.float32]
    gradient: float
    converged: bool


def probe_logits(
    F: NDArray[np.float32], codes: Ints, n_classes: int, weight_decay: float, folds: Ints | None
) -> Probe:
    """Fit the fictitious student f_F of Approximation II on features, and predict the same rows with it.

    Parameters
    ----------
    F : (n, d) array
    codes : (n,) array of int
    n_classes : int
    weight_decay : float
    folds : (n,) array of int, optional
        The fold of each row, from 0. Each fold gets its own model, which predicts that fold's rows. Rows of
        fold -1 belong to no fold and get NaN logits. By default, one model serves all rows.
    """
    folds = np.zeros(len(F), dtype=np.intp) if folds is None else folds
    logits, gradient, converged = np.full((len(F), n_classes), np.nan, dtype=np.float32), 0.0, True
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        fit = fit_softmax_regression(F[rows], codes[rows], n_classes, weight_decay=weight_decay)
        logits[rows] = linear_logits(F[rows], fit.W)
        gradient, converged = max(gradient, fit.gradient), converged and fit.converged
    return Probe(logits, gradient, converged)


def tempered_likelihood(p: Floats, log_q: Floats) -> Floats:
    r"""Return each row's contribution (n,) to the log-likelihood of p under q, at the best sharpness a.

    .. math:: \ell_i = \sum_k p_{ik} \ln \frac{q_{ik}^a}{\sum_l q_{il}^a}, \qquad
              a = \arg\max_{0 \le a \le 1} \sum_i \ell_i

    At a = 0, q is a uniform guess, so no q scores lower than a guess on average.

    Parameters
    ----------
    p, log_q : (n, K) arrays
        Distributions, and the logarithms of other distributions.
    """
    along = np.einsum("ik,ik->i", p, log_q)

    def slope(a: float) -> float:
        return float((along - np.einsum("ik,ik->i", softmax(a * log_q, axis=1), log_q)).sum())

    # the sum is concave in a, so its slope falls
    a = float(slope(1.0) >= 0.0)
    if a == 0.0 and slope(0.0) > 0.0:
        a = brentq(slope, 0.0, 1.0, xtol=1e-4)
    return np.asarray(a * along - logsumexp(a * log_q, axis=1))


def resampled_means(rows: Floats, n_resamples: int, seed: int) -> Floats:
    """Return the mean of each bootstrap resample of `rows` (n,), without NaN: (n_resamples,).

    The same seed draws the same rows, so teachers are compared on the same resamples.
    """
    rng = np.random.default_rng(seed)
    n, known = len(rows), ~np.isnan(rows)
    values, counts = np.where(known, rows, 0.0), known.astype(np.float64)
    whole = bool(known.all())
    means = np.empty(n_resamples)
    for b in range(n_resamples):
        drawn = rng.integers(n, size=n)
        total = n if whole else counts[drawn].sum()
        means[b] = values[drawn].sum() / total if total else np.nan
    return means


def spread_jackknife(value: float, left_out: Floats, groups: Ints) -> Floats:
    r"""Return numbers (n,) with mean `value` that resample like a statistic that is not a mean.

    Let theta_g be the statistic without group g of G. The pseudo-value of a group is
    G theta - (G - 1) theta_g. The variance of the pseudo-values, divided by G, is the variance of the
    statistic (delete-a-group jackknife). Rows share the value of their group, scaled by sqrt(n / G), so the
    mean of n rows has this variance.

    Parameters
    ----------
    left_out : (G,) array
        theta_g.
    groups : (n,) array of int
    """
    count = len(left_out)
    pseudo = count * value - (count - 1) * left_out
    rows = (pseudo - pseudo.mean())[groups] * np.sqrt(len(groups) / count)
    return np.asarray(value + rows - rows.mean())


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
