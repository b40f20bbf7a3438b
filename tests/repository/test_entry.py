"""What is read from cards of strangers, and names of models."""

from typing import Any

import pytest

from consilience import Card
from consilience.exceptions import InvalidInputError
from consilience.files.strict_json import checked
from consilience.repository.entry import (
    FACTS,
    KEY,
    ModelEntry,
    ModelFile,
    check_name,
    entry_of_card,
    folder_of,
    inside,
    is_folder,
)
from consilience.teachers.inputs import Input

ENTRY = ModelEntry(
    "Birds",
    ("crow", "wren"),
    "birds.onnx",
    {"birds.onnx": ModelFile("a" * 64, 10), "weights.bin": ModelFile("b" * 64, 5)},
    (Input("X", "float32", (None, 3)),),
    ("a", "b", "c"),
    {"a": "number"},
    "birds",
    "MIT",
    "a public page",
    "Knows two birds.",
    {"accuracy": 0.5},
    {},
    "2026-01-01T00:00:00Z",
)


PART = {
    "version": 2,
    "file": "birds.onnx",
    "files": {"birds.onnx": ["a" * 64, 10], "weights.bin": ["b" * 64, 5]},
    "inputs": [["X", "float32", [None, 3]]],
    "column_kinds": {"a": "number"},
    "task": "birds",
    "licence": "MIT",
    "source": "a public page",
    "metrics": {"accuracy": 0.5},
    "added": "2026-01-01T00:00:00Z",
}


def card_with(**change: Any) -> Card:
    part = PART | change
    names = list(ENTRY.feature_names or ())
    return Card(
        "Birds", ENTRY.classes, description=ENTRY.description, details={KEY: part}, feature_names=names
    )


def test_an_entry_comes_back_as_it_was() -> None:
    assert entry_of_card(card_with(), "birds") == ENTRY
    assert (ENTRY.n_bytes, ENTRY.kind, ENTRY.folder) == (15, "onnx", "birds")
    assert ENTRY.card_copy == "birds.card.json"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("version", 99, "not written by add"),
        ("file", "../x.onnx", "inside the folder"),
        ("file", "other.onnx", "none of its files"),
        ("files", {"../x": ["a" * 64, 1]}, "inside the folder"),
        ("files", {"/etc/passwd": ["a" * 64, 1]}, "inside the folder"),
        ("files", {"birds.onnx": ["z" * 64, 1]}, r"files\['birds.onnx'\]\[0\] must be"),
        ("files", {"birds.onnx": ["a" * 64, -1]}, "whole number"),
        ("files", {"birds.onnx": ["a" * 64, True]}, "whole number"),
        ("files", {"birds.onnx": ["a" * 64, 10**400]}, "whole number"),
        ("files", {}, "1 to 10000 entries"),
        ("files", [], "an object"),
        ("inputs", "X", "inputs must be a list"),
        ("inputs", [], "inputs must be a list of 1 to"),
        ("inputs", [["X", "float32", [-1]]], r"inputs\[0\]\[2\]\[0\]"),
        ("inputs", [["X", "float32", "64"]], r"inputs\[0\]\[2\]"),
        ("column_kinds", {"a": 1}, "column_kinds"),
        ("task", "x" * 201, "task"),
        ("licence", ["MIT"], "licence"),
        ("metrics", {"accuracy": "good"}, "metrics"),
        ("metrics", {"accuracy": True}, "metrics"),
        ("metrics", {"accuracy": 10**400}, "metrics"),
        ("metrics", {str(i): 1 for i in range(101)}, "metrics"),
        ("added", None, "added"),
        ("other", 1, "unknown key 'other'"),
    ],
)
def test_what_is_wrong_is_one_sentence(key: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        entry_of_card(card_with(**{key: value}), "birds")


def test_a_card_of_another_model_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="lies in the folder 'pets'"):
        entry_of_card(card_with(), "pets")
    with pytest.raises(InvalidInputError, match="not written by add"):
        entry_of_card(Card("Birds", ["crow"]), "birds")


@pytest.mark.parametrize(
    "source",
    ["/home/me/model", "~/model", "C:\\models\\x", "file:///x", "https://me:secret@host/x", "\\\\a\\b"],
)
def test_a_source_tells_no_path_and_no_password(source: str) -> None:
    with pytest.raises(InvalidInputError, match="no path of this machine and no password") as caught:
        checked("source", source, FACTS["source"])
    assert "secret" not in str(caught.value)
    assert checked("source", "https://example.org/model?x=a@b", FACTS["source"]) != ""


def test_metrics_become_floats() -> None:
    assert FACTS["metrics"]({"n": 3}) == {"n": 3.0}
    with pytest.raises(InvalidInputError, match=r"metrics= has 'b' at \['a'\]; expected a number"):
        checked("metrics", {"a": "b"}, FACTS["metrics"])


@pytest.mark.parametrize("name", ["birds", "Birds v1.2", "a", "7", "é-ü_x", "x" * 80])
def test_plain_names_are_taken(name: str) -> None:
    assert check_name(name) == name
    assert is_folder(folder_of(name))


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "a\\b",
        "_repository",
        ".hidden",
        "a\0b",
        "a\nb",
        "x" * 81,
        "é" * 79 + "\U0001d7d8" * 40,
        *("con", "NUL", "com1.onnx", "end.", "end ", "c:x", None, 7, "a*b"),
    ],
)
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(InvalidInputError, match="name="):
        check_name(name)


def test_a_folder_is_that_of_one_spelling() -> None:
    assert folder_of("BIRDS") == folder_of("birds") == "birds"
    assert folder_of("e\u0301") == folder_of("\u00e9")  # two ways to write é
    assert not is_folder("Birds")
    assert not is_folder("e\u0301")


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "../a", "a/../b", "a/./b", "a\\b", "c:a", "a\nb", None, "x" * 1001]
)
def test_paths_that_leave_the_folder_are_refused(path: object) -> None:
    with pytest.raises(InvalidInputError, match="a path inside the folder"):
        inside(path)
