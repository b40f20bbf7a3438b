"""What is read from cards of strangers."""

from __future__ import annotations

from typing import Any

import pytest

from consilience.exceptions import InvalidInputError
from consilience.repository.entry import KEY, ModelEntry, ModelFile, check_metrics, check_text, read_entry
from consilience.teachers._base import Input

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
    {"mean": [0.5]},
    "2026-01-01T00:00:00Z",
)


def test_an_entry_comes_back_as_it_was() -> None:
    assert read_entry(ENTRY.to_dict(), "birds") == ENTRY
    assert (ENTRY.n_bytes, ENTRY.kind, ENTRY.folder) == (15, "onnx", "birds")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("name", "pets", "lies in the folder 'birds'"),
        ("name", 7, "names 7"),
        ("classes", "crow", "classes"),
        ("classes", ["crow", "crow"], "more than once"),
        ("classes", [], "empty"),
        ("description", 5, "description"),
        ("feature_names", [1], "feature_names"),
        (KEY, None, "not written by add"),
        (f"{KEY}.version", 99, "not written by add"),
        (f"{KEY}.file", "../x.onnx", "none of its files"),
        (f"{KEY}.file", "other.onnx", "none of its files"),
        (f"{KEY}.files", {"../x": ["a" * 64, 1]}, "not inside its folder"),
        (f"{KEY}.files", {"/etc/passwd": ["a" * 64, 1]}, "not inside its folder"),
        (f"{KEY}.files", {"birds.onnx": ["z" * 64, 1]}, "sha256"),
        (f"{KEY}.files", {"birds.onnx": ["a" * 64, -1]}, "sha256"),
        (f"{KEY}.files", {"birds.onnx": ["a" * 64, True]}, "sha256"),
        (f"{KEY}.files", [], "mapping"),
        (f"{KEY}.inputs", "X", "input"),
        (f"{KEY}.inputs", [["X", "float32", [-1]]], "input"),
        (f"{KEY}.inputs", [["X", "float32", "64"]], "input"),
        (f"{KEY}.column_kinds", {"a": 1}, "column_kinds"),
        (f"{KEY}.task", "x" * 201, "task"),
        (f"{KEY}.licence", ["MIT"], "licence"),
        (f"{KEY}.metrics", {"accuracy": "good"}, "metrics"),
        (f"{KEY}.metrics", {"accuracy": True}, "metrics"),
        (f"{KEY}.metrics", {"accuracy": float("inf")}, "metrics"),
        (f"{KEY}.metrics", {str(i): 1 for i in range(101)}, "metrics"),
        (f"{KEY}.preprocess", [1], "preprocess"),
        (f"{KEY}.added", None, "added"),
    ],
)
def test_what_is_wrong_is_one_sentence(key: str, value: Any, words: str) -> None:
    content = ENTRY.to_dict()
    above, _, last = key.rpartition(".")
    (content[above] if above else content)[last] = value
    with pytest.raises(InvalidInputError, match=words):
        read_entry(content, "birds")


def test_an_entry_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no JSON object"):
        read_entry([], "birds")


@pytest.mark.parametrize(
    "source",
    ["/home/me/model", "~/model", "C:\\models\\x", "file:///x", "https://me:secret@host/x", "\\\\a\\b"],
)
def test_a_source_tells_no_path_and_no_password(source: str) -> None:
    with pytest.raises(InvalidInputError, match="no path of this machine and no password") as caught:
        check_text("source", source)
    assert "secret" not in str(caught.value)


def test_metrics_become_floats() -> None:
    assert check_metrics({"n": 3}) == {"n": 3.0}
    assert check_text("source", "https://example.org/model?x=a@b") != ""
