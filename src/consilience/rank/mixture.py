"""Principal components of features, and clusters in them, for `gbc` and `n_leep`."""

from __future__ import annotations

import warnings

import numpy as np

from consilience._validation import as_random_state, check_count, check_number
from consilience.exceptions import ConvergenceWarning, warn
from consilience.kernels.arrays import Floats


def cluster_posterior(F: Floats, n_clusters: int, energy: float, random_state: int | None) -> Floats:
    """Return the posterior (n, n_clusters) of a Gaussian mixture in the first principal components."""
    from sklearn.exceptions import ConvergenceWarning as NotConverged
    from sklearn.mixture import GaussianMixture

    check_number("energy", energy, above=0, at_most=1)
    check_count("n_clusters", n_clusters)
    Z = _unit_variance(principal_components(F, energy))
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


def _unit_variance(Z: Floats) -> Floats:
    """Scale all columns by one number. The floor of the variances then means the same for all features."""
    spread = float(Z.std())
    return Z / spread if spread > 0 else Z
