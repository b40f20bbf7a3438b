"""Score rows block by block."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scoring.ask import score, score_blocks

from consilience import as_teacher
from consilience.exceptions import TeacherError
from consilience.labels import LabelSpace
from consilience.rows import HeldRows
from consilience.run import Run
from consilience.scoring import Asked
from consilience.scoring.store import as_store
from consilience.teachers import Function

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(200, 4))
W = RANDOM.normal(size=(4, 3))
Z = X @ W
CLASSES = ["a", "b", "c"]
ONE = LabelSpace([CLASSES])


class Linear:
    """A teacher that remembers which rows it was asked about, and may fail on one."""

    name, classes, fingerprint = "linear", CLASSES, "v1"

    def __init__(self, fails_on: int | None = None, error: BaseException | None = None) -> None:
        self.asked: list[float] = []
        self._fails_on, self._error = fails_on, error

    def predict_logits(self, rows: Any) -> Any:
        if self._fails_on is not None and self._error is not None and X[self._fails_on, 0] in rows[:, 0]:
            raise self._error
        self.asked += rows[:, 0].tolist()
        logits = rows @ W
        if self._fails_on is not None and self._error is None:
            logits[rows[:, 0] == X[self._fails_on, 0], 1] = np.inf
        return logits


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 32)


def streamed(teachers: list[Any], space: LabelSpace, rows: Any = X, **options: Any) -> Any:
    blocks = HeldRows(rows)
    found = np.full((len(rows), space.n_columns), -7.0, dtype=np.float32)
    numbers = []
    for number, packed in score_blocks(teachers, space, blocks, **options):
        assert packed.dtype == np.float32
        found[blocks.rows_of(number)] = packed
        numbers.append(number)
    assert numbers == list(range(blocks.n_blocks))
    return found


def every_kind(folder: Path) -> list[Any]:
    proba = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
    gaps = Z.copy()
    gaps[::3] = np.nan
    hard = np.array(CLASSES, dtype=object)[Z.argmax(axis=1)]
    hard[::4] = None
    np.save(folder / "logits.npy", np.asfortranarray(Z))
    np.save(folder / "proba.npy", proba.astype(np.float32))
    return [
        as_teacher(Linear()),
        as_teacher(as_teacher(Linear()), name="other"),
        as_teacher(gaps, classes=CLASSES, name="gaps"),
        as_teacher(folder / "logits.npy", classes=CLASSES),
        as_teacher(folder / "proba.npy", classes=CLASSES),
        as_teacher(hard, name="hard"),
        as_teacher(as_teacher(hard, name="hard"), name="relabelled"),
        as_teacher(as_teacher(proba, classes=CLASSES, name="p"), name="q"),
        as_teacher(lambda rows: rows @ W, classes=CLASSES, name="function"),
    ]


@pytest.mark.parametrize("batch_size", [7, 4096])
@pytest.mark.parametrize("stored", [False, True])
def test_blocks_get_what_all_rows_get(stored: bool, batch_size: int, tmp_path: Path) -> None:
    teachers = every_kind(tmp_path)
    space = LabelSpace([teacher.classes for teacher in teachers])
    expected = score(teachers, space, X).astype(np.float32)
    store = as_store(tmp_path / "store") if stored else None
    for _ in range(1 + stored):  # the second time from the store
        found = streamed(every_kind(tmp_path), space, store=store, batch_size=batch_size)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
def test_a_stop_in_a_block_loses_no_batch_before_it(error: BaseException, tmp_path: Path) -> None:
    store, first, second = as_store(tmp_path), Linear(100, error), Linear()  # row 100 is in block 3
    with pytest.raises((TeacherError, KeyboardInterrupt)):
        streamed([as_teacher(first)], ONE, store=store, batch_size=8)
    assert len(first.asked) >= 96
    found = streamed([as_teacher(second)], ONE, store=store, batch_size=8)
    assert not set(first.asked) & set(second.asked)
    assert len(first.asked) + len(second.asked) == 200
    np.testing.assert_array_equal(found, Z.astype(np.float32))


def test_equal_rows_are_asked_about_once(tmp_path: Path) -> None:
    teacher, rows = Linear(), np.vstack([X[:50]] * 3)  # twins in a block, and in others
    rows[10:12] = rows[9]
    found = streamed([as_teacher(teacher)], ONE, rows, store=as_store(tmp_path))
    assert len(teacher.asked) == len(set(teacher.asked)) == 50
    np.testing.assert_allclose(found, rows @ W, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stored", [False, True])
def test_errors_count_rows_as_the_user_does(stored: bool, tmp_path: Path) -> None:
    store = as_store(tmp_path) if stored else None
    sound = as_teacher(lambda rows: rows @ W, classes=CLASSES, name="sound")
    space = LabelSpace([CLASSES, CLASSES])
    with pytest.raises(TeacherError, match=r"'linear' \(2 of 2\) .* have inf in row 150 ") as caught:
        streamed([sound, as_teacher(Linear(150))], space, store=store)
    assert caught.value.row == 150
    failing = as_teacher(Linear(150, RuntimeError("boom")))
    with pytest.raises(
        TeacherError, match=r"boom \(In a batch from row 1(4[3-9]|50) to row 15[0-7] of X\.\)"
    ):
        streamed([sound, failing], space, store=store, batch_size=8)
    wrong = Z.copy()
    wrong[150, 0] = np.inf
    for teacher in (
        as_teacher(wrong, classes=CLASSES, name="fixed"),
        as_teacher(as_teacher(wrong, classes=CLASSES, name="inner"), name="fixed"),
    ):
        with pytest.raises(TeacherError, match=r"'fixed' \(2 of 2\) .* inf in row 150 "):
            streamed([sound, teacher], space, store=store)


def test_a_file_of_scores_that_changes_is_named_by_its_teacher(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", Z)
    teacher = as_teacher(as_teacher(tmp_path / "z.npy", classes=CLASSES, output="logits"), name="outer")
    blocks = score_blocks([teacher], ONE, HeldRows(X))
    next(blocks)
    np.save(tmp_path / "z.npy", Z[:100])
    with pytest.raises(TeacherError, match=r"'outer' \(1 of 1\) cannot be used: .*z.npy .* it now holds"):
        next(blocks)


def test_teachers_that_cannot_be_asked_by_blocks_are_refused_first() -> None:
    asked = Linear()

    class AllAtOnce(Linear):
        name, batched = "whole", False

    two = LabelSpace([CLASSES, CLASSES])
    found = streamed([as_teacher(AllAtOnce()), as_teacher(AllAtOnce())], two)
    np.testing.assert_array_equal(found, np.hstack([Z, Z]).astype(np.float32))
    with pytest.raises(TeacherError, match=r"\(2 of 2\) holds outputs for 5 rows and X has 200"):
        streamed([as_teacher(asked), as_teacher(Z[:5], classes=CLASSES)], two)
    assert asked.asked == []


def test_a_block_gets_the_same_batches_in_any_order() -> None:
    def asked(order: list[int]) -> set[tuple[float, int]]:
        found: set[tuple[float, int]] = set()

        def watch(rows: Any) -> Any:
            found.add((rows[0, 0], len(rows)))
            return rows @ W

        blocks = HeldRows(X)
        teacher = as_teacher(watch, classes=CLASSES, name="f", output="logits")
        one = Asked(teacher, blocks, Run(rows_per_call=16), None)
        for block in blocks.blocks(order):
            logits = one.observe(block, None).logits
            np.testing.assert_allclose(logits, Z[block.rows], rtol=1e-5, atol=1e-6)
        return found

    assert asked([0, 1, 2, 3]) == asked([3, 1, 0, 2])


def test_what_scores_are_is_decided_before_the_first_block_so_that_it_is_kept(tmp_path: Path) -> None:
    asked = []

    def ask(rows: Any) -> Any:
        asked.append(len(rows))
        return rows @ W

    for _ in range(2):
        teacher = Function(ask, CLASSES, "linear", fingerprint="v1")  # output="auto"
        streamed([teacher], ONE, store=tmp_path)
        asked.append(0)
    first, second = asked[: asked.index(0)], asked[asked.index(0) + 1 : -1]
    assert sum(first) - first[0] == len(X)
    assert sum(second) == second[0]  # what it takes to decide
