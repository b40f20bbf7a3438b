"""The one path: a `Unifier` with little memory makes the model that it makes with much."""

import gc
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import MultinomialNB

from consilience import Run, Unifier, as_teacher, load, methods, students
from consilience.exceptions import CoverageWarning, DisconnectedWarning, InvalidInputError
from consilience.soft_labels import estimate as solver
from consilience.students import Network
from consilience.unify import unifier

TINY = "50KB"
QUICK = SGDClassifier(loss="log_loss", max_iter=3, tol=None)  # learns block by block
SETS = [(0, 1, 2), (1, 2, 3, 4), (3, 4, 5, 0), (2, 5)]
RANDOM = np.random.default_rng(0)
CENTRES = 2 * RANDOM.normal(size=(6, 8))
Y = RANDOM.integers(0, 6, 700)
X = CENTRES[Y] + RANDOM.normal(size=(700, 8))
Y_TEST = RANDOM.integers(0, 6, 500)
X_TEST = CENTRES[Y_TEST] + RANDOM.normal(size=(500, 8))
KNOWN = [int(label) if i % 5 == 0 else None for i, label in enumerate(Y)]


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Small blocks, and a folder for temporary files that must be empty afterwards."""
    folder: Path = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 64)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    gc.collect()
    assert [path for path in folder.iterdir() if not path.name.startswith("torchinductor")] == []


def learn(classes: Any, X: Any = X, y: Any = Y) -> Any:
    rows = np.isin(y, classes)
    return LogisticRegression(max_iter=500).fit(X[rows], y[rows])


TEACHERS = [learn(classes) for classes in SETS]
PROBA = TEACHERS[0].predict_proba(X)


def some(every: int, logits: Any = None, name: str = "some", classes: Any = SETS[0]) -> Any:
    """Return a teacher that answers only some rows, and none of the first 100."""
    values = np.array(TEACHERS[0].decision_function(X) if logits is None else logits)
    values[(np.arange(700) % every == 0) | (np.arange(700) < 100)] = np.nan
    return as_teacher(values, classes=list(classes), name=name, output="logits")


def add_up(logits: Any, space: Any, temperature: float = 1.0) -> Any:
    member = np.eye(space.n_classes)[space.columns]
    Q = np.exp(logits / temperature) @ member
    return Q / Q.sum(axis=1, keepdims=True)


def both(teachers: Any = None, y: Any = None, *, rows: Any = X, **options: Any) -> tuple[Unifier, Unifier]:
    """Return models that were fitted with much memory and with little."""
    given = {"student": QUICK, "random_state": 0, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        warnings.simplefilter("ignore", DisconnectedWarning)
        much, little = (
            Unifier(teachers or TEACHERS, run=Run(memory=memory), **given).fit(rows, y)
            for memory in (None, TINY)
        )
    return much, little


def check_same(much: Unifier, little: Unifier) -> None:
    """Compare soft labels, and what is kept of them."""
    assert isinstance(little.soft_labels_, np.memmap)
    assert not isinstance(much.soft_labels_, np.memmap)
    np.testing.assert_allclose(little.soft_labels_, much.soft_labels_, atol=1e-6, rtol=0)
    np.testing.assert_allclose(little.temperatures_, much.temperatures_)
    np.testing.assert_array_equal(little.n_abstentions_, much.n_abstentions_)
    for found, expected in (
        (little.class_weights_, much.class_weights_),
        (little.pool_weights_, much.pool_weights_),
    ):
        assert found is expected is None or found == pytest.approx(expected, rel=1e-5)
    assert little.neighbor_weight_ == pytest.approx(much.neighbor_weight_)
    assert set(little.seconds_) == set(much.seconds_)


def check_same_student(much: Unifier, little: Unifier, atol: float = 1e-3) -> None:
    np.testing.assert_allclose(little.predict_proba(X_TEST), much.predict_proba(X_TEST), atol=atol)
    assert (little.predict(X_TEST) == much.predict(X_TEST)).mean() >= 0.999


CASES: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in ("auto", "ranks", "mf-lf", "ce", "mf-p", "mf-lv", "sd")},
    "own function": {"method": add_up},
    "off_set": {"method": methods.CE(off_set=True)},
    "temperature": {"method": methods.Auto(temperature=3.0)},
    "calibrated": {"method": methods.Auto(teacher_temperatures="agreement")},
    "balance": {"balance": "sqrt"},
    "no balance": {"balance": False},
    "abstentions": {"teachers": [*TEACHERS, some(3)]},
    "silent blocks": {"teachers": [some(3), some(2, TEACHERS[1].decision_function(X), "others", SETS[1])]},
    "known labels": {"y": KNOWN},
    "known labels alone": {
        "y": [label if label in SETS[0] else None for label in KNOWN],
        "teachers": [some(3), some(4, name="b")],
    },
    "disconnected": {"teachers": [TEACHERS[0], learn((3, 4, 5))]},
    "one teacher": {"teachers": TEACHERS[:1]},
    "hard labels": {"teachers": [*TEACHERS, as_teacher(Y.astype(object), name="people")]},
}


@pytest.mark.parametrize("case", CASES)
def test_soft_labels_do_not_hang_on_memory(case: str) -> None:
    check_same(*both(**CASES[case]))


@pytest.mark.parametrize(
    "method", ["auto", "ranks", methods.Auto(teacher_temperatures="agreement", n_neighbors=5)]
)
def test_nor_with_more_rows_than_are_compared(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MOST_ROWS", 150)
    check_same(*both([*TEACHERS, some(3)], method=method))


@pytest.mark.parametrize("self_label", [False, True])
def test_students_do_not_hang_on_memory(self_label: bool) -> None:
    much, little = both([*TEACHERS, some(3)], KNOWN, student=students.Logistic(self_label=self_label))
    check_same(much, little)
    check_same_student(much, little, 2e-3 if self_label else 1e-3)  # it learns what it has learnt
    assert much.score(X_TEST, Y_TEST) > 0.9
    if much.pseudo_labels_ is not None:
        np.testing.assert_allclose(little.pseudo_labels_, much.pseudo_labels_, atol=5e-3)
        np.testing.assert_array_equal(much.pseudo_labels_[::5], np.eye(6)[Y[::5]])


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, pd.DataFrame, torch.tensor, "mapped"])
def test_logits_may_be_given(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MOST_ROWS", 150)
    logits = Unifier(TEACHERS).score_teachers(X)
    np.save(tmp_path / "logits.npy", logits)
    given = np.load(tmp_path / "logits.npy", mmap_mode="r") if kind == "mapped" else kind(logits)
    model = Unifier(TEACHERS, run=Run(memory=TINY))
    np.testing.assert_allclose(model.estimate(X, logits=given), Unifier(TEACHERS).estimate(X), atol=1e-6)
    logits[500, 1] = np.inf
    with pytest.raises(InvalidInputError, match="have inf in row 500 "):
        model.estimate(X, logits=logits)


def test_scores_and_estimates_are_mapped_from_disk() -> None:
    streamed = Unifier(TEACHERS, run=Run(memory=TINY))
    logits, Q = streamed.score_teachers(X), streamed.estimate(X, KNOWN)
    assert isinstance(logits, np.memmap)
    np.testing.assert_array_equal(logits, Unifier(TEACHERS).score_teachers(X))
    del streamed
    gc.collect()
    np.testing.assert_array_equal(Q[::5].argmax(axis=1), Y[::5])  # a view outlives what made it


def test_students_that_need_all_rows_are_refused_before_any_teacher_is_asked() -> None:
    ask = Mock(side_effect=lambda rows: np.asarray(rows)[:, :2], spec=len)
    watched = as_teacher(ask, [0, 1], "watched", output="logits")
    message = r"learns from all rows at once, .* would take about 151 kB; with memory of 50 kB"
    with pytest.raises(InvalidInputError, match=message):
        Unifier([watched], "boosting", run=Run(memory=TINY)).fit(X)
    ask.assert_not_called()
    Unifier([watched], "boosting", random_state=0, run=Run(memory="120KB")).fit(X[:600, :2])
    ask.assert_called()


@pytest.mark.parametrize(
    ("rows", "student"),
    [
        (csr_array(np.abs(X)), MultinomialNB()),
        (pd.DataFrame(X, columns=list("abcdefgh")), QUICK),
        (torch.tensor(X, dtype=torch.float32), "torch"),
        (X.tolist(), QUICK),
    ],
    ids=["sparse", "frame", "tensor", "lists"],
)
def test_rows_of_other_kinds(rows: Any, student: Any) -> None:
    def dense(model: Any) -> Any:
        def ask(rows: Any) -> Any:
            return model.predict_log_proba(rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows))

        return as_teacher(ask, model.classes_, output="logits")

    much, little = both([dense(model) for model in TEACHERS], rows=rows, student=student)
    np.testing.assert_allclose(little.soft_labels_, much.soft_labels_, atol=1e-6)
    assert little.predict(rows).shape == (700,)


@pytest.mark.parametrize("student", [Network(max_iter=3, lr=0.01), QUICK], ids=["network", "partial_fit"])
def test_students_that_learn_by_passes_do_not_hang_on_memory_at_all(student: Any) -> None:
    much, little = both(student=student)
    check_same(much, little)
    check_same_student(much, little, 1e-6)


def mixed(rows: Any = X, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(rows, columns=list("abcdefgh"))
    frame["town"] = np.where(rows[:, 0] > 0, "Ulm", "Bonn")
    frame["sort"] = pd.Categorical(np.where(rows[:, 1] > 0, "x", "y"))
    frame["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, len(rows)), unit="h")
    frame["old"] = rows[:, 2] > 0
    frame.loc[frame.index % 11 == 3, "a"] = np.nan
    frame.loc[frame.index % 7 == 3, "town"] = None
    return frame


def answers_of_all() -> list[Any]:
    """Return teachers that are arrays of answers for X."""
    return [as_teacher(model.predict_log_proba(X), classes=model.classes_.tolist()) for model in TEACHERS]


def test_a_table_of_mixed_columns_from_parquet(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    frame, test, teachers = mixed(), mixed(X_TEST, 1), answers_of_all()
    (tmp_path / "rows").mkdir()
    frame[:300].to_parquet(tmp_path / "rows" / "0.parquet", row_group_size=100)
    frame[300:][frame.columns[::-1]].to_parquet(tmp_path / "rows" / "1.parquet", index=False)
    test.to_parquet(tmp_path / "test.parquet")
    whole = Unifier(teachers, "mlp", random_state=0).fit(frame)
    blocks = Unifier(teachers, "mlp", random_state=0, run=Run(memory="100KB")).fit(tmp_path / "rows")
    np.testing.assert_allclose(blocks.soft_labels_, whole.soft_labels_, atol=1e-6)
    assert blocks.encoding_ == whole.encoding_
    np.testing.assert_array_equal(blocks.feature_names_in_, whole.feature_names_in_)
    assert blocks.score(test, Y_TEST) > whole.score(test, Y_TEST) - 0.05
    expected = blocks.predict_proba(test)
    for rows in (test[test.columns[::-1]], tmp_path / "test.parquet", str(tmp_path / "test.parquet")):
        np.testing.assert_allclose(blocks.predict_proba(rows), expected)
    blocks.save(tmp_path / "model.onnx")
    np.testing.assert_allclose(load(tmp_path / "model.onnx").predict_proba(test), expected, atol=1e-4)


def test_the_encoder_sees_a_bounded_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = Unifier._read_rows
    monkeypatch.setattr(
        Unifier,
        "_read_rows",
        lambda self, student, rows, encode: seen.append(len(rows)) or original(self, student, rows, encode),
    )
    monkeypatch.setattr(unifier, "SHOWN_BYTES", 100 * X[:1].nbytes)
    np.save(tmp_path / "X.npy", X)
    Unifier(TEACHERS, QUICK, random_state=0, run=Run(memory=TINY)).fit(tmp_path / "X.npy")
    assert seen == [100]  # rows of images may be large


def test_missing_values_that_the_sample_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unifier, "SHOWN_ROWS", 64)
    monkeypatch.setattr("consilience.rows.rows.SAMPLED_BLOCKS", 1)
    frame = mixed()
    frame["number"] = pd.array(np.arange(700), dtype="Int64")
    frame.loc[690:, ["number", "b"]] = None
    frame.loc[690:, "town"] = "a town that nobody knows"
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    model = Unifier(answers_of_all(), "mlp", random_state=0, run=Run(memory="100KB")).fit(tmp_path)
    assert np.isfinite(model.predict_proba(tmp_path)).all()


def test_batches_that_come_once() -> None:
    batches = (X[i : i + 90] for i in range(0, 700, 90))
    model = Unifier(TEACHERS, QUICK, random_state=0, run=Run(memory=TINY)).fit(batches)
    np.testing.assert_allclose(model.soft_labels_, Unifier(TEACHERS, QUICK).estimate(X), atol=1e-6)


PEAK = """
import resource, sys
import numpy as np
from sklearn.linear_model import SGDClassifier
from consilience import Run, Unifier, as_teacher

path = sys.argv[1]
weights = np.random.default_rng(0).normal(size=(10, 64, 4)).astype(np.float32) / 8

def teacher(i):
    classes = [(i + k) % 10 for k in range(4)]
    return as_teacher(lambda X: X @ weights[i], classes=classes, name=str(i), output="logits")

student = SGDClassifier(loss="log_loss", max_iter=1, tol=None)
model = Unifier([teacher(i) for i in range(10)], student, random_state=0, run=Run(memory="40MB"))
model.fit(path)
assert model.soft_labels_.shape == (len(np.load(path, mmap_mode="r")), 10)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    (tmp_path / "peak.py").write_text(PEAK)
    peaks = []
    for n in (100_000, 400_000):
        rows = np.lib.format.open_memmap(tmp_path / f"{n}.npy", "w+", np.float32, (n, 64))
        for start in range(0, n, 50_000):
            rows[start : start + 50_000] = np.random.default_rng(start).normal(size=(50_000, 64))
        run = [sys.executable, tmp_path / "peak.py", tmp_path / f"{n}.npy"]
        peaks.append(int(subprocess.run(run, check=True, capture_output=True, text=True).stdout))
    assert peaks[1] < 1.15 * peaks[0]
