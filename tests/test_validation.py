import numpy as np
import pytest

from consilience._validation import (
    as_numbers,
    as_random_state,
    check_choice,
    check_count,
    check_distributions,
    check_number,
    check_transition,
)
from consilience.exceptions import InvalidInputError
from consilience.labels import LabelSpace, check_packed_logits


def test_what_is_no_finite_number_is_refused() -> None:
    for value in (10**400, 10**5000, -(10**400), np.nan, np.inf, True, "1", None, 1j, np.complex64(1)):
        with pytest.raises(
            InvalidInputError, match=r"^epsilon=.* must be a finite number above 0\.$"
        ) as caught:
            check_number("epsilon", value, above=0)
        assert caught.value.argument == "epsilon"
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("value", "bounds"),
    [
        (np.float32(0.5), {"at_least": 0}),
        (np.int8(3), {"at_least": 0}),
        (0, {"at_least": 0}),
        (0.99, {"at_least": 0, "below": 1}),
        (1, {"above": 0, "at_most": 1}),
    ],
)
def test_a_number_within_its_bounds(value: float, bounds: dict[str, float]) -> None:
    assert check_number("x", value, **bounds) == value


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        (0, {"above": 0}, "x=0 must be a finite number above 0"),
        (-1, {"at_least": 0}, "x=-1 must be a finite number of at least 0"),
        (1, {"at_least": 0, "below": 1}, "x=1 must be below 1"),
        (1.1, {"above": 0, "at_most": 1}, r"x=1\.1 must be at most 1"),
    ],
)
def test_a_number_out_of_its_bounds(value: float, bounds: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        check_number("x", value, **bounds)
    assert (caught.value.argument, caught.value.value) == ("x", repr(value))


def test_the_bounds_of_a_count() -> None:
    assert check_count("seed", 2**32 - 1) == 2**32 - 1
    assert check_count("n", np.int16(7)) == 7
    for value in (2**32, 10**400, 10**5000):
        with pytest.raises(InvalidInputError, match=r"n=.* must be a whole number of at most 4294967295\."):
            check_count("n", value)
    assert check_count("n", 5, at_most=5) == 5
    with pytest.raises(InvalidInputError, match=r"n=6 must be a whole number of at most 5\."):
        check_count("n", 6, at_most=5)
    for other in (0, -(10**400), 1.0, True, "3"):
        with pytest.raises(InvalidInputError, match=r"n=.* must be a whole number of at least 1\."):
            check_count("n", other)


def test_seeds_are_those_of_numpy() -> None:
    assert as_random_state(7).randint(100) == np.random.RandomState(7).randint(100)
    given = np.random.RandomState(0)
    assert as_random_state(given) is given
    for value in (-1, 2**32, 10**400, "a", 0.5, [1, 2]):
        with pytest.raises(
            InvalidInputError, match=r"random_state=.* must be a whole number from 0 to 4294967295"
        ):
            as_random_state(value)


def test_a_choice_may_be_anything() -> None:
    for value in (10**400, 10**5000, [1], None, 1):
        with pytest.raises(InvalidInputError, match=r"balance=.* is unknown; use 'auto' or True") as caught:
            check_choice("balance", value, ("auto", True))
        assert caught.value.argument == "balance"


def test_masked_entries_are_no_numbers() -> None:
    values = np.ma.array([[0.5, 0.5]], mask=[[False, True]])
    with pytest.raises(
        InvalidInputError, match=r"proba has masked entries, which have no numbers; .* Fill them"
    ):
        check_distributions("proba", values)
    assert as_numbers("proba", np.ma.array([1.0]), "").tolist() == [1.0]  # a mask that hides nothing


@pytest.mark.parametrize("logits", [[[1.0], [1.0, 2.0]], [["a", "b"]], [[1j, 2]], [1.0, 2.0]])
def test_packed_logits_are_numbers(logits: list) -> None:
    with pytest.raises(InvalidInputError, match=r"logits .*expected \(n, 2\): a column per class"):
        check_packed_logits(logits, LabelSpace([["a", "b"]]))


def test_the_row_of_an_error_is_data() -> None:
    with pytest.raises(InvalidInputError, match="logits of 'teacher 1' have inf in row 1 ") as caught:
        check_packed_logits([[0.0, 0.0], [np.inf, 0.0]], LabelSpace([["a", "b"]]))
    assert caught.value.row == 1
    with pytest.raises(InvalidInputError, match=r"proba sums to 1\.1 in row 1 ") as caught:
        check_distributions("proba", [[0.5, 0.5], [0.5, 0.6]])
    assert caught.value.row == 1


def test_a_transition_of_text_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"transition .*expected numbers \(K, K\)"):
        check_transition([["a", "b"], ["c", "d"]])
