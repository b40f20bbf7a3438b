"""The file of a text model: its card, and what a file that is broken or made by a stranger comes to."""

import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import InvalidInputError
from consilience.exceptions import WriteError
from consilience.files.card import card_path, read_card
from consilience.files.ngram_model import (
    VERSION_KEY,
    Reading,
    TextModel,
    is_text_model,
    pack,
    read_model,
    write_model,
)

READING = Reading((1, 3), lowercase=True, max_chars=50)


def model(n_buckets: int = 20, dim: int = 4, classes: Any = ("a", "b", "c")) -> TextModel:
    rng = np.random.default_rng(0)
    E, W, b = (
        rng.normal(size=shape).astype(np.float32)
        for shape in ((n_buckets, dim), (dim, len(classes)), len(classes))
    )
    return TextModel(E, W, b, np.asarray(classes), READING)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.npz", model(), description="Of a test.", details={"seed": 0})


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any], *, compressed: bool = False) -> None:
    """Change the arrays of a file, and remove its card, whose checksum would tell."""
    with np.load(path) as archive:
        arrays = dict(archive)
    change(arrays)
    card_path(path).unlink(missing_ok=True)
    (np.savez_compressed if compressed else np.savez)(path, **arrays)


def test_all_is_kept_and_the_card_says_what_it_is(saved: Path) -> None:
    there, here = read_model(saved), model()
    half = here.embeddings.astype(np.float16).astype(np.float32)
    pairs = [(there.embeddings, half), (there.weights, here.weights), (there.bias, here.bias)]
    for got, expected in pairs:
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == np.float32
    assert (there.classes.tolist(), there.reading) == (["a", "b", "c"], READING)
    card = read_card(card_path(saved))
    found = (card.classes, card.output, card.description, card.details)
    assert found == (("a", "b", "c"), "logits", "Of a test.", {"seed": 0})
    assert not [name for name in os.listdir(saved.parent) if name.endswith(".tmp")]


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    broken = model()
    broken.embeddings[0, 0] = 1e6
    wrong: list[tuple[str, TextModel, type[Exception], str]] = [
        ("model.onnx", model(), InvalidInputError, r"with this ending, not 'model\.onnx'"),
        ("no/model.npz", model(), WriteError, "No such file or directory"),
        ("model.npz", broken, InvalidInputError, "not finite in half precision"),
        ("folder.npz", model(), InvalidInputError, r"folder.npz is a folder, .* Give the name of a file"),
    ]
    for name, given_model, error, says in wrong:
        with pytest.raises(error, match=says):
            write_model(tmp_path / name, given_model, description="", details={})
    assert os.listdir(tmp_path) == ["folder.npz"]


@given(place=st.integers(0, 5000), value=st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_any_byte_changed_gives_the_model_or_one_sentence(
    place: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    buffer = io.BytesIO()
    arrays = _arrays()
    np.savez(buffer, **arrays)
    data = bytearray(buffer.getvalue())
    data[place % len(data)] = value
    path = tmp_path_factory.mktemp("changed", numbered=True) / "model.npz"
    path.write_bytes(bytes(data))
    is_text_model(path)
    with suppress(InvalidInputError):  # any other error would be the stranger's to choose
        assert np.isfinite(read_model(path).predict_logits(["abc d"])).all()


def _arrays(**changed: Any) -> dict[str, Any]:
    values = model()
    text = json.dumps({"ngram_range": [1, 3], "lowercase": True, "max_chars": 50})
    return {
        VERSION_KEY: np.array(1),
        "embeddings": values.embeddings.astype(np.float16),
        "weights": values.weights,
        "bias": values.bias,
        "classes": values.classes,
        "settings": np.array(text),
        **changed,
    }


def _settings(**changed: Any) -> np.ndarray:
    return np.array(json.dumps({"ngram_range": [1, 3], "lowercase": True, "max_chars": 50, **changed}))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({VERSION_KEY: np.array(2)}, "its version is 2, but this release reads 1"),
        ({VERSION_KEY: np.array("1")}, "consilience_text has type <U1"),
        ({"embeddings": np.zeros((20, 4))}, "float64 .20, 4., .4, 3. and .3,. do not fit"),
        ({"embeddings": np.zeros(20, np.float16)}, r"embeddings has type float16 and shape \(20,\)"),
        ({"embeddings": np.zeros((0, 4), np.float16)}, r"float16 \(0, 4\)"),
        ({"embeddings": np.zeros((20, 3), np.float16)}, "do not fit together with 3 classes"),
        ({"embeddings": np.full((20, 4), np.nan, np.float16)}, "not finite"),
        ({"weights": np.zeros((4, 2), np.float32)}, "do not fit together"),
        ({"weights": np.zeros((4, 3), np.int64)}, "weights has type int64"),
        ({"bias": np.zeros(4, np.float32)}, "do not fit together"),
        ({"classes": np.array(["a", "b"])}, "do not fit together with 2 classes"),
        ({"classes": np.array(["a", "b", "b"])}, "names b more than once"),
        ({"classes": np.array([["a"], ["b"], ["c"]])}, r"classes has type <U1 and shape \(3, 1\)"),
        ({"settings": np.array("{")}, "its settings is not JSON"),
        ({"settings": np.array("[]")}, "must be an object"),
        ({"settings": np.array(3)}, "settings has type int64"),
        ({"settings": np.array("[" * 10**5)}, "its settings is not JSON"),
        ({"settings": _settings(ngram_range=[0, 3])}, "its settings are"),
        ({"settings": _settings(ngram_range=[1, 10**9])}, "ngram_range.1. must be a whole"),
        ({"settings": _settings(ngram_range=[1.5, 3])}, "ngram_range.0. must be a whole"),
        ({"settings": _settings(max_chars=0)}, "its settings are"),
        ({"settings": _settings(lowercase="no")}, "lowercase must be true or false"),
        ({"more": np.zeros(1)}, "it has .* expected"),
        ({"bias": np.array([{}] * 3)}, "Python objects"),
    ],
)
def test_a_strangers_file_is_checked(saved: Path, changed: dict[str, Any], says: str) -> None:
    rewrite(saved, lambda arrays: arrays.update(changed))
    with pytest.raises(InvalidInputError, match=f"model.npz is not a .*text model.*{says}"):
        read_model(saved)


def test_what_unpacks_to_more_than_its_size_is_refused(saved: Path) -> None:
    rewrite(saved, lambda arrays: None, compressed=True)
    with pytest.raises(InvalidInputError, match="is compressed"):
        read_model(saved)


def test_files_that_are_none(saved: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    np.savez(tmp_path / "outputs.npz", proba=np.eye(2), classes=["a", "b"])
    (tmp_path / "text.npz").write_text("no archive")
    others = {
        "none.npz": "No such file",
        ".": "not a regular file",
        "pipe.npz": "not a regular file",
        "outputs.npz": "is not a text model: it has proba, classes",
        "text.npz": "is not a readable text model",
    }
    assert is_text_model(saved)
    for name, says in others.items():
        assert not is_text_model(tmp_path / name)
        with pytest.raises(InvalidInputError, match=says):
            read_model(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "changed", "expected"),
    [
        ("L'eau, 42\tfois_la\u00a0NUIT!", {}, " l ' eau , fois la nuit ! "),
        ("हिन्दी में", {}, " हिन्दी में "),  # vowel signs are no borders
        ("٣٤ ३", {}, ""),
        ("AbC", {"lowercase": False}, " AbC "),
        ("abcdef", {"max_chars": 3}, " abc "),
        ("a\x00b\ud800", {}, " a b\ud800 "),
    ],
)
def test_words_and_their_borders(text: str, changed: dict[str, Any], expected: str) -> None:
    reading = Reading(**{"ngram_range": (1, 3), "lowercase": True, "max_chars": 50, **changed})
    assert "".join(map(chr, pack([text], reading).codes)) == expected
