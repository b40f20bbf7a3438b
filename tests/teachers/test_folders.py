"""Model folders: what one is told to be, how it is loaded, and wherever teachers go."""

import json
import pickle
import shutil
import socket
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.teachers.model_folders import (
    TEXTS,
    WORDS,
    change_json,
    images,
    save,
    sentence_folder,
)
from tests.teachers.timm_folders import stand_in, write_folder

from consilience import Repository, Unifier, as_teacher
from consilience.exceptions import ConsilienceError, InvalidInputError, TeacherError
from consilience.students import Ngrams
from consilience.students.verify import verify_model
from consilience.teachers import ImagePreprocess, ModelFolder, encode_sentences, save_sentence_head
from consilience.teachers.folders import Folder, kind_of

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

ROWS = [f"{WORDS[i % 11]} {WORDS[i * 7 % 11]} {WORDS[i * 3 % 10]}" for i in range(60)]


@pytest.mark.parametrize(
    ("config", "more", "kind"),
    [
        ({"model_type": "bert"}, [], "Checkpoint"),
        ({"architectures": ["BertForSequenceClassification"]}, [], "Checkpoint"),
        ({"architecture": "resnet18", "num_classes": 3}, [], "Timm"),
        ({"architecture": "resnet18", "model_type": "timm_wrapper"}, [], "Timm"),
        ({"architecture": "x", "model_type": "bert"}, [], "Checkpoint"),
        ({"model_type": "bert"}, ["modules.json"], "Sentences"),
        ({"a": 1}, [], "holds 'config.json'. A model folder has a config.json"),
        ({"model_type": "bert"}, ["adapter_config.json"], "an adapter without its model"),
        (None, [], "holds nothing"),
        (None, ["a.onnx"], "holds 'a.onnx'. Give the file itself"),
        (None, ["model.joblib"], "holds 'model.joblib'. A pickle can run any code"),
        (None, ["saved_model.pb"], "a TensorFlow model. Convert it to ONNX"),
        (None, ["MLmodel", "model.pkl"], "holds 'MLmodel'. This is an MLflow model"),
        (None, ["flax_model.msgpack"], "Fetch the safetensors of this model"),
    ],
)
def test_what_a_folder_is_told_to_be(config: Any, more: list[str], kind: str, tmp_path: Path) -> None:
    files = {*more, *(["config.json"] if config else [])}
    (tmp_path / "config.json").write_text(json.dumps(config))
    folder = Folder(tmp_path, "model", frozenset(files))
    if kind.isalpha():
        assert kind_of(folder).__name__ == kind
    else:
        with pytest.raises(TeacherError, match=f"^Teacher 'model' .*{kind}"):
            kind_of(folder)


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


def test_it_is_loaded_when_it_is_asked_and_not_sent(bert: tuple[Path, Any, Any]) -> None:
    teacher = as_teacher(bert[0])
    assert teacher._loaded is None
    first = teacher.predict_logits(TEXTS)
    assert teacher._loaded is not None
    assert len(pickle.dumps(teacher)) < 5000
    teacher.release()
    assert teacher._loaded is None
    np.testing.assert_array_equal(teacher.predict_logits(TEXTS), first)


def test_opening_needs_no_library(bert: tuple[Path, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``consilience inspect`` shows is in the JSON files."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    teacher = as_teacher(bert[0])
    assert teacher.inputs[0].dtype == "text"
    with pytest.raises(ConsilienceError, match=r"needs transformers: pip install 'consilience\[hf\]'"):
        teacher.predict_logits(TEXTS)


def test_nothing_is_asked_of_the_network(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in ((socket.socket, "connect"), (socket, "getaddrinfo")):
        monkeypatch.setattr(place, name, Mock(side_effect=AssertionError("a connection was tried")))
    change_json(copied / "config.json", _name_or_path="org/other", return_dict=False)
    change_json(copied / "tokenizer_config.json", name_or_path="org/other", vocab_file="/etc/hostname")
    assert np.isfinite(as_teacher(copied).predict_logits(TEXTS)).all()


def test_the_fingerprint_is_of_the_files_that_are_read(copied: Path, bert: tuple[Path, Any, Any]) -> None:
    first = as_teacher(bert[0]).fingerprint
    (copied / "README.md").write_text("not read")
    assert as_teacher(copied).fingerprint == first
    assert ModelFolder(bert[0], half=True).fingerprint not in (first, None)


@pytest.mark.parametrize(
    "file",
    [
        *("timm/config.json", "timm/model.safetensors"),
        *("sentences/config.json", "sentences/model.safetensors", "sentences/head.safetensors"),
        *("sentences/modules.json", "sentences/1_Pooling/config.json", "sentences/tokenizer.json"),
    ],
)
def test_each_file_of_a_folder_is_part_of_its_fingerprint(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "timm", stand_in())
    path, changed = tmp_path / file.partition("/")[0], tmp_path / file
    if path.name == "timm":
        write_folder(path, sys.modules["timm"])
    else:
        model = LogisticRegression().fit(np.eye(21, 16), ["ant", "bee", "cow"] * 7)
        save_sentence_head(sentence_folder(path), model)
    teacher = as_teacher(path)
    first = teacher.fingerprint
    assert first == as_teacher(path).fingerprint is not None
    data = changed.read_bytes()
    changed.write_bytes(data + b"\n" if changed.suffix == ".json" else data[:-1] + b"\x01")
    assert teacher.fingerprint is None  # it still answers as the old files said
    with pytest.raises(TeacherError, match=r"has changed.*Open it again"):
        teacher.predict_logits(images() if path.name == "timm" else TEXTS)
    assert as_teacher(path).fingerprint not in (None, first)


def test_half_precision_is_near(bert: tuple[Path, Any, Any], vit: tuple[Path, Any, Any]) -> None:
    for folder, rows in ((bert[0], TEXTS), (vit[0], images())):
        whole, half = as_teacher(folder), ModelFolder(folder, half=True)
        assert (whole._dtype, half._dtype) == ("float32", "bfloat16")
        difference = np.abs(half.predict_logits(rows) - whole.predict_logits(rows)).max()
        assert 0 < difference < 0.1
        assert half.embed(rows).dtype == np.float32


def test_saved_half_precision_is_float32_on_the_processor(copied: Path, bert: tuple[Path, Any, Any]) -> None:
    save(copied, bert[1].__class__.from_pretrained(copied, dtype=torch.float16))
    assert json.loads((copied / "config.json").read_text())["dtype"] == "float16"
    assert as_teacher(copied)._dtype == "float32"
    assert ModelFolder(copied, half=True)._dtype == "float16"
    expected = as_teacher(bert[0]).predict_logits(TEXTS)
    np.testing.assert_allclose(as_teacher(copied).predict_logits(TEXTS), expected, atol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:99"}, "cannot run"),
        ({"half": "yes"}, "half='yes' is unknown"),
        ({"preprocess": ImagePreprocess(8)}, "prepares its rows as the folder says; preprocess= is for"),
        ({"output": "costs"}, "output='costs' is for arrays and functions"),
        ({"embed": "layer"}, "has no layer 'layer'"),
    ],
)
def test_options_that_do_not_fit(bert: tuple[Path, Any, Any], options: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ModelFolder(bert[0], **options).embed(TEXTS)


def test_a_layer_or_a_function_may_embed(bert: tuple[Path, Any, Any]) -> None:
    seen = as_teacher(bert[0], embed=lambda X: np.array([[len(text), 1.0] for text in X])).observe(TEXTS)
    np.testing.assert_array_equal(seen.embeddings[:, 0], [len(text) for text in TEXTS])
    own = as_teacher(bert[0]).embed(TEXTS)
    np.testing.assert_allclose(as_teacher(bert[0], embed="classifier:input").embed(TEXTS), own, atol=1e-6)


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with a head, that no test may change; it shares two classes with the folder `bert`."""
    path = sentence_folder(tmp_path_factory.mktemp("models") / "farm-1.5")
    labels = np.array(["bee", "cow", "dog"] * 20)
    save_sentence_head(path, LogisticRegression(C=100).fit(encode_sentences(path, ROWS), labels))
    return path


def test_folders_are_unified_and_the_card_names_them(copied: Path, farm: Path, tmp_path: Path) -> None:
    student = Ngrams(n_buckets=64, dim=2, max_iter=2)
    unifier = Unifier([copied, farm], method="ce", student=student, random_state=0).fit(ROWS)
    assert unifier.classes_.tolist() == ["ant", "bee", "cow", "dog"]
    unifier.save(tmp_path / "unified.npz")
    assert verify_model(tmp_path / "unified.npz", teachers=[copied, farm]).passed
    (copied / "notes.txt").write_text("another")
    assert not verify_model(tmp_path / "unified.npz", teachers=[copied]).passed


@pytest.mark.parametrize("name", ["bert", "farm-1.5", "vit"])
def test_a_repository_holds_a_folder(
    name: str, bert: tuple[Path, Any, Any], vit: tuple[Path, Any, Any], farm: Path, tmp_path: Path
) -> None:
    rows = images() if name == "vit" else ROWS
    given = {"bert": bert[0], "vit": vit[0], "farm-1.5": farm}[name]
    source = Path(shutil.copytree(given, tmp_path / name))
    for file in ("training.py", "last.ckpt", "optimizer.pt"):
        (source / file).write_text("print('never run')")
    repository = Repository(tmp_path / "shelf")
    entry = repository.add(source, task="test", licence="Apache-2.0")
    assert (entry.name, entry.kind) == (name, "folder")
    assert not any(file.endswith((".py", ".pt", ".ckpt")) for file in entry.files)
    assert not repository.verify().findings
    teacher, expected = repository[name], as_teacher(given)
    assert teacher.classes.tolist() == expected.classes.tolist()
    assert teacher.fingerprint == expected.fingerprint
    np.testing.assert_array_equal(teacher.predict_logits(rows), expected.predict_logits(rows))
    assert [one.name for one in repository.list(like=rows)] == [name]
    assert not repository.list(like=np.zeros((3, 4)))
    weights = repository.path(name) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert [one.problem for one in repository.verify().findings] == ["damaged"]
