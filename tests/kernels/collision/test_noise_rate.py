"""The estimate of the noise rate: against a general optimiser, and on data drawn from the model itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import differential_evolution
from scipy.special import softmax

from consilience.kernels.collision.noise_rate import estimate_noise


def drawn(rate: float, sharpness: float, n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return logits, and one-hot labels drawn from softmax(sharpness * logits) mixed with noise."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, n_classes))
    mixed = (1.0 - rate) * softmax(sharpness * logits, axis=1) + rate / n_classes
    labels = (mixed.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1)
    return logits, np.eye(n_classes)[np.minimum(labels, n_classes - 1)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("rate", "sharpness"), [(0.0, 1.0), (0.3, 0.5), (0.6, 1.0), (0.8, 3.0)])
def test_it_finds_the_rate_whatever_the_confidence(rate: float, sharpness: float, seed: int) -> None:
    estimate = estimate_noise(*drawn(rate, sharpness, 8000, 6, seed))
    assert estimate.rate == pytest.approx(rate, abs=0.06)
    assert estimate.sharpness == pytest.approx(sharpness, rel=0.35)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_it_is_the_maximum_of_the_likelihood(n_classes: int) -> None:
    logits, observed = drawn(0.4, 1.0, 300, n_classes, seed=4)

    def loss(at: np.ndarray) -> float:
        rate, log_sharpness = at
        p = (softmax(np.exp(log_sharpness) * logits, axis=1) * observed).sum(axis=1)
        return float(-(np.log((1 - rate) * p + rate / n_classes).sum() + np.log(1 - rate)) / len(p))

    best = differential_evolution(loss, [(0.0, 0.999), np.log([0.18, 4.0])], seed=0, tol=1e-8)
    estimate = estimate_noise(logits, observed)
    assert estimate.loss == pytest.approx(
        loss(np.array([estimate.rate, np.log(estimate.sharpness)])), abs=1e-12
    )
    assert best.fun - 1e-9 <= estimate.loss <= best.fun + 2e-3  # the sharpness is one of a grid


def test_predictions_that_are_always_wrong_leave_a_rate_below_one() -> None:
    logits = np.tile([50.0, 0.0, 0.0], (100, 1))
    estimate = estimate_noise(logits, np.tile([0.0, 0.5, 0.5], (100, 1)))
    assert estimate.rate == pytest.approx(100 / 101, abs=0.002)  # one row more, whose label is right
    assert np.isfinite(estimate.loss)


def test_predictions_that_are_always_right_leave_no_noise() -> None:
    assert estimate_noise(np.eye(3) * 1000, np.eye(3)).rate == 0.0


def test_soft_labels_count_by_the_chance_to_agree() -> None:
    logits, observed = drawn(0.5, 1.0, 500, 3, seed=1)
    doubled = np.concatenate([logits, logits]), np.concatenate([observed, observed])
    assert estimate_noise(*doubled).rate == pytest.approx(estimate_noise(logits, observed).rate, abs=0.01)
    uniform = np.full((500, 3), 1 / 3)
    assert estimate_noise(logits, uniform).loss == pytest.approx(np.log(3))
