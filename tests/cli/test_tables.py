"""Tables on the command line: names, mixed columns, and checks before any teacher is asked."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("skl2onnx")


from tests.cli.running import done, refused, view_of  # noqa: E402

from consilience import SoftLabelClassifier, as_teacher  # noqa: E402
from consilience.teachers.onnx import Onnx  # noqa: E402

NAMES = np.array(["cold", "flu", "well"])


def patients(n: int, seed: int) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    frame = pandas.DataFrame(
        {
            "fever": rng.normal(37 + 2 * (y == 1), 0.4).round(2),
            "cough": np.where(rng.uniform(size=n) < np.where(y == 0, 0.9, 0.1), "dry", "none"),
            "smokes": rng.uniform(size=n) < 0.5,
            "seen": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )
    frame.loc[::9, "fever"] = np.nan
    return frame, y


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    X, y = patients(300, 0)
    for name, known in (("one", y < 2), ("two", y > 0)):
        model = SoftLabelClassifier("logistic").fit(X[known], NAMES[y[known]])
        model.save(root / f"{name}.onnx")
    X, y = patients(200, 1)
    X.to_csv(root / "X.csv", index=False)
    X.to_parquet(root / "X.parquet")
    test, truth = patients(100, 2)
    test[test.columns[::-1]].to_csv(root / "test.csv", index=False)
    test.to_csv(root / "plain.csv", index=False, header=False)
    test.drop(columns="fever").to_csv(root / "narrow.csv", index=False)
    pandas.DataFrame({"label": NAMES[truth]}).to_csv(root / "y_test.csv", index=False)
    pandas.DataFrame({"label": NAMES[y]}).to_csv(root / "y.csv", index=False)
    (root / "wrong.csv").write_text("label\n" + "plague\n" * 100)
    return root


def write(frame: Any, path: Path) -> None:
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)


def unify(folder: Path, out: Path, *words: Any, data: str = "X.csv") -> list[Any]:
    teachers = ("-t", folder / "one.onnx", "-t", folder / "two.onnx")
    return ["unify", *teachers, "--data", folder / data, "--out", out, "--student", "logistic", *words]


@pytest.mark.parametrize(
    ("data", "test_data"),
    [("X.csv", "test.csv"), ("X.parquet", "plain.csv")],  # other columns first, and no header
)
def test_unify_on_a_mixed_table(data: str, test_data: str, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "unified.onnx"
    test = ("--test-data", folder / test_data, "--test-labels", folder / "y_test.csv")
    view = view_of(*unify(folder, out, *test, data=data))
    assert view["accuracy"] > 0.75
    assert view["encoding"]["cough"] == "one-hot of 2 values"
    assert view["encoding"]["fever"].startswith("number; missing values became the median 3")
    assert view["encoding"]["smokes"] == "true or false, as 1 or 0"
    assert view["encoding"]["seen"].startswith("date")
    X, y = patients(100, 2)
    teacher = as_teacher(out)
    right = teacher.classes[teacher.predict_logits(X).argmax(axis=1)] == NAMES[y]
    assert right.mean() == pytest.approx(view["accuracy"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--test-data narrow.csv --test-labels y_test.csv", "narrow.csv lacks the column 'fever'"),
        ("--test-data test.csv --test-labels wrong.csv", "--test-labels"),
        ("--test-data test.csv --test-labels y.csv", r"expected (100,)"),
        ("--test-data test.csv --test-labels plagues.csv", "--test-labels has 'plague' in row 0 (100 such"),
        ("--labels wrong.csv", "expected (200,)"),
        ("--labels unknown.csv", "plague"),
        ("--student torch --train backprop", "--train backprop estimates no soft labels"),
    ],
)
def test_faults_are_found_before_teachers_are_asked(
    words: str, expected: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "unknown.csv").write_text("label\n" + "plague\n" * 200)
    (folder / "plagues.csv").write_text("label\n" + "plague\n" * 100)

    def asked(*_: Any) -> None:
        raise AssertionError("a teacher was asked")

    monkeypatch.setattr(Onnx, "_run", asked)
    files = [folder / word if word.endswith(".csv") else word for word in words.split()]
    assert expected in refused(
        *unify(folder, tmp_path / "u.onnx", "--soft-labels", tmp_path / "q.npz", *files)
    )
    assert not list(tmp_path.iterdir())


def test_a_run_that_fails_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("consilience.students.saving.check_export", fail)
    refused(*unify(folder, tmp_path / "u.onnx", "--soft-labels", tmp_path / "q.npz"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_can_be_left_out(ending: str, folder: Path, tmp_path: Path) -> None:
    (X, y), (test, _) = patients(200, 1), patients(100, 2)
    write(X.assign(patient=[f"P{i}" for i in range(200)], diagnosis=NAMES[y]), tmp_path / f"X{ending}")
    write(test.assign(patient=[f"P{i}" for i in range(100)]), tmp_path / f"test{ending}")
    teachers = ("-t", folder / "one.onnx", "-t", folder / "two.onnx")
    rows, drop = ("--data", tmp_path / f"X{ending}"), ("--drop", "patient", "--drop", "diagnosis")
    measured = ("--test-data", tmp_path / f"test{ending}", "--test-labels", folder / "y_test.csv")
    options = ("--out", tmp_path / "v.onnx", "--student", "logistic", "-q")
    assert view_of("unify", *teachers, *rows, *drop, *measured, *options)["accuracy"] > 0.75
    labels = ("--labels", folder / "y.csv")
    for command in (
        ("rank", *teachers, *rows, *labels),
        ("distil", *teachers, *rows, *labels, "--out", tmp_path / "d.onnx", "--student", "logistic"),
        ("compare", *teachers, *rows, "--quick", "--method", "sd"),
        ("evaluate", tmp_path / "v.onnx", *rows, *labels),
    ):
        done(*command, *drop, "-q")
    for columns in (drop, ("--keep", "patient", "--drop", "diagnosis")):
        done("predict", tmp_path / "v.onnx", *rows, *columns, "--out", tmp_path / "p.csv")
        assert ("patient" in (tmp_path / "p.csv").read_text()) == ("--keep" in columns)
    for model in ("v.onnx", "d.onnx"):
        assert [column.name for column in as_teacher(tmp_path / model).inputs] == list(X.columns)


@pytest.mark.parametrize(
    ("drop", "says"),
    [
        (["fevre"], "--drop 'fevre' is unknown; use 'fever', .* Did you mean 'fever'"),
        (["fever", "cough", "smokes", "seen"], "--drop leaves no column of"),
    ],
)
def test_columns_that_cannot_be_left_out(drop: list[str], says: str, folder: Path, tmp_path: Path) -> None:
    words = [word for name in drop for word in ("--drop", name)]
    assert re.search(says, refused(*unify(folder, tmp_path / "u.onnx", *words)))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_files_may_differ_in_columns_that_are_left_out(ending: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    frames = [patients(100, seed)[0] for seed in (3, 4, 5)]
    for i, frame in enumerate((frames[0].assign(key=range(100)), frames[1], frames[2].assign(key="text"))):
        write(frame, tmp_path / "rows" / f"{i}{ending}")
    given = ("-t", folder / "one.onnx", "-t", folder / "two.onnx", "--data", tmp_path / "rows")
    done("unify", *given, "--drop", "key", "--soft-labels", tmp_path / "q.npz", "-q")
    assert len(np.load(tmp_path / "q.npz")["proba"]) == 300


def test_columns_without_names_cannot_be_left_out(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.zeros((5, 4)))
    given = ("-t", folder / "one.onnx", "--data", tmp_path / "X.npy", "--out", tmp_path / "u.onnx")
    assert "--drop names a column, and those of" in refused("unify", *given, "--drop", "a")
