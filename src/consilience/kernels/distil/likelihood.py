"""How well predictions fit labels, whatever their temperature."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from consilience.kernels.arrays import Floats

# The most that predictions are sharpened.
MAX_POWER = 10.0


def calibrated_losses(log_proba: Floats, codes: NDArray[np.intp]) -> Floats:
    """Return the log-loss (n,) of labels under p^a, renormalised, for the a that gives the least mean.

    So predictions that are too sure or not sure enough lose nothing by that, and two predictions are compared
    by what they know.

    Parameters
    ----------
    log_proba : (n, K) array
        Log-probabilities; they need not be normalised.
    codes : (n,) array of int
        The labels.

    Examples
    --------
    >>> unsure = np.log([[0.6, 0.4], [0.4, 0.6]])
    >>> calibrated_losses(unsure, np.array([0, 1])).round(2).tolist()
    [0.02, 0.02]
    >>> calibrated_losses(unsure, np.array([1, 0])).round(2).tolist()
    [0.69, 0.69]
    """
    rows = np.arange(len(codes))

    def losses(a: float) -> Floats:
        return np.asarray(-log_softmax(a * log_proba, axis=1)[rows, codes])

    # convex in a: the search finds an optimum inside, but only comes near one at an end
    inside = minimize_scalar(lambda a: losses(a).mean(), bounds=(0.0, MAX_POWER), method="bounded").x
    return min((losses(a) for a in (0.0, float(inside), MAX_POWER)), key=lambda loss: float(loss.mean()))
