"""The index of digests."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.scoring.store.index import Index, among, in_order

ROWS = st.lists(st.integers(0, 30), max_size=25)


def digests(rows: list[int]) -> np.ndarray:
    """Return digests whose halves are shared by several rows."""
    numbers = np.array(rows, dtype=np.uint64)
    return np.stack([numbers // 2, numbers % 2], axis=1)


@settings(deadline=None)
@given(st.lists(ROWS, max_size=12), ROWS)
def test_no_segment_is_overlooked(parts: list[list[int]], wanted: list[int]) -> None:
    index = Index()
    for i, rows in enumerate(parts):
        index.add({f"segment {i}": digests(rows)})
    asked = in_order(digests(sorted(set(wanted))))
    named = {name: (places, rows) for name, places, rows in index.candidates(asked)}
    holders = {row // 2 for rows in parts for row in rows}
    reachable = {int(asked[place, 0]) for places, _ in named.values() for place in places}
    assert reachable == {row // 2 for row in wanted} & holders
    for name, (places, rows) in named.items():
        kept = digests(parts[int(name.split()[1])])
        np.testing.assert_array_equal(asked[places, 0], kept[rows, 0])


def test_many_small_parts_make_few_runs() -> None:
    index = Index()
    for i in range(1000):
        index.add({str(i): digests([2 * i])})
    assert len(index) == 1000
    assert len(index._runs) <= 11
    assert [name for name, _, _ in index.candidates(digests([2 * 777]))] == ["777"]


def test_a_common_row_names_few_segments() -> None:
    index = Index()
    index.add({str(i): digests([0, 0, 2 * i + 2]) for i in range(100)})
    assert len(list(index.candidates(digests([0])))) == 4


@given(ROWS, ROWS)
def test_rows_among_others(wanted: list[int], kept: list[int]) -> None:
    asked = in_order(digests(sorted(set(wanted))))
    places, rows = among(asked, digests(kept))
    np.testing.assert_array_equal(asked[places], digests(kept)[rows])
    # of two rows that share a half, the first is found
    firsts = {min(row for row in wanted if row // 2 == half) for half in {row // 2 for row in wanted}}
    assert {kept[row] for row in rows} == firsts & set(kept)
