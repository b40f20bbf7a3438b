"""Off-set weighting against its equations: where the gradient of ce, weighted by q(L_i), is zero."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import softmax

from consilience import LabelSpace, estimate_soft_labels, methods
from consilience.kernels.compiled import kernel
from consilience.kernels.elementary import FUSE
from consilience.kernels.unify.off_set import stationary


@pytest.mark.parametrize("scale", [0.5, 3.0, 30.0])
def test_it_solves_its_linear_equations(scale: float) -> None:
    """Check N_l q(l) = sum of q(L_i) p_i(l) in every class."""
    rng = np.random.default_rng(1)
    space = LabelSpace([rng.choice(30, size, replace=False) for size in (12, 20, 9, 15, 25)])
    logits = scale * rng.normal(size=(50, space.n_columns))
    Q = estimate_soft_labels(logits, space, methods.CE(temperature=1.0, off_set=True))
    right = np.zeros_like(Q)
    for i in range(space.n_teachers):
        own = space.columns[space.block(i)]
        right[:, own] += Q[:, own].sum(axis=1, keepdims=True) * softmax(logits[:, space.block(i)], axis=1)
    np.testing.assert_allclose(space.mask.sum(axis=1) * Q, right, rtol=1e-9, atol=1e-40)


def test_stationary_against_the_eigenvector() -> None:
    rng = np.random.default_rng(0)
    chain = rng.random((7, 7)) ** 4
    chain /= chain.sum(axis=1, keepdims=True)
    values, vectors = np.linalg.eig(chain.T)
    expected = np.real(vectors[:, np.argmax(np.real(values))])
    mass = np.empty(7)
    kernel(fastmath=FUSE)(stationary)(chain.copy(), mass)
    np.testing.assert_allclose(mass / mass.sum(), expected / expected.sum(), rtol=1e-10)


@pytest.mark.parametrize("order", [range(30), (0, 29, *range(1, 29)), (29, *range(29))])
@pytest.mark.parametrize("pair", [(0.0, -90.0), (-90.0, 0.0)])
def test_a_long_chain_of_weak_links_neither_overflows_nor_vanishes(
    pair: tuple[float, float], order: Sequence[int]
) -> None:
    """Let logits fall by 90 from teacher to teacher, towards the first or the last, in any order of them."""
    space = LabelSpace([[i, i + 1] for i in order])
    Q = estimate_soft_labels(np.tile(pair, (1, 30)), space, methods.CE(temperature=1.0, off_set=True))[0]
    Q = Q if pair[0] == 0.0 else Q[::-1]
    assert Q[0] == pytest.approx(1.0, abs=1e-12)
    assert np.log(Q[0] / Q[1]) == pytest.approx(90.0, rel=1e-9)
