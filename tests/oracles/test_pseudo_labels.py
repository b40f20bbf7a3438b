"""Pseudo-labels against scipy's general solver, and the solvers against each other."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from consilience import ConvergenceWarning, collision_pseudo_labels
from consilience.collision.pseudo_labels import PseudoLabels


def objective(
    labels: np.ndarray, sigma: np.ndarray, lam: float, u: np.ndarray, reverse: bool = False
) -> float:
    ybar, used = labels.mean(axis=0), u > 0
    if reverse:
        divergence = (ybar * np.log(np.maximum(ybar, 1e-300) / u)).sum()
    else:
        divergence = (u[used] * np.log(u[used] / ybar[used])).sum()
    return float(-np.log((sigma * labels).sum(axis=1)).mean() + lam * divergence)


def by_scipy(sigma: np.ndarray, lam: float, u: np.ndarray, reverse: bool = False) -> float:
    """Return the lowest objective that SLSQP finds from three starts."""
    M, K = sigma.shape
    used = u > 0

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        labels = x.reshape(M, K)
        ybar, p = labels.mean(axis=0), (sigma * labels).sum(axis=1)
        slope = lam * (np.log(ybar / u) + 1) if reverse else -lam * np.where(used, u / ybar, 0)
        return objective(labels, sigma, lam, u, reverse), ((-sigma / p[:, None] + slope) / M).ravel()

    sums: Any = {
        "type": "eq",
        "fun": lambda x: x.reshape(M, K).sum(axis=1) - 1,
        "jac": lambda x: np.kron(np.eye(M), np.ones(K)),
    }
    best = np.inf
    for seed in range(3):
        start = np.random.default_rng(seed).dirichlet(np.ones(K), size=M)
        done = minimize(
            loss, start.ravel(), jac=True, method="SLSQP", bounds=[(1e-12, 1)] * (M * K), constraints=[sums],
            options={"ftol": 1e-14, "maxiter": 1000},
        )  # fmt: skip
        labels = np.maximum(done.x.reshape(M, K), 0)
        best = min(best, objective(labels / labels.sum(axis=1, keepdims=True), sigma, lam, u, reverse))
    return best


def make_case(seed: int) -> tuple[np.ndarray, float, np.ndarray]:
    """Return predictions, lam and a prior; some with zeros, one-hot or equal rows, and absent classes."""
    draw = np.random.default_rng(seed)
    M, K = int(draw.integers(1, 7)), int(draw.integers(2, 5))
    sigma = softmax(draw.normal(size=(M, K)) * draw.choice([0.1, 1, 5]), axis=1)
    kind = seed % 6
    if kind == 1:
        sigma = np.eye(K)[draw.integers(0, K, M)]
    elif kind == 2:
        sigma = np.where(draw.random((M, K)) < 0.5, 0, sigma) + 1e-300
        sigma = np.where(sigma > 1e-200, sigma, 0) + np.eye(K)[draw.integers(0, K, M)]
        sigma /= sigma.sum(axis=1, keepdims=True)
    elif kind == 3:
        sigma = np.repeat(sigma[:1], M, axis=0)
    elif kind == 4:
        sigma[:, 0] = 0
        sigma /= sigma.sum(axis=1, keepdims=True)
    u = np.full(K, 1 / K)
    if kind == 5:
        u = draw.dirichlet(np.ones(K))
        u[draw.integers(K)] = 0
        u /= u.sum()
    return sigma, float(draw.choice([0.01, 0.4, 3.0, 100.0])), u


def solve_quietly(*args: Any, **options: Any) -> PseudoLabels:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return collision_pseudo_labels(*args, **options)


@pytest.mark.parametrize("seed", range(48))
def test_the_exact_solver_is_no_worse_than_scipy_and_its_gap_is_true(seed: int) -> None:
    sigma, lam, u = make_case(seed)
    reference = by_scipy(sigma, lam, u)
    result = collision_pseudo_labels(sigma, lam, u, tol=1e-10)
    assert result.objective == pytest.approx(objective(result.labels, sigma, lam, u), abs=1e-12 * (1 + lam))
    assert result.objective <= reference + 1e-9 * (1 + lam)
    assert result.objective - result.gap <= reference
    assert result.objective == pytest.approx(reference, abs=1e-5 * (1 + lam))  # scipy is not that exact


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("solver", ["interior-point", "em", "pgd"])
def test_the_gap_covers_the_distance_wherever_a_solver_stops(solver: Any, seed: int) -> None:
    sigma, lam, u = make_case(seed)
    minimum = collision_pseudo_labels(sigma, lam, u, tol=1e-12 * (1 + lam)).objective
    for max_iter in (1, 2, 7):
        result = solve_quietly(sigma, lam, u, solver, max_iter=max_iter, tol=1e-14)
        assert result.gap == np.inf or result.objective - result.gap <= minimum
        assert result.n_iter <= max_iter
        assert not result.converged or result.gap <= 1e-14 * max(1, result.objective)


@pytest.mark.parametrize("seed", range(24))
def test_em_agrees_with_the_exact_solver(seed: int) -> None:
    sigma, lam, u = make_case(seed)
    exact = collision_pseudo_labels(sigma, lam, u, tol=1e-9)
    long = solve_quietly(sigma, lam, u, "em", tol=1e-9, max_iter=1_000_000)
    assert long.objective == pytest.approx(exact.objective, abs=1e-6)


@pytest.mark.parametrize("seed", [0, 2, 3, 6, 9])
def test_projected_gradient_descent_agrees_for_both_divergences(seed: int) -> None:
    sigma, lam, u = make_case(seed)
    lam = min(lam, 3.0)
    forward = solve_quietly(sigma, lam, u, "pgd", max_iter=50_000)
    assert forward.objective == pytest.approx(collision_pseudo_labels(sigma, lam, u).objective, abs=1e-5)
    reverse = solve_quietly(sigma, lam, u, "pgd", divergence="reverse", max_iter=50_000)
    reference = by_scipy(sigma, lam, u, reverse=True)
    assert reverse.objective == pytest.approx(objective(reverse.labels, sigma, lam, u, True), abs=1e-9)
    assert reverse.objective == pytest.approx(reference, abs=1e-5)
    assert reverse.objective - reverse.gap <= reference
