"""Choose how far to over-relax an iteration, from the speed at which its error falls."""

from __future__ import annotations

import numpy as np

from consilience.kernels.compiled import part

FIRST_STEP = 0.2  # omega - 1 before any error has been measured
LARGEST_STEP = 0.95
GAP = 5  # iterations from the first measurement of the error to the second
_STALLED = 0.999  # a rate above this counts as no progress


@part()
def next_step(step: float, largest: float, ratio: float, gap: int) -> tuple[float, float]:
    """Return omega - 1 and its bound for the next iterations.

    If the error of a plain iteration falls by a factor eta, over-relaxation is fastest at
    omega = 2 / (1 + sqrt(1 - eta)). At a smaller omega, the rate lam satisfies
    (lam + omega - 1)^2 = omega^2 eta lam (Young's theory of successive over-relaxation), which we solve for
    eta. At a larger omega, the rate is omega - 1 and carries no information. If the error did not fall, the
    step is halved and bounded. The bound rises again while the error falls.

    Parameters
    ----------
    step, largest : float
        The present omega - 1, and its bound.
    ratio : float
        The error divided by the error `gap` iterations ago.
    gap : int
    """
    lam = ratio ** (1.0 / gap)
    if not lam < _STALLED:
        return 0.5 * step, max(step, 0.1)
    largest = min(LARGEST_STEP, 0.5 + 0.5 * largest)
    if lam > step:
        eta = min((lam + step) ** 2 / ((1.0 + step) ** 2 * lam), 1.0)
        step = max(step, 2.0 / (1.0 + np.sqrt(1.0 - eta)) - 1.0)
    return min(step, largest), largest
