"""A store behind a URL does what one on this machine does."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import ConsilienceWarning, InvalidInputError, Unifier, as_teacher
from consilience.scoring import engine
from consilience.scoring.store import ScoreStore, Segment, Shelf
from consilience.scoring.store.contents import read_contents
from consilience.scoring.store.segments import Name

pytest.importorskip("fsspec")
from fsspec.implementations.memory import MemoryFileSystem

DIGESTS = np.random.default_rng(0).integers(0, 2**64, size=(100, 2), dtype=np.uint64)
LOGITS = np.random.default_rng(1).normal(size=(100, 3))


@pytest.fixture(params=["local", "memory", "file"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "scores"
    return {"local": str(path), "memory": f"memory:/{path}", "file": path.as_uri()}[request.param]


def shelf(where: str, **options: Any) -> Shelf:
    return ScoreStore(where, **options).shelf("teacher", 3, "birds")


def part(start: int, stop: int) -> Segment:
    return Segment(DIGESTS[start:stop], LOGITS[start:stop], None)


def kept(where: str) -> list[tuple[str, int]]:
    found = (Name.parse(entry.path.name) for entry in ScoreStore(where).entries())
    return sorted((name.place, name.rows) for name in found if name is not None)


def find(of: Shelf, rows: Any = slice(None)) -> int:
    wanted = DIGESTS[rows]
    wanted = wanted[np.lexsort((wanted[:, 1], wanted[:, 0]))]
    return sum(len(places) for places, _ in of.find(wanted, embeddings=False))


def test_blocks_batches_and_their_merging(where: str) -> None:
    first = shelf(where)
    assert first.block(DIGESTS[:40]) is None
    for start in range(0, 50, 10):
        first.add(part(start, start + 10), embeddings=False)
    assert kept(where) == [("loose", 10)] * 5
    first.merge(part(0, 40), embeddings=False)
    assert kept(where) == [("block", 40), ("loose", 10)]
    again = shelf(where)
    np.testing.assert_array_equal(again.block(DIGESTS[:40]).logits, LOGITS[:40])
    assert again.block(DIGESTS[:39]) is None
    for _ in range(3):
        assert find(again) == 50
        assert find(again, [3, 7]) == 2


def test_a_single_batch_becomes_its_block(where: str) -> None:
    writer = shelf(where)
    writer.add(part(0, 20), embeddings=False)
    writer.merge(part(0, 20), embeddings=False)
    assert kept(where) == [("block", 20)]
    assert shelf(where).block(DIGESTS[:20]) is not None


def test_a_limit_deletes_and_the_current_block_stays(where: str) -> None:
    writer = shelf(where)
    for start in range(0, 50, 10):
        writer.merge(part(start, start + 10), embeddings=False)
    each = ScoreStore(where).size // 5
    limited = ScoreStore(where, limit=int(3.3 * each))
    limited.shelf("teacher", 3).merge(part(60, 70), embeddings=False)
    assert limited.size <= 3.3 * each
    assert shelf(where).block(DIGESTS[60:70]) is not None
    assert ScoreStore(where).trim(each + 9) > 0
    assert len(kept(where)) == 1


def test_contents_and_clearing(where: str) -> None:
    shelf(where).merge(part(0, 20), embeddings=False)
    store = ScoreStore(where)
    (view,) = read_contents(store).shelves
    assert (view.teacher, view.n_classes, view.n_rows, view.n_broken) == ("birds", 3, 20, 0)
    assert view.last_use > "2020"
    training = store.root / "training-0a1b"
    training.make_folder()
    for name in ("training.npz", "notes.txt"):
        with (training / name).writing() as file:
            file.write(b"x" * 9)
    found = read_contents(ScoreStore(where))
    assert (found.n_trainings, found.n_bytes_trainings) == (1, 9)
    store.clear()
    assert store.size == 0
    assert store.trainings_size == 0
    assert training.names() == ["notes.txt"]  # not ours
    assert (store.root / "README.txt").is_file()
    assert pickle.loads(pickle.dumps(store)).folder == store.absolute().absolute().folder  # noqa: S301


def test_a_broken_segment_is_told_and_dropped(where: str) -> None:
    shelf(where).merge(part(0, 20), embeddings=False)
    (entry,) = ScoreStore(where).entries()
    with entry.path.writing() as file:
        file.write(b"damaged")
    with pytest.warns(ConsilienceWarning, match=r"is broken .* computed again"):
        assert shelf(where).block(DIGESTS[:20]) is None
    assert kept(where) == []


def test_other_files_make_no_store(where: str) -> None:
    root = ScoreStore(where).root
    root.make_root()
    with (root / "thesis.tex").writing() as file:
        file.write(b"x")
    with pytest.raises(InvalidInputError, match="holds other files"):
        ScoreStore(where)
    with pytest.raises(InvalidInputError, match="is a file; give a folder"):
        ScoreStore(f"{where}/thesis.tex")


def test_no_teacher_is_asked_twice(where: str) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    asked: list[int] = []

    def logits(X: Any) -> Any:
        asked.append(len(X))
        return X[:, :2] * 2

    for _ in range(2):
        teacher = as_teacher(logits, ["a", "b"], "t", output="logits", fingerprint="v1")
        fitted = Unifier([teacher], "logistic", method="sd", cache=where, random_state=0).fit(rows)
    assert sum(asked) == 60
    plain = Unifier([teacher], "logistic", method="sd", random_state=0).fit(rows)
    np.testing.assert_array_equal(fitted.soft_labels_, plain.soft_labels_)


def test_a_bucket_that_stops_answering_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = f"memory:/{tmp_path}/scores"
    shelf(where).merge(part(0, 20), embeddings=False)
    store = ScoreStore(where, limit="1GB")
    opened = store.shelf("teacher", 3)
    before = dict(MemoryFileSystem.store)

    def fail(*_: Any, **__: Any) -> Any:
        raise TimeoutError("timed out")

    with monkeypatch.context() as broken, pytest.warns(ConsilienceWarning) as seen:  # noqa: PT031
        for name in ("cat_file", "ls", "pipe_file", "info"):
            broken.setattr(MemoryFileSystem, name, fail)
        assert opened.block(DIGESTS[:20]) is None
        assert find(opened) == 0
        opened.add(part(30, 40), embeddings=False)
        opened.merge(part(20, 40), embeddings=False)
    told = [str(warning.message) for warning in seen]
    assert sum("may be computed again" in text for text in told) == 1
    assert any("cannot be written" in text and "not kept" in text for text in told)
    assert dict(MemoryFileSystem.store) == before  # unreachable is not damaged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shelf(where).block(DIGESTS[:20]) is not None


def test_rows_in_order_cost_few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = f"memory:/{tmp_path}/scores"
    writer = shelf(where)
    for start in range(0, 100, 10):
        writer.merge(part(start, start + 10), embeddings=False)
    reader, calls = shelf(where), []
    for name in ("cat_file", "ls", "info"):
        real = getattr(MemoryFileSystem, name)
        monkeypatch.setattr(
            MemoryFileSystem,
            name,
            lambda *a, _name=name, _real=real, **k: calls.append(_name) or _real(*a, **k),
        )
    for start in range(0, 100, 10):
        assert reader.block(DIGESTS[start : start + 10]) is not None
        assert reader.block(DIGESTS[start : start + 9]) is None
    assert calls.count("cat_file") == 10
    assert calls.count("ls") <= 1
    assert calls.count("info") == 0


def test_engine_and_shelf_agree_on_blocks(where: str) -> None:
    teacher = as_teacher(lambda X: X, ["a", "b", "c"], "t", output="logits", fingerprint="v1")
    engine.observe(teacher, LOGITS, store=ScoreStore(where))
    assert sum(rows for _, rows in kept(where)) == 100
