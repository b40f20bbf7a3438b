from __future__ import annotations

import numpy as np
import pytest

from consilience import labels
from consilience.exceptions import DisconnectedWarning, LabelSpaceError
from consilience.labels import LabelSpace, class_list, connected_by_pattern, connected_classes, shorten


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
    monkeypatch.setattr(labels, "_MOST_EDGES", most_edges)
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
