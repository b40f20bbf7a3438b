"""sd: the naive extension of standard distillation (Sec. 3.1)."""

from __future__ import annotations

import numpy as np

from consilience.kernels.packed import Floats, Layout, block_softmax, sum_by_class


def sd(logits: Floats, layout: Layout, temperature: float) -> Floats:
    """Return the mean of the zero-padded p_i over the teachers that do not abstain.

    Parameters
    ----------
    logits : (n, m) array
    layout : Layout
    temperature : float

    Returns
    -------
    (n, L) array; uniform where every teacher abstains.
    """
    total: Floats = sum_by_class(block_softmax(logits, layout.offsets, temperature)[1], layout)
    mass = total.sum(axis=1, keepdims=True)
    return np.where(mass > 0, total / np.where(mass > 0, mass, 1.0), 1.0 / total.shape[1])
