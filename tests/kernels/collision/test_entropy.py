"""Cross-entropies and the noise rate."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, differential_evolution
from scipy.special import log_softmax, logsumexp, softmax

from consilience.kernels.collision.entropy import (
    collision_from_logits,
    estimate_noise,
    gce_from_logits,
    lower_bound,
    responsibilities,
    shannon_from_logits,
    total_loss,
    weigh,
)

Loss = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
LOSSES: dict[str, Loss] = {
    "collision": collision_from_logits,
    "collision, q=0.5": lambda z, y: collision_from_logits(z, y, 0.5),
    "collision, q=1": lambda z, y: collision_from_logits(z, y, 1.0),
    "shannon": shannon_from_logits,
    "gce": gce_from_logits,
}


def rows(seed: int, n: int = 6, K: int = 4, scale: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    target = random.dirichlet(np.full(K, 0.5), n)
    target[0] = np.eye(K)[0]
    target[1, 0] = 0.0
    return scale * random.standard_normal((n, K)), target / target.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", LOSSES)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**16), scale=st.sampled_from([0.1, 2.0, 10.0]))
def test_gradients_agree_with_finite_differences(name: str, seed: int, scale: float) -> None:
    logits, target = rows(seed, n=3, scale=scale)
    gradient = LOSSES[name](logits, target)[1]

    def total(flat: np.ndarray) -> float:
        return float(LOSSES[name](flat.reshape(logits.shape), target)[0].sum())

    numeric = approx_fprime(logits.ravel(), total, 1e-6).reshape(logits.shape)
    np.testing.assert_allclose(gradient, numeric, atol=2e-5)
    np.testing.assert_allclose(gradient.sum(axis=1), 0.0, atol=1e-12)  # a shift of logits changes nothing


@pytest.mark.parametrize("q", [0.0, 0.5])
def test_far_logits_and_vanishing_targets_are_exact(q: float) -> None:
    """Where p underflows, log-sum-exp of log-softmax and log target is the reference."""
    random = np.random.default_rng(3)
    logits = random.standard_normal((200, 5)) * 10.0 ** random.integers(0, 5, (200, 1))
    target = np.where(random.random((200, 5)) < 0.4, 0.0, 10.0 ** -random.uniform(0, 320, (200, 5)))
    target[np.arange(200), random.integers(5, size=200)] += 1e-310
    with np.errstate(divide="ignore"):
        log_joint = log_softmax(logits, axis=1) + np.log(target)
    log_p = logsumexp(log_joint, axis=1)
    losses, gradient = collision_from_logits(logits, target, q)
    share = np.exp(log_joint - log_p[:, None])
    expected = np.exp(q * log_p)[:, None] * (softmax(logits, axis=1) - share)
    np.testing.assert_allclose(losses, -np.expm1(q * log_p) / q if q else -log_p, rtol=1e-11)
    np.testing.assert_allclose(gradient, expected, atol=1e-9)


def test_logits_at_the_end_of_the_numbers_give_no_nan() -> None:
    logits, target = np.array([[1e308, -1e308, 0.0]]), np.array([[0.0, 1.0, 0.0]])
    for loss in LOSSES.values():
        losses, gradient = loss(logits, target)
        assert not np.isnan(losses).any()
        assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(collision_from_logits(logits, target)[1], [[1.0, -1.0, 0.0]])


def test_a_target_without_mass_has_no_gradient() -> None:
    losses, gradient = collision_from_logits(np.ones((1, 3)), np.zeros((1, 3)))
    assert losses[0] == np.inf
    assert not gradient.any()
    assert collision_from_logits(np.ones((1, 3)), np.zeros((1, 3)), 0.5)[0][0] == 2.0


def test_small_powers_approach_the_logarithm() -> None:
    logits, target = rows(4)
    for general, limit in ((collision_from_logits, 0.0), (gce_from_logits, 0.0)):
        for part, exact in zip(general(logits, target, 1e-9), general(logits, target, limit), strict=True):
            np.testing.assert_allclose(part, exact, rtol=1e-6, atol=1e-8)


def test_one_class_and_no_rows() -> None:
    losses, gradient = collision_from_logits(np.array([[3.0]]), np.array([[1.0]]))
    assert losses[0] == gradient[0, 0] == 0.0
    assert collision_from_logits(np.empty((0, 3)), np.empty((0, 3)))[1].shape == (0, 3)


def test_responsibilities_majorise_the_collision() -> None:
    """The bound of Jensen's inequality lies above the loss everywhere and touches it where it was made."""
    logits, target = rows(6)
    sigma = softmax(logits, axis=1)
    r = responsibilities(sigma, target)
    np.testing.assert_allclose(r.sum(axis=1), 1.0)

    def bound(log_sigma: np.ndarray) -> np.ndarray:
        ratio = np.where(r > 0, np.log(np.where(r > 0, target, 1.0) / np.where(r > 0, r, 1.0)), 0.0)
        return -(r * (log_sigma + ratio)).sum(axis=1)

    np.testing.assert_allclose(bound(np.log(sigma)), collision_from_logits(logits, target)[0], rtol=1e-12)
    for seed in range(20):
        other = rows(100 + seed)[0]
        assert (bound(log_softmax(other, axis=1)) >= collision_from_logits(other, target)[0] - 1e-12).all()


def test_weighing_is_what_weights_do_in_shannons() -> None:
    logits, target = rows(7)
    weights = np.array([0.0, 0.5, 1.0, 3.0])
    labels, mass = weigh(target, weights)
    expected = -(weights * target * log_softmax(logits, axis=1)).sum(axis=1)
    np.testing.assert_allclose(mass * shannon_from_logits(logits, labels)[0], expected, atol=1e-12)
    assert mass[0] == 0.0  # a one-hot label of the class without weight
    np.testing.assert_array_equal(labels[0], target[0])


def drawn(rate: float, sharpness: float, n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return logits, and one-hot labels drawn from softmax(sharpness * logits) mixed with noise."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, n_classes))
    mixed = (1.0 - rate) * softmax(sharpness * logits, axis=1) + rate / n_classes
    labels = (mixed.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1)
    return logits, np.eye(n_classes)[np.minimum(labels, n_classes - 1)]


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


def test_the_bound_is_lagrange_s_dual_at_its_best_scale() -> None:
    pi, nu = rng.lognormal(size=6), rng.lognormal(size=4) * (WEIGHT > 0)
    used, u = WEIGHT > 0, WEIGHT / WEIGHT.sum()

    def dual(t: float) -> float:
        gamma = (SIGMA * t * pi[:, None] + t * nu).max(axis=1)
        fair = (WEIGHT[used] * (1 + np.log(t * nu[used] / WEIGHT[used]) + np.log(u[used] * 9))).sum()
        return float((1 + np.log(t * pi)).sum() + fair - gamma.sum() - t * nu @ OFFSET)

    best = max(dual(t) for t in np.geomspace(1e-3, 1e3, 20_001))
    assert lower_bound(SIGMA, pi, nu, WEIGHT, OFFSET) == pytest.approx(best, abs=1e-5)
