"""The cache: what it keeps, what it never gives, and who is deleted first."""

import multiprocessing
import os
import pickle
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import ConsilienceWarning, InvalidInputError
from consilience.scoring import store as shelves
from consilience.scoring.store import ScoreStore, as_store
from consilience.teachers import Observed

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402

DIGESTS = np.random.default_rng(0).integers(0, 2**64, size=(100, 2), dtype=np.uint64)
LOGITS = np.random.default_rng(1).normal(size=(100, 3)).astype(np.float32)
LOGITS[::7] = np.nan  # abstentions
FEATURES = np.random.default_rng(2).normal(size=(100, 4)).astype(np.float32)


@pytest.fixture(params=["local", "memory", "file"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "scores"
    return {"local": str(path), "memory": f"memory:/{path}", "file": path.as_uri()}[request.param]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "scores"


def shelf(where: Any, model: str = "birds", **options: Any) -> shelves.Shelf:
    return ScoreStore(where, **options).shelf(model, 3, model)


def add(to: shelves.Shelf, rows: slice, features: Any = None, *, embeddings: bool = False) -> None:
    seen = Observed(LOGITS[rows], None if features is None else features[rows])
    to.add(DIGESTS[rows], seen, embeddings=embeddings)
    to.flush()


def find(of: shelves.Shelf, rows: Any = slice(None), *, embeddings: bool = False) -> list[int]:
    """Return which rows are known; what is known must be right."""
    places = np.arange(100)[rows]
    known, seen = of.find(DIGESTS[places], embeddings=embeddings)
    np.testing.assert_array_equal(seen.logits[known], LOGITS[places][known])
    if seen.embeddings is not None:
        np.testing.assert_array_equal(seen.embeddings[known], FEATURES[places][known])
    return places[known].tolist()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.rows"))


class TestRows:
    def test_rows_are_found_in_any_order_and_by_others(self, where: str) -> None:
        writer = shelf(where)
        assert find(writer) == []
        for start in range(0, 60, 20):
            add(writer, slice(start, start + 20))
        for reader in (writer, shelf(where)):
            assert find(reader) == list(range(60))
            assert find(reader, [59, 3, 99, 3, 0]) == [59, 3, 3, 0]
        assert find(shelf(where), slice(0, 0)) == find(shelf(where, "pets")) == []

    def test_rows_kept_without_embeddings_are_unknown_to_who_wants_them(self, where: str) -> None:
        add(shelf(where), slice(0, 20))
        add(shelf(where), slice(10, 30), FEATURES, embeddings=True)
        assert find(shelf(where)) == list(range(30))
        assert find(shelf(where), embeddings=True) == list(range(10, 30))

    def test_a_teacher_without_embeddings_is_known_to_have_none(self, folder: Path) -> None:
        add(shelf(folder), slice(0, 20), embeddings=True)
        known, seen = shelf(folder).find(DIGESTS[:30], embeddings=True)
        assert (known.sum(), seen.embeddings) == (20, None)

    def test_embeddings_of_two_widths_are_not_mixed(self, folder: Path) -> None:
        add(shelf(folder), slice(0, 20), FEATURES, embeddings=True)
        add(shelf(folder), slice(20, 50), FEATURES[:, :2], embeddings=True)
        known, seen = shelf(folder).find(DIGESTS[:60], embeddings=True)
        assert (known.sum(), seen.embeddings.shape[1]) in ((20, 4), (30, 2))

    def test_digests_that_share_a_half_are_not_confused(self, folder: Path) -> None:
        one, kept = shelf(folder), np.array([[5, 1], [5, 2], [7, 7]], np.uint64)
        one.add(kept, Observed(LOGITS[1:4], None), embeddings=False)
        known, seen = one.find(np.array([[5, 2], [5, 0], [5, 1]], np.uint64), embeddings=False)
        assert known.tolist() == [True, False, True]
        np.testing.assert_array_equal(seen.logits[known], LOGITS[[2, 1]])

    def test_what_another_process_adds_is_noticed_in_time(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader = shelf(folder)
        assert find(reader) == []
        add(shelf(folder), slice(0, 20))
        assert find(reader) == []
        monkeypatch.setattr(shelves, "REFRESH_SECONDS", 0.0)
        assert find(reader) == list(range(20))

    def test_more_rows_than_can_be_looked_up(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for rows in (slice(0, 40), slice(40, 70)):
            add(shelf(folder), rows)
        monkeypatch.setattr(shelves, "INDEX_BYTES", 16 * 50)
        with pytest.warns(ConsilienceWarning, match="more rows of 'birds' than"):
            assert len(find(shelf(folder))) in (30, 40)


class TestFiles:
    def test_a_large_file_is_followed_by_another(self, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shelves, "FILE_BYTES", 400)
        monkeypatch.setattr(shelves, "UPLOAD_BYTES", 400)
        writer = shelf(where)
        add(writer, slice(0, 5))
        add(writer, slice(5, 30))  # more than a file holds
        assert ScoreStore(where).contents()["models"][0]["n_files"] == 4
        assert find(shelf(where)) == list(range(30))

    def test_a_damaged_record_costs_that_record(self, folder: Path) -> None:
        add(shelf(folder), slice(0, 20))
        (path,) = files(folder)
        content = bytearray(path.read_bytes())
        content[7 * len(content) // 20 + 20] ^= 4
        path.write_bytes(content + b"half")  # of a record, whose process was killed
        reader = shelf(folder)
        with pytest.warns(ConsilienceWarning, match="damaged rows; they are computed again"):
            assert find(reader, slice(0, 20)) == [row for row in range(20) if row != 7]
        add(reader, slice(7, 8))
        with pytest.warns(ConsilienceWarning, match="damaged"):
            assert find(shelf(folder)) == list(range(20))

    @pytest.mark.filterwarnings("ignore::consilience.exceptions.ConsilienceWarning")
    def test_no_flipped_bit_is_believed(self, folder: Path) -> None:
        add(shelf(folder), slice(0, 3), FEATURES, embeddings=True)
        (path,) = files(folder)
        whole = path.read_bytes()
        for place in range(len(whole)):
            content = bytearray(whole)
            content[place] ^= 1 << (place % 8)
            path.write_bytes(content)
            assert len(find(shelf(folder), embeddings=True)) == 2, place

    @pytest.mark.parametrize("content", [b"", b"x", bytes(10**4), b"text " * 1000])
    def test_files_that_are_none_of_ours(self, folder: Path, content: bytes) -> None:
        add(shelf(folder), slice(0, 20))
        (path,) = files(folder)
        for name in ("3-" + "0" * 16 + ".rows", "3-999999-" + "0" * 16 + ".rows", "notes.txt"):
            (path.parent / name).write_bytes(content)
        (path.parent / ("3-" + "1" * 16 + ".rows")).mkdir()
        os.mkfifo(path.parent / ("3-" + "2" * 16 + ".rows"))  # to open it would be to wait for ever
        (path.parent / ("3-" + "3" * 16 + ".rows")).touch()
        os.truncate(path.parent / ("3-" + "3" * 16 + ".rows"), 2**40)  # of holes
        assert find(shelf(folder)) == list(range(20))
        assert find(shelf(folder), embeddings=True) == []

    def test_a_file_of_another_model_is_not_believed(self, folder: Path) -> None:
        add(shelf(folder), slice(0, 20))
        add(shelf(folder, "pets"), slice(0, 20))
        one, other = files(folder)
        one.write_bytes(other.read_bytes())
        with pytest.warns(ConsilienceWarning, match="damaged"):
            assert find(shelf(folder)) + find(shelf(folder, "pets")) == list(range(20))

    def test_links_are_not_followed(self, folder: Path, tmp_path: Path) -> None:
        add(shelf(folder), slice(0, 20))
        (path,) = files(folder)
        elsewhere = tmp_path / "elsewhere"
        path.parent.rename(elsewhere)
        path.parent.symlink_to(elsewhere)
        reader = shelf(folder)
        assert (find(reader), ScoreStore(folder).size) == ([], 0)
        with pytest.warns(ConsilienceWarning, match="cannot be written"):
            add(reader, slice(0, 20))
        ScoreStore(folder).clear()
        assert len(list(elsewhere.iterdir())) == 2
        path.parent.unlink()
        path.parent.mkdir()
        path.symlink_to(elsewhere / path.name)
        assert find(shelf(folder)) == []

    def test_a_cache_that_is_cleared_while_another_process_writes(self, folder: Path) -> None:
        writer = shelf(folder)
        add(writer, slice(0, 20))
        ScoreStore(folder).clear()
        assert not list(folder.glob("*/*"))
        add(writer, slice(20, 40))
        assert find(writer) == list(range(20, 40))
        assert find(shelf(folder)) == list(range(20, 40))

    def test_a_full_disk_warns_and_costs_no_run(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        writer = shelf(folder)
        add(writer, slice(0, 5))

        def half(file: Any, rows: Any) -> Any:
            os.write(file.fileno(), bytes(rows[:50]))
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(shelves, "_write", half)
            with pytest.warns(ConsilienceWarning, match=r"cannot be written \(No space left"):
                add(writer, slice(5, 10))
        add(writer, slice(10, 15))
        assert find(shelf(folder)) == [*range(6), *range(10, 15)]  # of row 6 only a part was written


def write_until_killed(folder: Path, number: int) -> None:
    """Add rows for ever, and note each batch that was added."""
    random, log = np.random.default_rng(number), (folder.parent / f"log-{number}").open("ab", buffering=0)
    writer = shelf(folder)
    while True:
        digests = random.integers(0, 2**64, size=(50, 2), dtype=np.uint64)
        writer.add(digests, Observed(values_of(digests), None), embeddings=False)
        log.write(digests.tobytes())


def values_of(digests: Any) -> Any:
    return (digests[:, [0, 1, 0]] >> np.uint64(40)).astype(np.float32)


@pytest.mark.skipif(os.name != "posix", reason="needs kill -9")
def test_kills_with_two_writers_lose_no_row(folder: Path) -> None:
    context = multiprocessing.get_context("forkserver")  # a quick start, and no threads in a fork
    context.set_forkserver_preload(["tests.scoring.test_store"])
    for kill in range(4):
        logs = [folder.parent / f"log-{2 * kill + i}" for i in range(2)]
        writers = [context.Process(target=write_until_killed, args=(folder, 2 * kill + i)) for i in range(2)]
        for writer in writers:
            writer.start()
        started = time.monotonic()
        while not all(log.exists() and log.stat().st_size > 4000 for log in logs):
            assert time.monotonic() < started + 60
            time.sleep(0.002)
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.join()
    noted = b"".join(log.read_bytes() for log in folder.parent.glob("log-*"))
    digests = np.frombuffer(noted, np.uint64).reshape(-1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known, seen = shelf(folder).find(digests, embeddings=False)
    assert len(digests) > 1000
    assert known.all()
    np.testing.assert_array_equal(seen.logits, values_of(digests))


class TestLimit:
    @pytest.fixture
    def each(self, folder: Path) -> int:
        """A cache of five files of ten rows: the fourth was not used for longest, then the first, ..."""
        for i in range(5):
            add(shelf(folder, str(i)), slice(10 * i, 10 * i + 10))
            (path,) = [path for path in files(folder) if path.stat().st_mtime > 1e9]
            os.utime(path, (0, {3: 1}.get(i, 100 + i)))
        return ScoreStore(folder).size // 5

    @staticmethod
    def kept(folder: Path) -> list[str]:
        return sorted(
            model["teacher"] for model in ScoreStore(folder).contents()["models"] if model["n_rows"]
        )

    def test_the_least_recently_used_go_first(self, folder: Path, each: int) -> None:
        assert find(shelf(folder, "0")) == list(range(10))  # reading counts as use
        limit = int(4.3 * each)
        add(shelf(folder, "7", limit=limit), slice(0, 10))
        assert self.kept(folder) == ["0", "2", "4", "7"]
        assert ScoreStore(folder).size <= limit

    def test_a_run_that_needs_more_warns_once_and_keeps_the_first(self, folder: Path, each: int) -> None:
        limited = ScoreStore(folder, limit=int(2.3 * each))
        with pytest.warns(ConsilienceWarning, match=r"needs more than .* may take") as told:  # noqa: PT031
            for name in "56789":
                add(limited.shelf(name, 3, name), slice(0, 10))
        assert len(told) == 1
        assert self.kept(folder) == ["5", "6"]
        assert limited.size <= 2.3 * each

    def test_trimming(self, folder: Path, each: int) -> None:
        ScoreStore(folder).trim(3 * each)
        assert self.kept(folder) == ["1", "2", "4"]
        with pytest.raises(InvalidInputError, match="limit='much' must be a size"):
            ScoreStore(folder).trim("much")

    def test_behind_a_url_what_was_written_first_goes(self, tmp_path: Path) -> None:
        where = f"memory:/{tmp_path}/scores"
        for name in "012":
            add(shelf(where, name), slice(0, 10))
            time.sleep(0.01)
        each = ScoreStore(where).size // 3
        add(shelf(where, "3", limit=int(3.3 * each)), slice(0, 10))
        assert self.kept(where) == ["1", "2", "3"]

    def test_what_others_write_is_counted_in_time(self, folder: Path, each: int) -> None:
        limited = ScoreStore(folder, limit=int(7.3 * each))
        add(limited.shelf("5", 3, "5"), slice(0, 10))
        for name in "678":
            add(shelf(folder, name), slice(0, 10))
        for name in "9a":
            add(limited.shelf(name, 3, name), slice(0, 10))
        assert limited.size <= 7.3 * each


@pytest.mark.parametrize(
    ("given", "limit", "says"),
    [
        *(("scores", limit, r"cache_limit.* must be a size") for limit in (0, -1, "much", True, np.nan)),
        (None, "1GB", "Give the ScoreStore its own limit"),
        ("", None, "must be a folder"),
        (3, None, "must be a folder"),
    ],
)
def test_options_that_are_wrong(given: Any, limit: Any, says: str, folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=says):
        as_store(ScoreStore(folder) if given is None else given, limit)


class TestFolder:
    def test_contents_and_clearing(self, where: str) -> None:
        add(shelf(where, "birds"), slice(0, 20), FEATURES, embeddings=True)
        store = ScoreStore(where)
        training = store.root / "training-0a1b"
        training.make_folder()
        for name in ("training.pt", "notes.txt"):
            with (training / name).writing() as file:
                file.write(b"x" * 9)
        view = store.contents()
        (model,) = view["models"]
        assert (view["n_trainings"], view["n_bytes_trainings"], view["n_rows"]) == (1, 9, 20)
        assert model["n_bytes"] == view["n_bytes"] == store.size > 0
        store.clear()
        assert store.size == 0
        assert training.names() == ["notes.txt"]  # not ours
        assert pickle.loads(pickle.dumps(store)).folder == store.folder  # noqa: S301

    def test_other_files_make_no_cache_and_are_left_alone(self, where: str) -> None:
        root = ScoreStore(where).root
        root.make_root()
        for name in ("thesis.tex", "README.txt"):
            with (root / name).writing() as file:
                file.write(b"x")
        with pytest.raises(InvalidInputError, match="holds other files"):
            ScoreStore(where)
        with pytest.raises(InvalidInputError, match="is a file; give a folder"):
            ScoreStore(f"{where}/thesis.tex")
        (root / "README.txt").delete()
        (root / "thesis.tex").delete()
        add(shelf(where), slice(0, 20))
        with (root / "notes.txt").writing() as file:
            file.write(b"mine")
        ScoreStore(where).clear()
        assert root.names() == ["README.txt", "notes.txt"]
        ScoreStore(where)

    @pytest.mark.parametrize("damage", [b"", b"\xff" * 9, b"My thesis."])
    def test_a_damaged_readme_is_ignored(self, folder: Path, damage: bytes) -> None:
        add(shelf(folder), slice(0, 20))
        (folder / "notes.txt").write_text("mine")
        (folder / "README.txt").write_bytes(damage)
        assert find(shelf(folder)) == list(range(20))
        add(shelf(folder, "pets"), slice(0, 20))
        assert (folder / "README.txt").read_bytes() == damage
        (folder / "README.txt").unlink()
        (folder / "README.txt").mkdir()
        add(shelf(folder, "birds"), slice(0, 20))

    @pytest.mark.parametrize("name", [b"", b"\xff\xfe", b"x" * 10**6])
    def test_names_of_teachers_may_be_anything(self, folder: Path, name: bytes) -> None:
        add(shelf(folder), slice(0, 10))
        (told,) = folder.glob("*/name.txt")
        told.write_bytes(name)
        assert len(ScoreStore(folder).contents()["models"][0]["teacher"] or "") <= 200


def test_a_bucket_that_stops_answering_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = f"memory:/{tmp_path}/scores"
    add(shelf(where), slice(0, 20))
    store = ScoreStore(where, limit="1GB")
    opened, before = store.shelf("birds", 3), dict(MemoryFileSystem.store)

    def fail(*_: Any, **__: Any) -> Any:
        raise TimeoutError("timed out")

    with monkeypatch.context() as broken, pytest.warns(ConsilienceWarning) as seen:  # noqa: PT031
        for name in ("cat_file", "ls", "pipe_file", "info"):
            broken.setattr(MemoryFileSystem, name, fail)
        assert find(opened) == []
        add(opened, slice(30, 40))
    told = [str(warning.message) for warning in seen]
    assert sum("may be computed again" in text for text in told) == 1
    assert any("cannot be written" in text and "not kept" in text for text in told)
    assert dict(MemoryFileSystem.store) == before
    assert find(shelf(where)) == list(range(20))


def test_batches_for_a_bucket_are_sent_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, sent = shelf(f"memory:/{tmp_path}/scores"), list[str]()
    pipe = MemoryFileSystem.pipe_file
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lambda *a, **k: sent.append(a[1]) or pipe(*a, **k))
    for row in range(20):
        writer.add(DIGESTS[[row]], Observed(LOGITS[[row]], None), embeddings=False)
    writer.flush()
    assert sum(name.endswith(".rows") for name in sent) <= 3
