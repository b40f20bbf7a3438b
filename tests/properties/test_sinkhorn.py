"""What must hold for the Sinkhorn distance of any distributions and costs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.kernels.transport.sinkhorn import plain_iterates, solve
from consilience.transport.distance import convergence_rate, sinkhorn


@st.composite
def problems(draw, smallest=1):
    m, k = draw(st.integers(smallest, 7)), draw(st.integers(smallest, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, sharpness = 3, draw(st.sampled_from([0.05, 0.5, 5.0]))  # 0.05 gives entries that are zero
    a, b = (rng.dirichlet(np.full(size, sharpness), n) for size in (m, k))
    a, b = (np.where(p < 1e-12, 0.0, p) for p in (a, b))
    M = draw(st.sampled_from([0.01, 1.0, 30.0])) * rng.normal(size=(m, k))
    return a / a.sum(axis=1, keepdims=True), b / b.sum(axis=1, keepdims=True), M


relative = st.sampled_from([0.02, 0.1, 0.5, 3.0])  # epsilon over the range of the cost


def epsilon_of(M, share):
    return share * max(float(np.ptp(M)), 0.01)


@settings(max_examples=60, deadline=None)
@given(problems(), relative)
def test_plans_have_the_marginals_and_values_the_terms_of_eq_5_and_13(problem, share):
    a, b, M = problem
    epsilon = epsilon_of(M, share)
    result = sinkhorn(a, b, M, epsilon, tol=1e-8, max_iter=100_000)
    scale = max(1.0, np.abs(M).max())
    for i in range(len(a)):
        T = result.plan(i)
        error = np.abs(T.sum(axis=1) - a[i]).sum() + np.abs(T.sum(axis=0) - b[i]).sum()
        assert error <= 1.01 * result.residual[i] + 1e-11
        entropy = -(T[T > 0] * (np.log(T[T > 0]) - 1)).sum()
        assert result.value[i] == pytest.approx((T * M).sum() - epsilon * entropy, abs=1e-6 * scale)
        assert result.cost[i] == pytest.approx((T * M).sum(), abs=1e-6 * scale)
        dual = result.alpha[i] @ a[i] + result.beta[i] @ b[i] - epsilon
        assert result.value[i] == pytest.approx(dual, abs=1e-9 * scale)
    assert np.isfinite(result.beta).all()
    np.testing.assert_allclose(result.beta.sum(axis=1), 0.0, atol=1e-9 * scale)


@settings(max_examples=40, deadline=None)
@given(problems(), relative, st.sampled_from([1e-3, 7.0, 1e4]))
def test_costs_scale_and_shift(problem, share, factor):
    a, b, M = problem
    epsilon = epsilon_of(M, share)
    plain = sinkhorn(a, b, M, epsilon, tol=1e-10, max_iter=100_000)
    scaled = sinkhorn(a, b, factor * M, factor * epsilon, tol=1e-10, max_iter=100_000)
    scale = max(1.0, np.abs(M).max())
    np.testing.assert_allclose(scaled.value / factor, plain.value, atol=1e-9 * scale)
    np.testing.assert_allclose(scaled.beta / factor, plain.beta, atol=1e-6 * scale)
    shifts = np.arange(M.shape[0])[:, None] - 2.0 * np.arange(M.shape[1])
    shifted = sinkhorn(a, b, M + shifts, epsilon, tol=1e-10, max_iter=100_000)
    expected = plain.value + a @ shifts[:, 0] + b @ (shifts[0] - shifts[0, 0])
    np.testing.assert_allclose(shifted.value, expected, atol=1e-8 * scale * max(1.0, np.abs(shifts).max()))


@settings(max_examples=40, deadline=None)
@given(problems(smallest=2), st.sampled_from([0.1, 0.3, 1.0]))
def test_gradients_converge_as_fast_as_prop_4_3_says(problem, share):
    a, b, M = problem
    a, b = (0.9 * p + 0.1 / p.shape[1] for p in (a, b))
    epsilon = epsilon_of(M, share)
    limit = solve(a, b, M, epsilon, 1e-13, 200_000).beta
    errors = np.array([np.ptp(beta - limit, axis=1) for beta in plain_iterates(a, b, M, epsilon, 20)])
    rate = convergence_rate(M, epsilon)
    assert 0 <= rate.kappa <= 1
    assert (errors[0] <= rate.start + 1e-9).all()
    noise = 1e-7 * max(1.0, np.abs(M).max())
    assert (errors[1:] <= rate.rate * errors[:-1] + noise).all()
    delta = 1e-3 * rate.start
    predicted = rate.iterations(delta)
    if predicted <= 20:
        assert (errors[int(predicted) :] <= delta + noise).all()


@settings(max_examples=30, deadline=None)
@given(problems())
def test_kappa_is_that_of_theorem_b_2(problem):
    M = problem[2]
    epsilon = epsilon_of(M, 0.3)
    L = -M / epsilon
    # all quadruples, as printed
    psi = np.exp(
        max((L[:, None, :, None] + L[None, :, None, :] - L[None, :, :, None] - L[:, None, None, :]).ravel())
    )
    expected = (np.sqrt(psi) - 1) / (np.sqrt(psi) + 1)
    assert convergence_rate(M, epsilon).kappa == pytest.approx(expected, abs=1e-9)
