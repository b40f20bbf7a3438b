r"""LogME, and other metrics from an eigendecomposition of the features' Gram matrix.

Legend: F (n, d) the features, F^T F = V diag(s) V^T with its r nonzero eigenvalues, m the mean of the rows,
Y (n, K) the one-hot labels. Y enters only through the sum of the rows of each class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.rank.label_evidence import Codes, class_sums


class Spectrum(NamedTuple):
    """The eigendecomposition of F^T F, or of the same product after subtracting the mean of the rows."""

    values: Floats  # s (r,), ascending, positive
    vectors: Floats  # V (d, r)
    mean: Floats  # m (d,)
    n: int
    centred: bool = False


class Evidence(NamedTuple):
    """The evidence of each class at its maximum, per row; see `maximum_evidence`."""

    values: Floats  # (K,)
    alpha: Floats  # (K,) precision of the weights
    beta: Floats  # (K,) precision of the noise
    projections: Floats  # V^T F^T Y (r, K)
    change: Floats  # (K,) change of the evidence per row in the last step


def feature_spectrum(F: NDArray[np.floating], centred: bool = False) -> Spectrum:
    """Decompose the smaller of F^T F and F F^T, in float64; `centred` first subtracts the mean row."""
    F = np.asarray(F, dtype=np.float64)
    n, d = F.shape
    mean = F.mean(axis=0)
    if centred:
        F = F - mean
    if d <= n:
        values, vectors = np.linalg.eigh(F.T @ F)
    else:
        values, left = np.linalg.eigh(F @ F.T)
    # rounding turns zero eigenvalues into about epsilon times the largest
    kept = values > max(n, d) * np.finfo(np.float64).eps * max(float(values[-1]), 0.0)
    values = values[kept]
    vectors = vectors[:, kept] if d <= n else (F.T @ left[:, kept]) / np.sqrt(values)
    return Spectrum(values, vectors, mean, n, centred)


def maximum_evidence(
    spectrum: Spectrum, sums: Floats, counts: Floats, tol: float = 1e-6, max_iter: int = 1000
) -> Evidence:
    r"""Maximise the evidence of a Bayesian linear regression on the one-hot column of each class.

    .. math:: \ln p(y | F, \alpha, \beta) = \frac n2 \ln \beta + \frac d2 \ln \alpha - \frac n2 \ln 2 \pi
              - \frac\beta2 \lVert F w - y \rVert^2 - \frac\alpha2 \lVert w \rVert^2 - \frac12 \ln \det A,
              \quad A = \alpha I + \beta F^T F, \quad w = \beta A^{-1} F^T y

    You et al., "LogME" (2021), eq. (2), by their fixed point (Algorithm 1), for all classes at once.

    Parameters
    ----------
    sums : (K, d) array
        The sum of the features of each class, Y^T F.
    counts : (K,) array
    tol : float
        Stop when alpha / beta changes by less than this share.
    """
    s, n = spectrum.values[:, None], spectrum.n
    projections = spectrum.vectors.T @ sums.T
    energy = projections**2 / s  # (U^T y)^2, U the left singular vectors
    # the evidence does not depend on the scale of F, so the bounds below must not either
    scale = float(s.mean()) if len(s) else 1.0
    s = s / scale
    outside = np.maximum(counts - energy.sum(axis=0), 0.0)  # the part of y that no weights can reach
    alpha, beta = np.ones(len(counts)), np.ones(len(counts))
    converged, before = np.zeros(len(counts), dtype=bool), (alpha, beta)
    tiny = np.finfo(np.float64).tiny
    for _ in range(max_iter):
        ratio, before = alpha / beta, (alpha, beta)
        shrunk = s + ratio
        gamma = (s / shrunk).sum(axis=0)
        weights = (energy * s / shrunk**2).sum(axis=0)
        error = outside + (energy * (ratio / shrunk) ** 2).sum(axis=0)
        alpha = np.where(converged, alpha, gamma / np.maximum(weights, tiny))
        beta = np.where(converged, beta, (n - gamma) / np.maximum(error, tiny))
        # a class that is fitted without error has no maximum: these bounds stop it
        alpha, beta = np.clip(alpha, 1e-12, 1e12), np.clip(beta, 1e-12, 1e12)
        converged |= np.abs(alpha / beta - ratio) <= tol * ratio
        if converged.all():
            break

    def value(alpha: Floats, beta: Floats) -> Floats:
        ratio = alpha / beta
        weights = (energy * s / (s + ratio) ** 2).sum(axis=0)
        error = outside + (energy * (ratio / (s + ratio)) ** 2).sum(axis=0)
        # the d - r directions without features add the same to d ln alpha and ln det A: both leave them out
        total = n * np.log(beta) + len(s) * np.log(alpha) - n * np.log(2.0 * np.pi)
        total -= beta * error + alpha * weights + np.log(alpha + beta * s).sum(axis=0)
        return np.asarray(0.5 * total / n)

    values = value(alpha, beta)
    return Evidence(values, alpha * scale, beta, projections, np.abs(values - value(*before)))


def evidence_rows(F: NDArray[np.floating], codes: Codes, spectrum: Spectrum, found: Evidence) -> Floats:
    r"""Return each row's contribution (n,) to the evidence; the mean of the contributions is LogME.

    The weight of a row enters the evidence through its error and through A. Alpha, beta and w are at a
    maximum, so only the direct part of the derivative by the weight remains (envelope theorem):

    .. math:: \frac12 \ln \frac{\beta}{2 \pi} - \frac\beta2 (f_i w - y_i)^2 - \frac\beta2 f_i A^{-1} f_i^T
    """
    inverse = 1.0 / (found.alpha + found.beta * spectrum.values[:, None])
    Z = F @ spectrum.vectors.astype(F.dtype)
    error = Z @ (found.beta * inverse * found.projections).astype(F.dtype)
    error[np.arange(len(codes)), codes] -= 1.0
    spread = np.square(Z, out=Z) @ inverse.astype(F.dtype)
    rows = 0.5 * (np.log(found.beta / (2.0 * np.pi)) - found.beta * (np.square(error) + spread))
    rows = rows.mean(axis=1, dtype=np.float64)
    return np.asarray(rows + (float(found.values.mean()) - rows.mean()))


def solve_covariance(spectrum: Spectrum, B: Floats) -> Floats:
    """Return the pseudo-inverse of the rows' covariance times B (d, k); the spectrum must be centred."""
    V = spectrum.vectors
    return np.asarray(V @ ((V.T @ B) * (spectrum.n / spectrum.values)[:, None]))


def coding_rate(spectrum: Spectrum, epsilon: float) -> float:
    r"""Return :math:`\frac12 \ln \det (I + \frac{1}{\epsilon} Cov(F))`; the spectrum must be centred.

    "TransRate" (2022), eq. (4).
    """
    return 0.5 * float(np.log1p(spectrum.values / (spectrum.n * epsilon)).sum())


def label_sums(F: NDArray[np.floating], codes: Codes, n_classes: int) -> tuple[Floats, Floats]:
    """Return the sums of the features of each class (K, d), and the number of its rows (K,)."""
    return class_sums(F, codes, n_classes), np.bincount(codes, minlength=n_classes).astype(np.float64)
