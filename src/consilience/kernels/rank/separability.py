"""How far apart the classes are in a teacher's features: H-score, GBC, TransRate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.rank.evidence import Codes, Spectrum, coding_rate, label_sums, solve_covariance

SHRINKAGES = (0.01, 0.1, 0.5, 0.9)  # of the cross-fitted H-score


def h_score_rows(
    F: NDArray[np.floating], codes: Codes, spectrum: Spectrum, sums: Floats, counts: Floats
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
    solved = solve_covariance(spectrum, G.T)  # (d, K)
    own = np.einsum("kd,dk->k", G, solved)
    value = float(share @ own)
    along = (F - spectrum.mean.astype(F.dtype)) @ solved.astype(F.dtype)
    rows = 2.0 * along[np.arange(len(codes)), codes] - own[codes] - (along.astype(np.float64) ** 2) @ share
    return np.asarray(rows + (value - rows.mean()))


def held_out_h_score(
    F: NDArray[np.floating], codes: Codes, n_classes: int, spectrum: Spectrum, folds: Codes
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
        sums, counts = label_sums(F[others], codes[others], n_classes)
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
    F: NDArray[np.floating], codes: Codes, n_classes: int, spectrum: Spectrum, epsilon: float
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
    return coding_rate(spectrum, epsilon) - within


def transrate_above_chance(
    F: NDArray[np.floating],
    codes: Codes,
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


def _rate_given_labels(Z: Floats, codes: Codes, n_classes: int, epsilon: float) -> float:
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
