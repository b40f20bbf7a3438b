"""Scoring: packed layout, batches, progress, and errors that name the teacher and its place."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scoring import ask as engine

from consilience import InvalidInputError, LabelSpace, TeacherError, as_teacher
from consilience.scoring import blocks
from consilience.teachers import Function, Observed

X = np.arange(20.0).reshape(10, 2)


def observe(teacher: Any, rows: Any, **options: Any) -> Observed:
    return engine.observe(as_teacher(teacher), rows, **options)


@pytest.fixture(autouse=True)
def _known_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are whole from the first on, as of a teacher whose speed is known."""
    monkeypatch.setattr(blocks, "FIRST", 64)


def rising(X: Any) -> np.ndarray:
    return np.column_stack([X[:, 0], X[:, 1] * 2])


UP = as_teacher(rising, ["a", "b"], "up", output="logits")


class Careless:
    """Calls itself a teacher and gives what it likes."""

    def __init__(self, logits: Any) -> None:
        self.name, self.classes, self.logits = "careless", np.array(["a", "b"]), logits

    def predict_logits(self, X: Any) -> Any:
        return self.logits


@pytest.mark.parametrize(
    ("logits", "says"),
    [
        (np.zeros((10, 3)), r"'careless' \(2 of 2\) returned logits of shape \(10, 3\)"),
        (np.zeros(10), r"'careless' \(2 of 2\) returned logits of shape \(10,\)"),
        (np.where(np.arange(20).reshape(10, 2) == 7, np.inf, 0.0), r"\(2 of 2\).* inf in row 3"),
        (np.where(np.arange(20).reshape(10, 2) == 7, np.nan, 0.0), r"\(2 of 2\).* nan in row 3"),
    ],
)
def test_what_a_careless_teacher_gives_is_checked(logits: np.ndarray, says: str) -> None:
    with pytest.raises(TeacherError, match=says):
        engine.score([UP, as_teacher(Careless(logits))], LabelSpace([["a", "b"]] * 2), X)


@pytest.mark.parametrize("batch_size", [1, 3, 99])
def test_observing_gives_logits_and_embeddings_whatever_the_batches(batch_size: int) -> None:
    teacher = as_teacher(rising, ["a", "b"], output="logits", embed=lambda rows: rows[:, :1] * 3)
    calls: list[tuple[str, int, int]] = []
    seen = observe(teacher, X, batch_size=batch_size, progress=lambda *call: calls.append(call))
    np.testing.assert_array_equal(seen.logits, rising(X))
    np.testing.assert_array_equal(seen.embeddings, X[:, :1] * 3)
    assert calls[-1] == ("scoring", 10, 10)
    assert observe(teacher, X, embeddings=False).embeddings is None
    assert observe(UP, X).embeddings is None


class Seeing(Careless):
    """Has an embedding that is what it likes."""

    def __init__(self, embeddings: Any) -> None:
        super().__init__(np.zeros((10, 2)))
        self.embed = lambda rows: embeddings


@pytest.mark.parametrize(
    ("embeddings", "says"),
    [
        (np.zeros((9, 3)), r"'careless' has embeddings of shape \(9, 3\) for 10 rows"),
        (np.zeros(10), r"embeddings of shape \(10,\)"),
        (np.where(np.arange(10)[:, None] == 4, [[np.nan, 0.0]], 0.0), "embeddings have nan in row 4"),
        (["text"] * 10, "returned a list instead of an array of numbers"),
    ],
)
def test_what_a_careless_teacher_sees_is_checked(embeddings: Any, says: str) -> None:
    with pytest.raises(TeacherError, match=says):
        observe(Seeing(embeddings), X)


def test_a_pass_that_gives_both_is_preferred() -> None:
    asked: list[str] = []

    class Both(Careless):
        def observe(self, rows: Any) -> Any:
            asked.append("observe")
            return Observed(np.zeros((len(rows), 2)), np.ones((len(rows), 3)))

        def embed(self, rows: Any) -> Any:
            asked.append("embed")

    seen = observe(Both(np.zeros((10, 2))), X)
    assert asked == ["observe"]
    np.testing.assert_array_equal(seen.embeddings, np.ones((10, 3)))


@pytest.mark.parametrize("rows", [dict.fromkeys(range(10)), set(range(10))], ids=["dict", "set"])
def test_an_x_without_rows_in_order(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "FIRST", 4)
    teacher = Function(lambda part: np.zeros((len(part), 2)), ["a", "b"], output="logits", fingerprint="v1")
    for options in ({}, {"store": tmp_path / "scores"}):
        with pytest.raises(InvalidInputError, match=rf"X is a {type(rows).__name__} whose rows cannot be"):
            observe(teacher, rows, **options)


def test_embeddings_that_change_their_width() -> None:
    class Growing(Careless):
        def predict_logits(self, rows: Any) -> Any:
            return np.zeros((len(rows), 2))

        def embed(self, rows: Any) -> Any:
            return None if rows[0, 0] == 8 else np.ones((len(rows), 1 + int(rows[0, 0] > 9)))

    for part, says in ((X, "width 1 for some rows and None for others"), (X[[0, 1, 6]], "and 2 for others")):
        with pytest.raises(TeacherError, match=f"'careless' has embeddings of .*{says}"):
            observe(Growing(None), part, batch_size=2)
