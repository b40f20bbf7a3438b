"""Class weights that balance soft labels (Sec. 3.5.2)."""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats


def inverse_mean(Q: Floats) -> Floats:
    """Return 1 / mean of q(l) over the rows of Q (n, L), or 0 for a class without mass to speak of."""
    return inverse(Q.mean(axis=0) if len(Q) else np.zeros(Q.shape[1]))


def inverse(mean: Floats) -> Floats:
    """Return 1 / mean (L,), or 0 for a class without mass to speak of."""
    return np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > 1e-300)
