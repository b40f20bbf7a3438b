import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from consilience.exceptions import ConsilienceWarning, DisconnectedWarning, InvalidInputError, LabelSpaceError
from consilience.labels import LabelSpace, class_list
from consilience.labels.space import connected_by_pattern, connected_classes


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
        (["abc"], {}, r"class_lists\[0\] is 'abc'; give a list with one name per class"),
        (
            [["a", None]],
            {},
            r"class_lists\[0\] has the entry None of type NoneType; classes are text or finite numbers",
        ),
        (
            [[0.5, np.nan]],
            {},
            r"class_lists\[0\] has the entry nan of type float; classes are text or finite numbers",
        ),
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
        ([["a", "b"]], {"aliases": {"a": "c", "c": "a"}}, r"aliases form a cycle: 'a' -> 'c' -> 'a'"),
        (
            [["a", "b"]],
            {"aliases": {"a": ["c"]}},
            r"aliases rename 'a' to \['c'\]; give text for text",
        ),
        ([["a", "b"]], {"aliases": {"a": "c\0"}}, r"union of all classes has the name 'c\\x00' with a NUL"),
        (
            [["a"], ["a\0"]],
            {},
            r"class_lists\[1\] has the name 'a\\x00' with a NUL character, which arrays drop",
        ),
        ([[2**53 + 1, 0.5]], {}, r"has the number 9007199254740993, which an array cannot hold exactly"),
        ([[2**53 + 1], [0.5, 2.0**53]], {}, r"The union of all classes has the number 9007199254740993"),
        ([[1, 10**400]], {}, r"an array cannot hold exactly beside the others. Give text"),
        ([[1, 10**5000]], {}, r"has the number a very long int, which"),
        (
            [{"a", "b"}],
            {},
            r"class_lists\[0\] is \{.*\}; give a list with one name per class, in the order of the columns",
        ),
        ([{"a": 0, "b": 1}], {}, r"class_lists\[0\] is \{.*\}; give a list"),
        ([np.ma.array(["a", "b"], mask=[0, 1])], {}, r"class_lists\[0\] has the entry None of type NoneType"),
        ([5], {}, r"class_lists\[0\] is 5; give a list with one name per class"),
        ([["a", "b"]], {"aliases": ["a"]}, r"aliases is a list; give a mapping such as"),
        ([["a", "b"]], {"aliases": {"a": 1}}, r"aliases rename 'a' to 1; give text for text"),
        (
            [["a", "b"]],
            {"aliases": {"a": "b"}, "names": ["pets"]},
            r"aliases make 'a', 'b' of 'pets' one class, 'b'. Two classes of one teacher cannot be joined",
        ),
    ],
)
def test_errors_say_what_is_wrong(lists: list, options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        LabelSpace(lists, **options)


def test_groups_without_a_shared_class_warn_or_raise_or_pass() -> None:
    lists = [["a", "b"], ["c", "d"]]
    with pytest.warns(
        DisconnectedWarning, match=r"2 groups .*\{a, b\}; \{c, d\}.*compare the groups by ranks"
    ):
        LabelSpace(lists)
    with pytest.raises(LabelSpaceError, match=r"Add a teacher that knows classes of both.*aliases="):
        LabelSpace(lists, disconnected="error")
    groups = LabelSpace(lists, disconnected="ignore").components()
    assert [group.tolist() for group in groups] == [["a", "b"], ["c", "d"]]
    LabelSpace([*lists, ["d", "a"]], disconnected="error")


def test_a_long_list_of_groups_is_cut() -> None:
    with pytest.warns(DisconnectedWarning, match=r"9 groups .*\{5\}; and 3 more\. Their"):
        LabelSpace([[i] for i in range(9)])


def test_thousands_of_classes() -> None:
    lists = [np.arange(i * 50, i * 50 + 60) for i in range(40)]
    space = LabelSpace(lists, disconnected="error")
    assert space.n_classes == 2010
    np.testing.assert_array_equal(space.classes[space.columns], np.concatenate(lists))


def test_repr_counts_and_cuts() -> None:
    text = repr(LabelSpace([["cat"]], names=["pets"]))
    assert text == "LabelSpace: 1 class, 1 teacher, 1 component\n  pets: 1 class: cat"
    assert repr(LabelSpace([[0, 1]] * 14)).endswith("  and 2 more teachers")


def test_a_space_encodes_by_the_same_rules() -> None:
    space = LabelSpace([["cat", "dog"]], {"puss": "cat"})
    assert space.encode(np.ma.array(["dog", "cat", "puss"], mask=[0, 1, 0])).tolist() == [1, -1, 0]
    with pytest.raises(
        LabelSpaceError, match=r"y has 'emu' in row 0 \(1 such row\), which is none of the classes"
    ):
        space.encode(["emu"])
    assert LabelSpace([[0, 1]]).encode(np.array([1, -1, 0])).tolist() == [1, -1, 0]


def test_warnings_point_at_the_line_of_the_user() -> None:
    with pytest.warns(DisconnectedWarning) as caught:
        LabelSpace([["a"], ["b"]])
    assert caught[0].filename == __file__
    with pytest.warns(ConsilienceWarning, match="only the labels -1 and 1") as told:
        LabelSpace([[1, 0]]).encode([1, -1])
    assert told[0].filename == __file__


def test_a_class_in_no_block_is_a_component_of_its_own() -> None:
    ids = connected_classes(np.array([4, 1, 1, 3]), np.array([0, 2, 2, 4]), 6)
    assert ids.tolist() == [0, 1, 2, 1, 1, 3]


def test_components_of_many_patterns_are_those_of_scipy() -> None:
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
        incidence = np.zeros((15, len(used)))
        incidence[own, np.repeat(np.arange(len(used)), np.diff(borders))] = 1
        np.testing.assert_array_equal(ids, connected_components(incidence @ incidence.T)[1])


def test_class_list_gives_plain_python_values() -> None:
    values = class_list(np.array([3, 1], dtype=np.int32))
    assert values == [3, 1]
    assert all(type(value) is int for value in values)
    assert class_list((np.str_("a"), "b")) == ["a", "b"]
