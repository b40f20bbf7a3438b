"""What metrics make of embeddings: one scale, principal components, clusters."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._validation import as_random_state
from consilience.exceptions import ConvergenceWarning, warn
from consilience.kernels.arrays import Floats


def unit_scale(F: NDArray[Any]) -> NDArray[Any]:
    """Return features (n, d) minus their mean, scaled to a mean squared length of one."""
    Z = F - F.mean(axis=0, dtype=np.float64).astype(F.dtype)
    length = float(np.sqrt(np.square(Z, dtype=np.float64).sum() / max(len(Z), 1)))
    return np.asarray(Z / Z.dtype.type(length)) if length > 0 else Z


def cluster_posterior(F: Floats, n_clusters: int, energy: float, random_state: int | None) -> Floats:
    """Return the posterior (n, n_clusters) of a Gaussian mixture in the first principal components."""
    from sklearn.exceptions import ConvergenceWarning as NotConverged
    from sklearn.mixture import GaussianMixture

    Z = principal_components(F, energy)
    Z = Z / (float(Z.std()) or 1.0)  # one number, so that the floor of variances means the same for all
    mixture = GaussianMixture(
        max(1, min(n_clusters, len(Z) // 5)),
        covariance_type="diag",
        reg_covar=1e-4,
        random_state=as_random_state(random_state),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)  # our own warning below has figures
        posterior: Floats = mixture.fit(Z).predict_proba(Z)
    if not mixture.converged_:
        warn(
            ConvergenceWarning(
                f"The Gaussian mixture stopped after {mixture.n_iter_} steps. Use fewer clusters."
            )
        )
    return posterior


def principal_components(F: Floats, energy: float) -> Floats:
    """Return the first principal components (n, c) that hold a share `energy` of the variance."""
    from sklearn.decomposition import PCA

    if not np.ptp(F, axis=0).any():
        return np.zeros((len(F), 1))
    if energy == 1.0:
        return np.asarray(PCA(svd_solver="full").fit_transform(F))
    # with more rows than columns, the eigenvectors of the covariance are faster than an SVD
    solver = "covariance_eigh" if F.shape[1] <= len(F) else "full"
    return np.asarray(PCA(energy, svd_solver=solver).fit_transform(F))
