"""What must hold for pseudo-labels, whatever the predictions."""

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from consilience import collision_pseudo_labels
from consilience.kernels.collision.entropy import total_loss
from consilience.kernels.collision.first_order import expectation_maximisation
from consilience.kernels.collision.interior_point import interior_point

bounded = settings(max_examples=60, deadline=None, derandomize=True, database=None)


class Case(NamedTuple):
    sigma: np.ndarray
    lam: float
    u: np.ndarray
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = draw(st.tuples(st.integers(1, 30), st.integers(1, 8)))
    logits = draw(arrays(np.float64, shape, elements=st.floats(-40, 40)))
    sigma = softmax(logits, axis=1)
    if draw(st.booleans()):
        sigma = np.where(sigma < draw(st.sampled_from([1e-3, 0.2])), 0, sigma)
        sigma = np.where(sigma.sum(axis=1, keepdims=True) > 0, sigma, 1.0)
        sigma /= sigma.sum(axis=1, keepdims=True)
    shares = draw(arrays(np.float64, shape[1], elements=st.sampled_from([0.0, 0.1, 1.0, 1.0, 3.0])))
    shares[0] += 0.5
    lam = 10 ** draw(st.floats(-4, 4))
    return Case(sigma, lam, shares / shares.sum(), draw(st.integers(0, 1000)))


@bounded
@given(cases())
def test_the_exact_solver_meets_the_kkt_conditions(case: Case) -> None:
    """Check all of them at the solver's own multipliers, in the mean form, with the feasible gamma and z.

    A product that is off by q adds q^2 / 2 to the gap.
    """
    sigma, lam, u, _ = case
    M = len(sigma)
    assert collision_pseudo_labels(sigma, lam, u, tol=1e-11 * (1 + lam)).converged
    start, weight, none = 0.5 * sigma + 0.5 / len(u), M * lam * u, np.zeros(len(u))
    labels, pi, nu, _ = interior_point(sigma, start.copy(), weight, none, 1e-11 * (1 + lam), 100)
    assert labels.min() >= 0
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-12)
    pull = sigma * pi[:, None] + nu
    slack = pull.max(axis=1)[:, None] - pull  # z, non-negative
    assert (labels * slack).max() <= 1e-7 * (1 + lam)
    np.testing.assert_allclose((sigma * labels).sum(axis=1) * pi, 1, atol=1e-5 * (1 + lam))
    np.testing.assert_allclose(labels.mean(axis=0) * nu, lam * u, atol=1e-5 * (1 + lam))


@bounded
@given(cases())
def test_the_order_of_rows_and_classes_does_not_matter(case: Case) -> None:
    sigma, lam, u, seed = case
    draw = np.random.default_rng(seed)
    rows, classes = draw.permutation(len(sigma)), draw.permutation(len(u))
    tol = 1e-9 * (1 + lam)
    one = collision_pseudo_labels(sigma, lam, u, tol=tol)
    other = collision_pseudo_labels(sigma[rows][:, classes], lam, u[classes], tol=tol)
    assert abs(one.objective - other.objective) <= 2e-8 * (1 + lam)
    # collision probabilities are unique at the minimum (labels need not be), up to the root of the gap
    p = (sigma * one.labels).sum(axis=1)[rows]
    q = (sigma[rows][:, classes] * other.labels).sum(axis=1)
    np.testing.assert_allclose(np.log(p), np.log(q), atol=1e-3 * (1 + lam) ** 0.5 * len(sigma) ** 0.5)


@bounded
@given(cases())
def test_the_objective_never_rises_under_em(case: Case) -> None:
    sigma, lam, u, seed = case
    weight, offset = len(sigma) * lam * u, np.zeros(len(u))
    labels = np.random.default_rng(seed).dirichlet(np.ones(len(u)), size=len(sigma))
    losses = [total_loss(sigma, labels, weight, offset)]
    for _ in range(30):
        labels, _ = expectation_maximisation(sigma, labels, weight, offset, 1e-15, 1)
        losses.append(total_loss(sigma, labels, weight, offset))
        np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-12)
    assert np.diff(losses).max() <= 1e-12 * (1 + lam) * len(sigma)
