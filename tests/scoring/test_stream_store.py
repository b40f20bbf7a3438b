"""What a stream writes to its store, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import LabelSpace, TeacherError, as_teacher
from consilience.rows import HeldRows
from consilience.scoring import stream
from consilience.scoring.store import Shelf
from consilience.scoring.store.score_store import ScoreStore
from consilience.scoring.stream import score_blocks
from consilience.teachers import Teacher

ROWS = np.arange(200.0).reshape(100, 2)


def teacher(fails_from: float = np.inf) -> Teacher:
    def logits(X: Any) -> Any:
        if (fails_from <= X).any():
            raise RuntimeError("out of order")
        return X

    return as_teacher(logits, ["a", "b"], "one", output="logits", fingerprint="one")


def scored(one: Teacher, folder: Path, batch_size: int = 16) -> np.ndarray:
    space = LabelSpace([one.classes])
    blocks = score_blocks([one], space, HeldRows(ROWS), batch_size=batch_size, store=ScoreStore(folder))
    return np.concatenate([packed for _, packed in blocks])


@pytest.fixture
def loose(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each loose segment that is written."""
    counts: list[int] = []
    add = Shelf.add

    def counted(self: Shelf, segment: Any, **options: Any) -> None:
        counts.append(len(segment.digests))
        add(self, segment, **options)

    monkeypatch.setattr(Shelf, "add", counted)
    return counts


def test_a_quick_teacher_has_its_block_written_once(
    tmp_path: Path, loose: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "WRITE_SECONDS", 60.0)  # quick enough even on a busy machine
    assert (scored(teacher(), tmp_path) == ROWS).all()
    assert loose == []
    (segment,) = tmp_path.glob("*/*.npz")
    assert segment.name.startswith("block-100-")


def test_a_slow_teacher_has_its_batches_written_as_they_come(
    tmp_path: Path, loose: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "WRITE_SECONDS", 0.0)
    assert (scored(teacher(), tmp_path) == ROWS).all()
    assert len(loose) > 5
    assert sum(loose) == 100
    (segment,) = tmp_path.glob("*/*.npz")  # the block took their place
    assert segment.name.startswith("block-100-")


def test_an_error_writes_what_was_answered(
    tmp_path: Path, loose: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "WRITE_SECONDS", 60.0)
    with pytest.raises(TeacherError, match="out of order"):
        scored(teacher(fails_from=150.0), tmp_path)
    assert len(loose) == 1
    assert 59 <= loose[0] < 75  # all batches before the one with row 75
    asked: list[int] = []
    one = as_teacher(
        lambda X: asked.append(len(X)) or X, ["a", "b"], "one", output="logits", fingerprint="one"
    )
    assert (scored(one, tmp_path) == ROWS).all()
    assert sum(asked) == 100 - loose[0]
