"""Covers: valid, connected, not dearer than need be, and a sentence where there is none."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import LabelSpace
from consilience.exceptions import LabelSpaceError
from consilience.repository.cover import cover_classes

Known = dict[str, frozenset[int]]

problems = st.lists(st.frozensets(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=7).flatmap(
    lambda sets: st.tuples(
        st.just({f"m{i}": one for i, one in enumerate(sets)}),
        st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True),
        st.lists(st.integers(1, 9), min_size=len(sets), max_size=len(sets)),
    )
)


def is_connected(known: Known, names: tuple[str, ...] | list[str]) -> bool:
    """Tell it by the library's own definition for a list of teachers."""
    space = LabelSpace([sorted(known[name]) for name in names], disconnected="ignore")
    return len(space.components()) == 1


def cheapest(known: Known, wanted: list[int], costs: dict[str, int], connected: bool) -> int | None:
    """Try every set of models."""
    found = [
        sum(costs[name] for name in names)
        for size in range(1, len(known) + 1)
        for names in combinations(known, size)
        if set(wanted) <= frozenset().union(*(known[name] for name in names))
        and (not connected or is_connected(known, names))
    ]
    return min(found, default=None)


@settings(max_examples=100, deadline=None)
@given(problems, st.booleans())
def test_a_cover_is_found_where_there_is_one(
    problem: tuple[Known, list[int], list[int]], connected: bool
) -> None:
    known, wanted, prices = problem
    costs = dict(zip(known, prices, strict=True))
    best = cheapest(known, wanted, costs, connected)
    if best is None:
        with pytest.raises(LabelSpaceError, match=r"No model knows|No models connect"):
            cover_classes(known, wanted, costs, connected=connected)
        return
    names = cover_classes(known, wanted, costs, connected=connected)
    assert set(wanted) <= frozenset().union(*(known[name] for name in names))
    assert not connected or is_connected(known, names)
    paid = sum(costs[name] for name in names)
    assert best <= paid <= 3 * best
    for name in names:  # nothing is left that could go
        rest = [one for one in names if one != name]
        covered = frozenset().union(*(known[one] for one in rest))
        assert not (rest and set(wanted) <= covered and (not connected or is_connected(known, rest)))


def test_the_cheapest_is_nearly_always_found() -> None:
    random, right, count = np.random.default_rng(0), 0, 0
    for _ in range(40):
        known = {
            f"m{i}": frozenset(random.choice(9, size=random.integers(1, 5), replace=False).tolist())
            for i in range(8)
        }
        costs = {name: int(random.integers(1, 10)) for name in known}
        wanted = random.choice(9, size=3, replace=False).tolist()
        best = cheapest(known, wanted, costs, True)
        if best is not None:
            count += 1
            right += sum(costs[name] for name in cover_classes(known, wanted, costs)) == best
    assert count >= 20
    assert right >= 0.85 * count


def test_a_cheap_detour_connects() -> None:
    known = {
        "a": frozenset("xy"),
        "b": frozenset("vw"),
        "dear": frozenset("yv"),
        "u1": frozenset("yz"),
        "u2": frozenset("zv"),
    }
    costs = {"a": 1.0, "b": 1.0, "dear": 9.0, "u1": 2.0, "u2": 2.0}
    assert cover_classes(known, ["x", "w"], costs) == ["a", "b", "u1", "u2"]
    assert cover_classes(known, ["x", "w"], costs | {"dear": 3.0}) == ["a", "b", "dear"]
    assert cover_classes(known, ["x", "w"], costs, connected=False) == ["a", "b"]


def test_what_is_missing_is_named() -> None:
    known = {"a": frozenset({"cat", "dog"}), "b": frozenset({"tram", "bus"})}
    costs = dict.fromkeys(known, 1.0)
    with pytest.raises(LabelSpaceError, match=r"No model knows trma\. Did you mean 'tram'\?"):
        cover_classes(known, ["cat", "trma"], costs)
    with pytest.raises(LabelSpaceError, match=r"2 groups: cat \| tram\..*connected=False"):
        cover_classes(known, ["cat", "tram"], costs)
    with pytest.raises(LabelSpaceError, match="No model knows cat"):
        cover_classes({}, ["cat"], {})
