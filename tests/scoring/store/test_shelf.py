"""Shelves: blocks found by name, batches and their merging, at any instant and from several processes."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import ConsilienceWarning, InvalidInputError, as_teacher
from consilience.files.storage import LocalPath
from consilience.scoring import engine
from consilience.scoring.store import ScoreStore, Segment, Shelf, shelf
from consilience.scoring.store.index import in_order
from consilience.scoring.store.segments import Name

RNG = np.random.default_rng(0)
DIGESTS = RNG.integers(0, 2**64, size=(100, 2), dtype=np.uint64)
EXACT = RNG.normal(size=(100, 3)).astype(np.float32).astype(np.float64)
FINE = RNG.normal(size=(100, 3))
FEATURES = RNG.normal(size=(100, 4)).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path) -> ScoreStore:
    return ScoreStore(tmp_path / "scores")


def open_shelf(store: ScoreStore) -> Shelf:
    return ScoreStore(store.folder).shelf("teacher", 3, "birds")


def part(rows: Any, logits: Any = FINE, features: Any = None) -> Segment:
    return Segment(DIGESTS[rows], logits[rows], None if features is None else features[rows])


def files(store: ScoreStore) -> list[str]:
    return sorted(path.name for path in store.folder.glob("*/*.npz"))


def places(store: ScoreStore) -> list[tuple[str, int]]:
    names = [Name.parse(text) for text in files(store)]
    return [(name.place, name.rows) for name in names if name is not None]


def found(kept: Shelf, rows: Any = slice(None), **options: Any) -> dict[int, Any]:
    """Return what `find` tells about some rows."""
    wanted = DIGESTS[rows]
    order = np.lexsort((wanted[:, 1], wanted[:, 0]))
    known: dict[int, Any] = {}
    for where, segment in kept.find(wanted[order], **{"embeddings": False, **options}):
        np.testing.assert_array_equal(wanted[order][where], segment.digests)
        for place, logits in zip(where, segment.logits, strict=True):
            assert order[place] not in known
            known[int(order[place])] = logits
    return known


class TestBlocks:
    def test_a_block_is_found_by_its_rows_in_their_order(self, store: ScoreStore) -> None:
        open_shelf(store).merge(part(slice(0, 40), FINE, FEATURES), embeddings=True)
        kept = open_shelf(store)
        block = kept.block(DIGESTS[:40], embeddings=True)
        np.testing.assert_array_equal(block.logits, FINE[:40])
        np.testing.assert_array_equal(block.embeddings, FEATURES[:40])
        assert block.embeddings.dtype == np.float32
        assert kept.block(DIGESTS[:40]).embeddings is None
        assert kept.block(DIGESTS[:39]) is None
        assert kept.block(DIGESTS[:40][::-1]) is None
        assert kept.block(DIGESTS[:0]) is None

    def test_exactly_one_file_is_read(self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch) -> None:
        for start in range(0, 100, 10):
            open_shelf(store).merge(part(slice(start, start + 10)), embeddings=False)
        kept, read, listed = open_shelf(store), [], []
        reading, names = LocalPath.reading, LocalPath.names
        monkeypatch.setattr(
            LocalPath, "reading", lambda path, **how: read.append(path.name) or reading(path, **how)
        )
        monkeypatch.setattr(LocalPath, "names", lambda folder: listed.append(folder) or names(folder))
        assert kept.block(DIGESTS[20:30]) is not None
        opened = [text for text in read if text in files(store)]
        assert len(opened) == 1
        assert listed == []

    def test_a_single_batch_becomes_its_block(self, store: ScoreStore) -> None:
        kept = open_shelf(store)
        kept.add(part(slice(0, 20)), embeddings=False)
        assert open_shelf(store).block(DIGESTS[:20]) is not None  # before it is merged, too
        kept.merge(part(slice(0, 20)), embeddings=False)
        assert places(store) == [("block", 20)]
        assert open_shelf(store).block(DIGESTS[:20]) is not None

    def test_rows_stored_without_embeddings_are_unknown_to_who_wants_them(self, store: ScoreStore) -> None:
        kept = open_shelf(store)
        kept.merge(part(slice(0, 20)), embeddings=False)
        assert kept.block(DIGESTS[:20], embeddings=True) is None
        kept.merge(part(slice(0, 20)), embeddings=True)  # asked for, and the teacher has none
        assert kept.block(DIGESTS[:20], embeddings=True).embeddings is None
        assert len(files(store)) == 1  # the poorer one is gone
        kept.merge(part(slice(0, 20)), embeddings=False)
        assert len(files(store)) == 2

    def test_another_file_under_its_name_is_not_believed(self, store: ScoreStore) -> None:
        kept = open_shelf(store)
        kept.merge(part(slice(0, 20)), embeddings=False)
        kept.merge(part(slice(20, 40)), embeddings=False)
        first, second = store.folder.glob("*/*.npz")
        first.write_bytes(second.read_bytes())
        with pytest.warns(ConsilienceWarning, match="does not hold the rows that its name says"):
            blocks = [open_shelf(store).block(DIGESTS[rows]) for rows in (slice(0, 20), slice(20, 40))]
        assert sum(block is None for block in blocks) == 1
        assert len(files(store)) == 1


class TestTypes:
    def test_single_precision_is_used_where_it_loses_nothing(self, store: ScoreStore) -> None:
        kept = open_shelf(store)
        kept.merge(part(slice(None), EXACT), embeddings=False)
        (path,) = store.folder.glob("*/*.npz")
        with np.load(path, allow_pickle=False) as archive:
            assert archive["logits"].dtype == np.float32
        for dtype in (np.float64, np.float32):
            block = kept.block(DIGESTS, dtype=dtype)
            assert block.logits.dtype == dtype
            assert not block.rounded
            np.testing.assert_array_equal(block.logits, EXACT)

    def test_rounded_numbers_are_unknown_to_a_reader_of_float64(self, store: ScoreStore) -> None:
        kept = open_shelf(store)
        kept.merge(part(slice(None)), embeddings=False, dtype=np.float32)
        assert kept.block(DIGESTS) is None
        assert found(kept) == {}
        block = kept.block(DIGESTS, dtype=np.float32)
        assert block.rounded
        np.testing.assert_array_equal(block.logits, FINE.astype(np.float32))
        assert len(found(open_shelf(store), dtype=np.float32)) == 100
        kept.merge(part(slice(None)), embeddings=False)  # the exact ones take their place
        assert len(files(store)) == 1
        np.testing.assert_array_equal(kept.block(DIGESTS).logits, FINE)
        cast = kept.block(DIGESTS, dtype=np.float32)
        assert cast.rounded
        np.testing.assert_array_equal(cast.logits, FINE.astype(np.float32))

    def test_float32_arrays_count_as_rounded_unless_told(self, store: ScoreStore) -> None:
        kept, low = open_shelf(store), EXACT.astype(np.float32)
        kept.merge(Segment(DIGESTS, low, None), embeddings=False)
        assert kept.block(DIGESTS) is None
        kept.merge(Segment(DIGESTS, low, None, rounded=False), embeddings=False)
        np.testing.assert_array_equal(kept.block(DIGESTS).logits, EXACT)

    def test_rounded_batches_never_replace_exact_ones(self, store: ScoreStore) -> None:
        kept = open_shelf(store)
        kept.add(part(slice(0, 20)), embeddings=False)
        kept.merge(part(slice(0, 50)), embeddings=False, dtype=np.float32)
        assert places(store) == [("block", 50), ("loose", 20)]
        assert set(found(kept)) == set(range(20))

    def test_what_overflows_becomes_the_largest(self, store: ScoreStore) -> None:
        kept, large = open_shelf(store), FINE[:2] * [1e300, 1, 1]
        kept.merge(Segment(DIGESTS[:2], large, None), embeddings=False, dtype=np.float32)
        logits = kept.block(DIGESTS[:2], dtype=np.float32).logits
        most = np.finfo(np.float32).max
        np.testing.assert_array_equal(logits[:, 0], np.copysign(most, large[:, 0]))

    @pytest.mark.parametrize("dtype", [np.float16, int, str])
    def test_other_types(self, store: ScoreStore, dtype: Any) -> None:
        with pytest.raises(InvalidInputError, match="must be float64 or float32"):
            open_shelf(store).block(DIGESTS, dtype=dtype)


class TestMerging:
    def test_loose_batches_give_way_to_their_block(self, store: ScoreStore) -> None:
        kept = open_shelf(store)
        for start in range(0, 50, 10):
            kept.add(part(slice(start, start + 10)), embeddings=False)
        assert places(store) == [("loose", 10)] * 5
        kept.merge(part(slice(0, 40)), embeddings=False)
        assert places(store) == [("block", 40), ("loose", 10)]
        assert set(found(open_shelf(store))) == set(range(50))

    def test_batches_across_a_border_go_with_the_second_block(self, store: ScoreStore) -> None:
        kept = open_shelf(store)
        kept.add(part(slice(0, 60)), embeddings=False)
        kept.merge(part(slice(0, 50)), embeddings=False)
        assert places(store) == [("block", 50), ("loose", 60)]
        kept.merge(part(slice(50, 100)), embeddings=False)
        assert places(store) == [("block", 50), ("block", 50)]

    def test_batches_of_a_killed_run_go_as_well(self, store: ScoreStore) -> None:
        open_shelf(store).add(part(slice(5, 15)), embeddings=False)
        open_shelf(store).merge(part(slice(0, 50)), embeddings=False)
        assert places(store) == [("block", 50)]

    def test_a_crash_between_writing_and_deleting_loses_nothing(
        self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept = open_shelf(store)
        for start in range(0, 50, 10):
            kept.add(part(slice(start, start + 10)), embeddings=False)
        with monkeypatch.context() as broken:
            broken.setattr(LocalPath, "delete", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                kept.merge(part(slice(0, 50)), embeddings=False)
        assert places(store) == [("block", 50), *[("loose", 10)] * 5]
        again = open_shelf(store)
        assert again.block(DIGESTS[:50]) is not None
        assert len(found(again)) == 50
        again.merge(part(slice(0, 50)), embeddings=False)
        assert places(store) == [("block", 50)]

    def test_a_crash_in_the_middle_of_writing_leaves_the_batches(
        self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept = open_shelf(store)
        for start in (0, 10):
            kept.add(part(slice(start, start + 10)), embeddings=False)

        def killed(file: Any, *_: Any) -> None:
            file.write(b"half")
            raise KeyboardInterrupt

        with monkeypatch.context() as broken:
            broken.setattr(shelf, "write_segment", killed)
            with pytest.raises(KeyboardInterrupt):
                kept.merge(part(slice(0, 20)), embeddings=False)
        assert places(store) == [("loose", 10)] * 2
        assert len(found(open_shelf(store))) == 20

    def test_two_processes_never_delete_what_each_other_wrote(
        self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two join the same rows in two orders: both have written before one of them deletes."""
        one, other = open_shelf(store), open_shelf(store)
        covered = Shelf._delete_covered
        waiting: list[Any] = []
        monkeypatch.setattr(Shelf, "_delete_covered", lambda *call: waiting.append(call))
        one.merge(part(np.arange(30)), embeddings=False, whole=False)
        other.merge(part(np.arange(30)[::-1]), embeddings=False, whole=False)
        for call in waiting:
            covered(*call)
        assert places(store) == [("loose", 30)]
        assert len(found(open_shelf(store))) == 30

    def test_many_small_batches_are_joined_on_the_way(
        self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shelf, "MOST_LOOSE", 7)
        kept, most = open_shelf(store), 0
        for row in range(100):
            kept.add(part([row], FINE if row % 2 else EXACT, FEATURES), embeddings=True)
            most = max(most, len(files(store)))
        assert most == 7
        known = found(open_shelf(store))
        assert len(known) == 100
        for row, logits in known.items():
            np.testing.assert_array_equal(logits, (FINE if row % 2 else EXACT)[row])
        kept.merge(part(slice(None), FINE, FEATURES), embeddings=True)
        assert places(store) == [("block", 100)]

    def test_many_loose_segments_become_blocks(
        self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for row in range(12):
            open_shelf(store).add(part([row], FINE, FEATURES), embeddings=True)
        open_shelf(store).add(part([50]), embeddings=False)
        open_shelf(store).add(part([51]), embeddings=False, dtype=np.float32)
        open_shelf(store).tidy()
        assert len(files(store)) == 14
        monkeypatch.setattr(shelf, "MOST_LOOSE", 13)
        monkeypatch.setattr(shelf, "BLOCK_ROWS", 5)
        open_shelf(store).tidy()
        assert places(store) == [("block", 5), ("block", 5), ("loose", 1), ("loose", 1), ("loose", 2)]
        kept = open_shelf(store)
        assert set(found(kept, embeddings=True)) == set(range(12))
        assert set(found(kept, dtype=np.float32)) == {*range(12), 50, 51}

    def test_batches_that_cannot_be_joined_stay(
        self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shelf, "MOST_LOOSE", 3)
        kept = open_shelf(store)
        for row in range(8):
            features = FEATURES.astype(np.float64) if row % 2 else FEATURES
            kept.add(part([row], FINE, features), embeddings=True)
        assert sum(rows for _, rows in places(store)) == 8
        assert len(found(open_shelf(store), embeddings=True)) == 8

    def test_no_rows_are_no_segment(self, store: ScoreStore) -> None:
        kept = open_shelf(store)
        kept.add(part(slice(0, 0)), embeddings=False)
        kept.merge(part(slice(0, 0)), embeddings=False)
        assert files(store) == []


class TestLookUp:
    def test_rows_in_another_order_and_other_blocks(self, store: ScoreStore) -> None:
        for start in range(0, 90, 10):
            open_shelf(store).merge(part(slice(start, start + 10)), embeddings=False)
        open_shelf(store).add(part(slice(90, 95)), embeddings=False)
        kept = open_shelf(store)
        for _ in range(3):  # the first looks into all files, the others into an index
            for rows in (np.arange(100)[::-1], np.arange(5, 25), RNG.permutation(100)[:30]):
                known = found(kept, rows)
                assert set(known) == {place for place, row in enumerate(rows) if row < 95}
                for place, logits in known.items():
                    np.testing.assert_array_equal(logits, FINE[rows[place]])

    def test_digests_are_read_once(self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch) -> None:
        for start in range(0, 100, 10):
            open_shelf(store).merge(part(slice(start, start + 10)), embeddings=False)
        kept, read = open_shelf(store), []
        reading = LocalPath.reading
        monkeypatch.setattr(
            LocalPath, "reading", lambda path, **how: read.append(path.name) or reading(path, **how)
        )
        others = in_order(RNG.integers(0, 2**64, size=(50, 2), dtype=np.uint64))
        counts = []
        for _ in range(5):
            assert list(kept.find(others, embeddings=False)) == []
            counts.append(len(read))
        assert counts == [10, 20, 20, 20, 20]
        assert len(found(kept, slice(5, 15))) == 10
        assert len(read) == 22

    def test_new_and_deleted_files_are_noticed(self, store: ScoreStore) -> None:
        open_shelf(store).merge(part(slice(0, 10)), embeddings=False)
        kept = open_shelf(store)
        for _ in range(2):
            assert len(found(kept)) == 10
        for start in range(10, 60, 10):
            open_shelf(store).merge(part(slice(start, start + 10)), embeddings=False)
        assert len(found(kept)) == 60
        for path in sorted(store.folder.glob("*/*.npz"))[:4]:
            path.unlink()
        assert len(found(kept)) == 20

    def test_the_memory_of_indexes_is_bounded(self, store: ScoreStore) -> None:
        for start in range(0, 100, 10):
            open_shelf(store).merge(part(slice(start, start + 10)), embeddings=False)
        store.index_bytes = 12 * 30
        kept = store.shelf("teacher", 3)
        assert len(found(kept)) == 100
        with pytest.warns(ConsilienceWarning, match="has more rows than its index of 360 bytes holds"):
            assert len(found(kept)) == 30
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(found(kept)) == 30  # told once
        assert store.index_room() == 0
        del kept
        assert store.index_room() == 30

    def test_rows_that_share_half_of_a_digest_are_not_confused(
        self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shelf, "FEW", 1)
        open_shelf(store).merge(part(slice(0, 20)), embeddings=False)
        kept, twin = open_shelf(store), DIGESTS[[3]] + np.array([[0, 1]], dtype=np.uint64)
        for _ in range(3):
            assert list(kept.find(twin, embeddings=False)) == []
            assert set(found(kept, [3])) == {0}

    def test_a_row_that_is_in_every_block(self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch) -> None:
        for start in range(10, 100, 10):
            open_shelf(store).merge(part([0, 0, *range(start, start + 10)]), embeddings=False)
        kept = open_shelf(store)
        for _ in range(2):
            assert set(found(kept, [0])) == {0}
            assert len(found(kept)) == 91
        reading, read = LocalPath.reading, []
        monkeypatch.setattr(
            LocalPath, "reading", lambda path, **how: read.append(path) or reading(path, **how)
        )
        wanted = in_order(np.vstack([DIGESTS[:1], DIGESTS[:1] + np.uint64(1)]))  # the second is unknown
        assert len(list(kept.find(wanted, embeddings=False))) == 1
        assert len(read) == 1

    @settings(max_examples=30, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, 29), st.integers(1, 9), st.booleans()), max_size=12),
        st.lists(st.integers(0, 39), unique=True, max_size=40),
    )
    def test_all_that_was_added_is_found(
        self, tmp_path_factory: pytest.TempPathFactory, parts: list[Any], wanted: list[int]
    ) -> None:
        store = ScoreStore(tmp_path_factory.mktemp("store") / "s")
        writer, known = open_shelf(store), set()
        for start, count, merged in parts:
            rows = slice(start, start + count)
            (writer.merge if merged else writer.add)(part(rows), embeddings=False)
            known |= set(range(start, start + count))
        kept = open_shelf(store)
        for _ in range(2):
            assert {wanted[place] for place in found(kept, wanted)} == known & set(wanted)


WRITER = """
import sys
import numpy as np
from consilience.scoring.store import ScoreStore, Segment
digests = np.random.default_rng(0).integers(0, 2**64, size=(600, 2), dtype=np.uint64)
logits = np.random.default_rng(1).normal(size=(600, 3))
shelf = ScoreStore(sys.argv[1]).shelf("teacher", 3)
for start in range(0, 600, 60):
    block = slice(start, start + 60)
    if shelf.block(digests[block]) is not None:
        continue
    for batch in range(start, start + 60, 5):
        rows = slice(batch, batch + 5)
        shelf.add(Segment(digests[rows], logits[rows], None), embeddings=False)
    shelf.merge(Segment(digests[block], logits[block], None), embeddings=False)
    if sys.argv[2] == "tidy":
        shelf._gather([name for name in shelf._names() if name.place == "loose"])
"""


def test_processes_that_merge_at_once_do_no_harm(store: ScoreStore) -> None:
    folder = str(store.folder)
    workers = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", WRITER, folder, what])
        for what in ("plain", "plain", "tidy")
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0]
    digests = np.random.default_rng(0).integers(0, 2**64, size=(600, 2), dtype=np.uint64)
    logits = np.random.default_rng(1).normal(size=(600, 3))
    kept = open_shelf(store)
    for start in range(0, 600, 60):
        block = kept.block(digests[start : start + 60])
        np.testing.assert_array_equal(block.logits, logits[start : start + 60])


class TestObserve:
    """Rows in memory are kept in blocks, too."""

    @pytest.fixture(autouse=True)
    def _small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine, "BLOCK_ROWS", 40)
        monkeypatch.setattr(engine, "FIRST", 64)

    def teacher(self, fail_at: int = -1) -> Any:
        asked: list[int] = []

        def logits(rows: Any) -> Any:
            if len(asked) == fail_at:
                raise KeyboardInterrupt
            asked.append(len(rows))
            return rows[:, :3]

        made = as_teacher(logits, ["a", "b", "c"], "birds", output="logits", fingerprint="v1")
        made.asked = asked
        return made

    def observe(self, teacher: Any, rows: Any, store: ScoreStore) -> None:
        seen = engine.observe(teacher, rows, store=ScoreStore(store.folder), batch_size=15)
        assert seen.logits.dtype == np.float64
        np.testing.assert_array_equal(seen.logits, rows[:, :3])

    def test_new_rows_are_joined_in_their_order(self, store: ScoreStore) -> None:
        teacher = self.teacher()
        self.observe(teacher, FINE, store)
        assert places(store) == [("block", 40), ("block", 40), ("loose", 20)]
        kept = ScoreStore(store.folder).shelf(teacher.fingerprint, 3)
        digests = engine.row_digests(FINE)
        for rows in (slice(0, 40), slice(40, 80), slice(80, 100)):
            np.testing.assert_array_equal(kept.block(digests[rows], embeddings=True).logits, FINE[rows])

    def test_a_stopped_run_ends_with_the_same_files(self, store: ScoreStore) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.observe(self.teacher(fail_at=4), FINE, store)
        assert places(store) == [("block", 40), ("loose", 15), ("loose", 15)]
        teacher = self.teacher()
        self.observe(teacher, FINE, store)
        assert sum(teacher.asked) == 40
        assert sum(rows for place, rows in places(store) if place == "block") == 80
        before = {path: path.read_bytes() for path in store.folder.glob("*/*.npz")}
        self.observe(teacher, FINE, store)
        self.observe(teacher, FINE[::-1], store)
        self.observe(teacher, FINE[30:90], store)
        assert {path: path.read_bytes() for path in store.folder.glob("*/*.npz")} == before
        assert sum(teacher.asked) == 40

    def test_a_store_of_many_small_calls_has_few_files(
        self, store: ScoreStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shelf, "MOST_LOOSE", 5)
        monkeypatch.setattr(shelf, "BLOCK_ROWS", 40)
        teacher = self.teacher()
        for row in range(100):
            self.observe(teacher, FINE[row : row + 1], store)
            assert len(files(store)) <= 5 + 1 + row // 40
        self.observe(teacher, FINE, store)
        assert sum(teacher.asked) == 100
