"""How far apart the classes are in a teacher's features: H-score, GBC, TransRate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.rank.evidence import Spectrum, coding_rate, solve_covariance
from consilience.kernels.rank.label_evidence import Codes


def h_score_rows(
    F: NDArray[np.floating], codes: Codes, spectrum: Spectrum, sums: Floats, counts: Floats
) -> tuple[float, Floats]:
    r"""Return the H-score, and each row's contribution (n,); the mean of the contributions is the score.

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
    return value, rows + (value - rows.mean())


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
    Z = F.astype(np.float64) - spectrum.mean
    within = 0.0
    for c in range(n_classes):
        rows = Z[codes == c]
        if len(rows):
            # the smaller of the two Gram matrices has the same determinant
            gram = rows @ rows.T if len(rows) < rows.shape[1] else rows.T @ rows
            inner = np.eye(len(gram)) + gram / (len(rows) * epsilon)
            within += 0.5 * len(rows) / len(Z) * float(np.linalg.slogdet(inner)[1])
    return coding_rate(spectrum, epsilon) - within
