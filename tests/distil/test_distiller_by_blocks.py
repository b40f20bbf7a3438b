"""One path for rows in memory and rows that do not fit: the same students, block by block."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, SGDClassifier

from consilience import CrossTaskDistiller, as_teacher
from consilience.distil import distiller
from consilience.distil.distiller import training_options
from consilience.exceptions import ConsilienceWarning, CoverageWarning, InvalidInputError
from consilience.run import Run
from consilience.students import Network

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


def tiny(teacher: Any, student: Any = "logistic", weight: Any = 1.0, **options: Any) -> CrossTaskDistiller:
    run = Run(memory=TINY, **options.pop("about_run", {}))
    options = {"random_state": 0, **options}
    return CrossTaskDistiller(teacher, student, teacher_weight=weight, run=run, **options)


def pair(rows: Any, student: Any, **options: Any) -> tuple[Any, Any, Any]:
    """Return the distiller of rows in memory, that of the same rows in blocks, and the rows."""
    path, X, y, teacher = rows
    whole = CrossTaskDistiller(teacher, student, teacher_weight=10.0, random_state=0, **options).fit(X, y)
    return whole, tiny(teacher, student, 10.0, **options).fit(path, y), X


@pytest.mark.parametrize("loss", ["sinkhorn", "none"])
def test_a_logistic_student_is_the_same(rows: Any, loss: str) -> None:
    whole, blocks, X = pair(rows, "logistic", loss=loss)
    np.testing.assert_allclose(blocks.predict_proba(X), whole.predict_proba(X), atol=1e-3)
    assert blocks.n_labels_ == whole.n_labels_ == N // 4
    assert blocks.fit_record_[1:] == (N, None)


@pytest.mark.parametrize("loss", ["kd", "precomputed"])
def test_teachers_say_their_part_of_each_block(rows: Any, loss: str) -> None:
    path, X, y, teacher = rows
    source: Any = LogisticRegression().fit(X, (X[:, 0] > 0).astype(int))
    if loss == "precomputed":
        source = as_teacher(teacher.predict_proba(X), classes=teacher.classes_, name="kept")
    whole, blocks, X = pair((path, X, y, source), "logistic", loss="kd" if loss == "kd" else "sinkhorn")
    np.testing.assert_allclose(blocks.predict_proba(X), whole.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("loss", ["sinkhorn", "rkd", "fitnet", "refilled"])
def test_networks_learn_from_blocks(rows: Any, loss: str) -> None:
    pytest.importorskip("torch")
    student = Network(max_iter=12, batch_size=50, patience=None, validation_fraction=0.0)
    whole, blocks, X = pair(rows, None if loss == "sinkhorn" else student, loss=loss, check=False)
    assert (whole.predict(X) == blocks.predict(X)).mean() > 0.95
    assert np.isfinite(blocks.predict_proba(X)).all()


def test_unlabelled_rows_of_every_block_teach(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only those that are in memory: without them the student would be another."""
    monkeypatch.setattr(distiller, "UNLABELLED", 10)
    whole, blocks, X = pair(rows, "logistic")
    np.testing.assert_allclose(blocks.predict_proba(X), whole.predict_proba(X), atol=1e-3)
    _, X, y, teacher = rows
    few = np.flatnonzero(y >= 0)
    poor = CrossTaskDistiller(teacher, "logistic", teacher_weight=10.0).fit(X[few], y[few])
    assert np.abs(poor.predict_proba(X) - whole.predict_proba(X)).max() > 0.02


def test_teachers_are_checked_on_labelled_rows(rows: Any) -> None:
    """The check sees all labels, and a random teacher is dropped from blocks as it is from memory."""
    path, X, y, _ = rows
    noise = as_teacher(lambda x: np.abs(np.sin(1e4 * x[:, :2])), ["u", "v"], "noise", output="logits")
    with pytest.warns() as told:
        model = tiny(noise, weight="auto").fit(path, y)
    assert [one.category for one in told] == [ConsilienceWarning, CoverageWarning]
    assert "'noise' was dropped" in str(told[0].message)
    assert all(one.filename == __file__ for one in told)
    assert model.teacher_weights_.tolist() == [0.0]
    assert model.checks_[0].n_rows == N // 4
    alone = tiny(None, loss="none").fit(path, y)
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X), atol=1e-6)


def test_more_labels_than_fit_are_told(rows: Any) -> None:
    path, _, y, teacher = rows
    y = np.where(np.arange(N) % 2, np.maximum(y, 0), 1)
    with pytest.warns(ConsilienceWarning, match=r"Costs and checks .* of the 400 that have a label"):
        model = tiny(teacher).fit(path, y)
    assert model.n_labels_ == N


def test_a_cache_keeps_what_teachers_said(rows: Any, tmp_path: Path) -> None:
    path, _, y, teacher = rows
    calls: list[int] = []

    class Counted:
        name, classes, fingerprint = "counted", teacher.classes_, "v1"

        def predict_logits(self, X: Any) -> Any:
            calls.append(len(X))
            return teacher.predict_log_proba(X)

    model = tiny(Counted(), about_run={"cache": tmp_path / "cache"})
    model.fit(path, y)
    first = sum(calls)
    model.fit(path, y)
    assert N <= sum(calls) == first < 2 * N  # every row is in the cache


def test_a_student_that_wants_all_rows_is_refused_before_teachers_are_asked(rows: Any) -> None:
    path, _, y, _ = rows

    def never(X: Any) -> Any:
        raise AssertionError

    with pytest.raises(InvalidInputError, match=r"learns from all rows at once"):
        tiny(as_teacher(never, ["a", "b"], output="logits"), "forest").fit(path, y)


def test_students_that_learn_by_parts(rows: Any) -> None:
    path, X, y, teacher = rows
    model = tiny(teacher, SGDClassifier(loss="log_loss", random_state=0), 10.0).fit(path, y)
    assert model.score(X[y >= 0], y[y >= 0]) > 0.85


def test_few_rows_are_trained_on_in_small_batches_and_very_many_at_most_so_often() -> None:
    for rows in (10, 50, 3000, 100_000):
        options = training_options(rows)
        assert options["max_iter"] * -(-rows // options["batch_size"]) >= 800
        assert 16 <= options["batch_size"] <= 128
    assert training_options(10**6)["max_iter"] is None
