"""Checkpoints of transformers, against the library's own forward pass."""

import json
import shutil
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

from consilience.exceptions import ConsilienceError, InvalidInputError, TeacherError
from consilience.files.card import Card, write_card
from consilience.teachers import as_teacher
from consilience.teachers.transformers import CPU_TOKENS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")


def text_logits(module: Any, tokens: Any, texts: list[str]) -> np.ndarray:
    batch = tokens(texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
    with torch.no_grad():
        return np.asarray(module(**batch).logits)


def image_logits(module: Any, processor: Any, rows: Any) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(module(**processor(list(rows), return_tensors="pt")).logits)


@pytest.mark.parametrize(
    ("kind", "settings"), [("xlnet", {}), ("convbert", {}), ("gpt2", {"pad_token_id": None})]
)
def test_filling_up_does_not_change_the_answer(kind: str, settings: Any, tmp_path: Path) -> None:
    path, module, tokens = text_folder(tmp_path / kind, kind, **settings)
    with torch.no_grad():
        for value in module.parameters():  # larger weights, so that other tokens give other answers
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(0)), alpha=0.3)
    save(path, module)
    texts = [text for text in TEXTS if text]
    alone = np.concatenate([text_logits(module, tokens, [text]) for text in texts])
    assert np.ptp(alone, axis=0).max() > 0.01
    np.testing.assert_allclose(as_teacher(path).predict_logits(texts), alone, atol=1e-4)


def test_positions_after_the_padding_token_are_counted(tmp_path: Path) -> None:
    """RoBERTa has two positions fewer than it says, and its tokenizer may have no limit of its own."""
    path, module, tokens = text_folder(tmp_path / "roberta", "roberta")
    change_json(path / "tokenizer_config.json", model_max_length=...)
    expected = text_logits(module, tokens, TEXTS)
    np.testing.assert_allclose(as_teacher(path).predict_logits(TEXTS), expected, atol=1e-5)


def test_batches_are_small_and_hardly_padded(bert: tuple[Path, Any, Any]) -> None:
    teacher = as_teacher(bert[0])
    teacher.predict_logits(["a"])
    texts = ["cat " * (1 + i % 20) for i in range(3000)]
    largest = [batch["input_ids"].numel() for *_, batch in teacher._loaded[1](texts, 10**6)]
    assert CPU_TOKENS / 2 < max(largest) <= CPU_TOKENS
    batches = [batch for *_, batch in teacher._loaded[1](texts, 32)]
    assert max(len(batch["input_ids"]) for batch in batches) == 32
    read = sum(int(batch["attention_mask"].sum()) for batch in batches)
    assert read > 0.9 * sum(batch["input_ids"].numel() for batch in batches)


def test_a_network_with_two_heads_has_no_weights(tmp_path: Path) -> None:
    path, module, processor = image_folder(tmp_path / "deit", "deit", "DeiTForImageClassificationWithTeacher")
    teacher, X = as_teacher(path), images(3)
    seen = teacher.observe(X)
    np.testing.assert_allclose(seen.logits, image_logits(module, processor, X), atol=1e-5)
    assert seen.embeddings.shape == (3, 16)
    assert teacher.class_weights is None


def test_images_of_all_kinds(vit: tuple[Path, Any, Any], tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    teacher, X = as_teacher(vit[0]), images(3)
    pictures = [image.fromarray(row) for row in X]
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path, picture in zip(paths, pictures, strict=True):
        picture.save(path)
    for rows in (list(X), pictures, paths):
        np.testing.assert_allclose(teacher.predict_logits(rows), teacher.predict_logits(X), atol=1e-6)
    sizes = [X[0], X[1][:10], X[2][:, :7]]
    np.testing.assert_allclose(teacher.predict_logits(sizes), image_logits(vit[1], vit[2], sizes), atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((2, 8, 8, 3)), "X has float64 in row 0; the pixels of an image are uint8"),
        ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8, 5), np.uint8)], "in row 1"),
        ([np.zeros((8, 8), np.uint8), "a.png"], r"a text in row 1, .*Give paths as pathlib.Path"),
        ([Path("/nowhere/cat.png")], "cat.png cannot be read"),
    ],
)
def test_rows_that_are_no_images(vit: tuple[Path, Any, Any], rows: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_teacher(vit[0]).predict_logits(rows)


def test_rows_that_are_no_texts(bert: tuple[Path, Any, Any]) -> None:
    with pytest.raises(InvalidInputError, match="X has 7 in row 1"):
        as_teacher(bert[0]).predict_logits(["a", 7])


def test_shards_give_the_same(copied: Path, bert: tuple[Path, Any, Any]) -> None:
    (copied / "model.safetensors").unlink()
    bert[1].save_pretrained(copied, max_shard_size="4KB")
    assert not (copied / "model.safetensors").exists()
    expected = as_teacher(bert[0]).predict_logits(TEXTS)
    np.testing.assert_array_equal(as_teacher(copied).predict_logits(TEXTS), expected)


@pytest.mark.parametrize("labels", [{"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, ...])
def test_placeholders_are_no_classes(copied: Path, labels: Any) -> None:
    change_json(copied / "config.json", id2label=labels, num_labels=3)
    with pytest.raises(
        TeacherError, match=r"a folder with 3 columns, which does not name its classes. Give classes="
    ):
        as_teacher(copied)
    assert as_teacher(copied, CLASSES).predict_logits(TEXTS).shape == (5, 3)
    write_card(copied.with_name("bert.card.json"), Card("hive", CLASSES))
    assert as_teacher(copied).classes.tolist() == CLASSES


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"problem_type": "multi_label_classification"}, "answers yes or no for each class"),
    ({"problem_type": "regression"}, "gives a number, not classes"),
    ({"id2label": {"0": "one"}}, "gives a number, not classes"),
    ({"id2label": {"0": "a", "2": "b"}}, "with the numbers 0, 2; expected each number"),
    ({"id2label": {"x": "a"}}, "id2label must be a number; it is 'x'"),
    ({"id2label": {"0": "a", "1": 7}}, r"id2label\['1'\] must be a text"),
    ({"id2label": {"0": "a", "1": "a"}}, "cannot be used"),
    ({"id2label": ..., "num_labels": "many"}, "num_labels must be a whole number"),
    (
        {"architectures": ["BertForTokenClassification"]},
        "BertForTokenClassification, and a teacher classifies",
    ),
    ({"architectures": ...}, "is a checkpoint of unknown architecture"),
    ({"quantization_config": {"bits": 4}}, "is quantised"),
]


@pytest.mark.parametrize(("config", "message"), REFUSED)
def test_what_is_refused_at_once(copied: Path, config: dict[str, Any], message: str) -> None:
    change_json(copied / "config.json", **config)
    with pytest.raises(TeacherError, match=message):
        as_teacher(copied)


UNLOADABLE: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "evil"}, "cannot be loaded by transformers: .*model type `evil`"),
    ({"model_type": 7}, "cannot be loaded by transformers"),
    ({"hidden_size": "large"}, "cannot be loaded by transformers"),
    ({"hidden_size": 32}, "lacks the weights .* \\(it has another shape\\)"),
    ({"num_hidden_layers": 2}, "lacks the weights bert.encoder.layer.1"),
    ({"id2label": {"0": "a", "1": "b"}}, "lacks the weights classifier"),
    ({"hidden_act": "os.system"}, "cannot be loaded by transformers"),
]


@pytest.mark.parametrize(("config", "message"), UNLOADABLE)
def test_what_is_refused_when_it_is_loaded(copied: Path, config: dict[str, Any], message: str) -> None:
    change_json(copied / "config.json", **config)
    with pytest.raises(TeacherError, match=message):
        as_teacher(copied).predict_logits(TEXTS)


@pytest.mark.parametrize(
    ("file", "data", "message"),
    [
        ("model.safetensors", b"\xff" * 100, "cannot be loaded by transformers: SafetensorError"),
        (
            "tokenizer.json",
            b'{"version": "1.0", "model": {"type": "Evil"}}',
            "cannot be loaded by transformers",
        ),
    ],
)
def test_damaged_files(copied: Path, file: str, data: bytes, message: str) -> None:
    (copied / file).write_bytes(data)
    with pytest.raises(TeacherError, match=message):
        as_teacher(copied).predict_logits(TEXTS)
    (copied / file).unlink()
    with pytest.raises(TeacherError, match=f"{file} is missing|has no {file}"):
        as_teacher(copied)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"image_processor_type": "OneFormerImageProcessor", "repo_path": "/", "class_info_file": "x"},
            "OneFormer",
        ),
        ({"image_processor_type": "evil.Processor"}, "which transformers does not have for image"),
        ({"size": "large"}, "cannot be loaded by transformers"),
    ],
)
def test_image_processors_that_are_refused(
    vit: tuple[Path, Any, Any], tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    path = shutil.copytree(vit[0], tmp_path / "vit")
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


def test_the_library_speaks_as_before(bert: tuple[Path, Any, Any], capfd: pytest.CaptureFixture[str]) -> None:
    logging = transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    capfd.readouterr()
    as_teacher(bert[0]).predict_logits(TEXTS)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")
