"""``--report``: the page is written last, by every command that has the option."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import done, refused

pytest.importorskip("jinja2")
pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two teachers' outputs for sixty rows, the rows and their labels."""
    root, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    X, W = rng.normal(size=(60, 4)), rng.normal(size=(4, 3))
    proba = np.exp(2 * X @ W)
    for name, own in (("one", [0, 1]), ("two", [1, 2])):
        part = proba[:, own] / proba[:, own].sum(axis=1, keepdims=True)
        np.savez(root / f"{name}.npz", proba=part, classes=np.array(["a", "b", "c"])[own])
    np.save(root / "X.npy", X)
    np.save(root / "y.npy", np.array(["a", "b", "c"])[proba.argmax(axis=1)])
    return root


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (
            "unify -t one.npz -t two.npz --data X.npy --student logistic --out u.onnx",
            "One classifier out of 2",
        ),
        (
            "unify -t one.npz -t two.npz --data X.npy --student logistic --out u.onnx --test-data X.npy "
            "--test-labels y.npy",
            "How good is it?",
        ),
        ("evaluate one.npz --data X.npy --labels y.npy -t two.npz", "How good is the model?"),
        (
            "rank -t one.npz -t two.npz --data X.npy --labels y.npy --bootstrap 5",
            "2 teachers, ranked for your task",
        ),
        ("cluster --data X.npy --clusters 3 --out c.npy --truth y.npy", "3 clusters of 60 rows"),
    ],
)
def test_a_command_writes_its_page(
    words: str, title: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done(*words.split(), "--report", tmp_path / "page.html")
    assert title in (tmp_path / "page.html").read_text(encoding="utf8")


def test_a_report_of_soft_labels_alone_is_refused(folder: Path, tmp_path: Path) -> None:
    files = ("-t", folder / "one.npz", "--data", folder / "X.npy", "--soft-labels", tmp_path / "q.npz")
    assert "--report needs --out." in refused("unify", *files, "--report", tmp_path / "r.html")
    assert not list(tmp_path.iterdir())
