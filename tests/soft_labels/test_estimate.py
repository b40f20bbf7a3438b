import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import consilience.soft_labels.estimate
from consilience import ConvergenceWarning, InvalidInputError, LabelSpace, methods
from consilience.methods import METHODS
from consilience.soft_labels.estimate import LARGEST_LOGIT, balance_weights, estimate_soft_labels

every_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture
def space() -> LabelSpace:
    return LabelSpace([["a", "b", "c"], ["c", "d"], ["d", "a"]], names=["x", "y", "z"])


def logits(rows: int, columns: int = 7) -> np.ndarray:
    return 2.0 * np.random.default_rng(0).normal(size=(rows, columns))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "mfp",
            r"method='mfp' is unknown; use 'auto', 'ranks', 'mf-lf', 'ce', 'mf-p'.*Did you mean 'mf-p'\?",
        ),
        (methods.SD("3"), r"temperature='3' must be a finite number above 0"),
        (methods.CE(float("inf")), r"temperature=inf must be a finite number above 0"),
        (methods.Own(len, 1e-308), r"temperature=1e-308 must be from 1e-6 to 1e6"),
        (methods.MFP(tol=-1e-3), r"tol=-0.001 must be a finite number above 0"),
        (methods.MFLV(max_iter=2.5), r"max_iter=2.5 must be a whole number of at least 1"),
        (methods.MFLV(ridge=True), r"ridge=True must be a finite number above 0"),
        (methods.CE(off_set=None), r"off_set=None is unknown; use True or False"),
        (methods.MFLF(n_neighbors=5), r"n_neighbors=5 compares rows of X.*use n_neighbors=0"),
    ],
)
def test_wrong_options_are_refused(space: LabelSpace, method: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        estimate_soft_labels(logits(2), space, method)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_that_are_not_finite_are_refused(space: LabelSpace, value: float) -> None:
    Z = logits(4)
    Z[2, 4] = value
    with pytest.raises(InvalidInputError, match=rf"logits of 'y' have {value} in row 2 \(1 such row\)"):
        estimate_soft_labels(Z, space)


@pytest.mark.parametrize(
    ("Z", "message"),
    [
        *(
            (np.zeros(shape), r"logits have shape .*; expected \(n, 7\).*3 teachers")
            for shape in [(7,), (2, 6), (2, 7, 1)]
        ),
        ([[1.0] * 7, [1.0] * 6], r"logits cannot be read as numbers \(.*\); expected \(n, 7\)"),
        ([["a"] * 7], r"logits cannot be read as numbers \(they have type <U1\)"),
        ([["1.5"] * 7], r"logits cannot be read as numbers \(they have type <U3\)"),
        (np.ones((2, 7), dtype=complex), r"they have type complex128"),
        ([[10**400] * 7], r"logits cannot be read as numbers \(.* too large"),
        (csr_array(np.ones((2, 7))), r"logits cannot be read .*a sparse matrix: give logits.toarray\(\)"),
        (None, r"logits cannot be read as numbers|logits have shape"),
    ],
)
def test_logits_that_are_no_array_of_numbers_are_refused(space: LabelSpace, Z: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        estimate_soft_labels(Z, space)


@every_method
@pytest.mark.parametrize("temperature", [1e-6, 1.0, 1e6])
def test_the_largest_and_smallest_numbers_give_probabilities(
    space: LabelSpace, method: str, temperature: float
) -> None:
    limited = method in ("ce", "mf-lv", "mf-lf", "auto")
    largest = LARGEST_LOGIT * min(temperature, 1.0) if limited else 1.7e308
    Z = np.sign(logits(6)) * [[1e-308], [1e-30], [1.0], [1e30], [1e150], [largest]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        Q = estimate_soft_labels(Z, space, METHODS[method](temperature))
    np.testing.assert_allclose(Q.sum(axis=1), 1.0, atol=1e-6)
    assert Q.min() >= 0
    Z[0] = np.nan  # abstentions do not hide what is too large
    for too_large in (1.01 * largest, -1.01 * largest) if limited else ():
        Z[5, 0] = too_large
        with pytest.raises(InvalidInputError, match=r"logits reach .*; at temperature .* the most is"):
            estimate_soft_labels(Z, space, METHODS[method](temperature))


def test_a_function_of_ones_own_estimates(space: LabelSpace) -> None:
    Z, given, told = logits(5), [], []
    Z[2, 3:5] = np.nan
    before = Z.copy()

    def first_class(logits: Any, space: LabelSpace, temperature: float) -> list[list[float]]:
        given.extend([logits, space, temperature])
        with pytest.raises(ValueError, match="read-only"):
            logits[0, 0] = 7.0
        return [[1.0, 0.0, 0.0, 0.0]] * len(logits)

    Q = estimate_soft_labels(Z, space, methods.Own(first_class, 2.0), progress=lambda *a: told.append(a))
    assert Q.tolist() == [[1.0, 0.0, 0.0, 0.0]] * 5
    assert Q.flags.writeable
    np.testing.assert_array_equal(given[0], before)
    assert given[1:] == [space, 2.0]
    assert told == [("soft labels", 5, 5)]
    assert Z.flags.writeable


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.full((5, 3), 1 / 3), r"The method own returned shape \(5, 3\); expected probabilities \(5, 4\)"),
        (np.full((4, 4), 1 / 4), r"returned shape \(4, 4\)"),
        (None, r"What method own returned has shape \(\) and type object; expected probabilities \(5, 4\)"),
        (np.full((5, 4), np.nan), r"What method own returned has nan at \(0, 0\)"),
        (np.full((5, 4), np.inf), r"What method own returned has inf at"),
        (np.tile([1.5, -0.5, 0, 0], (5, 1)), r"What method own returned has -0.5 at \(0, 1\)"),
        (np.full((5, 4), 0.3), r"What method own returned sums to 1.2 in row 0"),
    ],
)
def test_what_an_own_function_returns_is_checked(space: LabelSpace, answer: Any, message: str) -> None:
    def own(logits: Any, space: LabelSpace, temperature: float) -> Any:
        return answer

    with pytest.raises(InvalidInputError, match=message):
        estimate_soft_labels(logits(5), space, own)


@every_method
def test_no_rows(space: LabelSpace, method: str) -> None:
    Q = estimate_soft_labels(np.empty((0, 7)), space, method)
    assert Q.shape == (0, 4)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "ranks"])
def test_one_teacher_is_believed(method: str) -> None:
    p = np.array([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    options = {"ridge": 1e-9} if method == "mf-lv" else {}
    Q = estimate_soft_labels(np.log(p), LabelSpace([[0, 1, 2]]), METHODS[method](1.0, **options))
    np.testing.assert_allclose(Q, p, atol=1e-6)


@every_method
def test_one_class_per_teacher(method: str) -> None:
    space = LabelSpace([[0], [1], [2], [1]], disconnected="ignore")
    Q = estimate_soft_labels(logits(3, 4), space, method)
    # sd counts the teachers; the others have nothing to go by
    expected = [0.25, 0.5, 0.25] if method == "sd" else [1 / 3, 1 / 3, 1 / 3]
    np.testing.assert_allclose(Q, [expected] * 3)


@every_method
def test_a_thousand_classes(method: str) -> None:
    rng = np.random.default_rng(1)
    space = LabelSpace([np.arange(i * 90, i * 90 + 130) for i in range(12)])
    u = 2.0 * rng.normal(size=(3, space.n_classes))
    q = np.exp(u) / np.exp(u).sum(axis=1, keepdims=True)
    Q = estimate_soft_labels(u[:, space.columns], space, METHODS[method](1.0))
    assert Q.shape == (3, 1120)
    np.testing.assert_allclose(Q.sum(axis=1), 1.0)
    if method in ("ce", "mf-lf"):
        np.testing.assert_allclose(Q, q, rtol=1e-8)


@every_method
def test_a_row_on_which_all_abstain_is_uniform(space: LabelSpace, method: str) -> None:
    Z = logits(5)
    Z[3] = np.nan
    Q = estimate_soft_labels(Z, space, method)
    np.testing.assert_allclose(Q[3], 0.25)
    np.testing.assert_allclose(
        np.delete(Q, 3, axis=0), estimate_soft_labels(np.delete(Z, 3, axis=0), space, method), atol=1e-12
    )


@pytest.mark.parametrize(
    ("method", "what"), [("ce", "gradient norm"), ("mf-p", "change per iteration"), ("mf-lv", "change per")]
)
def test_rows_that_stop_early_are_counted(space: LabelSpace, method: str, what: str) -> None:
    Z = logits(6)
    Z[[1, 4]] = np.nan  # nothing to solve: these two are not late
    with pytest.warns(
        ConvergenceWarning, match=rf"{method} stopped at max_iter=1 in 4 of 6 rows, with a {what}"
    ):
        estimate_soft_labels(Z, space, METHODS[method](tol=1e-12, max_iter=1))


@every_method
def test_chunks_make_no_difference(space: LabelSpace, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Z = logits(10)
    Z[4:7, 3:5] = np.nan
    whole = estimate_soft_labels(Z, space, method)
    told: list[tuple[str, int, int]] = []
    monkeypatch.setattr(consilience.soft_labels.estimate, "CHUNK_ROWS", 3)
    parts = estimate_soft_labels(Z, space, method, progress=lambda *report: told.append(report))
    np.testing.assert_allclose(parts, whole, atol=1e-12)
    assert told == [("soft labels", done, 10) for done in (3, 6, 9, 10)]


def test_weights_are_the_inverse_of_the_mean() -> None:
    Q = np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]])
    np.testing.assert_allclose(balance_weights(Q), [1 / 0.375, 1 / 0.625, 0.0])
    np.testing.assert_array_equal(balance_weights(np.empty((0, 3))), 0.0)


@pytest.mark.parametrize("mean", [1e-2, 1e-6, 1e-12])
def test_the_weight_of_a_rare_class_has_no_bound(mean: float) -> None:
    np.testing.assert_allclose(balance_weights([[1 - 2 * mean, 2 * mean], [1.0, 0.0]])[1], 1 / mean)


@pytest.mark.parametrize(
    ("Q", "message"),
    [
        ([0.5, 0.5], r"Q has shape \(2,\); expected \(n, L\)"),
        ([[0.5, -0.5]], r"Q has entries that are negative or not finite"),
        ([[0.5, np.nan]], r"Q has entries that are negative or not finite"),
        ([["a", "b"]], r"Q has shape \(1, 2\) and type <U1; expected \(n, L\)"),
        ([[0.5, np.inf]], r"Q has entries that are negative or not finite"),
    ],
)
def test_balance_weights_refuses_what_is_no_probability(Q: list, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        balance_weights(Q)
