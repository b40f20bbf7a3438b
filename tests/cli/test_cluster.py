"""``consilience cluster``, as a new user meets it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import done, refused, view_of

from consilience import clustering_accuracy


@pytest.fixture(scope="module")
def folder(irises: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    shutil.copytree(irises, root, dirs_exist_ok=True)
    some = np.full(150, np.nan)
    some[[0, 60, 120]] = [2.0, 0.0, 1.0]  # not the order of the classes
    np.save(root / "some.npy", some)
    (root / "some.csv").write_text("label\n2\n" + '""\n' * 59 + "0\n" + '""\n' * 59 + "1\n" + '""\n' * 29)
    names = "label\nsetosa\n" + '""\n' * 59 + "virginica\n" + '""\n' * 89
    (root / "names.csv").write_text(names)
    X = np.load(root / "X.npy")
    X[7, 1] = np.nan
    np.save(root / "gap.npy", X)
    return root


def test_clusters_are_written_and_described(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels.npy"
    options = ("--data", folder / "X.npy", "--clusters", 3, "--out", out, "--n-init", 2)
    view = view_of("cluster", *options, "--truth", folder / "y.npy")
    labels = np.load(out, allow_pickle=False)
    assert [cluster["rows"] for cluster in view["clusters"]] == np.bincount(labels).tolist()
    shares = [cluster["share"] for cluster in view["clusters"]]
    np.testing.assert_allclose(shares, np.bincount(labels) / 150)
    assert all(1 / 3 < cluster["confidence"] <= 1 for cluster in view["clusters"])
    assert view["agreement"]["accuracy"] == clustering_accuracy(np.load(folder / "y.npy"), labels) > 0.85
    assert all(0.5 < view["agreement"][name] < 1 for name in ("ari", "nmi"))
    shown = done("cluster", *options, "--truth", folder / "y.npy").stdout
    assert f"{100 * view['agreement']['accuracy']:.1f}% of 150 rows" in shown
    assert all(f"{100 * share:.1f}%" in shown for share in shares)


def test_images_are_clustered_as_rows_of_pixels(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.load(folder / "X.npy").reshape(150, 2, 2))
    files = (folder / "X.npy", tmp_path / "images.npy")
    options = ("--clusters", 3, "--out", tmp_path / "labels.npy", "--n-init", 1)
    first, second = (view_of("cluster", "--data", data, *options)["clusters"] for data in files)
    assert first == second


@pytest.mark.parametrize(
    ("labels", "labelled", "found"),
    [
        ("some.npy", [1, 1, 1], ["2", "0", "1"]),
        ("some.csv", [1, 1, 1], ["2", "0", "1"]),
        ("names.csv", [1, 1, 0], ["0", "1", "1"]),  # in sorted order
    ],
)
def test_known_labels_number_the_clusters(
    folder: Path, tmp_path: Path, labels: str, labelled: list[int], found: list[str]
) -> None:
    out = tmp_path / "labels.csv"
    files = ("--data", folder / "X.npy", "--out", out, "--labels", folder / labels)
    view = view_of("cluster", *files, "--clusters", 3)
    assert [cluster["labelled"] for cluster in view["clusters"]] == labelled
    lines = out.read_text().split()
    assert lines[0] == "label"
    assert [lines[1], lines[61]] == found[:2]
    assert labelled[2] == 0 or lines[121] == found[2]


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
        (["--clusters", "3", "--data", "gap.npy"], "Input X contains NaN"),
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
    assert expected in refused("cluster", "--data", "X.npy", "--out", "labels.npy", *arguments)
    assert sorted(folder.iterdir()) == before
