"""What we write as TOML, the standard library reads back."""

from __future__ import annotations

import math
import tomllib
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from consilience.cli.toml import toml_comment, toml_key, toml_value

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
PLAIN = st.one_of(TEXT, st.booleans(), st.integers(), st.floats())
VALUES = st.one_of(PLAIN, st.lists(PLAIN, max_size=5))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and bool(one == other)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(TEXT, VALUES, TEXT)
@example("", "C:\\new\\table.npy", "two\nlines\x1b[2J")
@example('a"b', "\x00\x1f\x7f\x85\u2028\ufeff\r\n'''\"\"\"", "\r")
@example("a.b", [-0.0, 1e16, 1e-9, 5e-324, math.inf, -math.inf, math.nan, 10**400], "")
@example("é", ["", "😀", True, 1, "1"], "#")
def test_a_value_comes_back_with_its_type(key: str, value: Any, comment: str) -> None:
    text = f"{toml_comment(comment)}\n{toml_key(key)} = {toml_value(value)}\n"
    assert text.count("\n") == 2
    ((read_key, read_value),) = tomllib.loads(text.encode().decode()).items()
    assert read_key == key
    assert same(read_value, value)


def test_what_toml_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="NoneType cannot be written"):
        toml_value(None)
    with pytest.raises(UnicodeEncodeError):
        toml_value("a file\udcff.npy")
