"""ce against scipy's minimiser on eq. (9) as the paper prints it."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from consilience import LabelSpace
from consilience.kernels.unify import cross_entropy, factorisation
from consilience.kernels.unify.cross_entropy import ce_logits, ce_objective
from consilience.kernels.unify.packed import make_layout

Case = tuple[list[list[int]], np.ndarray]


def random_lists(rng: np.random.Generator, n_classes: int, sizes: list[int]) -> list[list[int]]:
    return [sorted(rng.choice(n_classes, size, replace=False).tolist()) for size in sizes]


def logits_for(lists: list[list[int]], rng: np.random.Generator, rows: int, scale: float) -> np.ndarray:
    return scale * rng.normal(size=(rows, sum(map(len, lists))))


def noisy(rng: np.random.Generator) -> Case:
    lists = random_lists(rng, 12, [3, 5, 4, 6, 2, 7])
    return lists, logits_for(lists, rng, 6, 3.0)


def zero_probabilities(rng: np.random.Generator) -> Case:
    lists = [[0, 1, 2], [1, 2, 3], [2, 3, 4, 0]]
    return lists, 1e4 * rng.integers(0, 3, size=(8, 10)).astype(float)


def near_one_hot(rng: np.random.Generator) -> Case:
    lists = random_lists(rng, 9, [4, 5, 3, 6])
    return lists, logits_for(lists, rng, 4, 60.0)


def disconnected(rng: np.random.Generator) -> Case:
    lists = [[0, 1, 2], [1, 2], [3, 4], [4, 5, 6], [7]]
    return lists, logits_for(lists, rng, 5, 4.0)


def weak_link(rng: np.random.Generator) -> Case:
    """Give the only class that both halves know a probability of about 1e-6 to 1e-15."""
    lists = [[0, 1, 2], [0, 1, 2], [2, 3, 4], [2, 3, 4]]
    Z = logits_for(lists, rng, 4, 2.0)
    Z[:, [2, 5, 6, 9]] -= rng.uniform(14, 34, size=(4, 4))
    return lists, Z


def far_chain(rng: np.random.Generator) -> Case:
    """Let logits fall by 40 from teacher to teacher: the last lies where exp of the difference is zero."""
    lists = [[i, i + 1] for i in range(20)]
    return lists, np.tile([0.0, -40.0], (2, 20)) + rng.normal(size=(2, 40))


def more_sets_than_classes(rng: np.random.Generator) -> Case:
    lists = random_lists(rng, 5, [2, 3, 2, 4, 3, 2, 2, 3, 4, 2, 3])
    assert len({tuple(values) for values in lists}) > 5
    return lists, logits_for(lists, rng, 7, 4.0)


def merging_sets(rng: np.random.Generator) -> Case:
    lists = [[0, 1, 2], [2, 1, 0], [1, 2, 3], [0, 2, 1], [3, 1, 2]]
    return lists, logits_for(lists, rng, 6, 3.0)


def abstentions(rng: np.random.Generator) -> Case:
    lists = [[0, 1, 2], [1, 2, 3], [3, 4, 0], [0, 1, 2], [4, 5]]
    Z = logits_for(lists, rng, 8, 3.0)
    offsets = np.cumsum([0] + [len(values) for values in lists])
    for row in range(7):
        for i in rng.choice(5, rng.integers(1, 5), replace=False):
            Z[row, offsets[i] : offsets[i + 1]] = np.nan
    return lists, Z


# and the most iterations that a case takes: Newton's method on J as it is, where nothing is degenerate
CASES: dict[Callable[[np.random.Generator], Case], int] = {
    noisy: 9, zero_probabilities: 60, near_one_hot: 60, disconnected: 9, weak_link: 60, far_chain: 60,
    more_sets_than_classes: 9, merging_sets: 9, abstentions: 9,
}  # fmt: skip


def active_blocks(
    z: np.ndarray, lists: list[list[int]], temperature: float
) -> list[tuple[list[int], np.ndarray]]:
    borders = np.cumsum([0] + [len(values) for values in lists])
    blocks = [(values, z[borders[i] : borders[i + 1]]) for i, values in enumerate(lists)]
    return [(values, softmax(block / temperature)) for values, block in blocks if not np.isnan(block).any()]


def objective(u: np.ndarray, blocks: list[tuple[list[int], np.ndarray]]) -> tuple[float, np.ndarray]:
    """Return J of eq. (9) and its gradient, term by term."""
    value, gradient = 0.0, np.zeros_like(u)
    for values, p in blocks:
        value -= float(p @ (u[values] - logsumexp(u[values])))
        gradient[values] += softmax(u[values]) - p
    return value, gradient


def scipy_minimum(blocks: list[tuple[list[int], np.ndarray]], n_classes: int) -> float:
    tight = {"gtol": 1e-10, "maxiter": 5000}
    with np.errstate(all="ignore"):
        return float(minimize(objective, np.zeros(n_classes), (blocks,), jac=True, options=tight).fun)


@cache
def scipy_minima(case: Callable[[np.random.Generator], Case], temperature: float) -> list[float]:
    """Return the minimum for each row of a case. It is the same for all our ways to find it."""
    lists, Z = case(np.random.default_rng(0))
    n_classes = max(max(values) for values in lists) + 1
    return [scipy_minimum(active_blocks(z, lists, temperature), n_classes) for z in Z]


@pytest.mark.parametrize("many", [False, True], ids=["elimination", "gradients"])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("case", CASES)
def test_newton_reaches_the_minimum(
    case: Callable[[np.random.Generator], Case],
    temperature: float,
    many: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Solve each case by elimination, and as if it had many teachers."""
    if many:
        monkeypatch.setattr(cross_entropy, "ELIMINATION_PAYS", 0)
        monkeypatch.setattr(factorisation, "_inverse_pays", lambda *sizes: False)
    lists, Z = case(np.random.default_rng(0))
    n_classes = max(max(values) for values in lists) + 1
    space = LabelSpace(lists, disconnected="ignore")
    layout = make_layout(space.columns, space.offsets, n_classes)
    U, norms, n_iter = ce_logits(Z, layout, temperature, 1e-8, 200)
    assert np.isfinite(U).all()
    assert (norms <= 1e-8).all()
    assert n_iter.max() <= CASES[case]
    J = ce_objective(U, Z, layout, temperature)
    minima = scipy_minima(case, temperature)
    for u, z, norm, value, least in zip(U, Z, norms, J, minima, strict=True):
        blocks = active_blocks(z, lists, temperature)
        ours, gradient = objective(u, blocks)
        assert np.linalg.norm(gradient) <= 1e-8
        assert np.linalg.norm(gradient) == pytest.approx(norm, abs=1e-12)
        assert value == pytest.approx(ours, rel=1e-10, abs=1e-12)
        # a gradient of 1e-8 leaves about as much in J, where a class of no mass makes it flat
        assert ours <= least + 1e-8


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0, 1e3, 1e4])
def test_newton_never_fails(scale: float) -> None:
    """Check rows by the thousand; without damping, row 975 at a scale of 1e3 ends in NaN."""
    rng = np.random.default_rng(3)
    lists = [sorted(rng.choice(35, rng.integers(5, 16), replace=False).tolist()) for _ in range(15)]
    space = LabelSpace(lists)
    layout = make_layout(space.columns, space.offsets, space.n_classes)
    Z = scale * np.random.default_rng(5).normal(size=(6000, space.n_columns))
    U, norms, n_iter = ce_logits(Z, layout, 1.0, 1e-8, 200)
    assert np.isfinite(U).all()
    assert (norms <= 1e-8).all()
    assert n_iter.max() <= 80
