"""``consilience cluster``, as a new user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

pytest.importorskip("click")

from click.testing import CliRunner

from consilience import clustering_accuracy
from consilience.cli.app import app


def run(*arguments: object):
    return CliRunner().invoke(app, ["cluster", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    X, y = load_iris(return_X_y=True)
    np.save(root / "X.npy", X)
    np.save(root / "y.npy", np.array(["setosa", "versicolor", "virginica"])[y])
    some = np.full(150, np.nan)
    some[[0, 60, 120]] = [2.0, 0.0, 1.0]  # not the order of the classes
    np.save(root / "some.npy", some)
    (root / "some.csv").write_text("label\n2\n" + '""\n' * 59 + "0\n" + '""\n' * 59 + "1\n" + '""\n' * 29)
    X = X.copy()
    X[7, 1] = np.nan
    np.save(root / "gap.npy", X)
    return root


def test_clusters_are_written_and_described(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels.npy"
    options = ("--data", folder / "X.npy", "--clusters", 3, "--out", out, "--n-init", 3)
    result = run(*options, "--truth", folder / "y.npy", "--json")
    assert result.exit_code == 0, result.output
    view = json.loads(result.stdout)
    labels = np.load(out, allow_pickle=False)
    assert [cluster["rows"] for cluster in view["clusters"]] == np.bincount(labels).tolist()
    shares = [cluster["share"] for cluster in view["clusters"]]
    np.testing.assert_allclose(shares, np.bincount(labels) / 150)
    assert all(1 / 3 < cluster["confidence"] <= 1 for cluster in view["clusters"])
    assert view["agreement"]["accuracy"] == clustering_accuracy(np.load(folder / "y.npy"), labels) > 0.85
    assert 0.5 < view["agreement"]["ari"] < 1
    assert 0.5 < view["agreement"]["nmi"] < 1
    shown = run(*options, "--truth", folder / "y.npy")
    assert f"{100 * view['agreement']['accuracy']:.1f}% of 150 rows" in shown.stdout
    assert "mean confidence" in shown.stdout
    assert all(f"{100 * share:.1f}%" in shown.stdout for share in shares)
    assert shown.stderr == ""
    assert "accuracy" not in run(*options).stdout


def test_images_are_clustered_as_rows_of_pixels(folder: Path, tmp_path: Path) -> None:
    X = np.load(folder / "X.npy")
    np.save(tmp_path / "images.npy", X.reshape(150, 2, 2))
    found = []
    for data in (folder / "X.npy", tmp_path / "images.npy"):
        result = run("--data", data, "--clusters", 3, "--out", tmp_path / "labels.npy", "--n-init", 1)
        assert result.exit_code == 0, result.output
        found.append(np.load(tmp_path / "labels.npy").tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("labels", ["some.npy", "some.csv"])
def test_known_labels_number_the_clusters(folder: Path, tmp_path: Path, labels: str) -> None:
    out = tmp_path / "labels.csv"
    files = ("--data", folder / "X.npy", "--out", out, "--labels", folder / labels)
    view = json.loads(run(*files, "--clusters", 3, "--json").stdout)
    assert view["n_labels"] == 3
    assert [cluster["labelled"] for cluster in view["clusters"]] == [1, 1, 1]
    lines = out.read_text().split()
    assert lines[0] == "label"
    assert (lines[1], lines[61], lines[121]) == ("2", "0", "1")


def test_names_number_the_clusters_in_sorted_order(folder: Path, tmp_path: Path) -> None:
    out, labels = tmp_path / "labels.npy", tmp_path / "names.csv"
    labels.write_text("label\nsetosa\n" + '""\n' * 59 + "virginica\n" + '""\n' * 89)
    view = json.loads(
        run("--data", folder / "X.npy", "--out", out, "--labels", labels, "--clusters", 3, "--json").stdout
    )
    assert [cluster["labelled"] for cluster in view["clusters"]] == [1, 1, 0]
    assert np.load(out)[[0, 60]].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--clusters", "0"], "--clusters 0 must be"),
        (["--clusters", "151"], "fewer than --clusters 151"),
        (
            ["--clusters", "2", "--labels", "some.npy"],
            "y has labels from 0 to 2; expected 0 to 1, or at most",
        ),
        (["--clusters", "2", "--labels", "some.npy"], "2 names (--clusters 2), and None or -1"),
        (["--clusters", "2", "--labels", "y.npy"], "They name 3 classes: ask for as many clusters."),
        (["--clusters", "3", "--loss", "colision"], "Did you mean 'collision'?"),
        (["--clusters", "3", "--lam", "-1"], "--lam -1.0 must be"),
        (["--clusters", "3", "--n-init", "0"], "--n-init 0 must be"),
        (["--clusters", "3", "--jobs", "0"], "--jobs 0 must be"),
        (["--clusters", "3", "--data", "gap.npy"], "gap.npy: Input X contains NaN"),
        (["--clusters", "3", "--data", "no.npy"], "does not exist"),
        (["--clusters", "3", "--truth", "X.npy"], "--truth: X.npy has shape (150, 4)"),
        (["--clusters", "3", "--out", "labels.txt"], "--out writes .npy or .csv"),
    ],
)
def test_bad_input_exits_2_with_one_sentence(
    arguments: list[str], expected: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    result = run("--data", "X.npy", "--out", "labels.npy", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(folder.iterdir()) == before
