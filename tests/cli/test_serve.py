"""From a model to a service: score, predict and verify, as a site uses them."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pandas = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")

from tests.cli.running import done, refused, run, view_of  # noqa: E402

from consilience import SoftLabelClassifier, as_teacher, load  # noqa: E402
from consilience.exceptions import InvalidInputError  # noqa: E402
from consilience.files.arrays import open_npz  # noqa: E402
from consilience.files.card import card_path, read_card, write_card  # noqa: E402
from consilience.files.disk import file_sha256  # noqa: E402
from consilience.students import Ngrams  # noqa: E402
from consilience.students.verify import verify_model  # noqa: E402


def visits(n: int, seed: int) -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "age": random.integers(20, 80, n).astype(float),
            "ward": random.choice(["007", "12", "x"], n),
            "day": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(random.integers(0, 90, n), "D"),
        }
    )
    frame.loc[::7, "age"] = np.nan
    y = np.where(frame["ward"] == "007", "well", np.where(frame["age"] > 50, "ill", "cured"))
    return frame, y


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sites' models of a mixed table, the model made of them by the command line, and rows."""
    root = tmp_path_factory.mktemp("serve")
    X, y = visits(150, 0)
    for name, missing in (("north", "ill"), ("south", "well")):
        known = y != missing
        SoftLabelClassifier("logistic", random_state=0).fit(X[known], y[known]).save(root / f"{name}.onnx")
    X.to_csv(root / "X.csv", index=False)
    X.to_parquet(root / "X.parquet")
    pandas.DataFrame(y, columns=["y"]).to_csv(root / "y.csv", index=False)
    X.assign(id=[f"{i:04}" for i in range(150)])[["id", "day", "ward", "age"]].to_csv(
        root / "rows.csv", index=False
    )
    X.assign(id=range(150)).to_parquet(root / "rows.parquet")
    X.to_csv(root / "bare.csv", index=False, header=False)
    done(
        "unify", "-t", root / "north.onnx", "-t", root / "south.onnx", "--data", root / "X.csv", "--out",
        root / "unified.onnx", "--student", "logistic", "--test-data", root / "X.csv", "--test-labels",
        root / "y.csv",
    )  # fmt: skip
    numbers = np.random.default_rng(0).normal(size=(50, 3))
    np.save(root / "numbers.npy", numbers)
    np.save(root / "columns.npy", np.asfortranarray(numbers))
    np.savez(root / "numbers.npz", X=numbers)
    SoftLabelClassifier("logistic").fit(numbers, np.where(numbers[:, 0] > 0, 3, 7)).save(root / "plain.onnx")
    texts = ["the cat sat", "der Hund lief", "a dog ran", "", "die Katze sass"] * 6
    student = Ngrams(n_buckets=256, dim=4, max_iter=3, random_state=0)
    SoftLabelClassifier(student).fit(texts, ["en", "de", "en", "de", "de"] * 6).save(root / "texts.npz")
    (root / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf8")
    return root


@pytest.mark.parametrize("ending", [".npz", ".npy", ".parquet"])
def test_scores_of_sites_give_the_soft_labels_of_their_models(
    ending: str, folder: Path, tmp_path: Path
) -> None:
    for site in ("north", "south"):
        out = tmp_path / f"{site}{ending}"
        view = view_of("score", "-t", folder / f"{site}.onnx", "--data", folder / "X.csv", "--out", out)
        assert (view["n_rows"], view["n_classes"], view["abstentions"]) == (150, 2, 0)
        made = read_card(card_path(out)).details["made"]
        assert made["data"] == {"rows": 150, "sha256": view["rows_sha256"]}
        assert read_card(card_path(folder / "unified.onnx")).details["made"]["data"] == made["data"]
    for kind, where, last in (("model", folder, ".onnx"), ("scores", tmp_path, ending)):
        files = ("-t", where / f"north{last}", "-t", where / f"south{last}", "--data", folder / "X.csv")
        done("unify", *files, "--soft-labels", tmp_path / f"q_{kind}.npz")
    found, expected = (arrays_of(tmp_path / f"q_{kind}.npz") for kind in ("scores", "model"))
    assert found["classes"].tolist() == expected["classes"].tolist() == ["cured", "ill", "well"]
    np.testing.assert_allclose(found["proba"], expected["proba"], atol=1e-6)


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with open_npz(path) as archive:
        return {name: archive.read(name) for name in archive.names}


def test_scores_for_other_rows_are_noticed(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "north.npz"
    done("score", "-t", folder / "north.onnx", "--data", folder / "X.csv", "--out", out)
    visits(150, 9)[0].to_csv(tmp_path / "other.csv", index=False)
    q = tmp_path / "q.npz"
    visits(9, 0)[0].to_csv(tmp_path / "few.csv", index=False)
    unify = ("unify", "-t", out, "--soft-labels", q, "--data")
    assert "holds outputs for other rows than X" in done(*unify, tmp_path / "other.csv").stderr
    # another file of the same rows
    assert "other rows" not in done(*unify, folder / "X.parquet").stderr
    assert "outputs for 150 rows and X has 9" in refused(*unify, tmp_path / "few.csv")


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(newline="", encoding="utf8") as file:
        head, *rows = csv.reader(file)
    return head, rows


@pytest.mark.parametrize("size", [7, 4096])
@pytest.mark.parametrize("data", ["X.csv", "bare.csv", "rows.csv", "X.parquet", "rows.parquet"])
def test_predictions_are_those_of_the_model_whatever_the_batches(
    data: str, size: int, folder: Path, tmp_path: Path
) -> None:
    X, _ = visits(150, 0)
    model = load(folder / "unified.onnx")
    keep = ("--keep", "id") if data.startswith("rows") else ()
    out = tmp_path / "p.csv"
    view = view_of(
        "predict", folder / "unified.onnx", "--data", folder / data, "--out", out, *keep, "--batch-size", size
    )
    head, rows = read_csv(out)
    assert head == [*keep[1:], "label", "probability_cured", "probability_ill", "probability_well"]
    np.testing.assert_allclose(np.array([row[-3:] for row in rows], float), model.predict_proba(X), atol=1e-7)
    assert [row[-4] for row in rows] == model.predict(X).tolist()
    assert view["n_rows"] == sum(view["counts"]) == 150
    assert dict(zip(view["classes"], view["counts"], strict=True))["ill"] == (model.predict(X) == "ill").sum()
    if keep:  # as it stands in the file
        assert [row[0] for row in rows][:2] == (["0000", "0001"] if data == "rows.csv" else ["0", "1"])


@pytest.mark.parametrize("data", ["numbers.npy", "columns.npy", "numbers.npz"])
def test_every_format_of_predictions(data: str, folder: Path, tmp_path: Path) -> None:
    expected = load(folder / "plain.onnx").predict_proba(np.load(folder / "numbers.npy"))
    labels = np.array([3, 7])[expected.argmax(axis=1)]
    for ending in ("npy", "npz", "csv", "parquet", "txt"):
        out = tmp_path / f"p.{ending}"
        done("predict", folder / "plain.onnx", "--data", folder / data, "--out", out, "--batch-size", 8)
    assert (tmp_path / "p.txt").read_text().split() == labels.astype(str).tolist()
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), expected, atol=1e-7)
    archive = arrays_of(tmp_path / "p.npz")
    np.testing.assert_allclose(archive["probabilities"], expected, atol=1e-7)
    assert [archive[name].tolist() for name in ("label", "classes")] == [labels.tolist(), [3, 7]]
    table = parquet.read_table(tmp_path / "p.parquet")
    assert table.column_names == ["label", "probability_3", "probability_7"]
    assert table.column("label").to_pylist() == labels.tolist()
    np.testing.assert_allclose(table.column("probability_7").to_numpy(), expected[:, 1], atol=1e-7)
    np.testing.assert_allclose(
        np.exp(as_teacher(tmp_path / "p.npz").predict_logits(range(50))), expected, atol=1e-6
    )


def test_a_row_with_a_missing_value_is_named_and_not_guessed(folder: Path) -> None:
    numbers = np.load(folder / "numbers.npy")
    numbers[33, 1] = np.nan
    with pytest.raises(InvalidInputError, match=r"no answer for row 33 \(1 such row\)") as caught:
        load(folder / "plain.onnx").predict(numbers)
    assert caught.value.row == 33


def test_texts_are_predicted_line_by_line(folder: Path, tmp_path: Path) -> None:
    texts = (folder / "texts.txt").read_text(encoding="utf8").splitlines()
    expected = load(folder / "texts.npz").predict(texts).tolist()
    pandas.DataFrame({"id": range(30), "text": texts}).to_csv(tmp_path / "t.csv", index=False)
    for data, keep in ((folder / "texts.txt", ()), (tmp_path / "t.csv", ("--keep", "id"))):
        out = tmp_path / "p.csv"
        done("predict", folder / "texts.npz", "--data", data, "--out", out, *keep, "--batch-size", 4)
        assert [row[len(keep) // 2] for row in read_csv(out)[1]] == expected
    done("predict", folder / "texts.npz", "--data", folder / "texts.txt", "--out", tmp_path / "p.txt")
    assert (tmp_path / "p.txt").read_text().splitlines() == expected


def test_kept_columns_of_parquet_keep_their_type(folder: Path, tmp_path: Path) -> None:
    out, keep = tmp_path / "p.parquet", ("--keep", "id", "--keep", "day")
    done("predict", folder / "unified.onnx", "--data", folder / "rows.parquet", "--out", out, *keep)
    found, given = (parquet.read_table(path).select(["id", "day"]) for path in (out, folder / "rows.parquet"))
    assert found.equals(given)
    done("predict", folder / "unified.onnx", "--data", folder / "rows.csv", "--out", out, "--keep", "id")
    assert parquet.read_table(out).column("id").to_pylist()[:2] == ["0000", "0001"]


BAD = {
    "extra column": ("unified.onnx", "rows.csv", "p.csv", (), "has the unknown column 'id'"),
    "no such column": ("unified.onnx", "rows.csv", "p.csv", ("--keep", "key"), "--keep 'key' is unknown"),
    "kept without names": ("unified.onnx", "bare.csv", "p.csv", ("--keep", "0"), "needs names of columns"),
    "kept in npy": ("unified.onnx", "rows.csv", "p.npy", ("--keep", "id"), "not to 'p.npy'"),
    "missing column": ("unified.onnx", "y.csv", "p.csv", (), "lacks the columns 'age', 'ward', 'day'"),
    "wrong width": (
        "plain.onnx",
        "X.parquet",
        "p.csv",
        ("--keep", "age"),
        "2 columns; the model takes 3",
    ),
    "texts for a table": (
        "unified.onnx",
        "texts.txt",
        "p.csv",
        (),
        "texts, and the model takes a table",
    ),
    "a table for texts": ("texts.npz", "X.csv", "p.csv", (), "has 3 columns; the model takes texts"),
    "no such data": ("unified.onnx", "no.csv", "p.csv", (), "no.csv does not exist"),
    "bad ending": ("unified.onnx", "X.csv", "p.xls", (), "--out writes .csv or .parquet"),
    "not a model of ours": ("X.npy", "X.csv", "p.csv", (), "load reads .onnx and .npz"),
    "no batch": ("unified.onnx", "X.csv", "p.csv", ("--batch-size", "0"), "--batch-size 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_faults_are_found_before_work_and_nothing_is_written(
    case: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data, out, options, message = BAD[case]
    monkeypatch.setattr("consilience.students.loaded._ask", None)
    files = ("--data", folder / data, "--out", tmp_path / out)
    assert message in refused("predict", folder / model, *files, *options)
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_dies_leaves_the_old_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = visits(60, 0)
    X.assign(day=X["day"].astype(str).where(X.index != 50, "soon")).to_parquet(tmp_path / "late.parquet")
    batches = list[int]()
    monkeypatch.setattr(
        "consilience.cli.log.silent", lambda task, done, total: batches.append(done), raising=True
    )
    for ending in ("csv", "parquet", "npy", "npz", "txt"):
        out = tmp_path / f"p.{ending}"
        out.write_bytes(b"old")
        files = ("--data", tmp_path / "late.parquet", "--out", out, "--batch-size", 8, "--quiet")
        assert "'day' holds" in refused("predict", folder / "unified.onnx", *files)
        assert out.read_bytes() == b"old"
    assert batches == [8, 16, 24, 32, 40, 48] * 5  # most of it was written
    assert not list(tmp_path.glob(".*"))


def test_a_model_is_what_its_card_says(folder: Path) -> None:
    files = ("-t", folder / "north.onnx", "--teacher", folder / "south.onnx", "--data", folder / "X.parquet")
    view = view_of("verify", folder / "unified.onnx", *files)
    assert view["passed"]
    names = ["card", "checksum", "safety", "origin", "classes", "columns", "runs", "unchanged"]
    assert [check["name"] for check in view["checks"]] == [
        *names, "teacher north.onnx", "teacher south.onnx", "data"
    ]  # fmt: skip
    for model in ("plain.onnx", "texts.npz"):
        assert view_of("verify", folder / model)["passed"]
    made = read_card(card_path(folder / "unified.onnx")).details["made"]
    assert made["measured"]["n_rows"] == 150
    assert made["measured"]["accuracy"] == pytest.approx(
        load(folder / "unified.onnx").score(*visits(150, 0)), abs=1e-6
    )


FAULTS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "no card": ("card", {}, ()),
    "broken card": ("card", {}, ()),
    "another file": ("checksum", {}, ()),
    "no checksum": ("checksum", {"sha256": None}, ()),
    "other classes": ("classes", {"classes": ["a", "b", "c"]}, ()),
    "other columns": ("columns", {"feature_names": ["a", "b", "c"]}, ()),
    "other teacher": ("teacher plain.onnx", {}, ("-t", "plain.onnx")),
    "other data": ("data", {}, ("--data", "numbers.npy")),
    "no record": ("data", {"details": {}}, ("--data", "X.csv")),
    "unsafe": ("safety", {"sha256": None}, ()),
    "changed card": ("unchanged", {"description": "Better."}, ()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_check_that_fails_gives_code_1(
    fault: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    failed, says, words = FAULTS[fault]
    model = Path("plain.onnx" if fault == "another file" else "unified.onnx").read_bytes()
    (tmp_path / "m.onnx").write_bytes(b"nothing of the kind" if fault == "unsafe" else model)
    content = json.loads(Path("unified.card.json").read_text(encoding="utf8")) | says
    if fault != "changed card":
        del content["card_sha256"]
    card = json.dumps(content)
    if fault != "no card":
        (tmp_path / "m.card.json").write_text("{" if fault == "broken card" else card, encoding="utf8")
    result = run("verify", tmp_path / "m.onnx", *words, "--json")
    assert result.exit_code == 1, result.output
    checks = {check["name"]: check["passed"] for check in json.loads(result.stdout)["checks"]}
    assert checks[failed] is False
    assert "failed" in run("verify", tmp_path / "m.onnx", *words).stdout


@pytest.mark.parametrize(
    ("change", "found"),
    [("huge", "too large to try"), ("negative", "or negative"), ("no rows", r"of shape \(0, 2\)")],
)
def test_a_model_that_lies_about_shapes_fails_a_check(
    change: str, found: str, folder: Path, tmp_path: Path
) -> None:
    model = onnx.load(folder / "plain.onnx")
    if change == "no rows":
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = ["all rows" if name == "probabilities" else name for name in names]
        model.graph.initializer.append(onnx.helper.make_tensor("none", onnx.TensorProto.INT64, [1], [0]))
        model.graph.node.append(
            onnx.helper.make_node("Slice", ["all rows", "none", "none"], ["probabilities"])
        )
    else:
        length = model.graph.input[0].type.tensor_type.shape.dim[1]
        length.dim_value = 10**12 if change == "huge" else -3
    target = tmp_path / "m.onnx"
    target.write_bytes(model.SerializeToString())
    card = read_card(card_path(folder / "plain.onnx"))
    write_card(card_path(target), replace(card, sha256=file_sha256(target)))
    checks = {check.name: check for check in verify_model(target).checks}
    assert checks["runs"].passed is False
    assert re.search(found, checks["runs"].found)


def test_rows_without_a_checksum_are_not_called_other_rows(folder: Path) -> None:
    *_, data = verify_model(folder / "unified.onnx", X=[{"age": 1}]).checks
    assert (data.name, data.passed) == ("data", False)
    assert "A list has no checksum" in data.found


def test_verify_refuses_what_is_no_file(folder: Path) -> None:
    for words in (("no.onnx",), (folder / "X.csv",), (folder / "unified.onnx", "-t", "no.onnx")):
        refused("verify", *words)


def test_inspect_shows_what_a_model_takes_and_gives(folder: Path) -> None:
    view = view_of("inspect", folder / "unified.onnx", folder / "texts.npz")
    unified, texts = view["teachers"]
    assert unified["inputs"] == [
        {"name": "age", "dtype": "float64", "shape": [None, 1]},
        {"name": "ward", "dtype": "text", "shape": [None, 1]},
        {"name": "day", "dtype": "float64", "shape": [None, 1]},
    ]
    assert texts["inputs"] == [{"name": "X", "dtype": "text", "shape": [None]}]
    assert (unified["output"], texts["output"]) == ("probabilities", "logits")
    (plain,) = view_of("inspect", folder / "plain.onnx")["teachers"]
    assert plain["inputs"] == [{"name": "X", "dtype": "float64", "shape": [None, 3]}]
    shown = " ".join(run("inspect", folder / "unified.onnx").stdout.split())
    assert "unified age float64 n x 1 probabilities (n x 3) ward text n x 1" in shown
