"""How well labels follow from classes or features of a teacher.

NCE and LEEP: how well a teacher's classes predict the labels, row by row.

Both estimate P(y | z) from counts; z is a class of the teacher, y is a label. They return one number per
row; the score is the mean over the rows. As published, a row is among those that were counted. A teacher that
gives every row its own class then predicts all labels, whatever they are. The held-out forms (ours) count
other rows.

LogME, H-score and TransRate come from an eigendecomposition of the features' Gram matrix; GBC does not.

Legend: F (n, d) the features, F^T F = V diag(s) V^T with its r nonzero eigenvalues, m the mean of the rows,
Y (n, K) the one-hot labels. Y enters only through the sum of the rows of each class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import kernel
from consilience.kernels.transport.centres import class_sums

SHRINKAGES = (0.01, 0.1, 0.5, 0.9)  # of the cross-fitted H-score


def leep_rows(theta: Floats, codes: Ints, n_classes: int, folds: Ints | None = None) -> Floats:
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
        joint = _sum_rows(theta[others], codes[others], n_classes)
        shares = conditional_shares(joint, codes[others], folds)
        rows[own] = np.log(_likelihoods(theta[own], codes[own], shares))
    return rows


def conditional_shares(joint: Floats, codes: Ints, folds: Ints | None) -> Floats:
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


def _splits(folds: Ints | None, n: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the rows that are judged, and those that tell about them: without folds, all."""
    if folds is None:
        yield np.arange(n), np.arange(n)
        return
    for fold in range(int(folds.max()) + 1):
        yield np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)


@kernel()
def _sum_rows(theta, codes, n_classes):  # type: ignore[no-untyped-def]
    sums = np.zeros((n_classes, theta.shape[1]))
    for i in range(len(theta)):
        row, values = sums[codes[i]], theta[i]
        for z in range(len(values)):
            row[z] += values[z]
    return sums


@kernel(fastmath=True)
def _likelihoods(theta, codes, shares):  # type: ignore[no-untyped-def]
    """Return the product of each row of theta and the row of its label in `shares`."""
    out = np.empty(len(theta))
    for i in range(len(theta)):
        row, values, total = shares[codes[i]], theta[i], 0.0
        for z in range(len(values)):
            total += row[z] * values[z]
        out[i] = total
    return out


def entropy_rows(plan: Floats, codes: Ints, n_classes: int, folds: Ints | None) -> Floats:
    r"""Return :math:`\sum_z T(z, i) \ln \hat P(y_i | z)` of each row (n,); the mean is -H(Y | Z).

    P(y, z) sums T over the rows with label y; with folds, over those of the other folds.

    Parameters
    ----------
    plan : (m, n) array
        T, a transport plan from classes z to rows. Each row has a mass of 1.
    """
    T, rows = plan.T, np.full(len(codes), -np.log(n_classes))
    for own, others in _splits(folds, len(codes)):
        joint, _ = class_sums(T[others], codes[others], n_classes)
        shares = conditional_shares(joint, codes[others], folds)
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


def evidence_rows(F: NDArray[np.floating], codes: Ints, spectrum: Spectrum, found: Evidence) -> Floats:
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


def h_score_rows(
    F: NDArray[np.floating], codes: Ints, spectrum: Spectrum, sums: Floats, counts: Floats
) -> Floats:
    r"""Return each row's contribution (n,) to the H-score; their mean is the score.

    .. math:: H = \mathrm{tr}(\mathrm{cov}(f)^{-1} \, \mathrm{cov}(E[f | y]))

    Bao et al., "An information-theoretic approach to transferability" (2019), Definition 2. Let u be the row
    and g the centre of its class, both minus the mean. The influence of a row is
    2 u C^-1 g - g C^-1 g - u C^-1 B C^-1 u, where C and B are the two covariances. The spectrum must be
    centred.
    """
    share = counts / counts.sum()
    G = sums / np.maximum(counts, 1.0)[:, None] - spectrum.mean  # (K, d)
    V = spectrum.vectors  # solved: the inverse of the rows' covariance times the centres (d, K)
    solved = V @ ((V.T @ G.T) * (spectrum.n / spectrum.values)[:, None])
    own = np.einsum("kd,dk->k", G, solved)
    value = float(share @ own)
    along = (F - spectrum.mean.astype(F.dtype)) @ solved.astype(F.dtype)
    rows = 2.0 * along[np.arange(len(codes)), codes] - own[codes] - (along.astype(np.float64) ** 2) @ share
    return np.asarray(rows + (value - rows.mean()))


def held_out_h_score(
    F: NDArray[np.floating], codes: Ints, n_classes: int, spectrum: Spectrum, folds: Ints
) -> Floats:
    r"""Return each row's contribution (n,) to the cross-fitted H-score (ours); their mean is the score.

    The H-score is the variance of the labels that a linear model explains: with p_k the share of class k,

    .. math:: H = \sum_k E[t_k^2] - E[(t_k - \hat t_k)^2] = \sum_k E[2 t_k \hat t_k - \hat t_k^2], \quad
              t_k = \frac{[y = k] - p_k}{\sqrt{p_k}}, \quad
              \hat t_k = \sqrt{p_k} (f - m)^T C^{-1} g_k

    Made of the rows that it predicts, the model explains any labels if it has enough features. Here p, m and
    the class centres g come from the other folds. C needs no labels, so it comes from all rows:
    (1 - a) cov(f) + a tr(cov(f)) / d I, because cov(f) has no inverse with more features than rows. The model
    may be scaled by s. Of four a, and of s from 0 to 1, those count that explain most. At s = 0 this is 0, so
    features without information score about 0. The limit for many rows is the H-score.

    Parameters
    ----------
    spectrum : Spectrum
        Of F, centred.
    folds : (n,) array of int
        The fold of each row, from 0. Rows of fold -1 are never held out and contribute 0.
    """
    V, variances = spectrum.vectors, spectrum.values / spectrum.n
    inverses = [1.0 / ((1.0 - a) * variances + a * variances.sum() / F.shape[1]) for a in SHRINKAGES]
    # sums over k: t_k times its fit, where p_k drops out because the p_k g_k add up to 0; and the squared fit
    along, square = np.zeros((2, len(inverses), len(codes)))
    for fold in range(int(folds.max()) + 1):
        own, others = folds == fold, folds != fold
        sums, counts = class_sums(F[others], codes[others], n_classes)
        mean = sums.sum(axis=0) / counts.sum()
        projections = V.T @ (sums / np.maximum(counts, 1.0)[:, None] - mean).T  # (r, K)
        rows, places = F[own] - mean.astype(F.dtype), np.arange(own.sum())
        for inverse, one, other in zip(inverses, along, square, strict=True):
            fitted = rows @ (V @ (inverse[:, None] * projections)).astype(F.dtype)
            one[own] = fitted[places, codes[own]]
            other[own] = np.square(fitted) @ (counts / counts.sum()).astype(F.dtype)
    total = square.sum(axis=1)
    scale = np.clip(along.sum(axis=1) / np.where(total > 0, total, 1.0), 0.0, 1.0)[:, None]
    gains = 2.0 * scale * along - scale**2 * square
    return np.asarray(gains[gains.mean(axis=1).argmax()])


def gaussian_overlap(means: Floats, variances: Floats) -> float:
    r"""Return minus the sum over pairs of classes of their Bhattacharyya coefficients.

    .. math:: D_B = \frac18 \sum_j \frac{(\mu_{cj} - \mu_{kj})^2}{\bar\sigma_j^2}
              + \frac12 \sum_j \ln \frac{\bar\sigma_j^2}{\sigma_{cj} \sigma_{kj}}, \qquad
              \mathrm{GBC} = - \sum_{c \ne k} e^{-D_B(c, k)}

    Pandy et al., "Transferability estimation using Bhattacharyya class separability" (2022), eq. (2) to (4).

    Parameters
    ----------
    means, variances : (K, d) arrays
        Of the features of each class. Equal variances in a row make the class spherical.
    """
    total = 0.0
    logs = np.log(variances).sum(axis=1)
    for c in range(len(means)):
        middle = 0.5 * (variances[c] + variances)
        distance = 0.125 * ((means[c] - means) ** 2 / middle).sum(axis=1)
        distance += 0.5 * (np.log(middle).sum(axis=1) - 0.5 * (logs[c] + logs))
        total += float(np.exp(-distance).sum() - np.exp(-distance[c]))
    return -total


def transrate_value(
    F: NDArray[np.floating], codes: Ints, n_classes: int, spectrum: Spectrum, epsilon: float
) -> float:
    r"""Return how much information the labels carry about the features.

    .. math:: R(Z, \epsilon) - R(Z, \epsilon | Y), \quad
              R(Z, \epsilon) = \tfrac12 \ln \det (I + \tfrac{1}{n \epsilon} Z^T Z), \quad
              R(Z, \epsilon | Y) = \sum_c \tfrac{n_c}{2n} \ln \det (I + \tfrac{1}{n_c \epsilon} Z_c^T Z_c)

    Z are the features minus their mean, scaled to a mean squared length of one. The spectrum must be centred.
    Huang et al., "Frustratingly easy transferability estimation" (2022), eq. (4) and (5).
    """
    square = float(spectrum.values.sum()) / spectrum.n
    epsilon *= square if square > 0 else 1.0  # equivalent to scaling Z
    within = _rate_given_labels(F.astype(np.float64) - spectrum.mean, codes, n_classes, epsilon)
    return 0.5 * float(np.log1p(spectrum.values / (spectrum.n * epsilon)).sum()) - within


def transrate_above_chance(
    F: NDArray[np.floating],
    codes: Ints,
    n_classes: int,
    epsilon: float,
    n_shuffles: int,
    rng: np.random.RandomState,
) -> float:
    r"""Return TransRate minus its mean for shuffled labels (ours).

    .. math:: \frac{1}{S} \sum_s R(Z, \epsilon | Y_s) - R(Z, \epsilon | Y)

    With few rows per class, any labels make the code of the rows shorter, the more so the wider the features.
    What shuffled labels Y_s gain is chance. Features without information have an expectation of exactly 0.
    R(Z) is in both terms and cancels.
    """
    Z = F.astype(np.float64)
    Z -= Z.mean(axis=0)
    square = float(np.vdot(Z, Z)) / len(Z)
    epsilon *= square if square > 0 else 1.0
    chance = [_rate_given_labels(Z, rng.permutation(codes), n_classes, epsilon) for _ in range(n_shuffles)]
    return float(np.mean(chance)) - _rate_given_labels(Z, codes, n_classes, epsilon)


def _rate_given_labels(Z: Floats, codes: Ints, n_classes: int, epsilon: float) -> float:
    """Return R(Z, epsilon | Y) of centred features."""
    within = 0.0
    for c in range(n_classes):
        rows = Z[codes == c]
        if len(rows):
            # the smaller of the two Gram matrices has the same determinant
            gram = rows @ rows.T if len(rows) < rows.shape[1] else rows.T @ rows
            inner = np.eye(len(gram)) + gram / (len(rows) * epsilon)
            within += 0.5 * len(rows) / len(Z) * float(np.linalg.slogdet(inner)[1])
    return within
