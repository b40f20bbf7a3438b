"""Soft labels as a folder of parquet files: the same rows and numbers from every engine."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from consilience import ConvergenceWarning, InvalidInputError, LabelSpace, as_teacher, estimate_soft_labels
from consilience.rows import as_rows
from consilience.soft_labels import solver
from consilience.teachers import Teacher
from consilience.unify.shards import write_soft_labels

parquet = pytest.importorskip("pyarrow.parquet")

X = np.random.default_rng(0).normal(size=(300, 3))


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 64)


def teachers() -> list[Teacher]:
    y = np.random.default_rng(1).integers(0, 3, len(X))
    first, second = np.array(["a", "b", "c"])[y], np.array(["b", "c", "d"])[(X[:, 0] > 0) + y // 2]
    return [
        as_teacher(LogisticRegression().fit(X, first), name="first"),
        as_teacher(LogisticRegression().fit(X, second), name="second"),
    ]


def logits() -> np.ndarray:
    return np.hstack([teacher.predict_logits(X) for teacher in teachers()])


def space() -> LabelSpace:
    return LabelSpace([teacher.classes for teacher in teachers()])


@pytest.mark.parametrize("method", ["mf-lf", "auto"])  # of one pass, and of two
def test_soft_labels_are_those_of_rows_in_memory(method: Any, tmp_path: Path) -> None:
    written = write_soft_labels(tmp_path / "labels", teachers(), X, method)
    assert (written.n_rows, written.n_shards) == (300, 5)
    assert written.classes.tolist() == ["a", "b", "c", "d"]
    table = parquet.read_table(tmp_path / "labels")
    assert table.column_names == ["row", "a", "b", "c", "d"]
    assert table["row"].to_pylist() == list(range(300))  # files in the order of their names
    found = np.column_stack([table[name].to_numpy() for name in "abcd"])
    want = estimate_soft_labels(logits().astype(np.float32), space(), method)
    np.testing.assert_allclose(found, want, atol=1e-6)
    rows = as_rows(tmp_path / "labels")
    assert rows is not None
    assert len(rows) == 300


@pytest.mark.parametrize(
    ("method", "options"),
    [("auto", {}), ("ce", {"max_iter": 1})],
    ids=["in two passes", "in one, with warnings"],
)
def test_both_engines_write_the_same_bytes(
    method: Any, options: dict[str, Any], ray_cluster: Any, tmp_path: Path
) -> None:
    told = []
    for name, more in (("local", {}), ("ray", {"engine_options": {"workers": 2, "timeout": 60}})):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            write_soft_labels(tmp_path / name, teachers(), X, method, engine=name, **options, **more)
        told.append([str(one.message) for one in caught if one.category is ConvergenceWarning])
    files = sorted(path.name for path in (tmp_path / "local").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "ray").iterdir())
    assert all(
        (tmp_path / "local" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes() for name in files
    )
    assert told[0] == told[1]
    assert len(told[0]) == (method == "ce")


def test_many_rows_are_compared_with_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MOST_ROWS", 200)
    write_soft_labels(tmp_path / "labels", teachers(), X, "ranks")
    table = parquet.read_table(tmp_path / "labels")
    some = solver.rows_to_compare(300, 6)
    assert some is not None
    want = estimate_soft_labels(logits(), space(), "ranks", reference=logits()[some])
    np.testing.assert_allclose(np.column_stack([table[name] for name in "abcd"]), want, atol=1e-6)
    given = [*teachers(), as_teacher(np.ones((300, 2)), ["a", "d"], output="logits")]
    with pytest.raises(InvalidInputError, match=r"method='ranks' compares a sample.*use method='mf-lf'"):
        write_soft_labels(tmp_path / "others", given, X, "ranks")


def test_late_rows_are_told(tmp_path: Path) -> None:
    with pytest.warns(ConvergenceWarning, match=r"ce stopped at max_iter=1 in 83 of 300 rows"):
        write_soft_labels(tmp_path / "labels", teachers(), X, "ce", max_iter=1)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "rows-000000000000.parquet").touch()  # of a run that was stopped
    write_soft_labels(tmp_path, teachers(), X[:64], "sd")
    write_soft_labels(tmp_path, teachers(), X, "sd")
    with pytest.raises(InvalidInputError, match=r"holds 'rows-0000000.*\.parquet', which is not of this run"):
        write_soft_labels(tmp_path, teachers(), X[:64], "sd")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="is a file; give a folder"):
        write_soft_labels(tmp_path / "file", teachers(), X)
    with pytest.raises(InvalidInputError, match="takes the name of a method"):
        write_soft_labels(tmp_path / "new", teachers(), X, lambda *given: None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="engine_options= are for engine='ray'"):
        write_soft_labels(tmp_path / "new", teachers(), X, engine_options={"workers": 2})
    named = as_teacher(X[:, :2], ["row", "column"], output="logits")
    with pytest.raises(InvalidInputError, match="A class is called 'row'"):
        write_soft_labels(tmp_path / "new", [named], X)
