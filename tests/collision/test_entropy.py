"""Entropies of probabilities: the paper's properties, each as a test, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience import InvalidInputError, collision_cross_entropy, collision_entropy
from consilience.collision.entropy import (
    renyi_cross_entropy,
    renyi_entropy,
    shannon_cross_entropy,
    transition_matrix,
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two distributions over the same classes, some with zeros."""
    K = draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    values = random.dirichlet(np.full(K, draw(st.sampled_from([0.05, 1.0, 10.0]))), 2)
    return values[0], values[1]


@given(pairs())
def test_symmetric_bounded_equal_to_shannons_for_one_hot_and_constant_for_uniform_targets(
    pair: tuple[np.ndarray, np.ndarray],
) -> None:
    p, y = (v * 0.99 + 0.01 / len(v) for v in pair)
    value, K = collision_cross_entropy(p, y), len(p)
    assert value == collision_cross_entropy(y, p)
    assert -np.log(y.max()) - 1e-12 <= value <= -np.log(y.min()) + 1e-12
    one_hot = collision_cross_entropy([p] * K, range(K))
    np.testing.assert_allclose(one_hot, shannon_cross_entropy([p] * K, np.eye(K)), atol=1e-14)
    np.testing.assert_allclose(collision_cross_entropy(p, np.full(K, 1 / K)), np.log(K), atol=1e-12)


@given(pairs())
def test_the_sum_of_a_distance_and_an_entropy(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """H2(p, q) = -ln cos(p, q) + (H2(p) + H2(q)) / 2, Sec. 3."""
    p, q = (v * 0.99 + 0.01 / len(v) for v in pair)
    cosine = p @ q / np.linalg.norm(p) / np.linalg.norm(q)
    expected = -np.log(cosine) + (collision_entropy(p) + collision_entropy(q)) / 2
    np.testing.assert_allclose(collision_cross_entropy(p, q), expected, atol=1e-12)


@given(pairs(), st.sampled_from([0.5, 1.0, 2.0, 3.0]))
def test_a_cross_entropy_with_itself_is_the_entropy(
    pair: tuple[np.ndarray, np.ndarray], alpha: float
) -> None:
    p = pair[0]
    np.testing.assert_allclose(renyi_cross_entropy(p, p, alpha), renyi_entropy(p, alpha), atol=1e-12)
    assert -1e-12 <= renyi_entropy(p, alpha) <= np.log(len(p)) + 1e-12


def test_the_generalised_form_lies_between_the_collision_and_one_minus_its_probability() -> None:
    p, y = np.array([0.7, 0.2, 0.1]), np.array([0.3, 0.0, 0.7])
    assert collision_cross_entropy(p, y, q=1.0) == pytest.approx(1 - 0.28)
    assert collision_cross_entropy(p, y, q=0.5) == pytest.approx(2 * (1 - np.sqrt(0.28)))
    assert collision_cross_entropy(p, y, q=1e-12) == pytest.approx(collision_cross_entropy(p, y))


def test_classes_that_cannot_collide_are_infinitely_far_apart() -> None:
    assert collision_cross_entropy([1.0, 0.0], [0.0, 1.0]) == np.inf
    assert collision_cross_entropy([1.0, 0.0], [0.0, 1.0], q=0.5) == 2.0


def test_the_transition_is_the_forward_correction() -> None:
    """-ln Pr(L = l) with Pr(L = l) = sum_k Q[l, k] sigma_k, and target = Q[label]."""
    proba = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    Q = np.array([[0.8, 0.1, 0.0], [0.2, 0.6, 0.0], [0.0, 0.3, 1.0]])
    observed = (proba @ Q.T)[[0, 1], [1, 2]]
    np.testing.assert_allclose(collision_cross_entropy(proba, [1, 2], transition=Q), -np.log(observed))
    soft = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(
        collision_cross_entropy(proba, soft, transition=Q), -np.log((soft * (proba @ Q.T)).sum(axis=1))
    )


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: renyi_entropy([0.5, 0.5], 0), "alpha=0 must be"),
        # rounding is all that is left of orders so near 1
        (lambda: renyi_cross_entropy([0.7, 0.3], [0.5, 0.5], 1 + 3e-16), "differ from it by at least 1e-08"),
        (lambda: renyi_cross_entropy([0.7, 0.3], [0.5, 0.5], 1 - 5e-9), "differ from it by at least 1e-08"),
        (lambda: transition_matrix(3, 1.5), "at most 1"),
    ],
)
def test_orders_and_rates_out_of_range_are_refused(call: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        call()


@pytest.mark.parametrize(
    ("arguments", "options", "problem"),
    [
        (([[0.5, 0.6]], [[1.0, 0.0]]), {}, "proba sums to 1.1 in row 0"),
        (([[0.5, 0.5]], [[1.5, -0.5]]), {}, r"target has -0.5 at \(0, 1\)"),
        (([[np.nan, 1.0]], [[1.0, 0.0]]), {}, "proba has nan"),
        (([[0.5, 0.5]], [[1.0, 0.0, 0.0]]), {}, r"shape \(1, 3\) and proba \(1, 2\)"),
        (([[0.5, 0.5]], [2]), {}, "class 2; expected indices from 0 to 1"),
        (([[0.5, 0.5]], [-1]), {}, "class -1"),
        (([["a", "b"]], [0]), {}, "expected numbers"),
        (([[0.5, 0.5]], [0]), {"q": -1}, "q=-1 must be"),
        (([[0.5, 0.5]], [0]), {"transition": np.eye(3)}, r"expected \(2, 2\)"),
        (([[0.5, 0.5]], [0]), {"transition": [[1.0, 0.0], [0.5, 0.5]]}, "Its rows do: give its transpose"),
        (([[0.5, 0.5]], [0]), {"transition": [[2.0, 0.0], [-1.0, 1.0]]}, r"-1.0 at \(1, 0\)"),
    ],
)
def test_wrong_input_is_refused(arguments: Any, options: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        collision_cross_entropy(*arguments, **options)
