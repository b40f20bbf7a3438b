"""How far to over-relax an iteration, from how fast its error falls."""

from __future__ import annotations

import numpy as np

from consilience.kernels.compiled import part

FIRST_STEP = 0.2  # omega - 1 before anything is known
LARGEST_STEP = 0.95
GAP = 5  # iterations from the first look at an error to the second
_STALLED = 0.999  # an error that falls no faster than this does not fall


@part()
def next_step(step: float, largest: float, ratio: float, gap: int) -> tuple[float, float]:
    """Return omega - 1 and its bound for the iterations to come.

    For a plain iteration whose error falls by a factor eta, over-relaxation has its best rate at
    omega = 2 / (1 + sqrt(1 - eta)); at a smaller omega the rate lam obeys
    (lam + omega - 1)^2 = omega^2 eta lam (Young's theory of successive over-relaxation), which gives eta. At
    a larger omega the rate is omega - 1 and tells nothing. Where the error did not fall the step is halved
    and bounded; the bound rises again as long as the error falls.

    Parameters
    ----------
    step, largest : float
        omega - 1 so far, and its bound.
    ratio : float
        The error over what it was `gap` iterations ago.
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
