"""The default: ranks, mf-lf and ce pooled by how well they predict each teacher from the others."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from consilience import ConvergenceWarning, InvalidInputError, LabelSpace, Unifier, as_teacher, methods
from consilience.kernels.unify.packed import make_layout
from consilience.kernels.unify.ranks import rank_scores
from consilience.methods import CE, Auto
from consilience.soft_labels import pool as pooling
from consilience.soft_labels.estimate import SoftLabelSolver, estimate_soft_labels

SETS = [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 0, 1], [1, 3, 5, 0]]
DISJOINT = [[0, 1, 2], [3, 4, 5]]
OPTIONS = CE(temperature=1.0)


def crowd(
    sets: list[list[int]],
    seed: int,
    *,
    scales: tuple[float, ...] = (1.0,),
    shift: float = 0.0,
    rows: int = 600,
) -> tuple[LabelSpace, np.ndarray, np.ndarray]:
    """Teachers that see the true class through noise; `shift` draws a bias for each column of theirs."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(6, size=rows)
    blocks = []
    for i, own in enumerate(sets):
        seen = 4.0 * np.eye(6)[truth][:, own] + 1.5 * rng.normal(size=(rows, len(own)))
        blocks.append(scales[i % len(scales)] * (seen + shift * rng.normal(size=len(own))))
    return LabelSpace(sets, disconnected="ignore"), np.hstack(blocks), truth


def accuracy(Q: np.ndarray, truth: np.ndarray) -> float:
    return float((Q.argmax(axis=1) == truth).mean())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("sets", "scales", "shift", "gain"),
    [(SETS, (0.3, 1.0, 6.0), 2.0, 0.04), (DISJOINT, (0.3, 3.0), 0.0, 0.2)],
)
def test_teachers_of_other_scale_and_bias_or_without_a_common_class_are_made_comparable(
    sets: list[list[int]], scales: tuple[float, ...], shift: float, gain: float, seed: int
) -> None:
    space, logits, truth = crowd(sets, seed, scales=scales, shift=shift)
    own = max(accuracy(estimate_soft_labels(logits, space, m), truth) for m in ("ce", "mf-lf", "sd"))
    for method in ("ranks", "auto"):
        assert accuracy(estimate_soft_labels(logits, space, method), truth) > own + gain


@pytest.mark.parametrize("seed", range(5))
def test_the_pool_leans_to_what_predicts_the_others(seed: int) -> None:
    alike, unlike = crowd(SETS, seed), crowd(SETS, seed, scales=(0.3, 1.0, 6.0), shift=2.0)
    weights = [SoftLabelSolver(logits, space, Auto()).weights for space, logits, _ in (alike, unlike)]
    assert weights[0] is not None
    assert weights[1] is not None
    assert weights[1]["ranks"] > weights[0]["ranks"] + 0.2
    assert sum(weights[0].values()) == pytest.approx(1.0)


def test_the_pool_is_as_sure_as_the_ranks() -> None:
    space, logits, _ = crowd(SETS, 0)
    ranks = estimate_soft_labels(logits, space, "ranks").max(axis=1).mean()
    assert estimate_soft_labels(logits, space, "auto").max(axis=1).mean() == pytest.approx(ranks, abs=1e-6)


@pytest.mark.parametrize("sets", [SETS, DISJOINT])
def test_new_rows_are_labelled_as_among_the_reference(sets: list[list[int]]) -> None:
    space, logits, _ = crowd(sets, 1, scales=(0.5, 2.0), rows=2000)
    whole = estimate_soft_labels(logits, space, "auto")
    few = estimate_soft_labels(logits[:9], space, "auto", reference=logits)
    np.testing.assert_allclose(few, whole[:9], atol=1e-9)
    part = estimate_soft_labels(logits[:500], space, "auto", reference=logits[1000:])
    assert np.abs(part - whole[:500]).mean() < 0.02


def test_only_methods_that_rank_take_a_reference() -> None:
    space, logits, _ = crowd(SETS, 0, rows=10)
    with pytest.raises(InvalidInputError, match=r"reference= is for methods that rank rows.*method is 'ce'"):
        estimate_soft_labels(logits, space, "ce", reference=logits)
    with pytest.raises(InvalidInputError, match=r"^reference logits have shape"):
        estimate_soft_labels(logits, space, "ranks", reference=logits[:, 1:])


@pytest.mark.parametrize("method", ["ranks", "auto"])
def test_a_reference_ranks_every_teacher_that_answers(method: str) -> None:
    space, logits, _ = crowd(SETS, 0, rows=30)
    silent = logits.copy()
    silent[:, space.block(2)] = np.nan
    for reference in (silent, np.full_like(logits, np.nan)):
        with pytest.raises(
            InvalidInputError, match=r"answers on no row of reference=, so its answers have no"
        ):
            estimate_soft_labels(logits, space, method, reference=reference)
    with pytest.raises(InvalidInputError, match=r"'teacher 1' answers on no row of reference="):
        estimate_soft_labels(logits, space, method, reference=logits[:0])
    # a teacher that says nothing needs no ranks
    Q = estimate_soft_labels(silent[:5], space, method, reference=silent)
    np.testing.assert_allclose(Q, estimate_soft_labels(silent, space, method)[:5], atol=1e-9)
    nothing = np.full_like(logits, np.nan)
    np.testing.assert_allclose(estimate_soft_labels(nothing, space, method, reference=nothing), 1 / 6)


def test_between_groups_the_ranks_decide() -> None:
    space, logits, _ = crowd(DISJOINT, 2)
    layout = make_layout(space.columns, space.offsets, space.n_classes)
    z = rank_scores(logits, layout.offsets)
    pool = pooling.Pool(np.array([0.2, 0.3, 0.5]), np.outer([0.2, 0.3, 0.5], np.ones(6)))
    Q = pool.logits(z, logits, layout, OPTIONS).soft_labels(1.0)
    ranks = estimate_soft_labels(logits, space, "ranks")
    np.testing.assert_allclose(Q[:, :3].sum(axis=1), ranks[:, :3].sum(axis=1), atol=1e-9)
    U = np.stack(pooling.estimate_all(z, logits, layout, OPTIONS)[0])
    within = np.exp(np.tensordot([0.2, 0.3, 0.5], U[:, :, :3], 1))
    np.testing.assert_allclose(
        Q[:, :3] / Q[:, :3].sum(axis=1, keepdims=True), within / within.sum(axis=1, keepdims=True), atol=1e-9
    )


def test_the_weights_are_where_the_likelihood_is_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slope that the minimiser gets is that of finite differences, and it ends at zero or a bound."""
    space, logits, _ = crowd(SETS, 3, scales=(0.5, 2.0))
    layout = make_layout(space.columns, space.offsets, space.n_classes)
    z = rank_scores(logits, layout.offsets)
    minimised = []
    inner = pooling.minimize

    def spy(loss, start, **options):  # type: ignore[no-untyped-def]
        found = inner(loss, start, **options)
        minimised.append((loss, found.x))
        return found

    monkeypatch.setattr(pooling, "minimize", spy)
    pooling.choose_pool(z, logits, layout, OPTIONS)
    ((loss, x),) = minimised
    for point in (x, np.array([0.4, 1.1, 0.2])):
        slope = approx_fprime(point, lambda w: loss(w)[0], 1e-6)
        np.testing.assert_allclose(loss(point)[1], slope, atol=1e-5)
    slope = loss(x)[1]
    assert (np.abs(slope[x > 1e-6]) < 1e-3).all()
    assert (slope[x <= 1e-6] > -1e-3).all()


@pytest.mark.filterwarnings("ignore::consilience.ConvergenceWarning")
def test_one_huge_row_overflows_nothing() -> None:
    space, logits, _ = crowd(SETS, 0, rows=100)
    logits[0] *= 1e200
    with np.errstate(over="raise", invalid="raise"):
        Q = estimate_soft_labels(logits, space, "auto")
    np.testing.assert_allclose(Q.sum(axis=1), 1.0)


def test_a_warning_points_to_the_line_that_called_us() -> None:
    space, logits, _ = crowd(SETS, 0, rows=50)
    teachers = [
        as_teacher(logits[:, space.block(i)], classes=own, output="logits") for i, own in enumerate(SETS)
    ]
    unifier = Unifier(teachers, "logistic", method=methods.Auto(max_iter=1))
    for call in (
        lambda: estimate_soft_labels(logits, space, methods.Auto(max_iter=1)),
        lambda: unifier.estimate(np.zeros((50, 1))),
        lambda: unifier.fit(np.zeros((50, 1))),
    ):
        with pytest.warns(ConvergenceWarning, match="ce stopped at max_iter=1 in") as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]


def test_a_class_about_which_nobody_answers_has_its_share() -> None:
    space, logits, _ = crowd(SETS[:2], 4)
    logits[0, space.block(1)] = np.nan  # nobody is left who knows 4 and 5
    for method in ("ranks", "auto"):
        Q = estimate_soft_labels(logits, space, method)
        np.testing.assert_allclose(Q[0, 4:], 1 / 6)
        np.testing.assert_allclose(Q.sum(axis=1), 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_groups_have_scales_of_their_own(seed: int) -> None:
    """A group whose teacher is a hundred times as loud is not a hundred times as sharp."""
    space, logits, _ = crowd(DISJOINT, seed)
    loud = logits * np.where(np.arange(6) < 3, 1.0, 100.0)
    layout = make_layout(space.columns, space.offsets, space.n_classes)
    plain = pooling.choose_pool(rank_scores(logits, layout.offsets), logits, layout, OPTIONS)
    scaled = pooling.choose_pool(rank_scores(loud, layout.offsets), loud, layout, OPTIONS)
    np.testing.assert_allclose(scaled.scales[1, :3], plain.scales[1, :3], rtol=0.05)
    np.testing.assert_allclose(100 * scaled.scales[1, 3:], plain.scales[1, 3:], rtol=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_a_shift_matters_in_no_pattern_of_abstentions(seed: int) -> None:
    """Where the teachers who answer leave groups unconnected, logits of two groups have no common level."""
    rng = np.random.default_rng(seed)
    lists = [[1, 2], [0], [0, 1], [3, 4], [4, 0]]
    space = LabelSpace(lists)
    silent = rng.uniform(size=(40, 5)) < 0.4
    logits = 2.0 * rng.normal(size=(40, space.n_columns))
    logits[np.repeat(silent, [len(own) for own in lists], axis=1)] = np.nan
    shift = np.repeat(rng.uniform(-50, 50, size=(40, 5)), [len(own) for own in lists], axis=1)
    Q = estimate_soft_labels(logits, space, "auto")
    np.testing.assert_allclose(estimate_soft_labels(logits + shift, space, "auto"), Q, atol=1e-4)
