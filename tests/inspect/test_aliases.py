"""Suggested aliases: what is found, what is not, and when `Unifier` warns."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from consilience import AliasWarning, InvalidInputError, LabelSpace, Unifier, as_teacher, suggest_aliases
from consilience.inspect.aliases import find_suggestions
from consilience.inspect.matching import spelling, warn_of_names

Floats = NDArray[np.float64]
LISTS = [
    ["ant", "bee", "cat", "dog"],
    ["cat", "dog", "eel"],
    ["ant", "cat", "eel", "fox"],
    ["bee", "fox", "gnu"],
]
NAMES = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
bounded = settings(max_examples=10, deadline=None, derandomize=True, database=None)


def blocks_of(lists: list[list[str]], rows: int = 600, seed: int = 0) -> tuple[list[Floats], NDArray[Any]]:
    """Return logits of teachers that see the class of a row through noise, and the rows' features.

    A teacher that does not know a class gives its rows to the class before it: ants look like hens.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(len(NAMES), size=rows)
    look = np.eye(len(NAMES)) + 0.3 * np.eye(len(NAMES))[:, np.roll(np.arange(len(NAMES)), -1)]
    X = 4.0 * look[truth] + rng.normal(size=(rows, len(NAMES)))  # all teachers see the same rows
    return [
        (X + 0.3 * rng.normal(size=X.shape))[:, [NAMES.index(name) for name in own]] * rng.uniform(0.5, 3)
        for own in lists
    ], X


def given_names(blocks: list[Floats], lists: list[list[Any]]) -> dict[str, Any]:
    return {
        f"t{i}": as_teacher(block, own, output="logits")
        for i, (block, own) in enumerate(zip(blocks, lists, strict=True))
    }


def hidden(lists: list[list[str]]) -> list[list[str]]:
    return [[f"{i}{name[::-1]}{i}" for name in own] for i, own in enumerate(lists)]


def groups(aliases: dict[Any, Any], lists: list[list[Any]]) -> set[frozenset[tuple[int, Any]]]:
    """Return which columns, by teacher and place, have one name in the end."""
    found: dict[Any, set[tuple[int, Any]]] = {}
    for i, own in enumerate(lists):
        for k, name in enumerate(own):
            found.setdefault(aliases.get(name, name), set()).add((i, k))
    return {frozenset(group) for group in found.values()}


def test_classes_with_hidden_names_are_found_across_four_teachers() -> None:
    blocks, X = blocks_of(LISTS)
    names = hidden(LISTS)
    found = suggest_aliases(given_names(blocks, names), X)
    assert groups(found.aliases, names) == groups({}, LISTS)
    assert found.same_name == ()
    pair = found.same_class[0]
    assert pair.agreement > 0.4
    assert pair.spelling == 0.0  # since the numbers in them differ
    assert len(set(pair.rows)) == 3
    truth = {name: own[k] for own, hid in zip(LISTS, names, strict=True) for k, name in enumerate(hid)}
    assert truth[pair.alias] == truth[pair.name]
    column = NAMES.index(truth[pair.alias])
    assert (X[list(pair.rows)].argmax(axis=1) == column).all()  # the rows that speak for it are of that class


def test_names_that_are_right_are_left_alone() -> None:
    for seed in range(10):
        blocks, X = blocks_of(LISTS, 1000, seed)
        found = suggest_aliases(given_names(blocks, LISTS), X)
        assert (found.same_class, found.same_name, found.aliases) == ((), (), {})
    blocks, X = blocks_of(LISTS, 20)  # few rows prove nothing
    assert len(suggest_aliases(given_names(blocks, hidden(LISTS)), X)) == 0


def test_one_name_for_two_classes_is_told_and_rows_speak_for_it() -> None:
    blocks, X = blocks_of(LISTS, 1000)
    lists = [list(own) for own in LISTS]
    lists[1][0] = "fox"  # its cat; the third and the fourth know true foxes
    found = suggest_aliases(given_names(blocks, lists), X)
    (pair,) = found.same_name
    assert (pair.name, pair.teachers, pair.other_teachers) == ("fox", ("t2", "t3"), ("t1",))
    assert pair.agreement < 0.02
    assert set(X[list(pair.rows)].argmax(axis=1)) <= {NAMES.index("fox"), NAMES.index("cat")}
    (same,) = found.same_class  # and it is found to be the others' cat, which an alias cannot say
    assert {same.alias, same.name} == {"fox", "cat"}
    assert not same.expressible
    assert found.aliases == {}
    assert "rename first" in repr(found)


def test_spelling_helps_where_rows_leave_it_open() -> None:
    blocks, X = blocks_of([["ant", "bee", "cat"]] * 2, 120)
    rng = np.random.default_rng(7)
    weak = [block / block.std() + rng.normal(scale=0.6, size=block.shape) for block in blocks]
    unlike = suggest_aliases(given_names(weak, [["p", "q", "r"], ["x", "y", "z"]]), X).aliases
    alike = suggest_aliases(given_names(weak, [["ant", "bee", "cat"], ["Ant", "BEE", "cats"]]), X).aliases
    assert len(alike) > len(unlike)


def test_known_aliases_are_applied_first_and_kept() -> None:
    blocks, X = blocks_of(LISTS)
    names = hidden(LISTS)
    known = {names[0][2]: "a cat", names[1][0]: "a cat"}
    found = suggest_aliases(given_names(blocks, names), X, aliases=known)
    assert found.given == known
    assert found.aliases.items() >= known.items()
    assert LabelSpace(names, found.aliases).n_classes == 7


def test_the_longer_name_or_that_of_more_teachers_is_kept() -> None:
    blocks, X = blocks_of([["ant", "bee", "cat", "dog"]] * 3, 1000)
    lists = [
        ["MI", "bee", "c", "dog"],
        ["myocardial infarction", "bee", "c", "dog"],
        ["MI", "bee", "cat", "dog"],
    ]
    aliases = suggest_aliases(given_names(blocks, lists), X).aliases
    assert aliases == {"myocardial infarction": "MI", "cat": "c"}
    aliases = suggest_aliases(given_names(blocks[:2], lists[:2]), X).aliases
    assert aliases == {"MI": "myocardial infarction"}


@bounded
@given(order=st.permutations(range(4)), seed=st.integers(0, 100))
def test_the_order_of_teachers_classes_and_rows_does_not_matter(order: list[int], seed: int) -> None:
    blocks, _ = blocks_of(LISTS)
    names = hidden(LISTS)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(600), [rng.permutation(len(own)) for own in LISTS]
    moved = LabelSpace([[names[i][k] for k in columns[i]] for i in order], disconnected="ignore")
    logits = np.hstack([blocks[i][np.ix_(rows, columns[i])] for i in order])
    found = find_suggestions(np.hstack(blocks), LabelSpace(names, disconnected="ignore"), {}, 600)
    other = find_suggestions(logits, moved, {}, 600)
    assert other.aliases == found.aliases
    for one, two in zip(found.same_class, other.same_class, strict=True):
        assert (one.alias, one.name) == (two.alias, two.name)
        assert two.agreement == pytest.approx(one.agreement)
        assert sorted(rows[list(two.rows)]) == sorted(one.rows)


def test_rows_on_which_a_teacher_abstains_are_left_out() -> None:
    blocks, X = blocks_of(LISTS, 1500)
    blocks[1][::3] = np.nan
    blocks[2][1::3] = np.nan
    names = hidden(LISTS)
    found = suggest_aliases(given_names(blocks, names), X)
    assert groups(found.aliases, names) == groups({}, LISTS)
    blocks[0][:] = np.nan  # it never answers: nothing is known about it, and nothing is said
    found = suggest_aliases(given_names(blocks, LISTS), X)
    assert len(found) == 0


def test_the_result_prints_and_becomes_a_frame() -> None:
    pytest.importorskip("pandas")
    blocks, X = blocks_of([["ant", "bee", "cat", "dog"]] * 2, 1000)
    evil = "bird\x1b[2J"
    found = suggest_aliases(
        given_names(blocks, [["ant", "bee", "cat", "dog"], ["emu", evil, "<b>", "dog"]]), X
    )
    text = repr(found)
    assert text.startswith("3 pairs of names likely one class, 0 names likely two classes (1000 rows)")
    assert "\x1b" not in text
    assert "<b>" not in found._repr_html_()
    frame = found.to_frame()
    assert frame["likely"].tolist() == ["one class"] * 3
    assert frame["agreement"].is_monotonic_decreasing
    assert len(found) == len(list(found)) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"teachers": [as_teacher(np.eye(2)[[0] * 50], ["a", "b"])]}, "give two or more"),
        ({"X": []}, "X has no rows"),
        ({"max_rows": 1}, "max_rows=1"),
        ({"run": 7}, "run=7 must be"),
        ({"aliases": ["a"]}, "aliases is a list"),
    ],
)
def test_mistakes_are_told(change: dict[str, Any], says: str) -> None:
    blocks, X = blocks_of(LISTS[:2], 50)
    teachers = list(given_names(blocks, LISTS[:2]).values())
    with pytest.raises(InvalidInputError, match=says):
        suggest_aliases(**{"teachers": teachers, "X": X} | change)


@pytest.mark.parametrize(
    ("one", "other", "least", "most"),
    [
        ("automobile", "Automobiles", 0.9, 1.0),
        ("pickup_truck", "pickup-truck", 1.0, 1.0),
        ("MI", "Myocardial Infarction", 0.9, 0.9),
        ("truck", "car", 0.0, 0.5),
        ("c12", "c21", 0.0, 0.0),
        ("", "", 0.0, 0.0),
        ("--", "--", 0.0, 0.0),
        ("ünïcode", "Ünïcode", 1.0, 1.0),
    ],
)
def test_spelling(one: str, other: str, least: float, most: float) -> None:
    assert least <= spelling(one, other) == spelling(other, one) <= most


def test_unifier_warns_of_a_list_in_the_wrong_order() -> None:
    blocks, X = blocks_of(LISTS, 1000)
    lists = [LISTS[0][1:] + LISTS[0][:1], *LISTS[1:]]
    with pytest.warns(AliasWarning) as caught:
        Unifier(given_names(blocks, lists), "logistic").estimate(X)
    first, second = (str(warning.message) for warning in caught)
    assert "different names for one class" in first
    assert "t0 and t2: bee = ant, dog = cat" in first
    assert "one name for two classes" in second
    assert "t0 and t2: cat, ant" in second
    assert all(warning.filename == __file__ for warning in caught)


@pytest.mark.parametrize("rows", [150, 1000])
def test_unifier_does_not_warn_of_names_that_are_right(rows: int) -> None:
    disjoint = [["ant", "cat", "eel", "gnu"], ["bee", "dog", "fox", "hen"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(8):
            for lists in (LISTS, disjoint, [NAMES, NAMES]):
                blocks, _ = blocks_of(lists, rows, seed)
                warn_of_names(np.hstack(blocks), LabelSpace(lists, disconnected="ignore"))


def test_unifier_warns_of_aliases_that_fit_no_class() -> None:
    blocks, X = blocks_of(LISTS)
    unifier = Unifier(given_names(blocks, LISTS), "logistic", aliases={"moon": "star", "kitten": "cat"})
    with pytest.warns(AliasWarning, match=r"aliases rename: moon, kitten\."):
        unifier.fit(X)
    y = np.full(len(X), None)
    y[:5] = "kitten"
    with pytest.warns(AliasWarning, match=r"aliases rename: moon\."):  # the labels use the other one
        unifier.fit(X, y)


def test_score_reads_labels_as_fit_does() -> None:
    blocks, X = blocks_of(LISTS)
    teachers = given_names(blocks, LISTS)
    truth = np.array(NAMES)[X.argmax(axis=1)].astype(object)
    plain = Unifier(teachers, "logistic", random_state=0).fit(X)
    renamed = Unifier(teachers, "logistic", aliases={"cat": "felis"}, random_state=0).fit(X)
    known = truth != "hen"  # nobody knows hens: each of them is an error
    expected = (plain.predict(X) == truth).mean()
    assert plain.score(X, truth) == renamed.score(X, truth) == pytest.approx(expected)
    assert renamed.score(X, np.where(truth == "cat", "felis", truth)) == pytest.approx(expected)
    some, right = np.where(known, truth, None), plain.predict(X) == truth
    assert plain.score(X, some) == pytest.approx(right[known].mean())
    weights = np.arange(len(X))
    assert plain.score(X, truth, weights) == pytest.approx(np.average(right, weights=weights))
