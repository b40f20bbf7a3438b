"""Distil from rows that do not fit in memory: the same as with rows in memory, block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, SGDClassifier

from consilience import CrossTaskDistiller, as_teacher
from consilience.distil import by_blocks
from consilience.exceptions import ConsilienceWarning, CoverageWarning, InvalidInputError, TeacherError
from consilience.teachers import Teacher

N, D = 400, 6
TINY = "30KB"  # the rows take 19 KB in double precision, and a quarter of the budget is for them


def problem(seed: int = 0) -> tuple[Any, Any, Any]:
    """Return rows, labels (every fourth is known), and a teacher of finer classes."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(4, D)) * 2
    fine = random.integers(0, 4, N)
    X = centres[fine] + random.normal(size=(N, D))
    y = np.where(np.arange(N) % 4 == 0, fine // 2, -1)
    teacher = LogisticRegression(max_iter=500).fit(X, np.array(["a", "b", "c", "d"])[fine])
    return X, y, teacher


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 64)


@pytest.fixture
def rows(tmp_path: Path) -> tuple[Path, Any, Any, Any]:
    X, y, teacher = problem()
    np.save(tmp_path / "X.npy", X)
    return tmp_path / "X.npy", X, y, teacher


def pair(rows: Any, student: Any, **options: Any) -> tuple[Any, Any, Any]:
    """Return the distiller of rows in memory, that of the same rows in blocks, and the rows."""
    path, X, y, teacher = rows
    options = {"teacher_weight": 10.0, "random_state": 0, **options}
    whole = CrossTaskDistiller(teacher, student, **options).fit(X, y)
    blocks = CrossTaskDistiller(teacher, student, memory=TINY, **options).fit(path, y)
    return whole, blocks, X


@pytest.mark.parametrize("loss", ["sinkhorn", "none"])
def test_a_logistic_student_is_the_same(rows: Any, loss: str) -> None:
    whole, blocks, X = pair(rows, "logistic", loss=loss)
    np.testing.assert_allclose(blocks.predict_proba(X), whole.predict_proba(X), atol=1e-3)
    assert blocks.n_labels_ == whole.n_labels_ == N // 4
    assert blocks._fit_record["data"] == {"rows": N, "sha256": None}


def test_kd_learns_from_blocks_too(rows: Any) -> None:
    path, X, y, _ = rows
    teacher = LogisticRegression().fit(X, (X[:, 0] > 0).astype(int))
    whole, blocks, X = pair((path, X, y, teacher), "logistic", loss="kd")
    np.testing.assert_allclose(blocks.predict_proba(X), whole.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("loss", ["sinkhorn", "rkd", "fitnet", "refilled"])
def test_networks_learn_from_blocks(rows: Any, loss: str) -> None:
    pytest.importorskip("torch")
    whole, blocks, X = pair(rows, None, loss=loss, check=False)
    agreed = (whole.predict(X) == blocks.predict(X)).mean()
    assert agreed > 0.95
    assert np.isfinite(blocks.predict_proba(X)).all()


def test_unlabelled_rows_of_every_block_teach(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only those that are in memory: without them the student would be another."""
    monkeypatch.setattr(by_blocks, "UNLABELLED", 10)
    whole, blocks, X = pair(rows, "logistic")
    np.testing.assert_allclose(blocks.predict_proba(X), whole.predict_proba(X), atol=1e-3)
    _, X, y, teacher = rows
    few = np.flatnonzero(y >= 0)
    poor = CrossTaskDistiller(teacher, "logistic", teacher_weight=10.0).fit(X[few], y[few])
    assert np.abs(poor.predict_proba(X) - whole.predict_proba(X)).max() > 0.02


def test_teachers_are_checked_on_labelled_rows(rows: Any) -> None:
    """The check sees all labels, and a random teacher is dropped from blocks as it is from memory."""
    path, _, y, _ = rows
    noise = as_teacher(lambda x: np.abs(np.sin(1e4 * x[:, :2])), ["u", "v"], "noise", output="logits")
    with pytest.warns(ConsilienceWarning, match="'noise' was dropped"):
        model = CrossTaskDistiller(noise, "logistic", memory=TINY, random_state=0).fit(path, y)
    assert model.teacher_weights_.tolist() == [0.0]
    assert model.checks_[0].n_rows == N // 4
    alone = CrossTaskDistiller(None, "logistic", loss="none", memory=TINY, random_state=0).fit(path, y)
    X = rows[1]
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X), atol=1e-6)


def test_precomputed_teachers_say_their_part(rows: Any) -> None:
    path, X, y, teacher = rows
    outputs = as_teacher(teacher.predict_proba(X), classes=teacher.classes_, name="kept")
    whole, blocks, X = pair((path, X, y, outputs), "logistic")
    np.testing.assert_allclose(blocks.predict_proba(X), whole.predict_proba(X), atol=1e-3)


def test_more_labels_than_fit_are_told(rows: Any) -> None:
    path, _, _, teacher = rows
    y = problem()[1]
    y[y < 0] = 0
    y[::2] = 1
    with pytest.warns(ConsilienceWarning, match=r"Costs and checks .* of the 400 that have a label"):
        model = CrossTaskDistiller(teacher, "logistic", teacher_weight=1.0, memory=TINY, random_state=0).fit(
            path, y
        )
    assert model.n_labels_ == N


def test_a_cache_keeps_what_teachers_said(rows: Any, tmp_path: Path) -> None:
    path, _, y, teacher = rows
    calls: list[int] = []

    class Counted:
        name, classes, fingerprint = "counted", teacher.classes_, "v1"

        def predict_logits(self, X: Any) -> Any:
            calls.append(len(X))
            if len(calls) == 3 and not done:
                raise OSError("the server is gone")
            return teacher.predict_log_proba(X)

    done: list[bool] = []
    model = CrossTaskDistiller(
        Counted(), "logistic", teacher_weight=1.0, cache=tmp_path / "cache", memory=TINY, random_state=0
    )
    with pytest.raises(TeacherError, match="the server is gone"):
        model.fit(path, y)
    done.append(True)
    model.fit(path, y)
    first = sum(calls)
    model.fit(path, y)
    assert sum(calls) == first  # every row is in the cache
    assert first < 2 * N


def test_rows_without_an_answer_are_told(rows: Any) -> None:
    path, X, y, teacher = rows

    def shy(x: Any) -> Any:
        return np.where(x[:, :1] > 1, np.nan, teacher.predict_log_proba(x))

    silent = int(((X[:, 0] > 1) & (y < 0)).sum())
    with pytest.warns(CoverageWarning, match=f"{silent} rows without a label are not used"):
        CrossTaskDistiller(
            as_teacher(shy, teacher.classes_, output="logits"), "logistic", teacher_weight=1.0, memory=TINY
        ).fit(path, y)


def test_what_cannot_be_done_is_told_before_teachers_are_asked(rows: Any) -> None:
    path, _, y, _ = rows

    class Watched:
        name, classes = "watched", ["a", "b"]

        def predict_logits(self, X: Any) -> Any:
            raise AssertionError("it was asked")

    with pytest.raises(InvalidInputError, match=r"learns from all rows at once"):
        CrossTaskDistiller(Watched(), "forest", memory=TINY).fit(path, y)


def test_a_teacher_that_wants_all_rows_at_once_is_refused(rows: Any) -> None:
    path, _, y, teacher = rows

    class Whole(Teacher):
        name, classes, batched = "whole", teacher.classes_, False

        def predict_logits(self, X: Any) -> Any:
            return teacher.predict_log_proba(X)

    with pytest.raises(TeacherError, match="wants all rows at once"):
        CrossTaskDistiller(Whole(), "logistic", teacher_weight=1.0, memory=TINY).fit(path, y)


def test_students_that_learn_by_parts(rows: Any) -> None:
    _, blocks, X = pair(rows, SGDClassifier(loss="log_loss", random_state=0))
    y = rows[2]
    assert blocks.score(X[y >= 0], y[y >= 0]) > 0.85
