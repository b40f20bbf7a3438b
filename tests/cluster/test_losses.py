"""The losses that clustering is compared with: optima against scipy, gradients against differences."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, linear_sum_assignment, minimize
from scipy.special import log_softmax, softmax, xlogy

from consilience.cluster.losses import Problem, clustering_loss
from consilience.cluster.options import LOSSES
from consilience.kernels.collision.entropy import (
    invariant_information,
    mutual_information,
    through_softmax,
)
from consilience.kernels.collision.fair_labels import fair_assignment
from consilience.kernels.neighbours import mean_of_neighbours, nearest_neighbours


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
    labels, _, error = fair_assignment(log_proba, prior, lam, epsilon, 1e-9)
    assert error < 1e-8
    np.testing.assert_allclose(labels.sum(axis=1), 1.0)

    def by_logits(z):
        return _objective(softmax(z.reshape(6, 3), axis=1), log_proba, prior, lam, epsilon)

    peer = min(minimize(by_logits, start, method="BFGS").fun for start in (np.zeros(18), log_proba.ravel()))
    assert _objective(labels, log_proba, prior, lam, epsilon) <= peer + 1e-6


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
    labels, prices, _ = fair_assignment(log_proba, np.array([0.5, 0.5]), np.inf, 0.04, 1e-9)
    np.testing.assert_array_equal(labels[:10], [[0.0, 1.0]] * 10)
    np.testing.assert_allclose(labels.mean(axis=0), 0.5)
    again, _, _ = fair_assignment(log_proba, np.array([0.5, 0.5]), np.inf, 0.04, 1e-9, start=prices)
    np.testing.assert_allclose(again, labels, atol=1e-6)


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


# -- the table: what of a problem reaches each loss -----------------------------------------------------

N, K = 60, 3
PRIOR = np.array([0.6, 0.3, 0.1])


LOGITS = np.random.default_rng(0).normal(size=(N, K))
PROBA = softmax(LOGITS, axis=1)


def a_problem(loss, lam, prior=PRIOR, fixed=None, label_weight=2.0):
    weights = {"label_weight": label_weight} | ({} if loss == "sela" else {"lam": lam})
    near = nearest_neighbours(np.random.default_rng(1).normal(size=(N, 2)), 4, 0)
    fixed = np.full(N, -1) if fixed is None else fixed
    return Problem(LOSSES[loss](**weights), prior, fixed, near)


@pytest.mark.parametrize(("loss", "lam"), [("collision", 1e5), ("sela", np.inf), ("mi-adm", 1e5)])
def test_labels_have_the_shares_of_the_prior(loss, lam):
    for prior in (PRIOR, np.full(K, 1 / K)):
        of_round, _ = clustering_loss(a_problem(loss, lam, prior))(PROBA, PROBA)
        gradient = N * of_round(LOGITS)[1]
        if loss == "collision":  # sigma - y sigma / p, from which y follows up to a factor of the row
            labels = 1 - gradient / PROBA
            labels /= labels.sum(axis=1, keepdims=True)
        else:
            labels = PROBA - gradient
        np.testing.assert_allclose(labels.mean(axis=0), prior, atol=1e-3)


def test_mutual_information_is_least_at_the_shares_of_the_prior():
    rows = np.repeat(np.eye(K), [36, 18, 6], axis=0)  # decided, in the shares of PRIOR
    other = np.repeat(np.eye(K), 20, axis=0)
    problem = a_problem("mi", 5.0)._replace(neighbours=np.empty((N, 0), np.int32))
    told = [clustering_loss(problem)(S, S).value for S in (rows, other)]
    assert told[0] == pytest.approx(0.0, abs=1e-12)
    assert told[1] == pytest.approx(5.0 * (np.log(1 / 3) - np.log(PRIOR).mean()))
    equal = problem._replace(prior=np.full(K, 1 / K))
    assert clustering_loss(equal)(other, other).value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_labelled_rows_add_their_mean_cross_entropy_times_the_weight(loss, weight):
    fixed = np.full(N, -1)
    fixed[[3, 17, 40]] = [2, 0, 0]
    lam = np.inf if loss == "sela" else 2.0
    # the same pinned labels with no weight on them
    free, value = clustering_loss(a_problem(loss, lam, fixed=fixed, label_weight=0.0))(PROBA, PROBA)
    both, total = clustering_loss(a_problem(loss, lam, fixed=fixed, label_weight=weight))(PROBA, PROBA)
    known = -np.log(PROBA[[3, 17, 40], [2, 0, 0]]).mean()
    assert total == pytest.approx(value + weight * known)
    assert both(LOGITS)[0] == pytest.approx(free(LOGITS)[0] + weight * known)
    slope = np.zeros((N, K))
    slope[[3, 17, 40]] = weight * (PROBA[[3, 17, 40]] - np.eye(K)[[2, 0, 0]]) / 3
    np.testing.assert_allclose(both(LOGITS)[1], free(LOGITS)[1] + slope, atol=1e-12)


@pytest.mark.parametrize("loss", ["collision", "sela", "mi-adm"])
def test_labels_of_labelled_rows_are_pinned(loss):
    fixed = np.where(np.arange(N) < 5, 2, -1)
    lam = np.inf if loss == "sela" else 3.0
    of_round, _ = clustering_loss(a_problem(loss, lam, fixed=fixed, label_weight=0.0))(PROBA, PROBA)
    np.testing.assert_allclose(N * of_round(LOGITS)[1][:5], (PROBA - np.eye(K)[2])[:5], atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_value_of_a_round_is_its_objective(loss):
    """Against the formulas of docs/cluster.md, with averaged predictions for labels."""
    problem = a_problem(loss, np.inf if loss == "sela" else 2.0)
    A = mean_of_neighbours(PROBA, problem.neighbours)
    made = clustering_loss(problem)
    of_round, value = made(PROBA, A)
    gradient = N * of_round(LOGITS)[1]
    if loss in ("mi", "iic"):
        assert value == pytest.approx(of_round(LOGITS)[0])
        return
    if loss == "collision":
        Y = 1 - gradient / PROBA
        Y /= Y.sum(axis=1, keepdims=True)
        share = Y.mean(axis=0)
        expected = -np.log((A * Y).sum(axis=1)).mean() + 2.0 * (PRIOR * np.log(PRIOR / share)).sum()
    else:
        Y = PROBA - gradient
        share = Y.mean(axis=0)
        expected = -(Y * np.log(A)).sum() / N
        expected += 2.0 * (share * np.log(share / PRIOR)).sum() if loss == "mi-adm" else 0.0
    assert value == pytest.approx(expected, rel=1e-6)
