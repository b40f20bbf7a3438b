"""Labels of single rows at given prices."""

import numpy as np
import pytest

from consilience import collision_pseudo_labels
from consilience.kernels.collision.fair_labels import fair_prices, labels_at_prices


@pytest.mark.parametrize("seed", range(40))
def test_labels_are_optimal(seed: int) -> None:
    random = np.random.default_rng(seed)
    K = int(random.integers(2, 9))
    sigma = random.dirichlet(np.full(K, random.choice([0.1, 1.0, 5.0])), size=30)
    prices = -random.uniform(0, 3, size=K) * random.choice([0.1, 1.0, 5.0])
    labels = labels_at_prices(sigma, prices)
    np.testing.assert_allclose(labels.sum(axis=1), 1.0)
    assert (labels >= 0).all()
    # no direction within the simplex lowers -log(sigma . y) + nu . y
    gradient = prices - sigma / (sigma * labels).sum(axis=1, keepdims=True)
    np.testing.assert_allclose((gradient * labels).sum(axis=1), gradient.min(axis=1), atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_they_are_the_fair_labels_of_the_rows_that_gave_the_prices(seed: int) -> None:
    random = np.random.default_rng(seed)
    sigma, prior = random.dirichlet(np.full(6, 0.5), size=500), random.dirichlet(np.full(6, 5.0))
    fair = collision_pseudo_labels(sigma, 10.0, prior=prior, tol=1e-10).labels
    found = labels_at_prices(sigma, fair_prices(fair, prior, 10.0))
    np.testing.assert_allclose(found.mean(axis=0), fair.mean(axis=0), atol=1e-3)
    assert (np.abs(found - fair).max(axis=1) < 1e-2).mean() > 0.98


def test_one_hot_equal_and_empty_rows() -> None:
    sigma = np.array([[0.0, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.0, 0.0, 0.0]])
    labels = labels_at_prices(sigma, np.array([-1.0, -1.1, -3.0]))
    np.testing.assert_allclose(labels[0].sum(), 1.0)
    assert labels[1].argmax() == 2
    assert labels[2].tolist() == [0.0, 0.0, 1.0]
