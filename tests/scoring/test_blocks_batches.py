"""How teachers are asked: batches by their pace, processes for slow ones, and texts that are known again."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.scoring.ask import observe

from consilience import InvalidInputError, TeacherError, as_teacher
from consilience._validation import take_rows
from consilience.scoring import blocks
from consilience.scoring.blocks import BATCH_SECONDS, Pace
from consilience.scoring.store import ScoreStore
from consilience.students.ngrams import Ngrams
from consilience.teachers import Function, join_classes, rename_classes

CLASSES = ["de", "en"]
TEXTS = [f"text {i}" for i in range(40)]


def say(text: str) -> dict[str, float]:
    return {"en": len(text) / 10, "de": 1.0 - len(text) / 10}


def sizes(pace: Pace, rows: int, seconds_a_row: float) -> list[int]:
    found = list[int]()
    while rows:
        found.append(min(pace.size, rows))
        rows -= found[-1]
        pace.took(found[-1], found[-1] * seconds_a_row)
    return found


def test_a_quick_teacher_gets_full_batches_soon() -> None:
    assert sizes(Pace(4096), 10_000, 1e-6) == [4, 64, 1024, 4096, 4096, 716]
    assert sizes(Pace(20), 50, 1e-6) == [4, 20, 20, 6]


@pytest.mark.parametrize("seconds", [1e-3, 0.01, 0.2, 1.0, 60.0])
def test_a_slow_teacher_is_never_silent_for_long(seconds: float) -> None:
    rows = sizes(Pace(4096), 60_000, seconds)
    assert sum(rows) == 60_000
    settled = rows[10:-1]
    assert rows[0] * seconds <= max(BATCH_SECONDS, 4 * seconds)  # nothing is known yet
    assert max(rows[1:]) * seconds <= max(BATCH_SECONDS, seconds)
    assert min(settled) * seconds >= min(BATCH_SECONDS / 4, 4096 * seconds)  # and not asked in crumbs either


def test_a_model_that_loads_first_is_taken_for_slow_only_once() -> None:
    pace = Pace(4096)
    pace.took(4, 10.0)
    assert sizes(pace, 9000, 1e-6) == [1, 16, 256, 4096, 4096, 535]


def test_what_scores_are_is_decided_on_as_many_rows_as_ever(tmp_path: Path) -> None:
    """The first rows alone look like probabilities."""
    X = np.array([[0.5, 0.5]] * 10 + [[3.0, -1.0]] * 90)
    for store in (None, tmp_path / "scores"):
        teacher = Function(lambda rows: rows, CLASSES, fingerprint="v1")
        np.testing.assert_allclose(observe(teacher, X, store=store).logits, X, rtol=1e-6)


def test_the_row_of_x_is_named_also_of_rows_that_were_picked(tmp_path: Path) -> None:
    def spell(texts: list[str]) -> list[Any]:
        if "fail" in texts:
            raise RuntimeError("out of ink")
        return [{"xx": 1.0} if text == "bad" else say(text) for text in texts]

    teacher = Function(spell, CLASSES, output="probabilities", fingerprint="v1")
    texts = [*TEXTS[:30], "bad", *TEXTS[30:]]
    with pytest.raises(TeacherError, match="'xx' in row 30,"):
        observe(teacher, texts)
    observe(teacher, TEXTS[5:25], store=tmp_path / "scores")
    with pytest.raises(TeacherError, match="'xx' in row 30,"):
        observe(teacher, texts, store=tmp_path / "scores")
    with pytest.raises(TeacherError, match=r"out of ink \(In a batch from row 28 to row 35 of X\.\)"):
        observe(teacher, [*TEXTS[:30], "fail", *TEXTS[31:36]], store=tmp_path / "scores")
    texts = [*TEXTS[:30], 5, *TEXTS[30:]]
    model = Ngrams(n_buckets=8, dim=2, max_iter=1).fit(["a", "b"], CLASSES)
    with pytest.raises(InvalidInputError, match="X has 5 in row 30, of type int"):
        observe(as_teacher(model), texts, batch_size=8)


def test_a_run_that_is_killed_goes_on_after_seconds_of_lost_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, texts = SimpleNamespace(now=0.0), [f"text {i}" for i in range(2000)]
    monkeypatch.setattr(blocks, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    asked: list[str] = []

    def slow(rows: list[str]) -> list[Any]:
        for text in rows:
            clock.now += 0.01
            if clock.now > stop:
                raise KeyboardInterrupt
            asked.append(text)
        return [say(text[:6]) for text in rows]

    teacher = Function(slow, CLASSES, output="logits", fingerprint="v1")
    reports: list[tuple[float, int]] = []
    stop = 15.0

    def watched() -> Any:
        return observe(teacher, texts, store=tmp_path / "s", progress=note)

    def note(task: str, done: int, total: int) -> None:
        reports.append((clock.now, done))

    with pytest.raises(KeyboardInterrupt):
        watched()
    assert np.diff([0.0, *(moment for moment, _ in reports)]).max() <= BATCH_SECONDS
    kept, stop = reports[-1][1], np.inf
    assert kept >= len(asked) - BATCH_SECONDS / 0.01
    asked.clear()
    seen = watched()
    assert asked == texts[kept:]
    assert reports[-1][1] == len(texts)
    np.testing.assert_allclose(seen.logits, teacher.predict_logits(texts), rtol=1e-6)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that no other process can import; it says which process it is in."""
    monkeypatch.setattr(blocks, "PARALLEL_SECONDS", 0.0)

    def answer(texts: list[str]) -> Any:
        if "bad" in texts:
            return [{"xx": 1.0} for text in texts]
        if "die" in texts:
            os._exit(1)
        return [{"en": float(os.getpid()), "de": float(len(text))} for text in texts]

    return answer


def test_processes_share_the_rows_and_one_store(
    answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed, waiting, reports = list[int](), list[int](), list[int]()

    def taken(X: Any, rows: Any) -> Any:
        handed.append(len(take_rows(X, rows)))
        return take_rows(X, rows)

    store = ScoreStore(tmp_path / "scores")
    own = Function(answer, CLASSES, output="logits", fingerprint="v1", n_jobs=2)
    teacher = rename_classes(join_classes(own, {}), {"en": "eng"})  # which keep n_jobs
    assert teacher.n_jobs == 2

    def progress(task: str, done: int, total: int) -> None:
        reports.append(done)
        waiting.append(sum(handed[1:]) - done)  # the first look is settle's

    monkeypatch.setattr(blocks, "take_rows", taken)
    seen = observe(own, TEXTS, store=store, batch_size=4, progress=progress)
    assert max(waiting) <= 2 * 4  # what is handed over and not told is lost with a run that is stopped
    assert seen.logits[:, 0].tolist() == [len(text) for text in TEXTS]
    pids = seen.logits[:, 1]
    assert (pids[:8] == os.getpid()).all()  # the second batch tells the pace, without the time to load
    assert os.getpid() not in pids[8:]
    assert reports == list(range(4, 41, 4))
    again = observe(own, TEXTS[::-1], store=store)
    np.testing.assert_allclose(again.logits, seen.logits[::-1], rtol=1e-6)


def test_what_goes_wrong_in_a_process_is_worded_here(answer: Any) -> None:
    teacher = Function(answer, CLASSES, "slow", output="logits", n_jobs=2)
    with pytest.raises(TeacherError, match=r"'slow' named the class 'xx' in row 8, which"):
        observe(teacher, [*TEXTS[:9], "bad", *TEXTS[9:]], batch_size=4)
    with pytest.raises(TeacherError, match=r"'slow' cannot be asked in 2 processes: one of them ended"):
        observe(teacher, [*TEXTS, "die"], batch_size=4)
    lock = threading.Lock()
    locked = Function(lambda texts: lock and answer(texts), CLASSES, output="logits", n_jobs=2)
    with pytest.raises(TeacherError, match=r"cannot be asked in 2 processes: .* sent there .*_thread.lock"):
        observe(locked, TEXTS, batch_size=4)


def test_few_rows_start_no_process(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PARALLEL_SECONDS", 10.0)
    seen = observe(Function(answer, CLASSES, output="logits", n_jobs=2), TEXTS, batch_size=4)
    assert (seen.logits[:, 1] == os.getpid()).all()
