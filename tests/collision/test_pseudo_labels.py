"""collision_pseudo_labels at its boundary: what goes in, what comes out, and the cases at the edges."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from consilience import ConvergenceWarning, InvalidInputError, collision_pseudo_labels
from consilience.collision.pseudo_labels import SOLVERS, PseudoLabels, read_prior
from consilience.kernels.collision import fair_labels

SIGMA = softmax(2 * np.random.default_rng(0).normal(size=(40, 5)), axis=1)
UNEVEN = softmax(np.random.default_rng(1).normal([2, 0, 0, -2], size=(60, 4)), axis=1)
every_solver = pytest.mark.parametrize("solver", SOLVERS)


def assert_on_the_simplex(result: PseudoLabels, shape: tuple[int, int]) -> None:
    assert result.labels.shape == shape
    assert (result.labels >= 0).all()
    np.testing.assert_allclose(result.labels.sum(axis=1), 1, atol=1e-12)


@every_solver
def test_every_solver_converges_and_says_so(solver: Any) -> None:
    result = collision_pseudo_labels(SIGMA, 0.4, solver=solver, tol=1e-4)
    assert result.converged
    assert 0 <= result.gap <= 1e-4
    assert result.n_iter > 0
    assert_on_the_simplex(result, SIGMA.shape)
    assert type(result.gap) is type(result.objective) is float


@every_solver
def test_without_fairness_each_row_takes_its_most_probable_class(solver: Any) -> None:
    result = collision_pseudo_labels([[0.2, 0.7, 0.1], [0.4, 0.2, 0.4]], 0, solver=solver)
    assert result.labels.tolist() == [[0, 1, 0], [1, 0, 0]]  # the first of equals
    assert result.objective == pytest.approx(-(math.log(0.7) + math.log(0.4)) / 2)
    assert result.gap == 0
    assert result.converged


@pytest.mark.parametrize("prior", [None, [0.4, 0.3, 0.2, 0.1]])
def test_large_lam_makes_the_mean_of_the_labels_the_prior(prior: Any) -> None:
    result = collision_pseudo_labels(UNEVEN, 1e6, prior)
    np.testing.assert_allclose(result.labels.mean(axis=0), [0.25] * 4 if prior is None else prior, atol=1e-5)
    small = collision_pseudo_labels(UNEVEN, 0.01, prior)
    assert abs(small.labels.mean(axis=0) - 0.25).max() > 0.1


@pytest.mark.parametrize(
    "sigma",
    [
        np.ones((3, 1)),
        np.array([[0.2, 0.8]]),
        softmax(np.random.default_rng(2).normal(size=(3, 9)), axis=1),
        np.eye(4)[[0, 0, 0, 1, 2]],
        np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.3, 0.7]]),
        np.tile([[0.6, 0.3, 0.1]], (8, 1)),
        np.array([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0]]),  # nobody predicts class 2
        np.array([[1.0 - 1e-300, 1e-300], [1.0, 0.0]]),
        softmax(30 * np.random.default_rng(3).normal(size=(50, 6)), axis=1),
    ],
    ids=["K=1", "M=1", "M<K", "one-hot", "zeros", "duplicates", "absent class", "tiny", "peaked"],
)
@pytest.mark.parametrize("lam", [1e-6, 0.4, 100.0, 1e6])
def test_edges(sigma: Any, lam: float) -> None:
    result = collision_pseudo_labels(sigma, lam, tol=1e-8 * (1 + lam))
    assert result.converged
    assert_on_the_simplex(result, sigma.shape)


@pytest.mark.parametrize("lam", [1e-3, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("n_classes", [2, 20, 100])
def test_any_lam_takes_few_steps(lam: float, n_classes: int) -> None:
    logits = np.random.default_rng(0).normal(np.arange(n_classes) / n_classes, 3, size=(250, n_classes))
    result = collision_pseudo_labels(softmax(logits, axis=1), lam, tol=1e-8)
    assert result.n_iter <= 40
    # the last steps are long: each leaves a small part of the gap
    almost = collision_pseudo_labels(softmax(logits, axis=1), lam, tol=1e-5)
    assert result.n_iter - almost.n_iter <= 6


def test_pinned_rows_keep_their_class_and_count_in_the_mean() -> None:
    fixed = np.full(len(UNEVEN), -1)
    fixed[:20] = 3
    result = collision_pseudo_labels(UNEVEN, 50.0, fixed=fixed, tol=1e-9)
    np.testing.assert_array_equal(result.labels[:20], np.eye(4)[[3] * 20])
    ybar = result.labels.mean(axis=0)
    expected = -np.log((UNEVEN * result.labels).sum(axis=1)).mean() + 50 * (0.25 * np.log(0.25 / ybar)).sum()
    assert result.objective == pytest.approx(expected)
    # the free rows see to it that class 3, which has its share already, gets nothing more
    assert result.labels[20:, 3].max() < 1e-3
    assert collision_pseudo_labels(UNEVEN, 50.0, tol=1e-9).labels[20:, 3].max() > 0.5


@pytest.mark.parametrize(
    ("sigma", "lam", "fixed", "objective"),
    [
        ([[1.0, 0.0], [0.3, 0.7]], 1.0, [1, -1], np.inf),  # a pinned label that is ruled out
        ([[0.5, 0.5]] * 2, 2.0, [0, 1], math.log(2)),
        ([[0.5, 0.5]] * 4, 2.0, [0, 0, 0, 1], math.log(2) - math.log(4 * 0.75 * 0.25)),  # + 2 KL(u || ybar)
    ],
)
def test_all_rows_may_be_pinned_and_their_labels_ruled_out(
    sigma: Any, lam: float, fixed: Any, objective: float
) -> None:
    result = collision_pseudo_labels(sigma, lam, fixed=fixed)
    assert result.objective == pytest.approx(objective)
    assert np.isfinite(result.gap)
    assert result.converged


def test_paper_scaling_divides_by_the_number_of_rows() -> None:
    printed = collision_pseudo_labels(SIGMA, 100.0, paper_scaling=True)
    assert printed.objective == collision_pseudo_labels(SIGMA, 100.0 / 40).objective


@pytest.mark.parametrize("solver", ["interior-point", "em", "pgd"])
def test_a_start_near_the_solution_saves_iterations(solver: Any) -> None:
    exact = collision_pseudo_labels(UNEVEN, 3.0, tol=1e-9)
    cold = collision_pseudo_labels(UNEVEN, 3.0, solver=solver, tol=1e-3)
    warm = collision_pseudo_labels(UNEVEN, 3.0, solver=solver, tol=1e-3, init=exact.labels)
    assert warm.n_iter < cold.n_iter
    assert warm.objective == pytest.approx(exact.objective, abs=1e-3)


@pytest.mark.parametrize(
    ("solver", "step_size", "advice"),
    [("interior-point", None, "or tol"), ("em", None, "or tol, or use"), ("pgd", 1e4, "another step_size")],
)
def test_stopping_early_warns_with_figures(solver: Any, step_size: float | None, advice: str) -> None:
    says = rf"{solver} stopped after 2 iterations.*max_iter=2.*tol 1.*{advice}"
    with pytest.warns(ConvergenceWarning, match=says):
        result = collision_pseudo_labels(UNEVEN, 100.0, solver=solver, max_iter=2, step_size=step_size)
    assert not result.converged


def test_large_problems_with_a_loose_tolerance_go_to_em(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = collision_pseudo_labels(SIGMA, 0.4, tol=1e-3)
    monkeypatch.setattr(fair_labels, "_MANY_LABELS", 100)
    assert collision_pseudo_labels(SIGMA, 0.4, tol=1e-3).n_iter > 2 * exact.n_iter
    assert collision_pseudo_labels(SIGMA, 0.4, tol=1e-4).n_iter < 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"proba": [0.5, 0.5]}, r"proba has shape \(2,\); expected \(M, K\)"),
        ({"proba": np.empty((0, 3))}, r"shape \(0, 3\)"),
        ({"proba": [[0.5, 0.5], [2.0, 1.0]]}, "proba sums to 3 in row 1"),
        ({"proba": [[1.5, -0.5]]}, "expected probabilities, from 0 to 1"),
        ({"proba": [[np.nan, 0.5]]}, "expected probabilities, from 0 to 1"),
        ({"lam": -1.0}, "lam=-1.0 must be a finite number of at least 0"),
        ({"lam": np.inf}, "lam=inf must be a finite number"),
        ({"prior": [0.5, 0.5]}, r"prior has shape \(2,\); expected numbers \(5,\), a share for each class"),
        (
            {"prior": [1, 1, -1, 1, 1]},
            r"prior is \[1, 1, -1, 1, 1\]; expected a share from 0 for",
        ),
        *(
            ({"prior": prior}, "prior is .* expected a share from 0 for each class, not")
            for prior in ([0] * 5, [1, 1, 1, 1, np.nan], [np.inf] * 5, [1e200] * 5)
        ),
        ({"solver": "interior"}, "Did you mean 'interior-point'"),
        ({"tol": 0.0}, "tol=0.0"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"solver": "pgd", "step_size": 0.0}, "step_size=0.0"),
        ({"step_size": 1.0}, r"step_size=1\.0 is for solver='pgd'"),
        ({"prior": "uniform"}, r"prior has shape \(\)"),
        ({"init": SIGMA[:3]}, r"init has shape \(3, 5\)"),
        ({"fixed": [0, 1]}, r"fixed has shape \(2,\)"),
        ({"fixed": np.full(40, 0.5)}, "type float64"),
        ({"fixed": np.full(40, 5)}, "from 0 to 4"),
        ({"divergence": "backward"}, "divergence='backward' is unknown"),
        ({"divergence": "reverse", "solver": "em"}, "cannot take divergence='reverse'; use solver='pgd'"),
        ({"divergence": "reverse", "prior": [0.5, 0.5, 0, 0, 0]}, "prior has a zero"),
    ],
)
def test_errors_say_what_to_do(options: dict[str, Any], message: str) -> None:
    arguments = {"proba": SIGMA, "lam": 1.0} | options
    with pytest.raises(InvalidInputError, match=message):
        collision_pseudo_labels(**arguments)


@pytest.mark.parametrize("seed", range(375, 385))
def test_small_steps_do_not_end_in_a_jam(seed: int) -> None:
    # equal rows and a small lam: second-order terms can lead astray (seed 381), and the method must turn back
    draw = np.random.default_rng(seed)
    sigma = softmax(0.01 * draw.normal(size=(1, 7)), axis=1).repeat(2, axis=0)
    prior = draw.dirichlet(np.full(7, 10.0))
    for lam in (1e-4, 1e-3, 1e-2):
        assert collision_pseudo_labels(sigma, lam, prior).converged


@pytest.mark.parametrize("scale", [1, 7, 1e-320, 1e-3, 1e99])
def test_shares_of_any_scale_sum_to_one(scale: float) -> None:
    shares = read_prior(np.array([3.0, 1.0, 0.0]) * scale, 3)
    assert shares.sum() == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(shares, [0.75, 0.25, 0], atol=2e-3 if scale < 1e-300 else 1e-15)
    with pytest.raises(InvalidInputError, match=r"expected a positive share for each clu"):
        read_prior(np.array([3.0, 1.0, 0.0]) * scale, 3, "cluster", positive=True)


@pytest.mark.parametrize(
    "options",
    [
        {"lam": 1e15, "divergence": "reverse", "init": np.eye(3)[np.arange(60) % 3]},
        {"lam": 1e15, "solver": "pgd"},
        {"lam": 1.0, "solver": "pgd", "step_size": 1e3},
    ],
)
def test_steps_that_are_far_too_long_end_on_the_simplex(options: dict[str, Any]) -> None:
    proba = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    with pytest.warns(ConvergenceWarning):
        labels = collision_pseudo_labels(proba, prior=[0.2, 0.3, 0.5], **options).labels
    np.testing.assert_allclose(labels.sum(axis=1), 1.0)
    assert labels.min() >= 0.0
