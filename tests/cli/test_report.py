"""``--report``: the page is written last, by every command that has the option."""

import shutil
from pathlib import Path

import pytest
from tests.cli.running import done, refused

pytest.importorskip("jinja2")
pytest.importorskip("onnx")


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (
            "unify -t early.npz -t late.npz --data X.npy --student logistic --out u.onnx",
            "One classifier out of 2",
        ),
        (
            "unify -t early.npz -t late.npz --data X.npy --student logistic --out u.onnx --test-data X.npy "
            "--test-labels y.npy",
            "How good is it?",
        ),
        ("evaluate early.npz --data X.npy --labels y.npy -t late.npz", "How good is the model?"),
        (
            "rank -t early.npz -t late.npz --data X.npy --labels y.npy --bootstrap 5",
            "2 teachers, ranked for your task",
        ),
        ("cluster --data X.npy --clusters 3 --out c.npy --truth y.npy", "3 clusters of 150 rows"),
    ],
)
def test_a_command_writes_its_page(
    words: str, title: str, irises: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(irises, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    done(*words.split(), "--report", "page.html")
    assert title in Path("page.html").read_text(encoding="utf8")


def test_a_report_of_soft_labels_alone_is_refused(irises: Path, tmp_path: Path) -> None:
    files = ("-t", irises / "early.npz", "--data", irises / "X.npy", "--soft-labels", tmp_path / "q.npz")
    assert "--report needs --out." in refused("unify", *files, "--report", tmp_path / "r.html")
    assert not list(tmp_path.iterdir())
