from typing import Any

import numpy as np
import pytest

from consilience.exceptions import ConsilienceWarning, InvalidInputError
from consilience.labels import read_labels


def masked(values: list, mask: list) -> np.ndarray:
    return np.ma.array(values, mask=mask)


@pytest.mark.parametrize(
    "y",
    [
        ["b", None, "a"],
        ("b", np.nan, "a"),
        np.array(["b", None, "a"], dtype=object),
        masked(["b", "a", "a"], [0, 1, 0]),
        [np.str_("b"), np.ma.masked, np.str_("a")],
        iter(["b", None, "a"]),
        [5, -1, 3],
        [5, None, 3],
        np.array([5, -1, 3], dtype=np.int8),
        np.array([5.0, np.nan, 3.0]),
        np.array([5.0, -1.0, 3.0], dtype=np.float32),
        masked([5, 9, 3], [0, 1, 0]),
        masked([5.0, 9.0, 3.0], [0, 1, 0]),
        [np.int64(5), float("nan"), np.array(3)],
        [True, None, False],
    ],
)
def test_a_row_without_a_label_looks_the_same_in_every_form(y: object) -> None:
    classes, codes = labels = read_labels(y, 3)
    assert codes.tolist() == [1, -1, 0]
    assert labels.known.tolist() == [True, False, True]
    assert classes.tolist() in (["a", "b"], [3, 5], [False, True])
    assert not isinstance(classes.tolist()[0], float)


def test_labels_of_pandas_are_read() -> None:
    pandas = pytest.importorskip("pandas")
    for y in (
        pandas.Series(["b", None, "a"], dtype="string"),
        pandas.Series(["b", None, "a"]),
        pandas.Series([1, None, 0], dtype="Int64"),
        pandas.Series([1, None, 0]),
        pandas.array(["b", None, "a"], dtype="string"),
        pandas.Series(["b", None, "a"], dtype="category"),
        [1, pandas.NA, 0],
        [1, pandas.NaT, 0],
    ):
        classes, codes = read_labels(y, 3)
        assert codes.tolist() == [1, -1, 0]
        assert classes.tolist() in ([0, 1], ["a", "b"])


def test_labels_of_polars_are_read() -> None:
    polars = pytest.importorskip("polars")
    for y in (
        polars.Series(["b", None, "a"]),
        polars.Series(["b", None, "a"], dtype=polars.Categorical),
        polars.Series(["b", None, "a"], dtype=polars.Enum(["b", "a"])),
        polars.Series([5, None, 3]),
        polars.Series([5, -1, 3], dtype=polars.Int8),
        polars.Series([5.0, float("nan"), 3.0]),
        polars.Series([2**53 + 1, None, 2**53]),  # as floats, the two would be one
        polars.Series([True, None, False]),
    ):
        classes, codes = read_labels(y, 3)
        assert codes.tolist() == [1, -1, 0]
        assert classes.tolist() in (["a", "b"], [3, 5], [2**53, 2**53 + 1], [False, True])
    assert read_labels(polars.Series(["b", "a"]), classes=polars.Series(["b", "a"])).codes.tolist() == [0, 1]


def test_labels_of_torch_are_read() -> None:
    torch = pytest.importorskip("torch")
    for y in (
        torch.tensor([5, -1, 3]),
        torch.tensor([5.0, float("nan"), 3.0], requires_grad=True),
        torch.tensor([5.0, -1.0, 3.0], dtype=torch.bfloat16),
        [torch.tensor(5), None, torch.tensor(3)],
    ):
        classes, codes = read_labels(y, 3)
        assert (classes.tolist(), codes.tolist()) == ([3, 5], [1, -1, 0])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, r"y is a NoneType; expected a list of labels"),
        ("ab", r"y is a str; expected a list"),
        ({"a", "b"}, r"y is a set; expected a list"),
        ({"a": 1}, r"y is a dict; expected a list"),
        (5, r"y is a int; expected a list"),
        (np.eye(2), r"y has shape \(2, 2\); expected a list of labels, one per row"),
        (["a", ["b"]], r"y has \['b'\] in row 1; labels are text, or finite numbers"),
        ([1, {}], r"y has \{\} in row 1"),
        ([b"a", b"b"], r"y has b'a' in row 0"),
        ([1j, 2], r"y has 1j in row 0"),
        (np.array(["2020-01-01", "NaT"], dtype="M8[D]"), r"y has datetime.date\(2020, 1, 1\) in row 0"),
        (["a", 1], r"y mixes numbers and text; make the labels one kind"),
        ([True, 1], r"y mixes booleans and numbers"),
        ([0, np.inf], r"y has inf in row 1; labels are text, or finite numbers"),
        ([0.0, 1e300], r"y has 1e\+300 in row 1"),
        (np.array([1, 2.0**54]), r"y has 1.8014398509481984e\+16 in row 1"),
        ([1, 10**400], r"an array cannot hold exactly beside the others"),
        ([0.5, 2**53 + 1], r"y has the number 9007199254740993, which an array cannot hold exactly"),
        (["a", "a\0"], r"y has the name 'a\\x00' with a NUL character"),
        (
            [None, np.nan],
            r"y has no labels; give labels of 1 class or more, and None, NaN or -1 for rows without one\.$",
        ),
        (
            [-1, -1],
            r"y has no labels; .* -1 means no label: where it is a class of yours, give the classes names",
        ),
        ([-1, -2, 0], r"y has the label -1, which means no label, and -2. Give the classes names"),
        ([0.5, 1.5, 2.5, 3.5, *[None] * 9], "4 different numbers in 4 rows"),  # those without do not count
        (np.linspace(0, 1, 9), r"Unknown label type: continuous. y has 9 different numbers in 9 rows"),
    ],
)
def test_labels_that_are_none_are_told(y: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_labels(y)


def test_the_row_of_a_bad_label_is_data() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_labels([0, None, np.inf])
    assert caught.value.row == 2
    with pytest.raises(
        InvalidInputError, match=r"--labels has 'x' in row 1 \(2 such rows\), which is none"
    ) as caught:
        read_labels(["a", "x", "x"], where="--labels", classes=["a", "b"])
    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("y", "classes", "names", "codes"),
    [
        (["b", "z", None, "y", "B"], ["b", "a"], ["b", "a", "y", "z"], [0, 3, -1, 2, 0]),
        ([1.0, np.nan, 7.0, -1], [0, 1], [0, 1, 7], [1, -1, 2, -1]),
        ([-1, 2, 5], [-1, 2], [-1, 2, 5], [0, 1, 2]),
        (["x"], [0, 1], [0, 1, "x"], [2]),
        ([0, 1], [0, 1], [0, 1], [0, 1]),
    ],
)
def test_other_classes_follow_those_that_are_listed(y: Any, classes: Any, names: Any, codes: Any) -> None:
    found = read_labels(y, classes=classes, aliases={"B": "b"}, others=True)
    assert found.classes.tolist() == names
    assert found.codes.tolist() == codes


def test_other_classes_may_not_look_like_measurements() -> None:
    with pytest.raises(InvalidInputError, match="different numbers in 4 rows, as measurements have"):
        read_labels([0.0, 1.5, 2.5, 3.5, 4.5], classes=[0, 1], others=True)


def test_labels_are_as_many_as_rows_and_of_as_many_classes_as_asked() -> None:
    with pytest.raises(InvalidInputError, match="y has 2 labels and X has 3 rows"):
        read_labels([0, 1], 3)
    with pytest.raises(
        InvalidInputError, match=r"y has one class, 'a'; give labels of 2 classes or more, .*without one\.$"
    ):
        read_labels(["a", "a"], at_least=2)
    with pytest.raises(InvalidInputError, match=r"y has one class, 1; .* -1 means no label"):
        read_labels([1, -1], at_least=2)
    classes, codes = read_labels([None], at_least=0)
    assert (classes.tolist(), codes.tolist()) == ([], [-1])


def test_minus_one_and_one_are_suspicious() -> None:
    with pytest.warns(
        ConsilienceWarning, match="y has only the labels -1 and 1, and -1 means no label. If -1 is"
    ):
        assert read_labels([-1, 1]).codes.tolist() == [-1, 0]


def test_a_list_of_classes_decides() -> None:
    assert read_labels([1, -1, None], classes=[-1, 1]).codes.tolist() == [1, 0, -1]
    assert read_labels([2.0, 7], classes=[7, 2]).codes.tolist() == [1, 0]
    assert read_labels([0.25, 0.75], classes=[0.75, 0.25]).codes.tolist() == [1, 0]
    with pytest.raises(InvalidInputError, match="The labels are numbers and the classes are text"):
        read_labels([1, 2], classes=["1", "2"])


@pytest.mark.parametrize(
    ("y", "names", "codes"),
    [
        (["b", "", "a"], ["", "a", "b"], [2, 0, 1]),  # the empty text is a class
        ([0.5, 1.5, 0.5, 2.0, 1.5, 2.0], [0.5, 1.5, 2.0], [0, 1, 0, 2, 1, 2]),
        ([-1, 0, 1], [0, 1], [-1, 0, 1]),
        ([None, 1], [1], [-1, 0]),
    ],
)
def test_classes_are_those_that_occur(y: Any, names: Any, codes: Any) -> None:
    found = read_labels(y)
    assert (found.classes.tolist(), found.codes.tolist()) == (names, codes)


def test_a_column_is_read_with_scikit_learns_warning() -> None:
    from sklearn.exceptions import DataConversionWarning

    with pytest.warns(DataConversionWarning, match=r"y has shape \(3, 1\)"):
        assert read_labels(np.array([[5], [-1], [3]])).codes.tolist() == [1, -1, 0]
