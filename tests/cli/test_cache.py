"""``consilience cache``: what it shows and deletes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from consilience.cli.commands import app
from consilience.scoring.store import ScoreStore, Segment

DIGESTS = np.random.default_rng(0).integers(0, 2**64, size=(100, 2), dtype=np.uint64)


def run(*words: Any, **options: Any) -> Any:
    return CliRunner().invoke(app, ["cache", *map(str, words)], **options)


def shown(*words: Any) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache of two models, the first used later; with a broken file and one of an older version."""
    store = ScoreStore(tmp_path / "scores")
    birds, pets = store.shelf("one", 3, "birds"), store.shelf("two", 2, "pets\x1b[2J")
    for start in (0, 40):
        rows = slice(start, start + 40)
        birds.merge(Segment(DIGESTS[rows], np.full((40, 3), 0.1), None), embeddings=False)
    birds.add(Segment(DIGESTS[80:], np.full((20, 3), 0.1), None), embeddings=False)
    pets.merge(Segment(DIGESTS[:10], np.ones((10, 2)), None), embeddings=False)
    pets.add(Segment(DIGESTS[10:15], np.ones((5, 2)), None), embeddings=False)
    for path in store.folder.glob("*/*.npz"):
        os.utime(
            path, (0, 10**9 + 60 * (path.name.startswith("loose-20") or path.name.startswith("block-40")))
        )
    (loose,) = store.folder.glob("*/loose-5-*.npz")
    loose.write_bytes(b"damaged")
    os.utime(loose, (0, 10**9))
    old = store.folder / ("0" * 40)
    old.mkdir()
    (old / f"{'a' * 32}.npz").write_bytes(b"x" * 100)
    os.utime(old / f"{'a' * 32}.npz", (0, 10))
    return store.folder


def test_models_rows_and_bytes_are_shown(folder: Path) -> None:
    view = shown(folder)
    birds, pets, old = view["models"]
    assert birds["n_bytes"] > pets["n_bytes"] > old["n_bytes"] == 100
    assert (birds["teacher"], birds["n_classes"], birds["n_rows"], birds["n_loose"]) == ("birds", 3, 100, 1)
    assert (birds["last_use"], birds["n_broken"]) == ("2001-09-09T01:47:40Z", 0)
    assert (pets["n_rows"], pets["n_loose"], pets["n_broken"]) == (10, 1, 1)
    assert (old["teacher"], old["n_old"], old["n_segments"]) == (None, 1, 0)
    assert view["n_bytes"] == ScoreStore(folder).size
    assert view["n_bytes_deleted"] == 0
    text = run(folder).stdout
    for words in ("3 models, 110 rows", "birds", r"pets\x1b", "unknown (00000000)", "1 loose, 1 broken"):
        assert words in text
    assert "2001-09-09 01:47" in text
    assert "\x1b" not in text


def test_looking_changes_nothing(folder: Path) -> None:
    def state() -> dict[Path, Any]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}

    before = state()
    run(folder)
    assert state() == before


def test_a_limit_deletes_what_was_not_used_for_longest(folder: Path) -> None:
    before = ScoreStore(folder).size
    view = shown(folder, "--limit", before - 101)  # the old file is not enough
    names = {model["teacher"]: model for model in view["models"]}
    assert view["n_bytes"] <= before - 101
    assert view["n_bytes"] + view["n_bytes_deleted"] == before
    assert names["birds"]["n_rows"] == 100
    assert names[None]["n_old"] == 0
    result = run(folder, "--limit", "much")
    assert result.exit_code == 2
    assert "--limit 'much' must be a size such as" in " ".join(result.output.split())


def test_clearing_asks_first(folder: Path) -> None:
    mine = folder / "notes.txt"
    mine.write_text("mine")
    for answer, says in (("n\n", "Nothing was deleted."), ("", "give --yes")):
        result = run(folder, "--clear", input=answer)
        assert result.exit_code == 2
        assert says in " ".join(result.output.split())
        assert ScoreStore(folder).size > 0
    result = run(folder, "--clear", input="y\n")
    assert result.exit_code == 0
    assert "The cache is empty." in result.stdout
    assert [path.name for path in sorted(folder.iterdir())] == ["README.txt", "notes.txt"]


def test_clearing_without_a_question(folder: Path) -> None:
    size = ScoreStore(folder).size
    view = shown(folder, "--clear", "--yes")
    assert (view["models"], view["n_bytes_deleted"]) == ([], size)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "is not a folder"),
        (["."], "holds other files and is no store"),
        (["scores", "--clear", "--limit", "1GB"], "exclude each other"),
    ],
)
def test_what_is_wrong_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(folder.parent)
    (folder.parent / "thesis.tex").write_text("x")
    result = run(*words)
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())


@pytest.mark.parametrize("about", ["", "[]", "{", '{"teacher": 3, "n_classes": true}', "[" * 9000])
def test_names_of_teachers_may_be_anything(folder: Path, about: str) -> None:
    for path in folder.glob("*/about.json"):
        path.write_text(about)
    assert {model["teacher"] for model in shown(folder)["models"]} == {None}
    assert {model["n_classes"] for model in shown(folder)["models"]} == {None}
