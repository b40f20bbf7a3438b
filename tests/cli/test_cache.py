"""``consilience cache``: what it shows and deletes."""

import os
from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import refused, run, view_of

from consilience.scoring.store import ScoreStore
from consilience.teachers import Observed

DIGESTS = np.random.default_rng(0).integers(0, 2**64, size=(100, 2), dtype=np.uint64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache of two models, the first used later."""
    store = ScoreStore(tmp_path / "scores")
    for name, n_classes, rows, used in (("birds", 3, 100, 10**9 + 60), ("pets\x1b[2J", 2, 10, 10**9)):
        shelf = store.shelf(name, n_classes, name)
        shelf.add(DIGESTS[:rows], Observed(np.ones((rows, n_classes)), None), embeddings=False)
        (path,) = [path for path in store.folder.glob("*/*.rows") if path.name.startswith(str(n_classes))]
        os.utime(path, (0, used))
    return store.folder


def test_models_rows_and_bytes_are_shown_and_nothing_changes(folder: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}
    view = view_of("cache", folder)
    birds, pets = view["models"]
    assert birds["n_bytes"] > pets["n_bytes"] > 0
    assert (birds["teacher"], birds["n_classes"], birds["n_rows"], birds["n_files"]) == ("birds", 3, 100, 1)
    assert birds["last_use"] == "2001-09-09T01:47:40Z"
    assert view["n_bytes"] == ScoreStore(folder).size
    assert view["n_bytes_deleted"] == 0
    text = run("cache", folder).stdout
    for words in ("2 models, 110 rows", "birds", r"pets\x1b", "2001-09-09 01:47"):
        assert words in text
    assert "\x1b" not in text
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")} == before


def test_a_limit_deletes_what_was_not_used_for_longest(folder: Path) -> None:
    before = ScoreStore(folder).size
    view = view_of("cache", folder, "--limit", before - 1)
    assert [model["n_rows"] for model in view["models"]] == [100, 0]
    assert view["n_bytes"] + view["n_bytes_deleted"] == before
    assert "--limit 'much' must be a size such as" in refused("cache", folder, "--limit", "much")


def test_clearing_asks_first(folder: Path) -> None:
    mine = folder / "notes.txt"
    mine.write_text("mine")
    for answer, says in (("n\n", "Nothing was deleted."), ("", "give --yes")):
        assert says in run("cache", folder, "--clear", input=answer).output
        assert ScoreStore(folder).size > 0
    assert "The cache is empty." in run("cache", folder, "--clear", input="y\n").stdout
    assert [path.name for path in sorted(folder.iterdir())] == ["README.txt", "notes.txt"]


def test_clearing_without_a_question(folder: Path) -> None:
    size = ScoreStore(folder).size
    view = view_of("cache", folder, "--clear", "--yes")
    assert (view["models"], view["n_bytes_deleted"]) == ([], size)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "is not a folder"),
        (["."], "holds other files and is no cache"),
        (["scores", "--clear", "--limit", "1GB"], "exclude each other"),
    ],
)
def test_what_is_wrong_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(folder.parent)
    (folder.parent / "thesis.tex").write_text("x")
    assert says in refused("cache", *words)
