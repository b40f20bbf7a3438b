"""Conjugate gradients against dense algebra, and label spaces of many teachers against elimination."""

import numpy as np
import pytest

from consilience import LabelSpace, estimate_soft_labels
from consilience.kernels.unify import cross_entropy, factorisation
from consilience.kernels.unify.cross_entropy import ce_logits
from consilience.kernels.unify.linear_systems import conjugate_gradients
from consilience.kernels.unify.packed import Layout, make_layout


def layout_of(lists: list[list[int]]) -> Layout:
    space = LabelSpace(lists, disconnected="ignore")
    return make_layout(space.columns, space.offsets, space.n_classes)


def space_of(layout: Layout) -> LabelSpace:
    lists = np.split(layout.columns.astype(int), layout.offsets[1:-1])
    return LabelSpace(lists, disconnected="ignore")


def many_teachers(n_teachers: int, n_classes: int, rows: int, silent: float) -> tuple[Layout, np.ndarray]:
    """Draw teachers of 20 classes whose logits are common ones plus noise; some abstain, each row its own."""
    rng = np.random.default_rng(0)
    layout = layout_of([rng.choice(n_classes, 20, replace=False).tolist() for _ in range(n_teachers)])
    common = 3.0 * rng.normal(size=(rows, len(layout.class_offsets) - 1))
    Z = common[:, layout.columns] + 2.0 * rng.normal(size=(rows, len(layout.columns)))
    abstains = rng.random((rows, n_teachers)) < silent
    return layout, np.where(abstains[:, layout.block_of], np.nan, Z)


def system(seed: int) -> tuple[Layout, np.ndarray, np.ndarray, np.ndarray]:
    """Return a layout, weights t and w of two lanes, and their dense matrices."""
    rng = np.random.default_rng(seed)
    layout = layout_of([[0, 1, 2], [2, 3], [3, 4, 5, 0], [6, 7], [7, 8, 6]])
    t = rng.uniform(0.1, 1.0, size=(len(layout.columns), 2))
    t[layout.offsets[1] : layout.offsets[2], 1] = 0.0  # a set without weight, in the second lane
    w = np.add.reduceat(t, layout.offsets[:-1], axis=0)
    H = np.zeros((2, 9, 9))
    for lane in range(2):
        for b in range(5):
            block = slice(layout.offsets[b], layout.offsets[b + 1])
            own, weights = layout.columns[block], t[block, lane]
            total = max(w[b, lane], 1e-300)
            H[lane][np.ix_(own, own)] += np.diag(weights) - np.outer(weights, weights) / total
    return layout, t, w, H


@pytest.mark.parametrize("seed", range(4))
def test_it_solves_the_dense_system(seed: int) -> None:
    layout, t, w, H = system(seed)
    r = np.stack([h @ np.random.default_rng(seed).normal(size=9) for h in H], axis=1)
    x = np.empty((9, 2))
    assert conjugate_gradients(t, w, r.copy(), layout, x, np.full(2, 1e-12), 50) == 0
    for lane in range(2):
        np.testing.assert_allclose(H[lane] @ x[:, lane], r[:, lane], atol=1e-11)


def test_it_says_how_many_lanes_are_short_of_their_goal() -> None:
    layout, t, w, H = system(0)
    r = np.stack([h @ np.arange(9.0) for h in H], axis=1)
    x = np.empty((9, 2))
    goal = np.array([1e-12, 1e3])
    left = r.copy()
    assert conjugate_gradients(t, w, left, layout, x, goal, 2) == 1
    np.testing.assert_array_equal(x[:, 1], 0.0)  # which was there from the start
    np.testing.assert_allclose(left[:, 0], r[:, 0] - H[0] @ x[:, 0], atol=1e-12)


def test_both_ways_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, Z = many_teachers(40, 120, 6, 0.1)
    space = space_of(layout)
    monkeypatch.setattr(cross_entropy, "ELIMINATION_PAYS", np.inf)
    monkeypatch.setattr(factorisation, "_inverse_pays", lambda *sizes: True)
    ce, lf = estimate_soft_labels(Z, space, "ce"), estimate_soft_labels(Z, space, "mf-lf")
    n_iter = ce_logits(Z, layout, 3.0, 1e-8, 200)[2]
    monkeypatch.setattr(cross_entropy, "ELIMINATION_PAYS", 0)
    monkeypatch.setattr(cross_entropy, "make_links", None)  # no row needs elimination
    monkeypatch.setattr(factorisation, "_inverse_pays", lambda *sizes: False)
    monkeypatch.setattr(np.linalg, "pinv", None)
    assert ce_logits(Z, layout, 3.0, 1e-8, 200)[2].max() <= n_iter.max() + 1
    np.testing.assert_allclose(estimate_soft_labels(Z, space, "ce"), ce, rtol=1e-6)
    np.testing.assert_allclose(estimate_soft_labels(Z, space, "mf-lf"), lf, rtol=1e-10)


def test_rows_with_weak_links_go_on_by_elimination(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, Z = many_teachers(40, 200, 30, 0.1)
    called = []
    make_links = cross_entropy.make_links
    monkeypatch.setattr(cross_entropy, "make_links", lambda sets: called.append(1) or make_links(sets))
    monkeypatch.setattr(cross_entropy, "ELIMINATION_PAYS", 0)
    U, norms, _ = ce_logits(30.0 * Z, layout, 3.0, 1e-8, 200)
    assert called == [1]
    assert np.isfinite(U).all()
    assert (norms <= 1e-8).all()


def test_what_conjugate_gradients_do_not_reach_is_found_by_an_inverse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout, Z = many_teachers(40, 200, 6, 0.1)
    exact = estimate_soft_labels(Z, space_of(layout), "mf-lf")
    monkeypatch.setattr(factorisation, "_inverse_pays", lambda *sizes: False)
    monkeypatch.setattr(factorisation, "most_iterations", lambda n_teachers, left: 3)
    np.testing.assert_allclose(estimate_soft_labels(Z, space_of(layout), "mf-lf"), exact, rtol=1e-10)
