"""How well labels follow from classes or features of a teacher: NCE, LEEP, LogME.

How well a teacher's classes predict the labels: NCE and LEEP, row by row.

Both estimate P(y | z) from counts; z is a class of the teacher, y is a label. They return one number per
row; the score is the mean over the rows. As published, a row is among those that were counted. A teacher that
gives every row its own class then predicts all labels, whatever they are. The held-out forms (ours) count
other rows.

LogME, and other metrics from an eigendecomposition of the features' Gram matrix.

Legend: F (n, d) the features, F^T F = V diag(s) V^T with its r nonzero eigenvalues, m the mean of the rows,
Y (n, K) the one-hot labels. Y enters only through the sum of the rows of each class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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
