"""Model folders wherever teachers go: the command line, a repository, a score store, Ray, a unified model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.teachers.model_folders import (
    CLASSES,
    WORDS,
    change_json,
    image_folder,
    images,
    sentence_folder,
    text_folder,
)

from consilience import LabelSpace, Repository, Unifier, as_teacher, rank_teachers
from consilience.exceptions import TeacherError
from consilience.files.card import Card, find_folder_card, write_card
from consilience.rows import HeldRows
from consilience.scoring.store import ScoreStore
from consilience.teachers import encode_sentences, save_sentence_head

pytest.importorskip("torch")
pytest.importorskip("transformers")

ROWS = [f"{WORDS[i % 11]} {WORDS[i * 7 % 11]} {WORDS[i * 3 % 10]}" for i in range(60)]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folders that no test may change; two take texts and share two classes."""
    root = tmp_path_factory.mktemp("models")
    text_folder(root / "insects")
    image_folder(root / "pictures")
    path = sentence_folder(root / "farm-1.5")
    labels = np.array(["bee", "cow", "dog"] * 20)
    save_sentence_head(path, LogisticRegression(C=100).fit(encode_sentences(path, ROWS), labels))
    return root


def run(*words: Any) -> Any:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from consilience.cli.commands import app

    return CliRunner().invoke(app, list(map(str, words)))


def test_inspect_shows_folders(models: Path) -> None:
    result = run("inspect", f"{models}/insects/", models / "farm-1.5", models / "pictures", "--json")
    assert result.exit_code == 0, result.output
    view = json.loads(result.stdout)["teachers"]
    assert [one["name"] for one in view] == ["insects", "farm-1.5", "pictures"]
    assert [one["inputs"][0]["dtype"] for one in view] == ["text", "text", "image"]
    assert {one["output"] for one in view} == {"logits"}
    shown = run("inspect", models / "insects", models / "farm-1.5")
    assert shown.exit_code == 0
    assert "folder" in shown.output
    assert "text" in shown.output


def test_the_command_scores_with_a_folder(models: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("\n".join(ROWS))
    arguments = ["--teacher", models / "farm-1.5", "--data", tmp_path / "rows.txt"]
    result = run("score", *arguments, "--out", tmp_path / "scores.npz", "--quiet")
    assert result.exit_code == 0, result.output
    scored = as_teacher(tmp_path / "scores.npz")
    assert scored.classes.tolist() == ["bee", "cow", "dog"]
    expected = as_teacher(models / "farm-1.5").predict_logits(ROWS)
    np.testing.assert_allclose(scored.predict_logits(ROWS), expected, atol=1e-4)


def test_the_command_names_the_option_for_classes(models: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(models / "insects", tmp_path / "insects"))
    change_json(path / "config.json", id2label=...)
    change_json(path / "config.json", num_labels=3)
    result = run("inspect", path)
    assert result.exit_code == 2
    assert "Give --classes 3 names" in " ".join(result.output.split())
    assert run("inspect", path, "--classes", "insects=ant,bee,cow").exit_code == 0


def test_the_command_scores_a_folder_of_images(models: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "images").mkdir()
    X = [*images(3), *images(2, 12, 9)]
    for i, pixels in enumerate(X):
        image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    arguments = ["--teacher", models / "pictures", "--data", tmp_path / "images"]
    result = run("score", *arguments, "--out", tmp_path / "scores.npz", "--quiet")
    assert result.exit_code == 0, result.output
    expected = as_teacher(models / "pictures").predict_logits(X)
    found = as_teacher(tmp_path / "scores.npz").predict_logits(X)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_folders_are_unified_and_the_card_names_them(models: Path, tmp_path: Path) -> None:
    from consilience.students.verify import verify_model

    teachers = [models / "insects", models / "farm-1.5"]
    unifier = Unifier(teachers, student="ngrams", random_state=0).fit(ROWS)
    assert unifier.classes_.tolist() == ["ant", "bee", "cow", "dog"]
    file = tmp_path / "unified.npz"
    unifier.save(file)
    assert verify_model(file, teachers=teachers).passed
    other = Path(shutil.copytree(models / "insects", tmp_path / "insects"))
    (other / "notes.txt").write_text("another")
    assert not verify_model(file, teachers=[other]).passed


def test_folders_are_ranked(models: Path) -> None:
    labels = ["left", "right"] * 30
    ranking = rank_teachers([models / "insects", models / "farm-1.5"], ROWS, labels)
    assert sorted(name for name, _, score in ranking.scored_teachers() if np.isfinite(score)) == [
        "farm-1.5",
        "insects",
    ]


def test_a_store_remembers_a_folder(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = LabelSpace([["ant", "bee", "cow"]])
    from consilience.scoring.stream import score_blocks

    store = ScoreStore(tmp_path / "cache")
    rows = HeldRows(np.array(ROWS))
    first = np.concatenate(
        [part for _, part in score_blocks([as_teacher(models / "insects")], space, rows, store=store)]
    )
    again = as_teacher(models / "insects")
    monkeypatch.setattr(type(again), "_load", lambda *_: pytest.fail("the folder was loaded again"))
    second = np.concatenate([part for _, part in score_blocks([again], space, rows, store=store)])
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", ["insects", "farm-1.5", "pictures"])
def test_a_repository_holds_a_folder(models: Path, name: str, tmp_path: Path) -> None:
    rows = images() if name == "pictures" else ROWS
    source = Path(shutil.copytree(models / name, tmp_path / name))
    (source / "training.py").write_text("print('never run')")
    (source / "last.ckpt").write_bytes(b"a pickle")
    (source / "optimizer.pt").write_bytes(b"a pickle")
    repository = Repository(tmp_path / "shelf")
    entry = repository.add(source, task="test", licence="Apache-2.0")
    assert (entry.name, entry.kind) == (name, "folder")
    assert not any(file.endswith((".py", ".pt", ".ckpt")) for file in entry.files)
    shutil.rmtree(source)
    check = repository.verify()
    assert not check.findings, check.findings
    assert repository.path(name).is_dir()
    teacher = repository[name]
    expected = as_teacher(models / name)
    assert teacher.classes.tolist() == expected.classes.tolist()
    assert teacher.fingerprint == expected.fingerprint
    np.testing.assert_array_equal(teacher.predict_logits(rows), expected.predict_logits(rows))
    assert [one.name for one in repository.list(like=rows)] == [name]
    assert not repository.list(like=np.zeros((3, 4)))
    weights = repository.path(name) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert [one.problem for one in repository.verify().findings] == ["damaged"]


def test_the_command_adds_a_folder(models: Path, tmp_path: Path) -> None:
    added = run("repo", "add", tmp_path / "shelf", models / "farm-1.5", "--json")
    assert added.exit_code == 0, added.output
    assert Repository(tmp_path / "shelf")["farm-1.5"].classes.tolist() == ["bee", "cow", "dog"]
    assert run("repo", "verify", tmp_path / "shelf").exit_code == 0


def test_a_repository_keeps_the_card_and_the_given_classes(models: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(models / "insects", tmp_path / "insects"))
    change_json(source / "config.json", id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"})
    repository = Repository(tmp_path / "shelf")
    with pytest.raises(TeacherError, match="placeholders"):
        repository.add(source, name="none")
    repository.add(source, CLASSES, "given")
    assert repository["given"].classes.tolist() == CLASSES
    card = Card("carded", ("x", "y", "z"), description="of a card", details={"a": 1})
    write_card(source / "model.card.json", card)
    repository.add(source, name="carded")
    assert repository.show("carded").description == "of a card"
    assert repository["carded"].classes.tolist() == ["x", "y", "z"]
    assert find_folder_card(repository.path("carded")).details["a"] == 1
    assert not repository.verify().findings


def test_a_repository_describes_a_folder_of_texts(models: Path, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "shelf")
    repository.set_reference(ROWS)
    repository.add(models / "farm-1.5")
    repository.add(models / "insects")
    found = repository.search(ROWS[:30], ["left", "right"] * 15, top=1)
    assert len(found.ranking.scored_teachers()) == 1


@pytest.mark.slow
def test_ray_workers_load_a_folder_from_its_path(models: Path, ray_cluster: Any) -> None:
    from consilience.run import Run
    from consilience.scoring import score_blocks

    teacher, space = as_teacher(models / "farm-1.5"), LabelSpace([["bee", "cow", "dog"]])
    rows = HeldRows(np.array(ROWS))
    run = Run(engine="ray", engine_options={"timeout": 120.0, "workers": 1})
    found = np.concatenate([part for _, part in score_blocks([teacher], space, rows, run)])
    assert teacher._loaded is None  # the driver did not load it
    np.testing.assert_allclose(found, teacher.predict_logits(ROWS), atol=1e-4)
