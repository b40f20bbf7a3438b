"""What a model folder is told to be, by its files alone. Nothing here needs transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from consilience.exceptions import InvalidInputError, TeacherError, UnsafeFileError
from consilience.files.card import Card, find_folder_card, write_card
from consilience.teachers import as_teacher
from consilience.teachers.folders import kind_of
from consilience.teachers.model_folder import MAX_FILES, Folder, list_files


def folder_of(path: Path, **files: object) -> Path:
    """Write files, given as texts or as what JSON holds; ``config_json`` is config.json."""
    path.mkdir(parents=True, exist_ok=True)
    for key, content in files.items():
        name = key.replace("__", "/").replace("_json", ".json").replace("_bin", ".bin")
        place = path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def opened(path: Path) -> Folder:
    return Folder(path, path.name, list_files(path, path.name))


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"config_json": {"model_type": "bert"}}, "transformers"),
        ({"config_json": {"architectures": ["BertForSequenceClassification"]}}, "transformers"),
        ({"config_json": {"architecture": "resnet18", "num_classes": 3}}, "timm"),
        ({"config_json": {"architecture": "resnet18", "model_type": "timm_wrapper"}}, "timm"),
        ({"config_json": {"architecture": "x", "model_type": "bert"}}, "transformers"),
        ({"modules_json": [], "config_json": {"model_type": "bert"}}, "sentences"),
    ],
)
def test_kinds(tmp_path: Path, files: dict[str, object], kind: str) -> None:
    assert kind_of(opened(folder_of(tmp_path / "model", **files))) == kind


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds nothing. A model folder has a config.json"),
        ({"notes.txt": "x"}, "holds 'notes.txt'. A model folder has"),
        ({"config_json": {"a": 1}}, "holds 'config.json'. A model folder has"),
        ({"a.onnx": ""}, "holds 'a.onnx'. Give the file itself"),
        ({"model.joblib": ""}, "holds 'model.joblib': a pickle, which can run any code"),
        ({"saved_model.pb": ""}, "a TensorFlow model. Convert it to ONNX"),
        ({"MLmodel": ""}, "an MLflow model"),
        ({"adapter_config_json": {}, "config_json": {"model_type": "bert"}}, "an adapter without its model"),
        ({"config_json": "{"}, "config.json is not JSON"),
        (
            {"config_json": '{"model_type": "bert", "model_type": "vit"}'},
            "the key 'model_type' is given twice",
        ),
        ({"config_json": [1]}, "config.json must hold a JSON object"),
        ({"config_json": " " * (16 * 2**20 + 1)}, "config.json has 16777217 bytes; at most"),
        ({"config_json": "[" * 100_000}, "config.json is not JSON"),
    ],
)
def test_folders_that_are_no_model(tmp_path: Path, files: dict[str, object], message: str) -> None:
    with pytest.raises(TeacherError) as caught:
        as_teacher(folder_of(tmp_path / "model", **files))
    assert message in str(caught.value)
    assert caught.value.teacher == "model"


@pytest.mark.parametrize("link", ["config.json", "weights", "1_Pooling/config.json"])
def test_links_are_refused(tmp_path: Path, link: str) -> None:
    path = folder_of(tmp_path / "model", config_json={"model_type": "bert"})
    (path / link).parent.mkdir(exist_ok=True)
    (path / link).unlink(missing_ok=True)
    (path / link).symlink_to(tmp_path)
    with pytest.raises(UnsafeFileError, match=r"is a link, which may lead outside.*--local-dir"):
        as_teacher(path)


def test_hidden_files_do_not_matter(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "model", config_json={"model_type": "bert"})
    (path / ".cache").mkdir()
    (path / ".cache" / "lock").symlink_to(tmp_path)
    (path / ".gitattributes").symlink_to(tmp_path)
    assert list_files(path, "model") == {"config.json"}


def test_a_folder_of_very_many_files_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_FILES > 1000
    monkeypatch.setattr("consilience.teachers.model_folder.MAX_FILES", 2)
    path = folder_of(tmp_path / "model", a="", b="", c="")
    with pytest.raises(TeacherError, match="more than 2 files"):
        as_teacher(path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "has no weight_map"),
        ({"weight_map": {"a": "../evil.safetensors"}}, "keeps weights in '../evil.safetensors'"),
        ({"weight_map": {"a": "C:\\evil.safetensors"}}, "keeps weights in"),
        ({"weight_map": {"a": "/evil.safetensors"}}, "keeps weights in"),
        ({"weight_map": {"a": "evil.bin"}}, "keeps weights in 'evil.bin'"),
        ({"weight_map": {"a": 7}}, "keeps weights in ''"),
        ({"weight_map": {"a": "one.safetensors"}}, "lacks the file 'one.safetensors'"),
    ],
)
def test_shards_lie_in_the_folder(tmp_path: Path, index: object, message: str) -> None:
    path = folder_of(tmp_path / "model", **{"model.safetensors.index_json": index})
    (tmp_path / "evil.safetensors").write_text("")
    with pytest.raises(InvalidInputError) as caught:
        opened(path).weight_files()
    assert message in str(caught.value)


def test_shards_are_listed_once(tmp_path: Path) -> None:
    shards = {"weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}}
    path = folder_of(tmp_path / "m", **{"model.safetensors.index_json": shards})
    for name in ("1.safetensors", "2.safetensors"):
        (path / name).write_text("")
    assert opened(path).weight_files() == ("1.safetensors", "2.safetensors")


def test_a_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    folder = opened(folder_of(tmp_path / "m", a="1", b="2"))
    first = folder.digest(["a", "b"])
    assert folder.digest(["b", "a"]) == first
    assert folder.digest(["a"]) != first
    (folder.path / "a").write_text("3")
    assert folder.digest(["a", "b"]) != first


def test_a_card_lies_next_to_the_folder_or_in_it(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "birds-1.5")
    assert find_folder_card(path) is None
    write_card(path / "model.card.json", Card("inside", ("a", "b")))
    assert find_folder_card(path) == Card("inside", ("a", "b"))
    write_card(tmp_path / "birds-1.5.card.json", Card("beside", ("a", "b")))
    assert find_folder_card(path) == Card("beside", ("a", "b"))
    write_card(tmp_path / "birds-1.5.card.json", Card("beside", ("a", "b"), sha256="0" * 64))
    with pytest.raises(InvalidInputError, match="belongs to one file and not to the folder"):
        find_folder_card(path)


@pytest.mark.parametrize("name", ["google/vit-base", "org/bert-v1.5"])
def test_a_hub_name_is_not_fetched(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TeacherError, match=rf"nothing is downloaded.*hf download {name} --local-dir FOLDER"):
        as_teacher(name)


@pytest.mark.parametrize("name", ["/google/vit", "a/b/c", "../vit", "vit", "a/b\x1b"])
def test_other_paths_are_no_hub_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TeacherError, match=r"a teacher's file ends in .*, or it is a model folder") as caught:
        as_teacher(name)
    assert "\x1b" not in str(caught.value)
