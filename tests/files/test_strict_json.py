"""The one reader of records: what it takes, what it refuses, and where it says the fault is."""

from typing import Any

import pytest

from consilience.exceptions import InvalidInputError
from consilience.files.strict_json import (
    LARGEST,
    listing,
    mapping,
    maybe,
    number,
    parse_json,
    record,
    row,
    text,
    whole,
)

MODEL = record(
    {
        "name": text(5, least=1),
        "sizes": mapping(row(text(4, like="[a-f]+"), whole())),
        "inputs": maybe(listing(row(text(), listing(maybe(whole(9)), 4)), 2, least=1)),
        "metrics": mapping(number(), 2),
    },
    needs=["name"],
)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": -Infinity}', "Infinity is no number"),
        ('{"a": 1e400}', "1e400 is too large"),
        ('{"a": 1' + "0" * 400 + "}", r"beyond 2\^53"),
        ('{"a": -9007199254740993}', r"beyond 2\^53"),
        ('"\\ud800"', "half a character"),
        ('{"\\udfff": 1}', "half a character"),
        ("[" * 100_000, "is not JSON"),
        (b"\xff", "is not JSON"),
        ("{} {}", "is not JSON"),
        ("", "is not JSON"),
    ],
)
def test_text_that_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        parse_json(given, "a.json")
    assert str(caught.value).startswith("a.json ")
    assert len(str(caught.value)) < 300


def test_the_largest_number_and_whole_characters_are_read() -> None:
    assert parse_json(f"[{LARGEST}, -{LARGEST}, 1e300]") == [LARGEST, -LARGEST, 1e300]
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"
    assert parse_json("[1" + "0" * 30 + "]", foreign=True) == [10**30]


def test_a_record_is_returned_as_it_is_used() -> None:
    given = {"name": "a", "sizes": {"x": ["ab", 3]}, "inputs": [["X", [None, 4]]], "metrics": {"m": 1}}
    found = MODEL(given)
    assert found == given | {"sizes": {"x": ("ab", 3)}, "inputs": (("X", (None, 4)),), "metrics": {"m": 1.0}}
    assert MODEL({"name": "a", "inputs": None}) == {"name": "a", "inputs": None}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": ""}, "^name must be a text of 1 to 5 characters; it is ''"),
        ({"name": "\ud800"}, "^name must be a text"),
        ({"name": 5}, "^name must be a text"),
        ({"sizes": 5}, "^sizes must be an object"),
        ({"sizes": {"x": ["g", 3]}}, r"^sizes\['x'\]\[0\] must be"),
        ({"sizes": {"x": ["a", 10**400]}}, r"^sizes\['x'\]\[1\] must be a whole number"),
        ({"sizes": {"x": ["a", True]}}, r"^sizes\['x'\]\[1\] must be a whole number"),
        ({"sizes": {"x": ["a", -1]}}, r"^sizes\['x'\]\[1\] must be a whole number"),
        ({"sizes": {5: ["a", 1]}}, "must be a text"),
        ({"inputs": []}, "^inputs must be a list of 1 to 2 values"),
        ({"inputs": [["X", "4"]]}, r"^inputs\[0\]\[1\] must be a list"),
        ({"inputs": [["X"]]}, r"^inputs\[0\] must be a list of 2 values"),
        ({"metrics": {"a": 10**400}}, r"^metrics\['a'\] must be a number"),
        ({"metrics": {"a": float("nan")}}, r"^metrics\['a'\] must be a number"),
        ({"metrics": {"a": 1, "b": 2, "c": 3}}, "^metrics must be an object with 0 to 2 entries"),
        ({"other": 1}, "unknown key 'other'"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(change: dict[Any, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        MODEL({"name": "a"} | change)
    assert len(str(caught.value)) < 500


def test_a_record_lacks_something() -> None:
    with pytest.raises(InvalidInputError, match="lacks 'name'"):
        MODEL({})
    with pytest.raises(InvalidInputError, match="must be an object"):
        MODEL([])
