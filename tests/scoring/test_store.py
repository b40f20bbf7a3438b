"""The store of scores: what it keeps, what it never gives, and what happens when things go wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from consilience import ConsilienceWarning, InvalidInputError, LabelSpace, TeacherError, Unifier, as_teacher
from consilience.files.arrays import ArrayFileError, NpzFile
from consilience.scoring import engine
from consilience.scoring.digests import row_digests
from consilience.scoring.store import ScoreStore, Segment, as_store, shelf
from consilience.scoring.store import segments as stored
from consilience.scoring.store.segments import Name, write_segment
from consilience.teachers import Observed

X = np.random.default_rng(0).normal(size=(50, 3))


def observe(teacher: Any, rows: Any, **options: Any) -> Observed:
    return engine.observe(as_teacher(teacher), rows, **options)


def score(teachers: list[Any], space: LabelSpace, rows: Any, **options: Any) -> np.ndarray:
    return engine.score([as_teacher(teacher) for teacher in teachers], space, rows, **options)


@pytest.fixture(autouse=True)
def _known_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are whole from the first on, as of a teacher whose speed is known."""
    monkeypatch.setattr(engine, "FIRST", 64)


class Counting:
    """A teacher that counts the rows it is asked about."""

    def __init__(
        self, fingerprint: str | None = "v1", *, features: bool = True, fail_at: int | None = None
    ) -> None:
        self.name, self.classes, self.fingerprint = "counting", np.array(["a", "b"]), fingerprint
        self.asked: list[int] = []
        self.fail_at = fail_at
        if features:
            self.embed = lambda rows: np.asarray(rows) * 10

    def predict_logits(self, rows: Any) -> np.ndarray:
        if self.fail_at is not None and len(self.asked) == self.fail_at:
            raise KeyboardInterrupt
        self.asked.append(len(rows))
        return np.asarray(rows)[:, :2] * 2


def check(seen: Any, rows: np.ndarray = X) -> None:
    np.testing.assert_array_equal(seen.logits, rows[:, :2] * 2)
    np.testing.assert_array_equal(seen.embeddings, rows * 10)


@pytest.fixture
def store(tmp_path: Path) -> ScoreStore:
    return ScoreStore(tmp_path / "cache")


def test_a_row_is_asked_about_once(store: ScoreStore) -> None:
    teacher = Counting()
    check(observe(teacher, X, store=store, batch_size=20))
    assert teacher.asked == [20, 20, 10]
    check(observe(teacher, X, store=store))
    packed = score([teacher], LabelSpace([["a", "b"]]), X, store=store)
    np.testing.assert_array_equal(packed, (X[:, :2] * 2).astype(np.float32))
    assert sum(teacher.asked) == 50


def test_a_changed_row_invalidates_itself_and_an_order_nothing(store: ScoreStore) -> None:
    teacher = Counting()
    observe(teacher, X, store=store)
    changed = X[::-1].copy()
    changed[3] += 1
    check(observe(teacher, changed, store=store), changed)
    assert teacher.asked == [50, 1]
    check(observe(teacher, X[:7], store=store), X[:7])
    assert teacher.asked == [50, 1]


def test_a_changed_teacher_is_asked_anew(store: ScoreStore) -> None:
    observe(Counting("v1"), X, store=store)
    other = Counting("v2")
    observe(other, X, store=store)
    assert other.asked == [50]


def test_equal_rows_are_asked_about_once(store: ScoreStore) -> None:
    teacher = Counting()
    twice = np.vstack([X, X[::-1], X[:5]])
    check(observe(teacher, twice, store=store), twice)
    assert teacher.asked == [50]


def test_an_interrupted_run_goes_on_where_it_stopped(store: ScoreStore) -> None:
    with pytest.raises(KeyboardInterrupt):
        observe(Counting(fail_at=2), X, store=store, batch_size=20)
    teacher = Counting()
    calls: list[tuple[str, int, int]] = []
    check(observe(teacher, X, store=store, batch_size=20, progress=lambda *call: calls.append(call)))
    assert teacher.asked == [10]
    assert calls == [("scoring", 40, 50), ("scoring", 50, 50)]


def test_embeddings_are_asked_for_when_only_logits_are_known(store: ScoreStore) -> None:
    teacher = Counting()
    assert observe(teacher, X, store=store, embeddings=False).embeddings is None
    check(observe(teacher, X, store=store))
    assert teacher.asked == [50, 50]
    check(observe(teacher, X, store=store))
    assert teacher.asked == [50, 50]


def test_a_teacher_without_embeddings_is_known_to_have_none(store: ScoreStore) -> None:
    teacher = Counting(features=False)
    for _ in range(2):
        assert observe(teacher, X, store=store).embeddings is None
    assert teacher.asked == [50]


def test_abstentions_are_kept(store: ScoreStore) -> None:
    def half(rows: Any) -> np.ndarray:
        return np.where(rows[:, :1] > 0, rows[:, :2], np.nan)

    teacher = as_teacher(half, ["a", "b"], output="logits", fingerprint="half")
    expected = observe(teacher, X).logits
    for _ in range(2):
        np.testing.assert_array_equal(observe(teacher, X, store=store).logits, expected)
    assert np.isnan(expected).any()


def test_what_scores_are_is_decided_by_the_rows_that_decide_without_a_store(store: ScoreStore) -> None:
    def teacher() -> Any:
        return as_teacher(lambda rows: rows, ["a", "b"], fingerprint="v1")

    sums = np.array([[0.3, 0.7], [0.5, 0.5]])
    observe(teacher(), sums, store=store)  # probabilities
    rows = np.vstack([[[2.0, -3.0]], sums])  # logits: the first row decides
    expected = observe(teacher(), rows).logits
    np.testing.assert_array_equal(observe(teacher(), rows, store=store).logits, expected)
    np.testing.assert_array_equal(observe(teacher(), rows, store=store).logits, rows)
    assert teacher().fingerprint is None  # before it has seen anything


def test_scores_of_an_open_kind_are_kept_all_the_same(store: ScoreStore) -> None:
    asked: list[int] = []

    def logits(rows: Any) -> np.ndarray:
        asked.append(len(rows))
        return rows

    for _ in range(2):
        teacher = as_teacher(logits, ["a", "b", "c"], fingerprint="v1")
        observe(teacher, X, store=store, batch_size=10)
    assert asked == [10] * 6 + [10]  # the first batch decides, each time


def test_what_cannot_be_known_again_goes_past_the_store(store: ScoreStore) -> None:
    for teacher, rows in ((Counting(None), X), (Counting(), [{"x": 1}])):
        if isinstance(rows, list):
            teacher.predict_logits = lambda rows: np.zeros((1, 2))  # type: ignore[method-assign]
            del teacher.embed
        observe(teacher, rows, store=store)
    observe(as_teacher(X[:, :2], ["a", "b"], output="logits"), X, store=store)
    assert store.size == 0


def test_no_rows(store: ScoreStore) -> None:
    seen = observe(Counting(), X[:0], store=store)
    assert seen.logits.shape == (0, 2)


def segments(store: ScoreStore) -> list[Path]:
    return sorted(store.folder.glob("*/*.npz"))


def rewrite(path: Path, old: bytes, new: bytes) -> None:
    """Replace some text in all members of an archive, which stays sound."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data.replace(old, new.ljust(len(old))))


@pytest.mark.parametrize(
    "damage", ["truncate", "empty", "flip", "text", "swap", "huge", "encrypted", "deflated"]
)
def test_a_broken_segment_is_computed_again_and_never_believed(store: ScoreStore, damage: str) -> None:
    with pytest.raises(KeyboardInterrupt):  # which leaves a file for each batch
        observe(Counting(fail_at=2), np.vstack([X, X + 1]), store=store, batch_size=25)
    first, _second = sorted(segments(store), key=lambda path: path.stat().st_mtime_ns)
    content = bytearray(first.read_bytes())
    if damage == "truncate":
        first.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        first.write_bytes(b"")
    elif damage == "text":
        first.write_text("not an archive")
    elif damage == "swap":  # a sound segment of another teacher
        observe(Counting("v2"), X, store=store)
        (other,) = [path for path in segments(store) if path.parent != first.parent]
        first.write_bytes(other.read_bytes())
    elif damage == "huge":
        rewrite(first, b"'shape': (25, 2), }" + b" " * 20, b"'shape': (%d, %d), }" % (10**16, 2))
    elif damage == "encrypted":  # a flag of the first entry of the directory
        content[bytes(content).index(b"PK\x01\x02") + 8] ^= 1
        first.write_bytes(content)
    elif damage == "deflated":
        with np.load(first) as archive:
            np.savez_compressed(first, **dict(archive))
    else:
        place = bytes(content).index(b"logits.npy") + 300  # inside the numbers
        content[place] ^= 255
        first.write_bytes(content)
    teacher = Counting()
    with pytest.warns(ConsilienceWarning, match="is broken .* computed again"):
        check(observe(teacher, X, store=store))
    assert teacher.asked == [25]
    check(observe(teacher, X, store=store))  # sound again
    assert teacher.asked == [25]


def test_no_flipped_bit_loses_embeddings_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # which takes most of the time here
    store, rows = ScoreStore(tmp_path), X[:3]
    observe(Counting(), rows, store=store)
    (path,) = segments(store)
    whole = path.read_bytes()
    directory = whole.index(b"PK\x01\x02")
    told = 0
    for place in [*range(0, directory, 19), *range(directory, len(whole), 2)]:
        content = bytearray(whole)
        content[place] ^= 1 << (place % 8)
        path.unlink(missing_ok=True)
        path.write_bytes(bytes(content))
        teacher = Counting()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check(observe(teacher, rows, store=store), rows)
        assert bool(caught) == bool(teacher.asked), place
        told += bool(caught)
        for other in segments(store):
            other.unlink()
    assert told > 100


def forge(store: ScoreStore, logits: Any, embeddings: Any = X * 10) -> Path:
    """Write a segment of all rows with a sound checksum."""
    store.shelf("v1", 2).add(Segment(row_digests(X), RIGHT, X * 10), embeddings=True)
    path = max(segments(store), key=lambda path: path.stat().st_mtime_ns)
    name = Name.parse(path.name)
    with path.open("wb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "row_sums", lambda label, digests, values: np.zeros(50, np.uint64))
        write_segment(
            file, path.parent.name, name, row_digests(X), np.asarray(logits), np.asarray(embeddings)
        )
    return path


RIGHT = X[:, :2] * 2
INFINITE = np.where(np.arange(50)[:, None] == 7, np.inf, RIGHT)


@pytest.mark.parametrize(
    ("logits", "embeddings", "says"),
    [
        (RIGHT[:, :1], X * 10, r"its logits are float64 of shape \(50, 1\)"),
        (np.zeros((50, 3)), X * 10, r"its logits are float64 of shape \(50, 3\)"),
        (RIGHT[:9], X * 10, r"its logits are float64 of shape \(9, 2\)"),
        (RIGHT.astype(str), X * 10, "its logits are <U"),
        (RIGHT.astype(np.float16), X * 10, "its logits are float16"),
        (INFINITE, X * 10, "logits have inf in row"),
        (np.where(np.arange(2) == 1, np.nan, RIGHT), X * 10, "logits have nan in row"),
        (RIGHT, INFINITE, "embeddings have inf in row"),
        (RIGHT, X[:, 0], r"its embeddings are float64 of shape \(50,\)"),
        (RIGHT, X[:9], r"its embeddings are float64 of shape \(9, 3\)"),
        (RIGHT, X.astype(int), "its embeddings are int64"),
    ],
)
def test_what_only_has_a_sound_checksum_is_not_believed(
    store: ScoreStore, logits: Any, embeddings: Any, says: str
) -> None:
    forge(store, logits, embeddings)
    teacher = Counting()
    with pytest.warns(ConsilienceWarning, match=f"is broken .*{says}.*computed again"):
        check(observe(teacher, X, store=store))
    assert teacher.asked == [50]


def test_embeddings_of_several_widths_are_not_mixed(store: ScoreStore) -> None:
    observe(Counting(), X[:20], store=store)
    forge(store, RIGHT, X[:, :2])
    first, second = segments(store)
    teacher = Counting()
    wide, narrow = (first, second) if "-20-" in first.name else (second, first)
    says = "width 2, and others 3" if wide < narrow else "width 3, and others 2"
    with pytest.warns(ConsilienceWarning, match=f"its embeddings have the {says}"):
        seen = observe(teacher, X, store=store)
    assert seen.embeddings.shape == (50, 3 if wide < narrow else 2)
    store.clear()
    forge(store, RIGHT[:, :2], X[:, :2])
    with pytest.raises(TeacherError, match=r"width 2 for some rows and 3 for others.*clear the store"):
        observe(Counting(), np.vstack([X, X + 1]), store=store)


def test_files_that_cannot_be_read_are_left_where_they_are(
    store: ScoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe(Counting(), X, store=store)
    (path,) = segments(store)

    def refuse(self: Any, name: str) -> Any:
        raise ArrayFileError(path, "Permission denied") from PermissionError()

    monkeypatch.setattr(NpzFile, "read", refuse)
    with pytest.warns(ConsilienceWarning, match="Permission denied"):
        check(observe(Counting(), X, store=store))
    assert path.exists()


def test_temporary_files_of_killed_runs_are_deleted(store: ScoreStore) -> None:
    observe(Counting(), X, store=store)
    shelf = segments(store)[0].parent
    mine = shelf / ".notes.tmp"
    mine.write_text("mine")
    names = (shelf / f"{'0' * 32}.npz", shelf / f"{'1' * 32}.npz", store.folder / "README.txt")
    left = [name.with_name(f".{name.name}.{'a' * 16}.tmp") for name in names]
    for path in left:
        path.write_bytes(b"half of")
    os.utime(left[0], (0, 0))
    ScoreStore(store.folder)  # which may be in use elsewhere: the others are young
    assert [path.exists() for path in left] == [False, True, True]
    store.clear()
    assert [path.exists() for path in left] == [False, False, False]
    assert mine.read_text() == "mine"


def test_a_store_that_is_cleared_while_another_process_writes(
    store: ScoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[bool] = []

    def interrupted(*arguments: Any) -> None:
        write_segment(*arguments)
        if not cleared:
            cleared.append(True)
            ScoreStore(store.folder).clear()  # deletes the file that is being written

    monkeypatch.setattr(shelf, "write_segment", interrupted)
    check(observe(Counting(), X, store=store))
    assert cleared
    teacher = Counting()
    check(observe(teacher, X, store=store))
    assert teacher.asked == []


def test_arrays_of_objects_are_not_read(store: ScoreStore) -> None:
    observe(Counting(), X, store=store)
    (path,) = segments(store)
    objects = np.array([{}], dtype=object)
    others = dict.fromkeys(("digests", "logits", "sums"), np.zeros(1))
    np.savez(path, seal=objects, **others, allow_pickle=True)
    with pytest.warns(ConsilienceWarning, match=r"is broken .*Python objects"):
        check(observe(Counting(), X, store=store))


def test_a_store_that_cannot_be_written_warns_and_goes_on(
    store: ScoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shelf, "write_segment", full)
    with pytest.warns(
        ConsilienceWarning, match=r"cannot be written \(No space left on device\); these scores"
    ):
        check(observe(Counting(), X, store=store))
    assert [path.name for path in store.folder.glob("*/*")] == ["about.json"]


def test_links_are_not_followed(store: ScoreStore, tmp_path: Path) -> None:
    observe(Counting(), X, store=store)
    elsewhere = tmp_path / "elsewhere"
    shelf = segments(store)[0].parent
    shelf.rename(elsewhere)
    shelf.symlink_to(elsewhere)
    assert store.size == 0
    teacher = Counting()
    with pytest.warns(ConsilienceWarning, match="cannot be written"):
        check(observe(teacher, X, store=store))
    assert teacher.asked == [50]
    store.clear()
    assert len(list(elsewhere.iterdir())) == 2
    shelf.unlink()
    shelf.mkdir()
    (kept,) = elsewhere.glob("*.npz")
    (shelf / kept.name).symlink_to(kept)
    assert store.size == 0
    check(observe(teacher, X, store=store))
    assert teacher.asked == [50, 50]


def test_what_only_has_the_name_of_a_segment_is_none(store: ScoreStore) -> None:
    observe(Counting(), X, store=store)
    shelf = segments(store)[0].parent
    (shelf / f"{'0' * 32}.npz").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(shelf / f"{'1' * 32}.npz")  # to open it would be to wait for ever
    teacher = Counting()
    check(observe(teacher, X, store=store))
    assert teacher.asked == []
    store.clear()
    assert store.size == 0


def test_other_files_are_left_alone(store: ScoreStore) -> None:
    observe(Counting(), X, store=store)
    mine = store.folder / "notes.txt"
    mine.write_text("mine")
    beside = segments(store)[0].parent / "notes.npz"
    beside.write_text("mine, too")
    assert "1 models, 1 segments" in repr(store)
    assert store.size > 1000
    store.clear()
    assert store.size == 0
    assert mine.read_text() == "mine"
    assert beside.read_text() == "mine, too"
    assert "delete the folder" in (store.folder / "README.txt").read_text()
    observe(Counting(), X, store=ScoreStore(store.folder))


def test_a_folder_with_other_files_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    (tmp_path / "README.txt").write_text("My thesis.")
    with pytest.raises(InvalidInputError, match="holds other files and is no store of scores"):
        ScoreStore(tmp_path)
    with pytest.raises(InvalidInputError, match="is a file; give a folder"):
        ScoreStore(tmp_path / "thesis.tex")
    for nothing in (None, "", 3):
        with pytest.raises(InvalidInputError, match=r"The store .* must be a folder"):
            ScoreStore(nothing)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="cache=3 must be a folder, a ScoreStore or None"):
        as_store(3)  # type: ignore[arg-type]


WRITER = """
import sys
import numpy as np
from consilience import as_teacher
from consilience.scoring.engine import observe
from consilience.scoring.store import ScoreStore
rows = np.random.default_rng(int(sys.argv[2])).normal(size=(200, 3))
options = dict(output="logits", embed=lambda X: X * 10, fingerprint="v1")
teacher = as_teacher(lambda X: X[:, :2] * 2, ["a", "b"], "same", **options)
observe(teacher, rows, store=ScoreStore(sys.argv[1]), batch_size=10)
"""


def test_processes_that_write_at_once_do_no_harm(store: ScoreStore) -> None:
    folder = str(store.folder)
    workers = [subprocess.Popen([sys.executable, "-c", WRITER, folder, seed]) for seed in ("0", "0", "1")]
    assert [worker.wait(timeout=60) for worker in workers] == [0, 0, 0]
    asked: list[int] = []

    def logits(rows: Any) -> Any:
        asked.append(len(rows))
        return rows[:, :2] * 2

    embed = lambda rows: rows * 10  # noqa: E731
    teacher = as_teacher(logits, ["a", "b"], "same", output="logits", embed=embed, fingerprint="v1")
    for seed in range(2):
        rows = np.random.default_rng(seed).normal(size=(200, 3))
        check(observe(teacher, rows, store=store), rows)
    assert asked == []


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.lists(st.integers(0, 9), max_size=40))
@settings(max_examples=30, deadline=None)
def test_whatever_is_known_the_answer_is_the_teachers(
    tmp_path_factory: pytest.TempPathFactory, asked: list[int], known: list[int]
) -> None:
    store = ScoreStore(tmp_path_factory.mktemp("store") / "s")
    observe(Counting(), X[known], store=store, batch_size=3)
    teacher = Counting()
    check(observe(teacher, X[asked], store=store, batch_size=4), X[asked])
    assert sum(teacher.asked) == len(set(asked) - set(known))


def test_two_digests_that_share_a_half_are_not_confused(store: ScoreStore) -> None:
    shelf = store.shelf("v1", 2)
    kept = np.array([[5, 1], [7, 7]], dtype=np.uint64)
    shelf.add(Segment(kept, np.array([[1.0, 2.0], [3.0, 4.0]]), None), embeddings=True)
    wanted = np.array([[5, 0], [5, 1], [7, 7]], dtype=np.uint64)
    found = [(places.tolist(), part.logits.tolist()) for places, part in shelf.find(wanted, embeddings=False)]
    assert found == [([2], [[3.0, 4.0]])]  # the first half of 5 1 is that of 5 0: it counts as unknown


def test_a_second_fit_with_another_method_asks_no_teacher(tmp_path: Path) -> None:
    rows, labels = np.repeat(np.eye(3), 20, axis=0) + X[:1] / 9, np.repeat(["a", "b", "c"], 20)
    rows = rows + np.random.default_rng(0).normal(size=rows.shape) / 9
    asked: list[int] = []

    class Model(LogisticRegression):
        def predict_proba(self, rows: Any) -> Any:
            asked.append(len(rows))
            return super().predict_proba(rows)

    teachers = [Model().fit(rows[labels != k], labels[labels != k]) for k in ("a", "c")]
    made = [as_teacher(model, fingerprint=str(i)) for i, model in enumerate(teachers)]
    cache = tmp_path / "cache"
    first = Unifier(made, "logistic", method="mf-lf", cache=cache, random_state=0).fit(rows)
    assert sum(asked) == 120
    second = Unifier(made, "logistic", method="sd", cache=str(cache), random_state=0).fit(rows)
    assert sum(asked) == 120
    plain = Unifier(made, "logistic", method="mf-lf", random_state=0).fit(rows)
    np.testing.assert_array_equal(first.soft_labels_, plain.soft_labels_)
    assert np.abs(second.soft_labels_ - first.soft_labels_).max() > 0.01
