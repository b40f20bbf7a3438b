"""Files as strangers have them: few rows, odd names, other habits. What the model knows counts."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pandas = pytest.importorskip("pandas")

from tests.cli.running import done, refused, run, view_of  # noqa: E402

from consilience import SoftLabelClassifier, as_teacher, load  # noqa: E402
from consilience.students import Ngrams  # noqa: E402


def predict(model: Path, data: Path, out: Path) -> tuple[Any, ...]:
    return "predict", model, "--data", data, "--out", out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of four columns. The texts in two of them look like other things if they are alone."""
    root, random = tmp_path_factory.mktemp("few"), np.random.default_rng(0)
    X = pandas.DataFrame(
        {
            "age": random.integers(20, 80, 240).astype(float),
            "cough": random.choice(["none", "dry"], 240),
            "code": random.choice(["007", "true", "2024-01-01", "x"], 240),
            "day": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(random.integers(0, 90, 240), "D"),
            "seen": random.choice([True, False], 240),
        }
    )
    X.loc[::9, "age"] = np.nan
    X.loc[::11, "day"] = pandas.NaT
    y = np.where((X["cough"] == "none") ^ np.isin(X["code"], ["007", "true"]), "well", "ill")
    X.to_csv(root / "X.csv", index=False)
    X.to_parquet(root / "X.parquet")
    pandas.Series(y, name="label").to_csv(root / "y.csv", index=False)
    SoftLabelClassifier("forest", random_state=0).fit(X, y).save(root / "model.onnx")
    return root


def write(folder: Path, path: Path, code: str = "007", **cells: Any) -> Any:
    """Write the rows of one code and of the cough "none"; return them, and what the model says of them."""
    X = pandas.read_parquet(folder / "X.parquet")
    rows = X[(X["code"] == code) & (X["cough"] == "none")].assign(**cells)
    rows.to_csv(path, index=False)
    return rows, load(folder / "model.onnx").predict_proba(rows)


@pytest.mark.parametrize(
    ("code", "header", "cells"),
    [
        *((code, header, {}) for code in ("007", "true", "2024-01-01") for header in (True, False)),
        *(("007", True, cells) for cells in ({"day": None}, {"age": None}, {"cough": None})),
        ("007", True, {"day": None, "age": None}),
    ],
)
def test_texts_stay_texts_and_a_column_without_a_value_is_missing(
    code: str, header: bool, cells: Any, folder: Path, tmp_path: Path
) -> None:
    rows, expected = write(folder, tmp_path / "few.csv", code, **cells)
    rows.to_csv(tmp_path / "few.csv", index=False, header=header)
    done(*predict(folder / "model.onnx", tmp_path / "few.csv", tmp_path / "p.npy"))
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), expected, atol=1e-6)


def test_every_command_reads_them_so(folder: Path, tmp_path: Path) -> None:
    few, model = tmp_path / "few.csv", folder / "model.onnx"
    rows, expected = write(folder, few)
    scores = tmp_path / "s.npy"
    done("score", "-t", model, "--data", few, "--out", scores)
    np.testing.assert_allclose(np.load(scores), as_teacher(model).predict_logits(rows), atol=1e-5)
    labels = load(model).classes_[expected.argmax(axis=1)]
    pandas.Series(labels, name="label").to_csv(tmp_path / "y.csv", index=False)
    files = ("--data", few, "--labels", tmp_path / "y.csv")
    assert view_of("evaluate", model, *files)["accuracy"] == 1
    # --test-data is read as --data is
    out = tmp_path / "unified.onnx"
    test = ("--test-data", few, "--test-labels", tmp_path / "y.csv", "--student", "forest")
    assert view_of("unify", "-t", model, "--data", folder / "X.csv", "--out", out, *test)["accuracy"] == 1


def test_one_checksum_however_cells_were_read(folder: Path, tmp_path: Path) -> None:
    few, scores, out = tmp_path / "few.csv", tmp_path / "s.npz", tmp_path / "unified.onnx"
    write(folder, few)
    done("score", "-t", folder / "model.onnx", "--data", few, "--out", scores)
    # the scores alone do not say that codes are texts
    files = ("-t", scores, "--data", few, "--out", out, "--student", "forest")
    assert "other rows" not in done("unify", *files, "--quiet").stderr
    done("verify", out, "--data", few)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ({"age": "inf"}, "Column 'age' has inf in row 0"),
        ({"seen": ""}, "takes true or false for 'seen', and row 0 has neither"),
    ],
)
def test_what_the_model_cannot_use_is_an_error(cell: Any, words: str, folder: Path, tmp_path: Path) -> None:
    X = pandas.read_parquet(folder / "X.parquet")[:2]
    X.assign(**cell).to_csv(tmp_path / "bad.csv", index=False)
    assert words in refused(*predict(folder / "model.onnx", tmp_path / "bad.csv", tmp_path / "p.csv"))
    assert not (tmp_path / "p.csv").exists()


def save_plain(path: Path, name: str = "a") -> None:
    """Save a model of one column, and rows."""
    X = np.arange(40.0)[:, None]
    SoftLabelClassifier("logistic").fit(X, np.where(X[:, 0] < 9, name, "b")).save(path)
    X[30] = np.nan
    np.save(path.with_name("X.npy"), X)


def test_a_row_without_probabilities_is_an_error(tmp_path: Path) -> None:
    save_plain(tmp_path / "m.onnx")
    words = predict(tmp_path / "m.onnx", tmp_path / "X.npy", tmp_path / "p.csv")
    assert "no answer for row 30" in refused(*words, "--batch-size", 8)
    assert not (tmp_path / "p.csv").exists()


NAMES = ["a,b", 'q"x', "two\nlines", "cr\rx", "cr\r\nx", "=1+1", "<b>", " ü ", "\t"]


@pytest.mark.parametrize("keep", [True, False])
def test_any_class_name_and_kept_cell_survives_a_csv_file(keep: bool, tmp_path: Path) -> None:
    X = pandas.DataFrame({"age": np.arange(45.0), "key": ["a\rb", "plain", ""] * 15})
    y = np.array(NAMES)[np.arange(45) // 5]
    SoftLabelClassifier("forest", random_state=0).fit(X[["age"]], y).save(tmp_path / "m.onnx")
    X[["age", "key"] if keep else ["age"]].to_parquet(tmp_path / "X.parquet")
    more = ("--keep", "key") if keep else ()
    done(*predict(tmp_path / "m.onnx", tmp_path / "X.parquet", tmp_path / "p.csv"), *more)
    assert len(pandas.read_csv(tmp_path / "p.csv")) == 45
    with (tmp_path / "p.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    assert {len(line) for line in lines} == {10 + keep}
    assert [line[keep] for line in lines[1:]] == load(tmp_path / "m.onnx").predict(X[["age"]]).tolist()
    assert {line[keep] for line in lines[1:]} == set(NAMES)
    assert not keep or [line[0] for line in lines[1:]] == X["key"].tolist()


def test_a_card_that_renames_classes_is_no_card_of_this_model(folder: Path, tmp_path: Path) -> None:
    save_plain(tmp_path / "m.onnx")
    card = tmp_path / "m.card.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"classes": ["b", "a"]}))
    words = predict(tmp_path / "m.onnx", tmp_path / "X.npy", tmp_path / "p.csv")
    assert "names the classes b, a, and the model in m.onnx a, b" in refused(*words)
    checks = json.loads(run("verify", tmp_path / "m.onnx", "--json").stdout)["checks"]
    assert [check["name"] for check in checks if not check["passed"]] == ["classes", "runs", "unchanged"]


@pytest.mark.parametrize("name", ["two\nlines", "cr\rx"])
def test_a_label_per_line_has_no_line_breaks(name: str, tmp_path: Path) -> None:
    save_plain(tmp_path / "m.onnx", name)
    words = predict(tmp_path / "m.onnx", tmp_path / "X.npy", tmp_path / "p.txt")
    assert "has a line break. Write .csv." in refused(*words)
    assert not list(tmp_path.glob("*p.txt*"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"age;cough\n3,5;dry\n", "line 2 has 2 columns and the first has 1; separate columns by ','"),
        (b"age;cough\n3;dry\n", "separate columns by ',', not by ';'"),
        (b"age\tcough\n3\tdry\n", "separate columns by ',', not by '\\t'"),
        ("age,cough\n3,trückén\n".encode("latin-1"), "it is no text in UTF-8. Save it in UTF-8."),
        (b'age,cough\n3,"' + b"dry\n" * 40_000, "Is a quote left open?"),
        ("age,cough\n3,dry\n".encode("utf-16"), "it is no text in UTF-8. Save it in UTF-8."),
    ],
)
def test_files_of_other_habits_are_explained(
    content: bytes, words: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "X.csv").write_bytes(content)
    assert words in refused(*predict(folder / "model.onnx", tmp_path / "X.csv", tmp_path / "p.csv"))


def test_a_header_of_labels_is_explained(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "y.csv").write_text((folder / "y.csv").read_text().replace("label", "diagnosis"))
    files = ("--data", folder / "X.csv", "--labels", tmp_path / "y.csv")
    said = refused("evaluate", folder / "model.onnx", *files)
    assert "If 'diagnosis' is a header, write 'label' there." in said


def test_numbers_are_texts_to_a_model_of_texts(tmp_path: Path) -> None:
    texts = ["12", "007", "one two", "three"] * 10
    student = Ngrams(n_buckets=64, dim=4, max_iter=5, random_state=0)
    SoftLabelClassifier(student).fit(texts, ["number", "number", "word", "word"] * 10).save(
        tmp_path / "m.npz"
    )
    (tmp_path / "t.csv").write_text("text\n007\n12\n")
    (tmp_path / "t.txt").write_text("007\n12\n")
    for ending in ("csv", "txt"):
        done(*predict(tmp_path / "m.npz", tmp_path / f"t.{ending}", tmp_path / f"{ending}.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "csv.npy"), np.load(tmp_path / "txt.npy"))
    (tmp_path / "y.csv").write_text("number\nnumber\n")
    files = ("--data", tmp_path / "t.txt", "--labels", tmp_path / "y.csv")
    assert view_of("evaluate", tmp_path / "m.npz", *files)["accuracy"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ["unify", "-t", "m.onnx", "--data", "X.npy", "--out", "m.onnx"],
        ["unify", "-t", "m.onnx", "--data", "X.npy", "--soft-labels", "X.npy"],
        ["unify", "-t", "m.onnx", "--data", "X.npy", "--soft-labels", "m.npy"],
        ["unify", "-t", "m.onnx", "--data", "X.npy", "--out", "linked.onnx"],
        ["distil", "-t", "m.onnx", "--data", "X.npy", "--labels", "y.npy", "--out", "m.onnx"],
        ["cluster", "--data", "X.npy", "--clusters", "2", "--out", "X.npy"],
        ["predict", "m.onnx", "--data", "X.npy", "--out", "X.npy"],
        ["predict", "m.onnx", "--data", "X.npy", "--out", "m.npz"],
        ["score", "-t", "m.onnx", "--data", "X.npy", "--out", "m.npy"],
        ["score", "-t", "m.onnx", "--data", "X.npy", "--out", "X.npy"],
        ["inspect", "m.onnx", "--data", "X.npy", "--suggest", "--aliases", "a.json", "--out", "a.json"],
    ],
)
def test_no_command_replaces_what_it_reads(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("m.onnx", "X.npy", "y.npy", "a.json"):  # the check comes before anything is read
        Path(name).write_text("old")
    Path("linked.onnx").symlink_to("m.onnx")
    assert "would replace a file that is read, or its card" in refused(*words)


def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_it(tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", np.eye(2) + 0.5)
    (tmp_path / "names.txt").write_text("cat\ndog\n", encoding="utf-8-sig")
    recipe = '[inspect]\nfiles = ["q.npy"]\nclasses = ["q=@names.txt"]\n'
    (tmp_path / "r.toml").write_text(recipe, encoding="utf-8-sig")
    assert view_of("inspect", "--config", tmp_path / "r.toml")["classes"] == ["cat", "dog"]


@pytest.mark.parametrize(
    "words",
    ["--aliases pipe", "--config pipe", "--classes model=@pipe", "--aliases loop.npy", "--data loop.npy"],
)
def test_pipes_and_links_to_themselves_are_refused(
    words: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")  # opening it would wait for ever
    Path("loop.npy").symlink_to("loop.npy")
    files = ("-t", folder / "model.onnx", "--data", folder / "X.csv", "--out", "u.onnx")
    assert words.split()[-1].removeprefix("model=@") in refused("unify", *files, *words.split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("words", ["--help", "inspect model.onnx"])
def test_a_full_disk_behind_stdout_gets_a_sentence(words: str, folder: Path) -> None:
    command = [sys.executable, "-c", "from consilience.cli import main; main()", *words.split()]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 2
    assert ended.stderr.endswith("written: No space left on device.\n")
    assert len(ended.stderr.splitlines()) == 1
