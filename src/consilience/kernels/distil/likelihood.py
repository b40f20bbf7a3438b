"""How probable labels are under a product of two predictions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from consilience.kernels.arrays import Floats


def log_likelihood(log_product: Floats, codes: NDArray[np.intp]) -> float:
    """Return the log-likelihood of labels (n,) under unnormalised log-probabilities (n, K)."""
    return float((log_product[np.arange(len(codes)), codes] - logsumexp(log_product, axis=1)).sum())


def best_power(log_p: Floats, log_q: Floats, codes: NDArray[np.intp], price: float) -> float:
    """Return the a in [0, 1] for which p q^a, renormalised, predicts the labels best, less `price` times a.

    Parameters
    ----------
    log_p, log_q : (n, K) arrays
        Logarithms of two predictions.
    codes : (n,) array of int
        The labels.
    price : float
        In nats.

    Examples
    --------
    >>> right = np.log([[0.9, 0.1], [0.1, 0.9]])
    >>> best_power(np.zeros((2, 2)), right, np.array([0, 1]), 0.0)
    1.0
    >>> best_power(np.zeros((2, 2)), right, np.array([1, 0]), 0.0)
    0.0
    """

    def worth(a: float) -> float:
        return log_likelihood(log_p + a * log_q, codes) - price * a

    # concave in a: the search finds an optimum inside, but only comes near one at an end
    inside = float(minimize_scalar(lambda a: -worth(a), bounds=(0.0, 1.0), method="bounded").x)
    return max((0.0, inside, 1.0), key=worth)
