import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from consilience import ConvergenceWarning, CoverageWarning, LabelSpace
from consilience.soft_labels.agreement import (
    LEAST_ROWS,
    PRIOR,
    SURE,
    agreement_temperatures,
    divide_by_temperatures,
)

LISTS = [[0, 1, 2, 3], [1, 2, 3, 4, 5], [0, 2, 4, 5], [0, 1, 3, 5]]
bounded = settings(max_examples=8, deadline=None, derandomize=True, database=None)


def noisy_teachers(
    lists: list[list[int]] = LISTS, rows: int = 150, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return packed logits of teachers that see the class of a row through noise, and that class."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(6, size=rows)
    signal = 3.0 * np.eye(6)[truth]
    blocks = [signal[:, values] + rng.normal(size=(rows, len(values))) for values in lists]
    return np.hstack(blocks), truth


LOGITS, _ = noisy_teachers()
SPACE = LabelSpace(LISTS)


@bounded
@given(exponents=st.lists(st.floats(-4, 4), min_size=4, max_size=4))
def test_a_factor_of_the_logits_is_a_factor_of_the_temperature(exponents: list[float]) -> None:
    factors = np.exp(exponents)
    scaled = divide_by_temperatures(LOGITS, 1 / factors, SPACE)
    T = agreement_temperatures(LOGITS, SPACE)
    np.testing.assert_allclose(agreement_temperatures(scaled, SPACE), factors * T, rtol=1e-6)


def test_names_and_order_of_classes_and_rows_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(values)) for values in LISTS]
    names = ["f", "c", "a", "e", "b", "d"]
    moved = LabelSpace(
        [[names[values[k]] for k in order] for values, order in zip(LISTS, orders, strict=True)]
    )
    other = np.hstack([LOGITS[:, SPACE.block(i)][:, order] for i, order in enumerate(orders)])
    T = agreement_temperatures(LOGITS, SPACE)
    np.testing.assert_allclose(
        agreement_temperatures(other[rng.permutation(len(other))], moved), T, rtol=1e-6
    )


def test_boasting_is_found_out() -> None:
    """A calibrated teacher, one that multiplies its logits by five and one that divides them."""
    rng = np.random.default_rng(0)
    n, width = 4000, 6
    truth = rng.integers(width, size=n)
    # log P(class | x) for x = class + noise, so that every one of them is calibrated as it is
    blocks = [
        (3.0 * np.eye(width)[truth] + rng.normal(size=(n, width))) * 3.0 * factor
        for factor in (1.0, 1.0, 1.0, 5.0, 0.2)
    ]
    space = LabelSpace([list(range(width))] * 5)
    T = agreement_temperatures(np.hstack(blocks), space)
    np.testing.assert_allclose(T, [1, 1, 1, 5, 0.2], rtol=0.25)
    np.testing.assert_allclose(T / [1, 1, 1, 5, 0.2], T[0], rtol=0.12)


def test_two_teachers_of_hard_labels_are_as_sure_as_they_agree() -> None:
    """A vote counts by how sure the other is, which is the same in every row."""
    n, agree = 300, 240
    one = np.arange(n) % 3
    other = np.where(np.arange(n) < agree, one, (one + 1) % 3)
    logits = np.hstack([9.0 * np.eye(3)[one], 2.0 * np.eye(4)[other]])
    T = agreement_temperatures(logits, LabelSpace([["a", "b", "c"], ["a", "b", "c", "only here"]]), rounds=1)
    for z, width, others in ((9 / T[0], 3, 4), (2 / T[1], 4, 3)):
        # in the first round both give their decision SURE and their share of the rest
        top, right = SURE + (1 - SURE) / width, SURE + (1 - SURE) / others
        wrong = (1 - right) / width
        fits, fails = right * top, right * (1 - SURE) / width
        said = SURE * agree * fits / (fits + wrong)
        against = SURE * (n - agree) * fails / (fails + wrong)
        expected = (said + PRIOR / width) / (said + against + PRIOR)
        assert softmax([z, *[0] * (width - 1)])[0] == pytest.approx(expected, rel=1e-6)


def test_a_teacher_that_contradicts_the_others_is_muted() -> None:
    logits, truth = noisy_teachers([list(range(6))] * 4, rows=300)
    logits[:, :6] = 8.0 * np.eye(6)[(truth + 1) % 6]
    space = LabelSpace([list(range(6))] * 4)
    with pytest.warns(ConvergenceWarning, match=r"at their bound, of teacher 1 \(\d+\)"):
        T = agreement_temperatures(logits, space)
    assert softmax(logits[:, :6] / T[0], axis=1).max() < 0.2
    assert (T[1:] < 3).all()


def test_rows_on_which_one_abstains_do_not_count_for_it() -> None:
    logits, _ = noisy_teachers(rows=300)
    T = agreement_temperatures(logits, SPACE)
    lonely = np.full((100, SPACE.n_columns), np.nan)
    lonely[:50, SPACE.block(1)] = 50 * np.eye(5)[np.arange(50) % 5]  # only the second answers
    np.testing.assert_allclose(agreement_temperatures(np.vstack([logits, lonely]), SPACE), T, rtol=1e-9)
    silent = logits.copy()
    silent[150:, SPACE.block(0)] = np.nan
    half = agreement_temperatures(silent, SPACE)[0]
    assert half == pytest.approx(agreement_temperatures(logits[:150], SPACE)[0], rel=0.05)
    assert half != pytest.approx(T[0], rel=0.05)


def test_nobody_to_compare_with_leaves_one() -> None:
    space = LabelSpace([*LISTS, [7, 8]], names=["a", "b", "c", "d", "far"], disconnected="ignore")
    with_far = np.hstack([LOGITS, np.random.default_rng(0).normal(size=(150, 2))])
    with pytest.warns(CoverageWarning, match=r"left far \(0\) at temperature 1\. .* at least 10"):
        T = agreement_temperatures(with_far, space)
    assert T[4] == 1.0
    np.testing.assert_allclose(T[:4], agreement_temperatures(LOGITS, SPACE), rtol=1e-6)
    with pytest.warns(CoverageWarning, match=r"left teacher 1 \(0\) at"):
        assert agreement_temperatures(LOGITS[:, :4], LabelSpace(LISTS[:1])).tolist() == [1.0]
    few = int(LEAST_ROWS) // 2
    with pytest.warns(CoverageWarning, match=r"left teacher 1 \([1-4]\.\d*\), teacher 2 .*, teacher 4 "):
        assert agreement_temperatures(LOGITS[:few], SPACE).tolist() == [1.0] * 4


def test_others_that_know_one_of_its_classes_decide_nothing() -> None:
    """A teacher of one class gives it in every row."""
    rng = np.random.default_rng(0)
    logits = np.hstack([np.zeros((300, 1)), rng.normal(size=(300, 2))])
    with pytest.warns(CoverageWarning, match=r"left teacher 2 \(0\) at"):
        T = agreement_temperatures(logits, LabelSpace([["a"], ["a", "b"]]))
    assert T.tolist() == [1.0, 1.0]
    # nor does a single one of the others that answers on a row
    packed, _ = noisy_teachers(rows=300)
    wider = LabelSpace([*LISTS, [0]])
    lonely = np.full((100, wider.n_columns), np.nan)
    lonely[:, wider.block(0)] = rng.normal(size=(100, 4))
    lonely[:, wider.block(4)] = 0.0
    more = np.vstack([np.hstack([packed, np.full((300, 1), np.nan)]), lonely])
    found = agreement_temperatures(more, wider)
    np.testing.assert_allclose(found[1:4], agreement_temperatures(packed, SPACE)[1:], rtol=0.02)
    np.testing.assert_allclose(found[0], agreement_temperatures(packed, SPACE)[0], rtol=0.1)


def test_teachers_that_say_nothing_keep_one_without_a_warning() -> None:
    space = LabelSpace([*LISTS, [0, 5], [3]])
    constant = np.hstack([LOGITS, np.full((150, 2), 4.0), np.zeros((150, 1))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert agreement_temperatures(constant, space)[4:].tolist() == [1.0, 1.0]
