"""The objective, its lower bound and the projection against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.kernels.collision.first_order import lower_bound, project_row, total_loss
from consilience.kernels.compiled import kernel

rng = np.random.default_rng(0)
SIGMA = rng.dirichlet(np.ones(4), size=6)
LABELS = rng.dirichlet(np.ones(4), size=6)
WEIGHT = np.array([3.0, 0.0, 1.0, 6.0])
OFFSET = np.array([2.0, 1.0, 0.0, 0.0])


def test_the_loss_is_eq_11_times_the_number_of_rows() -> None:
    n_rows = 9
    lam, u = WEIGHT.sum() / n_rows, WEIGHT / WEIGHT.sum()
    ybar = (LABELS.sum(axis=0) + OFFSET) / n_rows
    used = u > 0
    divergence = (u[used] * np.log(u[used] / ybar[used])).sum()
    collisions = -np.log((SIGMA * LABELS).sum(axis=1)).sum()
    expected = collisions + n_rows * lam * divergence
    assert total_loss(SIGMA, LABELS, WEIGHT, OFFSET) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_is_below_the_loss_whatever_the_multipliers(seed: int) -> None:
    draw = np.random.default_rng(seed)
    pi, nu = draw.lognormal(size=6), draw.lognormal(size=4) * (WEIGHT > 0)
    labels = draw.dirichlet(np.full(4, 0.3), size=6)
    assert lower_bound(SIGMA, pi, nu, WEIGHT, OFFSET) <= total_loss(SIGMA, labels, WEIGHT, OFFSET)


def test_the_bound_is_lagrange_s_dual_at_its_best_scale() -> None:
    pi, nu = rng.lognormal(size=6), rng.lognormal(size=4) * (WEIGHT > 0)
    used, u = WEIGHT > 0, WEIGHT / WEIGHT.sum()

    def dual(t: float) -> float:
        gamma = (SIGMA * t * pi[:, None] + t * nu).max(axis=1)
        fair = (WEIGHT[used] * (1 + np.log(t * nu[used] / WEIGHT[used]) + np.log(u[used] * 9))).sum()
        return float((1 + np.log(t * pi)).sum() + fair - gamma.sum() - t * nu @ OFFSET)

    best = max(dual(t) for t in np.geomspace(1e-3, 1e3, 20_001))
    assert lower_bound(SIGMA, pi, nu, WEIGHT, OFFSET) == pytest.approx(best, abs=1e-5)


def test_the_bound_does_not_depend_on_the_scale_of_the_multipliers() -> None:
    pi, nu = rng.lognormal(size=6), rng.lognormal(size=4) * (WEIGHT > 0)
    bounds = [lower_bound(SIGMA, t * pi, t * nu, WEIGHT, OFFSET) for t in (1.0, 37.0)]
    assert bounds[0] == pytest.approx(bounds[1])


@pytest.mark.parametrize("seed", range(20))
def test_the_projection_is_the_sorted_one(seed: int) -> None:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=draw.integers(1, 12)) * 10.0 ** draw.integers(-3, 4)
    falling = np.sort(x)[::-1]
    thresholds = (np.cumsum(falling) - 1) / np.arange(1, len(x) + 1)
    last = np.flatnonzero(falling > thresholds)[-1]
    y = np.empty(len(x))
    kernel()(project_row)(x, y)
    np.testing.assert_allclose(y, np.maximum(x - thresholds[last], 0), atol=1e-12 * max(1, abs(x).max()))
