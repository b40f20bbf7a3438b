"""sd: the naive extension of standard distillation (Sec. 3.1)."""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel
from consilience.kernels.elementary import FUSE
from consilience.kernels.unify.packed import LANES, Layout, add_probabilities, in_turns, load_lanes


def sd(logits: Floats, layout: Layout, temperature: float) -> Floats:
    """Return the mean of the zero-padded p_i over the teachers that do not abstain.

    Parameters
    ----------
    logits : (n, m) array
    layout : Layout
    temperature : float

    Returns
    -------
    (n, L) array; uniform in rows where every teacher abstains.
    """
    Q = np.empty((len(logits), len(layout.class_offsets) - 1))
    in_turns(lambda rows: _sd_rows(logits[rows], layout, temperature, Q[rows]), len(logits))
    return Q


@kernel(fastmath=FUSE)
def _sd_rows(logits, layout, temperature, Q):  # type: ignore[no-untyped-def]
    """Fill Q (n, L)."""
    lanes = min(LANES, len(Q))
    x, active = np.empty((logits.shape[1], lanes)), np.empty((len(layout.offsets) - 1, lanes))
    a = np.empty((Q.shape[1], lanes))
    for first in range(0, len(Q), lanes):
        load_lanes(logits, first, layout.offsets, x, active)
        add_probabilities(x, active, layout, temperature, a)
        for lane in range(min(lanes, len(Q) - first)):
            count = active[:, lane].sum()
            for c in range(len(a)):
                Q[first + lane, c] = a[c, lane] / count if count > 0.0 else 1.0 / len(a)
