from __future__ import annotations

import numpy as np
import pytest

from consilience import _components
from consilience._components import connected_by_pattern, connected_classes
from consilience._words import shorten
from consilience.exceptions import (
    ConsilienceWarning,
    DisconnectedWarning,
    InvalidInputError,
    LabelSpaceError,
)
from consilience.labels import LabelSpace, class_list, read_labels


def test_the_union_is_sorted_and_every_column_finds_its_class() -> None:
    space = LabelSpace([["dog", "cat"], ["emu", "dog", "bee"]], names=["pets", "zoo"])
    assert space.classes.tolist() == ["bee", "cat", "dog", "emu"]
    assert space.classes[space.columns].tolist() == ["dog", "cat", "emu", "dog", "bee"]
    assert space.offsets.tolist() == [0, 2, 5]
    assert (space.n_teachers, space.n_classes, space.n_columns) == (2, 4, 5)
    assert [values.tolist() for values in space.class_lists] == [["dog", "cat"], ["emu", "dog", "bee"]]
    assert space.block(1) == slice(2, 5)
    assert space.mask.tolist() == [[False, True], [True, False], [True, True], [False, True]]
    assert not space.identical


def test_identical_means_that_every_teacher_knows_every_class() -> None:
    assert LabelSpace([[0, 1, 2], [2, 0, 1]]).identical
    assert not LabelSpace([[0, 1, 2], [2, 0]]).identical


def test_the_order_of_teachers_does_not_change_the_classes() -> None:
    lists = [[3, 1], [2, 3], [9, 2]]
    np.testing.assert_array_equal(LabelSpace(lists).classes, LabelSpace(lists[::-1]).classes)


def test_spaces_are_equal_when_classes_and_columns_are() -> None:
    space = LabelSpace([["a", "b"], ["b", "c"]])
    assert space == LabelSpace([["a", "b"], ["b", "c"]], names=["x", "y"])
    assert space != LabelSpace([["b", "a"], ["b", "c"]])
    assert space != LabelSpace([["a", "b", "c"]])
    assert space != "space"
    # the same classes and columns, cut elsewhere
    first, second = (
        LabelSpace(lists, disconnected="ignore") for lists in ([["a", "b"], ["c"]], [["a"], ["b", "c"]])
    )
    np.testing.assert_array_equal(first.columns, second.columns)
    assert first != second


def test_aliases_join_classes_through_chains_and_unused_ones_are_told() -> None:
    aliases = {"auto": "automobile", "automobile": "car", "lorry": "truck"}
    space = LabelSpace([["auto", "bus"], ["car", "bike"]], aliases)
    assert space.classes.tolist() == ["bike", "bus", "car"]
    assert space.columns.tolist() == [2, 1, 2, 0]
    assert space.unused_aliases == ("automobile", "lorry")


@pytest.mark.parametrize(
    ("lists", "options", "message"),
    [
        ([], {}, r"needs at least one class list; class_lists is empty"),
        ([["a"], []], {}, r"class_lists\[1\] is empty. Give at least one class"),
        (["abc"], {}, r"class_lists\[0\] is the text 'abc'; give a list with one name per class"),
        (
            [["a", None]],
            {},
            r"class_lists\[0\] has the entry None of type NoneType; classes are text or numbers",
        ),
        ([[0.5, np.nan]], {}, r"class_lists\[0\] has the entry nan; class names must be finite"),
        ([["a", 1]], {}, r"class_lists\[0\] mixes numbers and text; make them one kind, such as str"),
        ([[True, 1]], {}, r"class_lists\[0\] mixes booleans and numbers"),
        ([["a", "b", "a"]], {}, r"class_lists\[0\] names a more than once"),
        ([["a", "b"]], {"names": ["x", "y"]}, r"2 names were given for 1 class lists"),
        ([["a", "b"]], {"disconnected": "maybe"}, r"disconnected='maybe' is unknown; use 'warn', 'error' or"),
        (
            [["a", "b"], [1, 2]],
            {"names": ["pets", "zoo"]},
            r"Classes of 'pets' are text \(a, b\) and those of 'zoo' are numbers \(1, 2\). Make them one",
        ),
        ([["a", "b"]], {"aliases": {"a": "c", "c": "a"}}, r"aliases go round in a circle: 'a' -> 'c' -> 'a'"),
        (
            [["a", "b"]],
            {"aliases": {"a": ["c"]}},
            r"aliases rename 'a' to \['c'\]; names are text or numbers",
        ),
        ([["a", "b"]], {"aliases": {"a": "c\0"}}, r"union of all classes has the name 'c\\x00' with a NUL"),
        (
            [["a"], ["a\0"]],
            {},
            r"class_lists\[1\] has the name 'a\\x00' with a NUL character, which arrays drop",
        ),
        ([[2**53 + 1, 0.5]], {}, r"has the number 9007199254740993, which an array cannot hold exactly"),
        ([[2**53 + 1], [0.5, 2.0**53]], {}, r"The union of all classes has the number 9007199254740993"),
        ([[1, 10**400]], {}, r"an array cannot hold exactly beside the others. Give the classes as text"),
        ([[1, 10**5000]], {}, r"has the number a very long int, which"),
        ([{"a", "b"}], {}, r"class_lists\[0\] is a set, whose order says nothing about columns. Give a list"),
        ([{"a": 0, "b": 1}], {}, r"class_lists\[0\] is a dict, whose order says nothing"),
        ([np.ma.array(["a", "b"], mask=[0, 1])], {}, r"class_lists\[0\] has the entry None of type NoneType"),
        ([5], {}, r"class_lists\[0\] is 5; give a list with one name per class"),
        ([["a", "b"]], {"aliases": ["a"]}, r"aliases is a list; give a mapping such as"),
        ([["a", "b"]], {"aliases": {"a": 1}}, r"aliases rename 'a' to 1, which is numbers, not text"),
        (
            [["a", "b"]],
            {"aliases": {"a": "b"}, "names": ["pets"]},
            r"aliases make 'a', 'b' of 'pets' one class, 'b'. Two classes of one teacher cannot be joined",
        ),
    ],
)
def test_errors_say_what_is_wrong(lists: list, options: dict, message: str) -> None:
    with pytest.raises(LabelSpaceError, match=message):
        LabelSpace(lists, **options)


def test_groups_without_a_shared_class_warn_or_raise_or_pass() -> None:
    lists = [["a", "b"], ["c", "d"]]
    with pytest.warns(
        DisconnectedWarning, match=r"2 groups .*\{a, b\}; \{c, d\}.*equal prior mass per class"
    ):
        LabelSpace(lists)
    with pytest.raises(LabelSpaceError, match=r"Add a teacher that knows classes of both.*aliases="):
        LabelSpace(lists, disconnected="error")
    groups = LabelSpace(lists, disconnected="ignore").components()
    assert [group.tolist() for group in groups] == [["a", "b"], ["c", "d"]]
    LabelSpace([*lists, ["d", "a"]], disconnected="error")


def test_a_long_list_of_groups_is_cut() -> None:
    with pytest.warns(DisconnectedWarning, match=r"9 groups .*\{5\}; and 3 more\. They"):
        LabelSpace([[i] for i in range(9)])


def test_a_class_in_no_block_is_a_component_of_its_own() -> None:
    ids = connected_classes(np.array([4, 1, 1, 3]), np.array([0, 2, 2, 4]), 6)
    assert ids.tolist() == [0, 1, 2, 1, 1, 3]


@pytest.mark.parametrize("most_edges", [0, 100, 2**20])
def test_components_of_many_patterns_are_those_of_each(
    most_edges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_components, "_MOST_EDGES", most_edges)
    rng = np.random.default_rng(0)
    lists = [rng.choice(15, size, replace=False) for size in (2, 3, 1, 4, 2, 3, 2)]
    columns, offsets = np.concatenate(lists), np.cumsum([0] + [len(values) for values in lists])
    patterns = rng.random((30, 7)) < 0.6
    patterns[3] = False
    together = connected_by_pattern(columns, offsets, 15, patterns)
    assert len(np.unique(together.max(axis=1))) > 3
    for active, ids in zip(patterns, together, strict=True):
        used = [values for values, answers in zip(lists, active, strict=True) if answers]
        own = np.concatenate([*used, []]).astype(int)
        borders = np.cumsum([0] + [len(values) for values in used])
        np.testing.assert_array_equal(ids, connected_classes(own, borders, 15))


def test_thousands_of_classes() -> None:
    lists = [np.arange(i * 50, i * 50 + 60) for i in range(40)]
    space = LabelSpace(lists, disconnected="error")
    assert space.n_classes == 2010
    np.testing.assert_array_equal(space.classes[space.columns], np.concatenate(lists))


def test_repr_counts_and_cuts() -> None:
    text = repr(LabelSpace([["cat"]], names=["pets"]))
    assert text == "LabelSpace: 1 class, 1 teacher, 1 component\n  pets: 1 class: cat"
    assert repr(LabelSpace([[0, 1]] * 14)).endswith("  and 2 more teachers")


def test_class_list_gives_plain_python_values() -> None:
    values = class_list(np.array([3, 1], dtype=np.int32))
    assert values == [3, 1]
    assert all(type(value) is int for value in values)
    assert class_list((np.str_("a"), "b")) == ["a", "b"]


def test_shorten() -> None:
    assert shorten([]) == ""
    assert shorten("abc", 3) == "a, b, c"
    assert shorten("abcd", 3) == "a, b, c and 1 more"


class Series:
    """As a series of polars: no numpy dtype argument, None where a value is missing."""

    def __init__(self, values: list) -> None:
        self._values, self.shape = values, (len(values),)

    def to_list(self) -> list:
        return list(self._values)

    def to_numpy(self) -> np.ndarray:
        raise AssertionError("whole numbers beside null would become floats")


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
        Series(["b", None, "a"]),
        iter(["b", None, "a"]),
        [5, -1, 3],
        [5, None, 3],
        np.array([5, -1, 3], dtype=np.int8),
        np.array([5.0, np.nan, 3.0]),
        np.array([5.0, -1.0, 3.0], dtype=np.float32),
        masked([5, 9, 3], [0, 1, 0]),
        masked([5.0, 9.0, 3.0], [0, 1, 0]),
        [np.int64(5), float("nan"), np.array(3)],
        Series([2**53 + 1, None, 2**53]),
        [True, None, False],
    ],
)
def test_a_row_without_a_label_looks_the_same_in_every_form(y: object) -> None:
    classes, codes = labels = read_labels(y, 3)
    assert codes.tolist() == [1, -1, 0]
    assert labels.known.tolist() == [True, False, True]
    assert classes.tolist() in (["a", "b"], [3, 5], [2**53, 2**53 + 1], [False, True])
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
        (None, r"y is a NoneType; expected one label per row"),
        ("ab", r"y is a str; expected one label per row"),
        ({"a", "b"}, r"y is a set; .* A set has no order: give a list"),
        ({"a": 1}, r"y is a dict; expected one label per row"),
        (5, r"y is a int; expected one label per row"),
        (np.eye(2), r"y has shape \(2, 2\); expected one label per row"),
        (["a", ["b"]], r"y has \['b'\] in row 1; labels are text or numbers"),
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
        ([None, np.nan], r"y has no labels; give some, and None, NaN or -1 for rows without one\.$"),
        (
            [-1, -1],
            r"y has no labels; .* -1 means no label: where it is a class of yours, give the classes names",
        ),
        ([-1, -2, 0], r"y has the label -1, which means no label, and -2. Give the classes names"),
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


def test_labels_are_as_many_as_rows_and_of_as_many_classes_as_asked() -> None:
    with pytest.raises(InvalidInputError, match="y has 2 labels and X has 3 rows"):
        read_labels([0, 1], 3)
    with pytest.raises(InvalidInputError, match=r"y has one class, 'a'; give labels of 2 classes or more\.$"):
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
    assert read_labels([-1, 0, 1]).codes.tolist() == [-1, 0, 1]
    assert read_labels([None, 1]).codes.tolist() == [-1, 0]


def test_a_list_of_classes_decides() -> None:
    assert read_labels([1, -1, None], classes=[-1, 1]).codes.tolist() == [1, 0, -1]
    assert read_labels([2.0, 7], classes=[7, 2]).codes.tolist() == [1, 0]
    assert read_labels([0.25, 0.75], classes=[0.75, 0.25]).codes.tolist() == [1, 0]
    with pytest.raises(InvalidInputError, match="The labels are numbers and the classes are text"):
        read_labels([1, 2], classes=["1", "2"])


def test_the_empty_text_is_a_class() -> None:
    classes, codes = read_labels(["b", "", "a"])
    assert (classes.tolist(), codes.tolist()) == (["", "a", "b"], [2, 0, 1])


def test_numbers_with_fractions_that_repeat_are_classes() -> None:
    classes, codes = read_labels([0.5, 1.5, 0.5, 2.0, 1.5, 2.0])
    assert (classes.tolist(), codes.tolist()) == ([0.5, 1.5, 2.0], [0, 1, 0, 2, 1, 2])
    with pytest.raises(InvalidInputError, match="4 different numbers in 4 rows"):
        read_labels([0.5, 1.5, 2.5, 3.5, *[None] * 9])  # rows without a label do not count


def test_a_column_is_read_with_scikit_learns_warning() -> None:
    from sklearn.exceptions import DataConversionWarning

    with pytest.warns(DataConversionWarning, match=r"y has shape \(3, 1\)"):
        assert read_labels(np.array([[5], [-1], [3]])).codes.tolist() == [1, -1, 0]


def test_a_space_encodes_by_the_same_rules() -> None:
    space = LabelSpace([["cat", "dog"]], {"puss": "cat"})
    assert space.encode(masked(["dog", "cat", "puss"], [0, 1, 0])).tolist() == [1, -1, 0]
    with pytest.raises(
        LabelSpaceError, match=r"y has 'emu' in row 0 \(1 such row\), which is none of the classes"
    ):
        space.encode(["emu"])
    assert LabelSpace([[0, 1]]).encode(np.array([1, -1, 0])).tolist() == [1, -1, 0]
