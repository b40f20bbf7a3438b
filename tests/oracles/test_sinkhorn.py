"""The Sinkhorn distance against POT's solver in log domain and against the linear programme."""

import numpy as np
import pytest

ot = pytest.importorskip("ot")

from consilience import sinkhorn  # noqa: E402


def problem(n=4, m=7, k=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(m), n), rng.dirichlet(np.ones(k), n), rng.random((m, k))


def by_pot(a, b, M, epsilon):
    """Plan and duals in double precision."""
    T, log = ot.sinkhorn(a, b, M, epsilon, method="sinkhorn_log", stopThr=1e-13, numItermax=200_000, log=True)
    return T, epsilon * log["log_v"]


# from single precision through cooling in double precision to log domain
@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.03, 0.01, 0.003])
def test_values_plans_and_duals_are_those_of_pot(epsilon):
    a, b, M = problem()
    result = sinkhorn(a, b, M, epsilon, tol=1e-10, max_iter=100_000)
    assert result.converged.all()
    for i in range(len(a)):
        T, beta = by_pot(a[i], b[i], M, epsilon)
        np.testing.assert_allclose(result.plan(i), T, atol=1e-8)
        np.testing.assert_allclose(result.beta[i], beta - beta.mean(), atol=1e-7)
        entropy = -(T * (np.log(np.maximum(T, 1e-300)) - 1)).sum()
        assert result.value[i] == pytest.approx((T * M).sum() - epsilon * entropy, abs=1e-8)
        assert result.cost[i] == pytest.approx((T * M).sum(), abs=1e-8)


def test_kl_is_the_divergence_from_the_independent_plan():
    a, b, M = problem(seed=1)
    result = sinkhorn(a, b, M, 0.1, regularizer="kl", tol=1e-10)
    for i in range(len(a)):
        T, _ = by_pot(a[i], b[i], M, 0.1)
        divergence = (T * np.log(T / np.outer(a[i], b[i]))).sum()
        assert result.value[i] == pytest.approx((T * M).sum() + 0.1 * divergence, abs=1e-8)
