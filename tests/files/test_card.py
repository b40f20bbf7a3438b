"""Cards: reading, writing, refusing."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.exceptions import InvalidInputError, UnsafeFileError
from consilience.files.card import (
    Card,
    card_bytes,
    card_path,
    find_card,
    is_unchanged,
    parse_card,
    read_card,
    write_card,
)
from consilience.files.disk import file_sha256

GOOD = {"consilience_card": 1, "name": "birds", "classes": ["crow", "wren"]}


CENTRES: list[Any] = [
    [[1, 2]], [[1], [2, 3]], [1, 2], [[], []], [["a"], ["b"]], "text", {"crow": [1]}, [[None], [1]], True
]  # fmt: skip


def put(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "card",
    [
        Card("birds", ["crow", "wren"]),
        Card(
            "bïrds",
            [3, 1, 2],
            "logits",
            "a" * 64,
            "Garden birds.",
            {"epochs": 3, "nested": {"a": [1.5, None]}},
        ),
        Card(os.fsdecode(b"bird\xff"), ["crow", "wren"], centres=[[0.1, 2], [3, 1e-300]], embed="layer4"),
    ],
)
def test_a_card_survives_the_file(card: Card, tmp_path: Path) -> None:
    write_card(tmp_path / "m.card.json", card)
    assert read_card(tmp_path / "m.card.json") == card
    assert json.loads((tmp_path / "m.card.json").read_bytes())["consilience_card"] == 1


def test_any_flipped_bit_is_found() -> None:
    written = card_bytes(Card("bïrds", ["crow", "wren"], sha256="ab" * 32, details={"rows": 1e5, "é": "fée"}))
    assert is_unchanged(written)
    for place in range(8 * len(written)):
        data = bytearray(written)
        data[place // 8] ^= 1 << place % 8
        try:
            parse_card(bytes(data), "m.card.json")
        except InvalidInputError:
            continue
        assert not is_unchanged(bytes(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"consilience_card": 2}, "version 2; this release reads version 1"),
        ({"consilience_card": True}, "consilience_card must be a whole number"),
        ({"consilience_card": "1"}, "consilience_card must be a whole number"),
        ({"name": ""}, "name='' must be a text"),
        ({"name": 3}, "name=3 must be a text"),
        ({"name": "\ud800"}, "a text in it has half a character"),
        ({"feature_names": 5}, "feature_names=5 must be a list"),
        ({"feature_names": ["a", "a"]}, "must differ"),
        ({"details": {"deep": [{"n": 10**400}]}}, r"beyond 2\^53"),
        ({"classes": []}, "classes is empty"),
        ({"classes": ["a", "a"]}, "names a more than once"),
        ({"classes": "ab"}, "classes is 'ab'; give a list"),
        ({"classes": {"0": "a"}}, "give a list with one name per class"),
        ({"classes": ["a", 1]}, "mixes numbers and text"),
        ({"classes": ["a", "a\0"]}, "the name 'a.x00' with a NUL character"),
        ({"classes": [2**53 + 1, 0.5]}, r"the number 9007199254740993 is beyond 2\^53"),
        ({"classes": [["a"]]}, "classes are text or"),
        ({"output": "proba"}, "output='proba' must be None, 'logits'"),
        ({"output": ["logits"]}, "must be None, 'logits'"),
        ({"sha256": "xyz"}, "64 hexadecimal digits"),
        ({"description": 1}, "must be a text"),
        ({"details": []}, "must be a mapping"),
        ({"clases": []}, "unknown key 'clases'"),
        *(({key: None}, f"lacks '{key}'") for key in GOOD),
        *(
            ({"centres": centres}, r"centres must be numbers, \(2, d\): a row per class")
            for centres in CENTRES
        ),
        *(({"embed": embed}, "must be the name of a layer") for embed in ("", 3)),
    ],
)
def test_wrong_cards(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    content = {key: value for key, value in (GOOD | change).items() if value is not None}
    with pytest.raises(InvalidInputError, match=message):
        read_card(put(tmp_path / "m.card.json", content))


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "null", "[" * 100_000, '{"consilience_card": NaN}', "\ud800"]
)
def test_files_that_are_no_json_object(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.card.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InvalidInputError, match=r"m.card.json( is not JSON|: It must be an object)"):
        read_card(path)


def test_only_regular_files_are_cards(tmp_path: Path) -> None:
    (tmp_path / "lost.card.json").symlink_to(tmp_path / "gone.json")  # which is no missing card
    with pytest.raises(UnsafeFileError, match="not a regular file"):
        find_card(tmp_path / "lost.onnx")
    os.truncate(put(tmp_path / "long.card.json", GOOD), 16 * 2**20 + 1)
    with pytest.raises(InvalidInputError, match="at most 16777216 are read"):
        read_card(tmp_path / "long.card.json")


def test_the_card_of_another_file(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"model")
    assert find_card(model) is None
    card = Card("birds", ["crow"], sha256=file_sha256(model).upper())
    write_card(card_path(model), card)
    assert find_card(model) == card
    model.write_bytes(b"other")
    with pytest.raises(InvalidInputError, match="The card belongs to another file"):
        find_card(model)


@pytest.mark.parametrize("details", [{"x": object()}, {"x": float("nan")}])
def test_details_that_are_no_json_change_nothing(details: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.card.json"
    write_card(path, Card("old", ["a"]))
    with pytest.raises(InvalidInputError, match="not plain JSON"):
        write_card(path, Card("new", ["a"], details=details))
    assert read_card(path).name == "old"


def test_centres_are_plain_numbers_whatever_they_came_as(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    card = Card("birds", ["crow", "wren"], centres=array)
    assert card == Card("birds", ["crow", "wren"], centres=array.tolist())
    assert card.centres == ((0.0, 1.0, 2.0), (3.0, 4.0, 5.0))


def test_centres_that_are_not_finite(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="centres must be finite"):
        Card("birds", ["crow", "wren"], centres=[[1.0], [np.inf]])
    text = json.dumps({**GOOD, "centres": [[1], [0]]}).replace("0]]", "1e999]]")
    with pytest.raises(InvalidInputError, match="number 1e999 is too large"):
        read_card(put(tmp_path / "m.card.json", text))
