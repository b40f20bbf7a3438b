"""Stores: their limit, who is deleted first, and what is not theirs."""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import ConsilienceWarning, InvalidInputError
from consilience.scoring.store import ScoreStore, Segment, Shelf, as_store, score_store
from consilience.scoring.store.segments import content_of

DIGESTS = np.random.default_rng(0).integers(0, 2**64, size=(200, 2), dtype=np.uint64)
LOGITS = np.random.default_rng(1).normal(size=(200, 3))


def merge(shelf: Shelf, block: int) -> None:
    rows = slice(10 * block, 10 * block + 10)
    shelf.merge(Segment(DIGESTS[rows], LOGITS[rows], None), embeddings=False)


def kept(store: ScoreStore) -> list[int]:
    """Return the blocks that a store has, without using them."""
    names = {path.name.split("-")[2] for path in store.folder.glob("*/*.npz")}
    return [i for i in range(20) if content_of(DIGESTS[10 * i : 10 * i + 10]) in names]


@pytest.fixture
def store(tmp_path: Path) -> ScoreStore:
    """Return a store of five blocks; block 3 was not used for longest, then 0, 1, 2 and 4."""
    made = ScoreStore(tmp_path / "scores")
    for block in range(5):
        shelf = ScoreStore(made.folder).shelf("v1", 3)
        merge(shelf, block)
        (path,) = [path for path in made.folder.glob("*/*.npz") if path.stat().st_mtime > 1e9]
        os.utime(path, (0, {3: 0}.get(block, 100 + block)))
    return made


@pytest.fixture
def each(store: ScoreStore) -> int:
    """Return the size of a block."""
    return store.size // 5


class TestLimit:
    def test_the_least_recently_used_go_first(self, store: ScoreStore, each: int) -> None:
        limited = ScoreStore(store.folder, limit=int(4.3 * each))
        merge(limited.shelf("v1", 3), 7)
        assert kept(store) == [1, 2, 4, 7]
        assert limited.size <= 4.3 * each

    def test_reading_counts_as_use(self, store: ScoreStore, each: int) -> None:
        assert store.shelf("v1", 3).block(DIGESTS[30:40]) is not None
        order = np.lexsort((DIGESTS[:10, 1], DIGESTS[:10, 0]))
        assert list(store.shelf("v1", 3).find(DIGESTS[:10][order], embeddings=False))
        merge(ScoreStore(store.folder, limit=int(4.3 * each)).shelf("v1", 3), 7)
        assert kept(store) == [0, 3, 4, 7]

    def test_without_a_limit_nothing_goes(self, store: ScoreStore) -> None:
        merge(store.shelf("v1", 3), 7)
        assert len(kept(store)) == 6

    def test_a_run_that_needs_more_warns_once_and_goes_on(self, store: ScoreStore, each: int) -> None:
        limited = ScoreStore(store.folder, limit=int(3.3 * each))
        shelf = limited.shelf("v1", 3)

        def run() -> None:
            for block in range(5, 15):
                merge(shelf, block)
                assert block in kept(store)  # never the current one
                assert limited.size <= 3.3 * each

        with pytest.warns(ConsilienceWarning, match=r"needs more than .* that the store .* may take") as seen:
            run()
        assert len(seen) == 1
        assert kept(store) == [5, 6, 14]  # the first are kept for the next run

    def test_the_current_block_stays_whatever_the_limit(self, store: ScoreStore, each: int) -> None:
        limited = ScoreStore(store.folder, limit=10)
        shelf, other = limited.shelf("v1", 3), limited.shelf("v2", 3)
        batches = [Segment(DIGESTS[[row]], LOGITS[[row]], None) for row in range(100, 105)]
        with pytest.warns(ConsilienceWarning, match="needs more than the 10 bytes"):
            shelf.add(batches[0], embeddings=False)
        for batch in batches:
            shelf.add(batch, embeddings=False)
            other.add(batch, embeddings=False)
        assert len(list(store.folder.glob("*/loose-*.npz"))) == 10
        assert kept(store) == []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            merge(shelf, 10)
        assert len(list(store.folder.glob("*/*.npz"))) == 6

    def test_what_others_write_is_counted_in_time(
        self, store: ScoreStore, each: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(score_store, "_RECOUNT", 2)
        limited = ScoreStore(store.folder, limit=int(7.3 * each))
        shelf = limited.shelf("v1", 3)
        merge(shelf, 5)
        for block in (10, 11, 12):
            merge(ScoreStore(store.folder).shelf("v1", 3), block)
        merge(shelf, 6)
        assert limited.size <= 7.3 * each

    def test_segments_of_older_versions_go_by_their_time(self, store: ScoreStore, each: int) -> None:
        shelf = store.folder / ("0" * 40)
        shelf.mkdir()
        old = shelf / f"{'a' * 32}.npz"
        old.write_bytes(b"x" * each)
        os.utime(old, (0, 50))
        assert store.trim(int(4.3 * each)) > 0
        assert not old.exists()
        assert kept(store) == [0, 1, 2, 4]

    def test_trimming(self, store: ScoreStore, each: int) -> None:
        assert store.trim("1 TB") == 0
        assert store.trim(2 * each + 9) == pytest.approx(3 * each, rel=0.05)
        assert kept(store) == [2, 4]

    def test_files_of_others_are_no_part_of_it(self, store: ScoreStore) -> None:
        shelf = next(store.folder.glob("*/"))
        mine = [shelf / "thesis.npz", shelf / f"block-3-{'0' * 31}-xe.npz", store.folder / "notes.txt"]
        for path in mine:
            path.write_bytes(b"x" * 10**5)
        outside = store.folder.parent / "outside.npz"
        outside.write_bytes(b"x" * 10**5)
        link = shelf / f"block-3-{'0' * 32}-xe.npz"
        link.symlink_to(outside)
        store.trim(1)
        store.clear()
        assert all(path.exists() for path in (*mine, outside, link))
        assert store.size == 0

    @pytest.mark.parametrize("limit", ["much", 0, -1, True])
    def test_limits_that_are_none(self, tmp_path: Path, limit: Any) -> None:
        with pytest.raises(InvalidInputError, match=r"limit=.* must be a size such as"):
            ScoreStore(tmp_path, limit=limit)
        with pytest.raises(InvalidInputError, match=r"cache_limit=.* must be a size such as"):
            as_store(tmp_path, limit)

    def test_a_limit_needs_a_folder(self, store: ScoreStore) -> None:
        assert as_store(str(store.folder), "2 GB").limit == 2 * 10**9
        with pytest.raises(InvalidInputError, match=r"cache_limit='2GB' needs a folder.* Give cache=, too"):
            as_store(None, "2GB")
        with pytest.raises(InvalidInputError, match="Give the ScoreStore its own limit"):
            as_store(store, "2GB")


def test_a_store_that_another_process_is_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marked = ScoreStore._is_marked

    def late(store: ScoreStore) -> bool:
        try:
            return marked(store)
        finally:
            ScoreStore.prepare(store)  # which the other process does just after we looked

    monkeypatch.setattr(ScoreStore, "_is_marked", late)
    (tmp_path / "scores").mkdir()
    assert ScoreStore(tmp_path / "scores").size == 0


def test_copies_are_stores_of_the_same_folder(store: ScoreStore) -> None:
    limited = ScoreStore(store.folder, limit="1GB")
    for other in (copy.deepcopy(limited), pickle.loads(pickle.dumps(limited))):  # noqa: S301
        assert (other.folder, other.limit, other.size) == (limited.folder, 10**9, store.size)


def test_a_store_may_be_reached_by_a_link(store: ScoreStore, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(store.folder)
    linked = ScoreStore(link)
    assert linked.size == store.size
    merge(linked.shelf("v1", 3), 7)
    assert len(kept(store)) == 6


def test_temporary_files_of_killed_runs_are_deleted(store: ScoreStore) -> None:
    shelf = next(store.folder.glob("*/"))
    names = [next(shelf.glob("*.npz")).name, "about.json"]
    left = [shelf / f".{name}.{'a' * 16}.tmp" for name in names]
    other = shelf / f".thesis.tex.{'a' * 16}.tmp"
    for path in (*left, other):
        path.write_bytes(b"half of")
        os.utime(path, (0, 0))
    ScoreStore(store.folder)
    assert not any(path.exists() for path in left)
    assert other.exists()
