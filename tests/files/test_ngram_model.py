"""The file of a text model: its card, and what a file that is broken or made by a stranger comes to."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import InvalidInputError
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
from consilience.students.ngrams import Ngrams

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
    np.testing.assert_array_equal(there.embeddings, here.embeddings.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(there.weights, here.weights)
    np.testing.assert_array_equal(there.bias, here.bias)
    assert there.embeddings.dtype == there.weights.dtype == there.bias.dtype == np.float32
    assert there.classes.tolist() == ["a", "b", "c"]
    assert there.reading == READING
    card = read_card(card_path(saved))
    assert (card.classes, card.output, card.description) == (("a", "b", "c"), "logits", "Of a test.")
    assert card.details == {"seed": 0}
    assert not [name for name in os.listdir(saved.parent) if name.endswith(".tmp")]


def test_the_file_is_small_at_the_defaults(tmp_path: Path) -> None:
    few = model(1, 64, [f"{i:03}" for i in range(281)])
    big = replace(few, embeddings=np.zeros((2**18, 64), np.float32))
    path = write_model(tmp_path / "big.npz", big, description="", details={})
    assert path.stat().st_size < 35 * 2**20


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    for name, says in (
        ("model.onnx", "with this ending, not 'model.onnx'"),
        ("no/model.npz", "does not exist"),
    ):
        with pytest.raises(InvalidInputError, match=says):
            write_model(tmp_path / name, model(), description="", details={})
    broken = model()
    broken.embeddings[0, 0] = 1e6
    with pytest.raises(InvalidInputError, match="not finite in half precision"):
        write_model(tmp_path / "model.npz", broken, description="", details={})
    assert os.listdir(tmp_path) == []
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InvalidInputError, match=r"folder.npz' is a folder; give the name of a file"):
        write_model(tmp_path / "folder.npz", model(), description="", details={})


@pytest.mark.parametrize(
    ("changed", "says"), [({"details": {"a": object()}}, "not plain JSON"), ({"description": 5}, "be a text")]
)
def test_a_card_that_cannot_be_written_leaves_the_model_before(
    saved: Path, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says):
        write_model(saved, model(30), **{"description": "", "details": {}, **changed})
    assert Ngrams.load(saved).n_buckets == 20
    assert sorted(os.listdir(saved.parent)) == ["model.card.json", "model.npz"]


def test_a_changed_file_is_told_by_its_card(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[300] ^= 1
    saved.write_bytes(bytes(data))
    with pytest.raises(InvalidInputError, match="sha256"):
        Ngrams.load(saved)
    card_path(saved).unlink()
    with pytest.raises(InvalidInputError, match="CRC"):
        read_model(saved)


@given(place=st.integers(0, 5000), value=st.integers(0, 255))
@settings(max_examples=60, deadline=None)
def test_any_byte_changed_gives_the_model_or_one_sentence(
    place: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    buffer = io.BytesIO()
    arrays = _arrays()
    np.savez(buffer, **arrays)
    data = bytearray(buffer.getvalue())
    data[place % len(data)] = value
    _check_bytes(data, tmp_path_factory)


@pytest.mark.parametrize("part", ["header", "entry", "directory"])
def test_every_bit_of_the_parts_that_say_what_follows(
    part: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **_arrays())
    whole = buffer.getvalue()
    # a header that is no Python, an entry of another kind, an archive that calls itself encrypted
    start = {"header": whole.find(b"{'descr"), "entry": 0, "directory": whole.find(b"PK\x01\x02")}[part]
    for place in range(start, start + 40):
        for bit in range(0, 8, 1 if place < start + 12 else 5):
            data = bytearray(whole)
            data[place] ^= 1 << bit
            _check_bytes(data, tmp_path_factory)


def _check_bytes(data: bytearray, tmp_path_factory: pytest.TempPathFactory) -> None:
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


@pytest.mark.parametrize("length", [0, 10, 100, 1000])
def test_a_truncated_file_is_refused(saved: Path, length: int) -> None:
    saved.write_bytes(saved.read_bytes()[:length])
    card_path(saved).unlink()
    with pytest.raises(InvalidInputError, match=r"model.npz is not a readable text model"):
        read_model(saved)


def _settings(**changed: Any) -> np.ndarray:
    return np.array(json.dumps({"ngram_range": [1, 3], "lowercase": True, "max_chars": 50, **changed}))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({VERSION_KEY: np.array(2)}, "its version is 2, but this release reads 1"),
        ({VERSION_KEY: np.array("1")}, "its version is '1'"),
        ({"embeddings": np.zeros((20, 4))}, "embeddings has type float64"),
        ({"embeddings": np.zeros(20, np.float16)}, r"shapes \(20,\)"),
        ({"embeddings": np.zeros((0, 4), np.float16)}, r"shapes \(0, 4\)"),
        ({"embeddings": np.zeros((20, 3), np.float16)}, "do not fit together with 3 classes"),
        ({"embeddings": np.full((20, 4), np.nan, np.float16)}, "not finite"),
        ({"weights": np.zeros((4, 2), np.float32)}, "do not fit together"),
        ({"weights": np.zeros((4, 3), np.int64)}, "weights has type int64"),
        ({"bias": np.zeros(4, np.float32)}, "do not fit together"),
        ({"classes": np.array(["a", "b"])}, "do not fit together with 2 classes"),
        ({"classes": np.array(["a", "b", "b"])}, "names b more than once"),
        ({"classes": np.array([["a"], ["b"], ["c"]])}, "classes has the entry"),
        ({"settings": np.array("{")}, "its settings are"),
        ({"settings": np.array("[]")}, "its settings are"),
        ({"settings": np.array(3)}, "settings has type int64"),
        ({"settings": np.array("[" * 10**5)}, "its settings are"),
        ({"settings": _settings(ngram_range=[0, 3])}, "its settings are"),
        ({"settings": _settings(ngram_range=[1, 10**9])}, "its settings are"),
        ({"settings": _settings(ngram_range=[1.5, 3])}, "its settings are"),
        ({"settings": _settings(max_chars=0)}, "its settings are"),
        ({"settings": _settings(lowercase="no")}, "its settings are"),
        ({"more": np.zeros(1)}, "it has .* expected"),
    ],
)
def test_a_strangers_file_is_checked(saved: Path, changed: dict[str, Any], says: str) -> None:
    rewrite(saved, lambda arrays: arrays.update(changed))
    with pytest.raises(InvalidInputError, match=f"model.npz is not a .*text model.*{says}"):
        read_model(saved)


def test_pickles_are_never_loaded(saved: Path) -> None:
    class Boom:
        def __reduce__(self) -> Any:
            return pytest.fail, ("it was unpickled",)

    rewrite(saved, lambda arrays: arrays.pop("bias"))
    buffer = io.BytesIO()
    header = {"descr": "|O", "fortran_order": False, "shape": (3,)}
    np.lib.format.write_array_header_1_0(buffer, header)
    buffer.write(pickle.dumps(Boom()))
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr("bias.npy", buffer.getvalue())
    with pytest.raises(InvalidInputError, match=r"not a .*text model"):
        read_model(saved)


def test_what_unpacks_to_more_than_its_size_is_refused(saved: Path) -> None:
    rewrite(saved, lambda arrays: None, compressed=True)
    with pytest.raises(InvalidInputError, match="is compressed"):
        read_model(saved)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="No such file"):
        Ngrams.load(tmp_path / "none.npz")
    with pytest.raises(InvalidInputError, match="path=5 must be the name of a file"):
        Ngrams.load(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="not a regular file"):
        read_model(tmp_path)
    os.mkfifo(tmp_path / "pipe.npz")
    assert not is_text_model(tmp_path / "pipe.npz")
    with pytest.raises(InvalidInputError, match="not a regular file"):
        read_model(tmp_path / "pipe.npz")


def test_only_a_model_is_taken_for_one(saved: Path, tmp_path: Path) -> None:
    assert is_text_model(saved)
    np.savez(tmp_path / "outputs.npz", proba=np.eye(2), classes=["a", "b"])
    (tmp_path / "text.npz").write_text("no archive")
    assert not is_text_model(tmp_path / "outputs.npz")
    assert not is_text_model(tmp_path / "text.npz")
    assert not is_text_model(tmp_path / "none.npz")


def test_words_and_their_borders() -> None:
    def read_as(text: str, **changed: Any) -> str:
        reading = Reading(**{"ngram_range": (1, 3), "lowercase": True, "max_chars": 50, **changed})
        return "".join(map(chr, pack([text], reading).codes))

    assert read_as("L'eau, 42\tfois_la\u00a0NUIT!") == " l ' eau , fois la nuit ! "
    assert read_as("हिन्दी में") == " हिन्दी में "  # vowel signs are no borders
    assert read_as("٣٤ ३") == ""
    assert read_as("AbC", lowercase=False) == " AbC "
    assert read_as("abcdef", max_chars=3) == " abc "
    assert read_as("a\x00b\ud800") == " a b\ud800 "
