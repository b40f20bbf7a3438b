"""Transported labels are where the Sinkhorn distance is least, and can be given the shares of a task."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import sinkhorn
from consilience.transport.distance import class_share_shift, conditional_plan

SEEDS = st.integers(0, 2**31 - 1)


def draw(seed: int, n: int = 6, m: int = 4, k: int = 3) -> tuple[Any, Any]:
    random = np.random.RandomState(seed)
    return random.dirichlet(np.ones(m), n), random.uniform(size=(m, k))


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_the_transported_label_minimises_the_sinkhorn_distance(seed: int) -> None:
    p_T, cost = draw(seed)
    q = p_T @ conditional_plan(cost, 0.2)
    beta = sinkhorn(p_T, q, cost, 0.2, tol=1e-10).beta
    # the gradient on the simplex is zero: beta is the same for all classes
    assert np.ptp(beta, axis=1).max() < 1e-5
    rest = np.random.RandomState(seed).dirichlet(np.ones(3), len(q))
    worse = 0.9 * q + 0.1 * rest
    values = [sinkhorn(p_T, p, cost, 0.2, tol=1e-10).value for p in (q, worse)]
    assert (values[0] <= values[1] + 1e-9).all()


def test_the_distance_is_epsilon_times_a_divergence_where_the_teacher_is_sure() -> None:
    _, cost = draw(0)
    p_T, p_S = np.eye(4), np.random.RandomState(1).dirichlet(np.ones(3), 4)
    q = conditional_plan(cost, 0.3)
    rise = sinkhorn(p_T, p_S, cost, 0.3).value - sinkhorn(p_T, q, cost, 0.3).value
    np.testing.assert_allclose(rise, 0.3 * (p_S * np.log(p_S / q)).sum(axis=1), atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_shifted_labels_have_the_shares_of_the_task(seed: int) -> None:
    p_T, cost = draw(seed)
    prior = np.random.RandomState(seed).dirichlet(np.full(3, 5.0))
    q = p_T @ conditional_plan(cost, 0.2, class_share_shift(p_T, prior, cost, 0.2))
    np.testing.assert_allclose(q.mean(axis=0), prior, atol=1e-4)
