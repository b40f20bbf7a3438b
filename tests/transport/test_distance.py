"""The public Sinkhorn distance: edges, conventions, refusals, and rates of convergence."""

import math

import numpy as np
import pytest

from consilience import ConvergenceWarning, InvalidInputError, sinkhorn
from consilience.kernels.transport.centres import automatic_epsilon
from consilience.kernels.transport.sinkhorn import RANGE, solve
from consilience.transport.distance import convergence_curves, convergence_rate

RNG = np.random.default_rng(0)
A, B, M = RNG.dirichlet(np.ones(6), 5), RNG.dirichlet(np.ones(4), 5), RNG.random((6, 4))


def test_zeros_move_nothing_and_have_finite_duals():
    a, b = A[:3].copy(), B[:3].copy()
    a[0], b[1], b[2, 0] = np.eye(6)[3], np.eye(4)[1], 0.0
    b[2] /= b[2].sum()
    for epsilon in (0.05, 1e-3):
        result = sinkhorn(a, b, M, epsilon, max_iter=100_000)
        np.testing.assert_allclose(result.plan(0)[3], b[0], atol=1e-6)
        assert (np.delete(result.plan(0), 3, axis=0) == 0).all()
        np.testing.assert_allclose(result.plan(1)[:, 1], a[1], atol=1e-6)
        assert (result.plan(2)[:, 0] == 0).all()
        assert np.isfinite(result.beta).all()
        assert np.isfinite(result.alpha).all()


def test_the_dual_of_a_zero_is_its_c_transform():
    b = B * [0.0, 1.0, 1.0, 1.0]
    b /= b.sum(axis=1, keepdims=True)
    result = sinkhorn(A, b, M, 0.1, tol=1e-12)
    expected = -0.1 * np.log(np.exp((result.alpha - M[:, 0]) / 0.1).sum(axis=1))
    np.testing.assert_allclose(result.beta[:, 0], expected, atol=1e-9)
    # the gradient of "kl" is continuous there
    nearly = b + 1e-9 * np.eye(4)[0]
    near, at = (sinkhorn(A, p, M, 0.1, tol=1e-12, regularizer="kl").gradient for p in (nearly, b))
    np.testing.assert_allclose(near, at, atol=1e-6)


@pytest.mark.parametrize("share", [0.5, 0.99, 1.01, 1.5])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_nothing_breaks_where_the_precision_changes(kind, share):
    a, b = A.copy(), B.copy()
    a[0], b[1] = np.eye(6)[3], np.eye(4)[1]
    epsilon = float(np.ptp(M)) / (share * RANGE[kind])
    result = sinkhorn(a, b, M, epsilon, tol=1e-8, max_iter=100_000)
    assert max(marginal_error(result, row) for row in range(5)) <= 1e-8


def test_rows_do_not_depend_on_their_company():
    rng = np.random.default_rng(2)
    M = rng.random((100, 80))
    a, b = rng.dirichlet(np.ones(100), 700), rng.dirichlet(np.ones(80), 700)  # more than a block
    whole = sinkhorn(a, b, M, 0.1, tol=1e-9)
    for i in (0, 350, 699):
        alone = sinkhorn(a[[i]], b[[i]], M, 0.1, tol=1e-9)
        assert whole.value[i] == pytest.approx(alone.value[0], abs=1e-10)
        np.testing.assert_allclose(whole.beta[i], alone.beta[0], atol=1e-8)


def test_a_warm_start_saves_iterations():
    cold = sinkhorn(A, B, M, 0.05, tol=1e-8)
    start = cold.beta.copy()
    start[3] = np.nan
    warm = sinkhorn(A, B, M, 0.05, tol=1e-8, init=start)
    np.testing.assert_allclose(warm.beta, cold.beta, atol=1e-7)
    assert (2 * np.delete(warm.n_iter, 3) <= np.delete(cold.n_iter, 3)).all()
    assert 2 * warm.n_iter[3] > cold.n_iter[3]


def test_stopping_early_warns_with_figures():
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 with marginal error .*e-0.* in \d of 5 rows"):
        result = sinkhorn(A, B, M, 0.05, max_iter=2)
    assert not result.converged.all()
    assert (result.n_iter <= 2).all()
    i = int(np.argmax(result.residual))
    assert 1e-6 < np.abs(result.plan(i).sum(axis=1) - A[i]).sum() <= result.residual[i]


def marginal_error(result, row):
    T = result.plan(row)
    return np.abs(T.sum(axis=1) - result.source[row]).sum() + np.abs(T.sum(axis=0) - result.target[row]).sum()


@pytest.mark.filterwarnings("ignore::consilience.ConvergenceWarning")
@pytest.mark.parametrize("exponent", [-4, -6, -8, -9, -10, -11, -11.9])
def test_residuals_bound_the_rounding_of_sharp_plans(exponent):
    result = sinkhorn(A, B, M, 10.0**exponent)
    for row in range(5):
        assert marginal_error(result, row) <= result.residual[row]
    # without the one whose plan is nearly a choice of two
    assert (np.delete(result.converged, 3) == (exponent >= -9)).all()


@pytest.mark.parametrize("offset", [1e8, -1e12])
@pytest.mark.parametrize("epsilon", [0.1, 0.01, 1e-3])
def test_a_large_constant_in_the_cost_does_not_move_the_plan(offset, epsilon):
    cost = np.round(M * 128) / 128  # which adding the constant does not round
    plain, moved = sinkhorn(A, B, cost, epsilon), sinkhorn(A, B, cost + offset, epsilon)
    for row in range(5):
        np.testing.assert_allclose(moved.plan(row), plain.plan(row), atol=1e-9)
        assert marginal_error(moved, row) <= 1e-6
    np.testing.assert_allclose(moved.cost - offset, plain.cost, atol=1e-15 * abs(offset) + 1e-9)
    np.testing.assert_allclose(moved.alpha, plain.alpha + offset, rtol=1e-12)


def test_the_kernel_returns_at_once_from_what_is_not_a_number():
    assert np.isnan(solve(A, B, M, 1e-310, 1e-6, 10_000).value).all()
    a = A.copy()
    a[2] = np.nan
    for epsilon in (0.1, 0.01, 1e-4):
        solved = solve(a, B, M, epsilon, 1e-6, 10_000)
        assert np.isnan(solved.value[2])
        assert np.isfinite(np.delete(solved.value, 2)).all()
        assert solved.n_iter[2] < 100


@pytest.mark.parametrize("epsilon", [0.1, 1e-3])
def test_a_tolerance_below_rounding_is_named(epsilon):
    with pytest.warns(ConvergenceWarning, match=r"stalled at rounding .* Raise epsilon or tol\."):
        result = sinkhorn(A, B, M, epsilon, tol=1e-18)
    assert result.n_iter.max() < 10_000


def test_auto_follows_the_spread_of_the_cost():
    result = sinkhorn(A, B, M)
    assert result.epsilon == pytest.approx(M.std() / 2)
    np.testing.assert_allclose(sinkhorn(A, B, 1000 * M + 5).plan(1), result.plan(1), atol=1e-6)
    for constant in (0.0, 3.0, -1e6):
        assert automatic_epsilon(np.full((2, 3), constant)) == 0.1
    np.testing.assert_allclose(sinkhorn(A, B, np.ones((6, 4))).plan(1), np.outer(A[1], B[1]), atol=1e-9)


def test_lists_single_precision_and_no_rows_are_accepted():
    plain = sinkhorn(A, B, M, 0.1)
    np.testing.assert_allclose(sinkhorn(A.tolist(), B.tolist(), M.tolist(), 0.1).value, plain.value)
    single = sinkhorn(*(array.astype(np.float32) for array in (A, B, M)), 0.1)
    np.testing.assert_allclose(single.value, plain.value, atol=1e-6)
    assert sinkhorn(A[:0], B[:0], M).value.shape == (0,)
    assert repr(plain).startswith("SinkhornResult(5 rows")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": [[0.5, 0.6]] * 5}, r"source sums to 1.1 in row 0"),
        ({"target": [[0.5, 0.5, 0.1, -0.1]] * 5}, r"target has -0.1 at \(0, 3\)"),
        (
            {"source": np.full((5, 3), 1 / 3)},
            r"source has shape \(5, 3\) and cost \(6, 4\); expected \(n, 6\)",
        ),
        ({"target": np.full((4, 4), 0.25)}, r"source has 5 rows and target 4"),
        ({"target": [0.25] * 4}, r"target has shape \(4,\)"),
        ({"cost": np.full((6, 4), np.nan)}, r"cost has nan at \(0, 0\)"),
        ({"cost": [["a"] * 4] * 6}, r"cost has shape .* expected"),
        ({"cost": np.ones(6)}, r"cost has shape \(6,\)"),
        ({"epsilon": 0.0}, r"epsilon=0.0 must be a finite number above 0"),
        ({"epsilon": "automatic"}, r"epsilon='automatic' is unknown.*Did you mean 'auto'"),
        ({"regularizer": "KL"}, r"regularizer='KL' is unknown.*Did you mean 'kl'"),
        ({"tol": -1.0}, r"tol=-1.0"),
        ({"max_iter": 0}, r"max_iter=0"),
        ({"init": np.zeros((5, 6))}, r"init has shape \(5, 6\); expected \(5, 4\)"),
        ({"init": "abc"}, r"init has shape \(\) and type <U3; expected \(5, 4\)"),
        ({"init": [[1.0], [1.0, 2.0]]}, r"init cannot be read as an array .*; expected \(5, 4\)"),
        ({"source": [[1.0, 0.0], [1.0]]}, r"source cannot be read as an array .*; expected numbers \(n, K\)"),
        ({"cost": [[1.0, 0.0], [1.0]]}, r"cost cannot be read as an array .*; expected \(m, k\)"),
        ({"epsilon": 1e-310}, r"range of 0.9\d*, with epsilon=1e-310; expected .* Raise epsilon"),
        ({"epsilon": 1e-14}, r"at most 1e\+12 times epsilon"),
        ({"cost": np.tile([-1e308, 1e308], (6, 2))}, r"range of inf.*divide the cost"),
    ],
)
def test_refusals_say_what_to_do(change, message):
    arguments = {"source": A, "target": B, "cost": M} | change
    with pytest.raises(InvalidInputError, match=message):
        sinkhorn(**arguments)


@pytest.mark.parametrize("row", [5, -6, 1.0, "a", True])
def test_plans_are_of_rows_that_exist(row):
    result = sinkhorn(A, B, M)
    np.testing.assert_array_equal(result.plan(-1), result.plan(np.int64(4)))
    with pytest.raises(InvalidInputError, match="is not one of the 5 rows"):
        result.plan(row)


def test_rates_are_known_where_they_are_extreme():
    constant = convergence_rate(np.ones((3, 4)), 0.1)
    assert constant.kappa == 0.0
    assert constant.iterations(1e-6) == 0.0
    sharp = convergence_rate([[0.0, 1.0], [1.0, 0.0]], 0.02)
    assert sharp.rate == pytest.approx(1.0)
    assert 1e20 < sharp.iterations(1e-6) < math.inf
    assert convergence_rate([[0.0, 1.0], [1.0, 0.0]], 1e-4).iterations(1e-6) == math.inf
    with pytest.raises(InvalidInputError, match="delta"):
        sharp.iterations(0.0)


def test_curves_of_fig_3_lie_below_their_bound():
    curves = convergence_curves(A, B, M, 0.3, n_iter=30)
    assert curves.variation.shape == curves.bound.shape == curves.euclidean.shape == (31,)
    assert curves.variation[0] == curves.bound[0] > 0
    assert (curves.variation <= curves.bound + 1e-9).all()
    assert (np.diff(curves.variation) <= 1e-9).all()
    # a vector without mean is at most sqrt(k) / 2 of its range long
    assert (curves.euclidean <= curves.variation + 1e-12).all()
    assert curves.variation[30] < 1e-6
    with pytest.raises(InvalidInputError, match="no probabilities of zero"):
        convergence_curves(np.eye(6)[:5], B, M)
