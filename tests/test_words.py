"""Words of messages, and sizes as people write them."""

from typing import Any

import numpy as np
import pytest

from consilience import InvalidInputError
from consilience._words import parse_size, shorten, size_text


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (1, 1),
        (2**60 + 1, 2**60 + 1),
        (1e9, 10**9),
        (np.int32(7), 7),
        (np.float32(8), 8),
        ("1000", 1000),
        ("1e9", 10**9),
        ("2GB", 2 * 10**9),
        ("2 gb", 2 * 10**9),
        (" 500 MB ", 5 * 10**8),
        ("1.5KB", 1500),
        (".5 kB", 500),
        ("3TB", 3 * 10**12),
        ("12 B", 12),
        ("1KiB", 1024),
        ("1 mib", 2**20),
        ("0.5GiB", 2**29),
        ("1TiB", 2**40),
    ],
)
def test_sizes(value: Any, size: int) -> None:
    found = parse_size("memory", value)
    assert type(found) is int
    assert found == size


@pytest.mark.parametrize(
    "value",
    [
        None, True, "", "GB", "2 cups", "-1", "-1GB", "1,5 GB", "1 000", "2GB2", "nan", "inf", "1e", "0x10",
        float("nan"), [1], "1" * 10**6, "٣GB", b"2GB",
    ],
)  # fmt: skip
def test_what_is_no_size(value: Any) -> None:
    with pytest.raises(
        InvalidInputError, match=r"memory=.* must be a size such as '500 MB', '2GB' or a number"
    ):
        parse_size("memory", value)


@pytest.mark.parametrize(
    "value", [0, -1, 0.4, "0", "0GB", "0.1 B", float("inf"), 10**30, "1e300 TB", 10**400]
)
def test_sizes_out_of_range(value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"memory=.* from 1 byte to 8 million TB"):
        parse_size("memory", value)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (999_999, "1 MB"), (1500, "1.5 kB")]
)
def test_words_of_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(("values", "text"), [("", ""), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more")])
def test_a_long_list_is_cut(values: str, text: str) -> None:
    assert shorten(values, 3) == text
