"""mf-lf against dense least squares; mf-p and mf-lv against Algorithms 1 and 2 written out as printed."""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from consilience import LabelSpace
from consilience.kernels.unify import factorisation
from consilience.kernels.unify.factorisation import mf_lf_logits, mf_lv_logits, mf_p_probabilities
from consilience.kernels.unify.packed import Layout, make_layout

SPACES = {
    "connected": [[0, 1, 2], [1, 2, 3], [3, 4, 0, 5], [5, 2]],
    "disconnected": [[0, 1, 2], [1, 2], [3, 4], [4, 5]],
    "chain": [[0, 1], [1, 2], [2, 3], [3, 4]],
    "identical": [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]],
    "single class": [[0], [0, 1], [1, 2], [2]],
}


def layout_of(lists: list[list[int]]) -> tuple[LabelSpace, Layout]:
    space = LabelSpace(lists, disconnected="ignore")
    return space, make_layout(space.columns, space.offsets, space.n_classes)


def with_abstentions(Z: np.ndarray, layout: Layout, rng: np.random.Generator) -> np.ndarray:
    silent = rng.random((len(Z), len(layout.offsets) - 1)) < 0.3
    return np.where(silent[:, layout.block_of], np.nan, Z)


def design_matrix(space: LabelSpace, layout: Layout, used: np.ndarray) -> np.ndarray:
    """Return the matrix that takes (u, c) to the logits of the active teachers."""
    m, L = space.n_columns, space.n_classes
    matrix = np.zeros((m, L + space.n_teachers))
    matrix[np.arange(m), space.columns] = 1.0
    matrix[np.arange(m), L + layout.block_of.astype(int)] = 1.0
    return matrix[used]


@pytest.mark.parametrize("many", [False, True], ids=["inverse", "gradients"])
@pytest.mark.parametrize("lists", SPACES.values(), ids=SPACES)
def test_mf_lf_is_least_squares(lists: list[list[int]], many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve each case by a pseudo-inverse, and as if it had many teachers."""
    if many:
        monkeypatch.setattr(factorisation, "_inverse_pays", lambda *sizes: False)
    rng = np.random.default_rng(0)
    space, layout = layout_of(lists)
    Z = 5.0 * rng.normal(size=(12, space.n_columns))
    Z[4:] = with_abstentions(Z[4:], layout, rng)
    temperature = 2.5
    U = mf_lf_logits(Z, layout, temperature)
    for u, z in zip(U, Z, strict=True):
        used = ~np.isnan(z)
        if not used.any():
            np.testing.assert_array_equal(u, 0.0)
            continue
        matrix = design_matrix(space, layout, used)
        target = z[used] / temperature
        theirs, *_ = np.linalg.lstsq(matrix, target, rcond=None)
        # the best shifts for our u
        shifts, *_ = np.linalg.lstsq(
            matrix[:, space.n_classes :], target - matrix[:, : len(u)] @ u, rcond=None
        )
        ours = np.concatenate([u, shifts])
        np.testing.assert_allclose(matrix @ ours, matrix @ theirs, atol=1e-11)


def rmse(new: np.ndarray, old: np.ndarray) -> float:
    return float(np.sqrt(np.mean((new - old) ** 2)))


def algorithm_1(
    P: np.ndarray, M: np.ndarray, tol: float, max_iter: int
) -> tuple[np.ndarray, np.ndarray, int]:
    L, N = P.shape
    u, v = np.zeros(L), np.ones(N)
    for iteration in range(1, max_iter + 1):
        old_u, old_v = u.copy(), v.copy()
        for j in range(L):
            above = sum(P[j, i] * v[i] for i in range(N) if M[j, i])
            below = sum(v[i] ** 2 for i in range(N) if M[j, i])
            u[j] = max(0.0, above / below)
        u /= sum(u[j] for j in range(L))
        for i in range(N):
            above = sum(P[j, i] * u[j] for j in range(L) if M[j, i])
            below = sum(u[j] ** 2 for j in range(L) if M[j, i])
            v[i] = max(0.0, above / below)
        if iteration > 1 and rmse(u, old_u) < tol and rmse(v, old_v) < tol:
            break
    return u, v, iteration


def algorithm_2(
    Z: np.ndarray, M: np.ndarray, lam: float, tol: float, max_iter: int
) -> tuple[np.ndarray, np.ndarray, int]:
    L, N = Z.shape
    c = np.array([np.mean([Z[j, i] for j in range(L) if M[j, i]]) for i in range(N)])
    u, v = np.zeros(L), np.ones(N)
    for iteration in range(1, max_iter + 1):
        old_u, old_v = u.copy(), v.copy()
        for j in range(L):
            above = sum((Z[j, i] - c[i]) * v[i] for i in range(N) if M[j, i])
            u[j] = above / (lam + sum(v[i] ** 2 for i in range(N) if M[j, i]))
        for i in range(N):
            above = sum((Z[j, i] - c[i]) * u[j] for j in range(L) if M[j, i])
            v[i] = max(0.0, above / (lam + sum(u[j] ** 2 for j in range(L) if M[j, i])))
        for i in range(N):
            c[i] = np.mean([Z[j, i] - u[j] * v[i] for j in range(L) if M[j, i]])
        if iteration > 1 and rmse(u, old_u) < tol and rmse(v, old_v) < tol:
            break
    return u, v, iteration


def active_part(
    space: LabelSpace, z: np.ndarray, temperature: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return dense logits and mask without the silent teachers, and which classes and teachers these are."""
    active = np.array([not np.isnan(z[space.block(i)]).any() for i in range(space.n_teachers)])
    dense = np.zeros((space.n_classes, space.n_teachers))
    for i in np.flatnonzero(active):
        dense[space.columns[space.block(i)], i] = z[space.block(i)] / temperature
    mask = space.mask & active
    known = mask.any(axis=1)
    return dense[known][:, active], mask[known][:, active], known, active


def assert_rows_agree(
    found: tuple[np.ndarray, ...], algorithm: Any, space: LabelSpace, Z: np.ndarray, tol: float
) -> None:
    """Compare each row of a kernel with an algorithm as printed, among the teachers that answer."""
    for z, u, v, change, n_iter in zip(Z, *found, strict=True):
        logits, mask, known, active = active_part(space, z, 1.5)
        assert (u[~known] == 0.0).all()
        if not active.any():
            assert n_iter == 0
            continue
        expected_u, expected_v, iterations = algorithm(logits, mask)
        assert n_iter == iterations
        assert (change < tol) == (iterations < 300)
        np.testing.assert_allclose(u[known], expected_u, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(v[active], expected_v, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("tol", [10.0, 1e-3, 1e-7])
@pytest.mark.parametrize("lists", SPACES.values(), ids=SPACES)
def test_mf_p_is_algorithm_1(lists: list[list[int]], tol: float) -> None:
    rng = np.random.default_rng(2)
    space, layout = layout_of(lists)
    Z = 3.0 * rng.normal(size=(11, space.n_columns))
    Z[4:] = with_abstentions(Z[4:], layout, rng)
    found = mf_p_probabilities(Z, layout, 1.5, tol, 300)
    np.testing.assert_allclose(found[0].sum(axis=1)[~np.isnan(Z).all(axis=1)], 1.0)

    def by_hand(logits: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        return algorithm_1(softmax(np.where(mask, logits, -np.inf), axis=0), mask, tol, 300)

    assert_rows_agree(found, by_hand, space, Z, tol)


@pytest.mark.parametrize(("tol", "lam"), [(100.0, 0.01), (1e-3, 0.01), (1e-6, 0.01), (1e-3, 1.0)])
@pytest.mark.parametrize("lists", SPACES.values(), ids=SPACES)
def test_mf_lv_is_algorithm_2(lists: list[list[int]], tol: float, lam: float) -> None:
    rng = np.random.default_rng(3)
    space, layout = layout_of(lists)
    Z = 3.0 * rng.normal(size=(11, space.n_columns)) + 7.0
    Z[4:] = with_abstentions(Z[4:], layout, rng)
    found = mf_lv_logits(Z, layout, 1.5, lam, tol, 300)
    assert_rows_agree(found, lambda z, M: algorithm_2(z, M, lam, tol, 300), space, Z, tol)
