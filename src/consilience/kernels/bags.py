"""Add up the embeddings of each text's n-grams."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from consilience.kernels.ngrams import Bounds, Ids

Array = NDArray[np.float32]

GAIN = np.float32(8.0)
"""Factor of the mean: Adam moves each embedding by about lr, and a mean of many moves by less."""


def bag_inputs(E: Array, ids: Ids, bounds: Bounds) -> Array:
    """Return 8 times the mean (B, d) of the rows of E (n_buckets, d) in each bag; 0 for an empty one."""
    # scipy has the loop in C; a compiler at run time would keep a saved model waiting
    ones = np.ones(len(ids), dtype=E.dtype)
    bags = csr_array((ones, ids, bounds.astype(np.int32)), shape=(len(bounds) - 1, len(E)))
    return np.asarray(bags @ E) * bag_scales(bounds)[:, None]


def bag_scales(bounds: Bounds) -> Array:
    """Return the factor (B,) of the sum of each bag."""
    return GAIN / np.maximum(np.diff(bounds), 1).astype(np.float32)
