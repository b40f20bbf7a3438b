"""Checkpoints of transformers, against the library's own forward pass."""

from __future__ import annotations

import json
import pickle
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.teachers.model_folders import (
    CLASSES,
    LONGEST,
    TEXTS,
    change_json,
    image_folder,
    images,
    save,
    text_folder,
)

from consilience.exceptions import ConsilienceError, InvalidInputError, TeacherError, UnsafeFileError
from consilience.files.card import Card, write_card
from consilience.teachers import as_teacher
from consilience.teachers.checkpoints import CPU_TOKENS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    return text_folder(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    return image_folder(tmp_path_factory.mktemp("models") / "vit")


@pytest.fixture
def copied(bert: tuple[Path, Any, Any], tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(bert[0], tmp_path / "bert"))


def text_logits(module: Any, tokens: Any, texts: list[str]) -> np.ndarray:
    batch = tokens(texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
    with torch.no_grad():
        return np.asarray(module(**batch).logits)


def image_logits(module: Any, processor: Any, rows: Any) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(module(**processor(list(rows), return_tensors="pt")).logits)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "gpt2"])
def test_texts_as_the_library_scores_them(kind: str, tmp_path: Path) -> None:
    path, module, tokens = text_folder(tmp_path / kind, kind)
    teacher = as_teacher(path)
    assert (teacher.name, teacher.classes.tolist(), teacher.file) == (kind, CLASSES, path)
    expected = text_logits(module, tokens, TEXTS[:3] + TEXTS[4:])
    seen = teacher.observe(TEXTS[:3] + TEXTS[4:])
    np.testing.assert_allclose(seen.logits, expected, atol=1e-5)
    bias = seen.logits - seen.embeddings @ teacher.class_weights.T
    np.testing.assert_allclose(bias, np.broadcast_to(bias[:1], bias.shape), atol=1e-5)


def test_the_library_reads_the_same_tokens(bert: tuple[Path, Any, Any]) -> None:
    path, module, _ = bert
    theirs = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    expected = text_logits(module, theirs, TEXTS)
    np.testing.assert_allclose(as_teacher(path).predict_logits(TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["xlnet", "convbert"])
def test_filling_up_does_not_change_the_answer(kind: str, tmp_path: Path) -> None:
    path, module, tokens = text_folder(tmp_path / kind, kind)
    texts = [text for text in TEXTS if text]
    with torch.no_grad():
        for value in module.parameters():  # larger weights, so that other tokens give other answers
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(0)), alpha=0.3)
    save(path, module)
    alone = np.concatenate([text_logits(module, tokens, [text]) for text in texts])
    assert np.ptp(alone, axis=0).max() > 0.01
    np.testing.assert_allclose(as_teacher(path).predict_logits(texts), alone, atol=1e-4)


def test_a_network_without_a_padding_token_reads_one_text_at_a_time(tmp_path: Path) -> None:
    path, module, tokens = text_folder(tmp_path / "gpt2", "gpt2", pad_token_id=None)
    texts = ["the cat", "a dog", "the mat on the mat"]
    expected = np.concatenate([text_logits(module, tokens, [text]) for text in texts])
    np.testing.assert_allclose(as_teacher(path).predict_logits(texts), expected, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 1024])
def test_batches_by_length_keep_the_order(
    bert: tuple[Path, Any, Any], batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consilience.teachers.checkpoints.CPU_TOKENS", 2 * LONGEST)
    path, module, tokens = bert
    texts = [TEXTS[i % 5] + " cat" * (i % 3) for i in range(17)]
    alone = np.concatenate([text_logits(module, tokens, [text]) for text in texts])
    found = as_teacher(path, batch_size=batch_size).predict_logits(np.array(texts))
    np.testing.assert_allclose(found, alone, atol=1e-5)


def test_batches_are_small_and_hardly_padded(bert: tuple[Path, Any, Any]) -> None:
    tokens = as_teacher(bert[0]).loaded()[1]
    texts = ["cat " * (1 + i % 20) for i in range(3000)]
    largest = [batch["input_ids"].numel() for _, batch in tokens.batches(texts, 10**6)]
    assert CPU_TOKENS / 2 < max(largest) <= CPU_TOKENS
    batches = [batch for _, batch in tokens.batches(texts, 32)]
    assert max(len(batch["input_ids"]) for batch in batches) == 32
    read = sum(int(batch["attention_mask"].sum()) for batch in batches)
    assert read > 0.9 * sum(batch["input_ids"].numel() for batch in batches)


@pytest.mark.parametrize("kind", ["vit", "deit", "resnet"])
def test_images_as_the_library_scores_them(kind: str, tmp_path: Path) -> None:
    path, module, processor = image_folder(tmp_path / kind, kind)
    X = images()
    teacher = as_teacher(path)
    seen = teacher.observe(X)
    np.testing.assert_allclose(seen.logits, image_logits(module, processor, X), atol=1e-5)
    bias = seen.logits - seen.embeddings @ teacher.class_weights.T
    np.testing.assert_allclose(bias, np.broadcast_to(bias[:1], bias.shape), atol=1e-5)


def test_a_network_with_two_heads_has_no_weights(tmp_path: Path) -> None:
    path, module, processor = image_folder(tmp_path / "deit", "deit", "DeiTForImageClassificationWithTeacher")
    teacher, X = as_teacher(path), images(3)
    assert teacher.class_weights is None
    seen = teacher.observe(X)
    np.testing.assert_allclose(seen.logits, image_logits(module, processor, X), atol=1e-5)
    assert seen.embeddings.shape == (3, 16)
    assert teacher.class_weights is None


def test_images_of_all_kinds(vit: tuple[Path, Any, Any], tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    teacher, X = as_teacher(vit[0]), images(3)
    expected = teacher.predict_logits(X)
    pictures = [image.fromarray(row) for row in X]
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for rows in (list(X), pictures, paths):
        np.testing.assert_allclose(teacher.predict_logits(rows), expected, atol=1e-6)
    with pytest.raises(InvalidInputError, match=r"a text in row 1, .*Give paths as pathlib.Path"):
        teacher.predict_logits([paths[0], str(paths[1])])
    grey = X[..., 0]
    np.testing.assert_allclose(
        teacher.predict_logits(grey), teacher.predict_logits(np.repeat(grey[..., None], 3, axis=3)), atol=1e-6
    )
    np.testing.assert_allclose(
        teacher.predict_logits(grey[..., None]), teacher.predict_logits(grey), atol=1e-6
    )
    sizes = [X[0], X[1][:10], X[2][:, :7]]
    np.testing.assert_allclose(teacher.predict_logits(sizes), image_logits(vit[1], vit[2], sizes), atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((2, 8, 8, 3)), "X has float64 in row 0; the pixels of an image are uint8"),
        (np.zeros((2, 3, 8, 8), np.uint8), "Move the channels to the end"),
        ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8, 5), np.uint8)], "in row 1"),
        ([Path("/nowhere/cat.png")], "cat.png cannot be read"),
        ("cat.png", "X is a single text"),
    ],
)
def test_rows_that_are_no_images(vit: tuple[Path, Any, Any], rows: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_teacher(vit[0]).predict_logits(rows)


def test_images_of_more_than_eight_bits(vit: tuple[Path, Any, Any], tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    deep = image.fromarray(np.full((8, 8), 40000, np.uint16))
    with pytest.raises(InvalidInputError, match="more than 8 bits a pixel"):
        as_teacher(vit[0]).predict_logits([deep])


def test_rows_that_are_no_texts(bert: tuple[Path, Any, Any]) -> None:
    with pytest.raises(InvalidInputError, match="X has 7 in row 1"):
        as_teacher(bert[0]).predict_logits(["a", 7])


def test_it_is_loaded_when_it_is_asked_and_not_sent(bert: tuple[Path, Any, Any]) -> None:
    teacher = as_teacher(bert[0])
    assert teacher._loaded is None
    first = teacher.predict_logits(TEXTS)
    assert teacher._loaded is not None
    data = pickle.dumps(teacher)
    assert len(data) < 5000
    np.testing.assert_array_equal(pickle.loads(data).predict_logits(TEXTS), first)  # noqa: S301
    teacher.release()
    assert teacher._loaded is None
    np.testing.assert_array_equal(teacher.predict_logits(TEXTS), first)


def test_the_fingerprint_is_of_the_files(copied: Path, bert: tuple[Path, Any, Any]) -> None:
    first = as_teacher(bert[0]).fingerprint
    teacher = as_teacher(copied)
    assert teacher.fingerprint == first
    (copied / "README.md").write_text("not read")
    assert as_teacher(copied).fingerprint == first
    weights = safetensors.load_file(copied / "model.safetensors")
    weights["classifier.bias"] += 1
    safetensors.save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    assert as_teacher(copied).fingerprint not in (first, None)
    assert teacher.fingerprint is None
    with pytest.raises(TeacherError, match=r"has changed.*Open it again"):
        teacher.predict_logits(TEXTS)
    assert as_teacher(bert[0], half=True).fingerprint != first


def test_half_precision_is_near(bert: tuple[Path, Any, Any], vit: tuple[Path, Any, Any]) -> None:
    for folder, rows in ((bert[0], TEXTS), (vit[0], images())):
        whole, half = as_teacher(folder), as_teacher(folder, half=True)
        assert whole._dtype == "float32"
        assert half._dtype == "bfloat16"
        difference = np.abs(half.predict_logits(rows) - whole.predict_logits(rows)).max()
        assert 0 < difference < 0.1
        assert half.embed(rows).dtype == np.float32


def test_saved_half_precision_is_float32_on_the_processor(copied: Path, bert: tuple[Path, Any, Any]) -> None:
    save(copied, bert[1].__class__.from_pretrained(copied, dtype=torch.float16))
    assert json.loads((copied / "config.json").read_text())["dtype"] == "float16"
    assert as_teacher(copied)._dtype == "float32"
    assert as_teacher(copied, half=True)._dtype == "float16"
    expected = as_teacher(bert[0]).predict_logits(TEXTS)
    np.testing.assert_allclose(as_teacher(copied).predict_logits(TEXTS), expected, atol=1e-2)


def test_shards_give_the_same(copied: Path, bert: tuple[Path, Any, Any]) -> None:
    (copied / "model.safetensors").unlink()
    bert[1].save_pretrained(copied, max_shard_size="4KB")
    assert not (copied / "model.safetensors").exists()
    expected = as_teacher(bert[0]).predict_logits(TEXTS)
    np.testing.assert_array_equal(as_teacher(copied).predict_logits(TEXTS), expected)


def test_nothing_is_asked_of_the_network(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    change_json(
        copied / "config.json",
        _name_or_path="org/other",
        return_dict=False,
    )
    change_json(copied / "tokenizer_config.json", name_or_path="org/other", vocab_file="/etc/hostname")
    assert np.isfinite(as_teacher(copied).predict_logits(TEXTS)).all()


def test_classes_come_from_the_argument_the_card_or_the_labels(copied: Path) -> None:
    assert as_teacher(copied).classes.tolist() == CLASSES
    assert as_teacher(copied, ["x", "y", "z"]).classes.tolist() == ["x", "y", "z"]
    with pytest.raises(TeacherError, match=r"has 3 classes .* names 2"):
        as_teacher(copied, ["x", "y"])
    write_card(copied / "model.card.json", Card("hive", ("i", "j", "k"), centres=np.ones((3, 16)).tolist()))
    teacher = as_teacher(copied)
    assert (teacher.name, teacher.classes.tolist()) == ("hive", ["i", "j", "k"])
    assert teacher.class_centres.shape == (3, 16)
    assert as_teacher(copied, ["x", "y", "z"], "own").name == "own"
    write_card(copied / "model.card.json", Card("hive", ("i", "j")))
    with pytest.raises(TeacherError, match=r"3 columns by its config.json and 2 classes on its card"):
        as_teacher(copied)


@pytest.mark.parametrize("labels", [{"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, ...])
def test_placeholders_are_no_classes(copied: Path, labels: Any) -> None:
    change_json(copied / "config.json", id2label=labels, num_labels=3)
    with pytest.raises(TeacherError, match=r"placeholders such as 'LABEL_0'. Give classes= 3 names"):
        as_teacher(copied)
    expected = as_teacher(copied, CLASSES)
    assert expected.classes.tolist() == CLASSES
    assert expected.predict_logits(TEXTS).shape == (5, 3)
    write_card(copied.with_name("bert.card.json"), Card("hive", CLASSES))
    assert as_teacher(copied).classes.tolist() == CLASSES


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"auto_map": {"AutoModel": "evil.Model"}}, r"asks for code of its own \(auto_map\), which is never run"),
    ({"problem_type": "multi_label_classification"}, "answers yes or no for each class"),
    ({"problem_type": "regression"}, "gives a number, not classes"),
    ({"id2label": {"0": "one"}}, "gives a number, not classes"),
    ({"id2label": {"0": "a", "2": "b"}}, "with the numbers 0, 2; expected a text for each number"),
    ({"id2label": {"x": "a"}}, "does not number its labels"),
    ({"id2label": ["a", "b"]}, "does not number its labels"),
    ({"id2label": {"0": "a", "1": 7}}, "expected a text for each number"),
    ({"id2label": {"0": "a", "1": "a"}}, "cannot be used"),
    ({"id2label": ..., "num_labels": "many"}, "num_labels in config.json that is no number"),
    ({"architectures": ["BertModel"]}, "is a BertModel, and a teacher classifies"),
    ({"architectures": ["BertForTokenClassification"]}, "and a teacher classifies"),
    ({"architectures": ...}, "is a checkpoint of unknown architecture"),
    ({"architectures": [7]}, "is a checkpoint of unknown architecture"),
    ({"quantization_config": {"bits": 4}}, "is quantised"),
    (
        {"text_config": {"attn_implementation": "org/kernel"}},
        "sets attn_implementation to 'org/kernel', which",
    ),
    ({"transformers_weights": "../other.safetensors"}, "sets transformers_weights to"),
]


@pytest.mark.parametrize(("config", "message"), REFUSED)
def test_what_is_refused_at_once(copied: Path, config: dict[str, Any], message: str) -> None:
    change_json(copied / "config.json", **config)
    with pytest.raises(InvalidInputError, match=message):
        as_teacher(copied)


UNLOADABLE: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "evil"}, "cannot be loaded by transformers .*model type `evil`"),
    ({"model_type": 7}, "cannot be loaded by transformers"),
    ({"hidden_size": "large"}, "cannot be loaded by transformers"),
    ({"hidden_size": 32}, "has weights of another shape for"),
    ({"num_hidden_layers": 2}, "lacks the weights bert.encoder.layer.1"),
    ({"id2label": {"0": "a", "1": "b"}}, "has weights of another shape for classifier"),
    ({"hidden_act": "os.system"}, "cannot be loaded by transformers"),
]


@pytest.mark.parametrize(("config", "message"), UNLOADABLE)
def test_what_is_refused_when_it_is_loaded(copied: Path, config: dict[str, Any], message: str) -> None:
    change_json(copied / "config.json", **config)
    with pytest.raises(TeacherError, match=message):
        as_teacher(copied).predict_logits(TEXTS)


def test_pickled_weights_are_refused(copied: Path) -> None:
    (copied / "model.safetensors").rename(copied / "pytorch_model.bin")
    with pytest.raises(TeacherError, match=r"only in 'pytorch_model.bin': a pickle, .* save_pretrained"):
        as_teacher(copied)
    (copied / "pytorch_model.bin").unlink()
    with pytest.raises(TeacherError, match=r"has no weights: model.safetensors is missing"):
        as_teacher(copied)


def test_damaged_weights(copied: Path) -> None:
    (copied / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(TeacherError, match=r"cannot be loaded by transformers \(SafetensorError"):
        as_teacher(copied).predict_logits(TEXTS)


def test_tokenizers_that_are_refused(copied: Path) -> None:
    change_json(copied / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Tokenizer", None]})
    with pytest.raises(UnsafeFileError, match=r"tokenizer_config.json of 'bert' asks for code"):
        as_teacher(copied)
    change_json(copied / "tokenizer_config.json", auto_map=...)
    (copied / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "Evil"}}')
    with pytest.raises(TeacherError, match=r"cannot be loaded by transformers"):
        as_teacher(copied).predict_logits(TEXTS)
    (copied / "tokenizer.json").unlink()
    with pytest.raises(TeacherError, match=r"has no tokenizer.json. Only this form of a tokenizer is read"):
        as_teacher(copied)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"image_processor_type": "OneFormerImageProcessor", "repo_path": "/", "class_info_file": "x"},
            "OneFormer",
        ),
        ({"image_processor_type": "evil.Processor"}, "which transformers does not have for image"),
        ({"auto_map": {"AutoImageProcessor": "evil.P"}}, "asks for code of its own"),
        ({"size": "large"}, "cannot be loaded by transformers"),
    ],
)
def test_image_processors_that_are_refused(
    vit: tuple[Path, Any, Any], tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    path = Path(shutil.copytree(vit[0], tmp_path / "vit"))
    change_json(path / "preprocessor_config.json", **settings)
    with pytest.raises(ConsilienceError, match=message):
        as_teacher(path).predict_logits(images())


def test_an_image_processor_is_needed(vit: tuple[Path, Any, Any], tmp_path: Path) -> None:
    path = Path(shutil.copytree(vit[0], tmp_path / "vit"))
    settings = json.loads((path / "preprocessor_config.json").read_text())
    (path / "preprocessor_config.json").unlink()
    with pytest.raises(TeacherError, match=r"has no preprocessor_config.json"):
        as_teacher(path)
    # newer releases keep it in a file with the settings of other processors
    (path / "processor_config.json").write_text(json.dumps({"image_processor": settings}))
    expected = as_teacher(vit[0]).predict_logits(images())
    np.testing.assert_array_equal(as_teacher(path).predict_logits(images()), expected)


def test_options_that_do_not_fit(bert: tuple[Path, Any, Any]) -> None:
    with pytest.raises(TeacherError, match=r"gives logits; drop output='probabilities'"):
        as_teacher(bert[0], output="probabilities")
    with pytest.raises(TeacherError, match="cannot run"):
        as_teacher(bert[0], device="cuda:99")
    with pytest.raises(TeacherError, match="embed='layer'; give a function"):
        as_teacher(bert[0], embed="layer")


def test_a_function_may_embed(bert: tuple[Path, Any, Any]) -> None:
    teacher = as_teacher(bert[0], embed=lambda X: np.array([[len(text), 1.0] for text in X]))
    seen = teacher.observe(TEXTS)
    np.testing.assert_array_equal(seen.embeddings[:, 0], [len(text) for text in TEXTS])
    assert teacher.class_weights is None


def test_opening_needs_no_library(bert: tuple[Path, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``consilience inspect`` shows is in the JSON files."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    teacher = as_teacher(bert[0])
    assert teacher.inputs[0].dtype == "text"
    with pytest.raises(ConsilienceError, match=r"needs transformers: pip install 'consilience\[hf\]'"):
        teacher.predict_logits(TEXTS)


def test_the_library_speaks_as_before(bert: tuple[Path, Any, Any], capfd: pytest.CaptureFixture[str]) -> None:
    logging = transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    capfd.readouterr()
    as_teacher(bert[0]).predict_logits(TEXTS)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")
