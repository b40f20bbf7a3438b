"""The losses that clustering is compared with: optima against scipy, gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, linear_sum_assignment, minimize
from scipy.special import log_softmax, softmax, xlogy

from consilience.kernels.collision.equipartition import fair_assignment
from consilience.kernels.collision.mutual_information import (
    invariant_information,
    mutual_information,
    through_softmax,
)


def _objective(Y, log_proba, prior, lam, epsilon):
    mean = Y.mean(axis=0)
    cross = (-(Y * log_proba).sum() + epsilon * xlogy(Y, Y).sum()) / len(Y)
    return cross + lam * (xlogy(mean, mean / prior)).sum()


@pytest.mark.parametrize("lam", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_fair_assignment_is_the_optimum(lam, epsilon):
    rng = np.random.default_rng(1)
    log_proba = log_softmax(2.0 * rng.normal(size=(6, 3)) + [1.0, 0.0, -1.0], axis=1)
    prior = np.array([0.5, 0.3, 0.2])
    ours = fair_assignment(log_proba, prior, lam, epsilon, 1e-9)
    assert ours.error < 1e-8
    np.testing.assert_allclose(ours.labels.sum(axis=1), 1.0)

    def by_logits(z):
        return _objective(softmax(z.reshape(6, 3), axis=1), log_proba, prior, lam, epsilon)

    peer = min(minimize(by_logits, start, method="BFGS").fun for start in (np.zeros(18), log_proba.ravel()))
    assert _objective(ours.labels, log_proba, prior, lam, epsilon) <= peer + 1e-6


def test_equipartition_tends_to_the_best_matching():
    log_proba = log_softmax(3.0 * np.random.default_rng(0).normal(size=(12, 3)), axis=1)
    labels, _, error = fair_assignment(log_proba, np.full(3, 1 / 3), np.inf, 0.003, 1e-9)
    assert error < 1e-8
    rows, columns = linear_sum_assignment(-np.repeat(log_proba, 4, axis=1))
    expected = np.zeros((12, 3))
    expected[rows, columns // 4] = 1.0
    np.testing.assert_allclose(labels, expected, atol=1e-3)


def test_rows_can_be_pinned_and_prices_reused():
    log_proba = log_softmax(np.random.default_rng(0).normal(size=(50, 2)), axis=1)
    with np.errstate(divide="ignore"):
        log_proba[:10] = np.log([[0.0, 1.0]])
    first = fair_assignment(log_proba, np.array([0.5, 0.5]), np.inf, 0.04, 1e-9)
    np.testing.assert_array_equal(first.labels[:10], [[0.0, 1.0]] * 10)
    np.testing.assert_allclose(first.labels.mean(axis=0), 0.5)
    again = fair_assignment(log_proba, np.array([0.5, 0.5]), np.inf, 0.04, 1e-9, start=first.prices)
    np.testing.assert_allclose(again.labels, first.labels, atol=1e-6)


def test_mutual_information_is_that_of_the_joint_distribution():
    S = np.random.default_rng(0).dirichlet(np.ones(4), 20)
    joint = S / len(S)
    expected = (xlogy(joint, joint / (joint.sum(axis=0) / len(S)))).sum()
    value, _ = mutual_information(S, np.full(4, 0.25), 1.0)
    assert value == pytest.approx(np.log(4) - expected)


def test_invariant_information_of_equal_hard_views_is_the_entropy():
    S = np.eye(3)[[0, 0, 1, 2]]
    value = invariant_information(S, S, 1.0)[0]
    assert value == pytest.approx(-np.log(4) * 0.5 - 0.5 * np.log(2))


def test_gradients_agree_with_differences():
    rng = np.random.default_rng(0)
    z, A = rng.normal(size=(7, 3)), rng.dirichlet(np.ones(3), 7)
    prior = np.array([0.2, 0.3, 0.5])

    def differences(function):
        return approx_fprime(z.ravel(), lambda flat: function(softmax(flat.reshape(7, 3), axis=1)), 1e-7)

    S = softmax(z, axis=1)
    for function, slope in (
        (lambda S: mutual_information(S, prior, 3.0)[0], mutual_information(S, prior, 3.0)[1]),
        (lambda S: invariant_information(S, A, 1.5)[0], invariant_information(S, A, 1.5)[1]),
        (lambda S: invariant_information(A, S, 1.5)[0], invariant_information(A, S, 1.5)[2]),
    ):
        np.testing.assert_allclose(through_softmax(S, slope).ravel(), differences(function), atol=1e-6)
