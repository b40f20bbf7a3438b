"""The reader of priors, for pseudo-labels and for clustering."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from consilience._validation import as_numbers
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats

_LARGEST = 1e100  # larger shares may have no finite sum


def read_prior(prior: ArrayLike | None, size: int, each: str = "class", *, positive: bool = False) -> Floats:
    """Return the share of each class (size,), scaled to sum to one, or say what is wrong with it.

    Parameters
    ----------
    prior : (size,) array or None
        Shares on any scale, such as counts; None for equal shares.
    size : int
        Number of classes.
    each : str
        What to call a class in an error.
    positive : bool
        Whether a share of zero is an error.

    Examples
    --------
    >>> read_prior([3, 1], 2).tolist(), read_prior(None, 2).tolist()
    ([0.75, 0.25], [0.5, 0.5])
    """
    if prior is None:
        return np.full(size, 1.0 / size)
    expected = f"expected numbers ({size},), a share for each {each}"
    shares = np.asarray(as_numbers("prior", prior, expected), dtype=np.float64)
    if shares.shape != (size,):
        raise InvalidInputError(f"prior has shape {shares.shape}; {expected}.")
    largest = shares.max()
    # the negation catches NaN too
    if not ((shares >= 0).all() and 0 < largest <= _LARGEST and (not positive or shares.min() > 0)):
        wanted = (
            f"a positive share for each {each}" if positive else f"a share from 0 for each {each}, not all 0"
        )
        raise InvalidInputError(f"prior is {np.asarray(prior).tolist()}; expected {wanted}.")
    shares = shares / largest  # first, so that tiny shares have a sum to divide by
    return np.asarray(shares / shares.sum())
