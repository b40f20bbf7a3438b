"""Each backprop loss agrees with its estimate-first solver, in value and in where its gradient is zero."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import LabelSpace
from consilience.kernels.unify.cross_entropy import ce_logits, ce_objective
from consilience.kernels.unify.factorisation import mf_lf_logits, mf_lv_logits, mf_p_probabilities
from consilience.kernels.unify.packed import block_softmax, make_layout
from consilience.nn import BACKPROP_LOSSES

T = 2.5
LAM = 0.01


def problem(seed: int, abstain: bool) -> tuple[LabelSpace, np.ndarray]:
    """Make a connected space of six classes and the packed logits of five rows."""
    random = np.random.default_rng(seed)
    lists = [[0, 1, 2, 3], [3, 4, 5], [0, 5, 2], list(range(6))]
    space = LabelSpace([random.permutation(classes) for classes in lists])
    logits = random.normal(size=(5, space.n_columns)) * 3
    if abstain:
        logits[1, space.block(0)] = np.nan
        logits[2, space.block(2)] = np.nan
    return space, logits


def residual(P: np.ndarray, U: np.ndarray, V: np.ndarray, space: LabelSpace) -> np.ndarray:
    """Return P - u v, packed; NaN where a teacher abstains."""
    block_of = np.repeat(np.arange(space.n_teachers), np.diff(space.offsets))
    return P - U[:, space.columns] * V[:, block_of]


def solve(method: str, space: LabelSpace, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the student's logits at the solver's u, and the solver's objective, per row."""
    layout = make_layout(space.columns, space.offsets, space.n_classes)
    if method == "ce":
        U, _, _ = ce_logits(logits, layout, T, 1e-10, 200)
        return T * U, ce_objective(U, logits, layout, T)
    if method == "mf-p":
        U, V, _, _ = mf_p_probabilities(logits, layout, T, 1e-13, 100_000)
        P = block_softmax(logits, layout.offsets, T)[1]
        return T * np.log(U), np.nansum(residual(P, U, V, space) ** 2, axis=1)
    if method == "mf-lv":
        U, V, _, _ = mf_lv_logits(logits, layout, T, LAM, 1e-13, 100_000)
        rest = residual(logits / T, U, V, space)
        active = ~np.isnan(logits[:, space.offsets[:-1]])
        penalty = LAM * ((U**2).sum(axis=1) + (V**2 * active).sum(axis=1))
        return T * U, _centred_square(rest, space) + penalty
    U = mf_lf_logits(logits, layout, T)
    return T * U, _centred_square(residual(logits / T, U, np.ones((5, 4)), space), space)


def _centred_square(rest: np.ndarray, space: LabelSpace) -> np.ndarray:
    """Return the squares left over when each block's shift c is taken off."""
    total = np.zeros(len(rest))
    for i in range(space.n_teachers):
        block = rest[:, space.block(i)]
        total += np.nan_to_num(((block - block.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
    return total


@pytest.mark.parametrize("abstain", [False, True])
@pytest.mark.parametrize("method", sorted(BACKPROP_LOSSES))
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_value_and_minimum_agree(method: str, abstain: bool, seed: int) -> None:
    space, logits = problem(seed, abstain)
    at_solution, objective = solve(method, space, logits)
    loss = BACKPROP_LOSSES[method](space, temperature=T, reduction="none")
    student = torch.tensor(at_solution, requires_grad=True)
    values = loss(student, torch.tensor(logits))
    np.testing.assert_allclose(values.detach().numpy(), objective, rtol=1e-7, atol=1e-9)
    (gradient,) = torch.autograd.grad(values.sum(), student)
    assert gradient.abs().max() < 1e-6
