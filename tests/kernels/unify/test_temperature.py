import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from consilience.kernels.unify.temperature import fit_temperature, is_at_bound


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
@pytest.mark.parametrize("prior", [0.5, 10.0])
def test_the_temperature_minimises_the_cross_entropy(scale: float, prior: float) -> None:
    """Compare with scipy's minimiser on the objective as the docstring has it."""
    rng = np.random.default_rng(0)
    logits = scale * rng.normal(size=(60, 4))
    codes = np.where(rng.random(60) < 0.6, logits.argmax(axis=1), rng.integers(4, size=60))
    weight = rng.random(60)

    def objective(log_t: float) -> float:
        log_p = log_softmax(logits / np.exp(log_t), axis=1)
        return -float(weight @ log_p[np.arange(60), codes] + prior * log_p.mean())

    found = minimize_scalar(objective, bounds=np.log(scale) + np.array([-6, 6]), options={"xatol": 1e-10})
    assert fit_temperature(logits, codes, weight, prior) == pytest.approx(np.exp(found.x), rel=1e-4)


def test_a_teacher_that_is_always_right_is_not_taken_as_never_wrong() -> None:
    logits = 3.0 * np.eye(4)[np.arange(200) % 4]
    T = fit_temperature(logits, np.arange(200) % 4, np.ones(200), 1.0)
    assert np.exp(log_softmax(logits[0] / T)[0]) == pytest.approx((200 + 1 / 4) / 201, rel=1e-6)


def test_a_teacher_that_is_never_right_says_nothing() -> None:
    logits = 3.0 * np.eye(4)[np.arange(200) % 4]
    assert not is_at_bound(logits, fit_temperature(logits, np.arange(200) % 4, np.ones(200), 1.0))
    T = fit_temperature(logits, (np.arange(200) + 1) % 4, np.ones(200), 1.0)
    np.testing.assert_allclose(np.exp(log_softmax(logits[0] / T)), 0.25, atol=1e-3)
    assert is_at_bound(logits, T)


@pytest.mark.parametrize("factor", [1e307, 1e-300])
def test_no_size_of_logits_is_too_large_or_small(factor: float) -> None:
    rng = np.random.default_rng(0)
    logits = rng.uniform(-10, 10, size=(60, 4))
    codes = np.where(rng.random(60) < 0.8, logits.argmax(axis=1), rng.integers(4, size=60))
    T = fit_temperature(logits, codes, np.ones(60), 1.0)
    assert fit_temperature(factor * logits, codes, np.ones(60), 1.0) / factor == pytest.approx(T, rel=1e-6)


def test_no_temperature_matters_where_logits_do_not_differ() -> None:
    assert fit_temperature(np.full((5, 3), 7.0), np.zeros(5, dtype=np.intp), np.ones(5), 1.0) == np.inf
    assert fit_temperature(np.ones((5, 1)), np.zeros(5, dtype=np.intp), np.ones(5), 1.0) == np.inf


def nearly_tied(difference: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return logits that tell two classes apart by a small difference, rightly, and rule out a third.

    The colder, the better, but for the prior. Also returns the classes and the scale of the logits.
    """
    codes = np.arange(200) % 2
    logits = np.where(np.arange(3) == codes[:, None], difference, 0.0)
    logits[:, 2] = -4.0
    return logits, codes, float((logits.max(axis=1, keepdims=True) - logits).mean())


def test_no_temperature_is_below_a_thousandth_of_the_scale() -> None:
    logits, codes, scale = nearly_tied(1e-5)
    T = fit_temperature(logits, codes, np.ones(200), 1e-9)
    np.testing.assert_allclose(T, scale / 1e3, rtol=1e-6)
    assert is_at_bound(logits, T)
