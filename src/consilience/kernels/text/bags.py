"""Add up the embeddings of each text's n-grams."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from consilience.kernels.text.ngrams import Bounds, Ids

Array = NDArray[np.float32]


def bag_inputs(E: Array, ids: Ids, bounds: Bounds) -> Array:
    r"""Return for each of B bags the sum of its rows of E (n_buckets, d), over the root of their number.

    .. math:: h_i = |g_i|^{-1/2} \sum_{k \in g_i} E_k

    With the mean instead, a long text would carry no more evidence than one word. An empty bag gives 0.
    """
    # scipy runs this loop in C; compiling one at run time would delay the first answer of a saved model
    ones = np.ones(len(ids), dtype=E.dtype)
    bags = csr_array((ones, ids, bounds), shape=(len(bounds) - 1, len(E)))
    return np.asarray(bags @ E) * bag_scales(bounds)[:, None]


def bag_scales(bounds: Bounds) -> Array:
    """Return the factor (B,) of the sum of each bag."""
    return (1 / np.sqrt(np.maximum(np.diff(bounds), 1))).astype(np.float32)
