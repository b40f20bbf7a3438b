"""Names of models."""

from __future__ import annotations

import pytest

from consilience.exceptions import InvalidInputError
from consilience.repository.entry import check_name, folder_of, inside, is_folder


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
