"""What people, files and other libraries put in the place of a value."""

import datetime
import decimal
import fractions
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import torch
from scipy.sparse import csr_array

Random = np.random.Generator
NUMBERS = (0, 1, 2, 3, 8, 20, 0.5, 0.01, 0.95, 1.0, 1e-9, 1e3)
"""Numbers that options may take. Counts stay small: who asks for a billion rounds gets them."""
EXTREMES = (0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e-308, -1e-9, 1e15, 1e154, -1e300, 1.7e308)
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**63, -(2**63), 2**32, 10**400, -(10**400), 1j, *EXTREMES),
    *("", "x", "no.npz", "cat" * 30_000, "\x1b[2J", "a\0", "\ud800", "{row}{remedy}", "\n", b"x", b"\xff"),
    *(fractions.Fraction(1, 3), decimal.Decimal("0.1"), decimal.Decimal("NaN"), datetime.date(2026, 1, 1)),
    *(
        np.float32(0.5),
        np.uint8(3),
        np.array(2.0),
        np.str_("a"),
        np.datetime64("NaT"),
        np.timedelta64(3, "s"),
    ),
    *(int, object(), len, ..., NotImplemented, Path(), Path("x"), range(3), lambda *_: 1),
    *([], {}, (), {"a": 1}, {1, 2, 3}, [[1.0], [1.0, 2.0]], [1, "a", None], [[]], [None] * 24),
    *(np.empty(0), np.empty((0, 3)), np.empty((24, 0)), np.ones((24, 3, 2)), np.array([object()] * 24)),
    *(
        list("abc") * 8,
        np.array([b"a", b"b"] * 12),
        np.array([2**53, 2**53 + 1] * 12),
        np.array(["a\0"] * 24),
    ),
)
CONTAINERS: tuple[Callable[[Any], Any], ...] = (
    *(np.ndarray.tolist, tuple, iter, memoryview, np.asfortranarray, csr_array, np.ma.masked_invalid),
    *(pandas.DataFrame, polars.DataFrame, pyarrow.array, torch.tensor, pandas.Series, polars.Series),
    lambda array: np.ma.masked_array(array, mask=array == array.flat[0]),
    lambda array: torch.tensor(array, requires_grad=True),
    lambda array: torch.tensor(array).to(torch.bfloat16),
    lambda array: pandas.DataFrame(array).astype(str).astype("category"),
    lambda array: [None if i == 3 else row for i, row in enumerate(array)],
)
TYPES = ("f2", "f4", "i1", "u8", "?", "c16", "O", "U9", "S9", "M8[s]", "m8[s]", ">f8", "g")


def odd(valid: Any, random: Random) -> Any:
    """Return something else in the place of a valid value: near it, or far from it."""
    if random.random() < 0.4:
        return ODD[random.integers(len(ODD))]
    if isinstance(valid, np.ndarray) and valid.size:
        return _odd_array(valid, random)
    if isinstance(valid, bool | None):
        return [not valid, int(bool(valid)), str(valid), [valid]][random.integers(4)]
    if isinstance(valid, int | float):
        return [valid * 10.0 ** random.integers(-300, 300), -valid, str(valid), [valid]][random.integers(4)]
    if isinstance(valid, str):
        return [valid + "\n", valid.upper(), valid[:-1], valid.encode(), [valid], Path(valid)][
            random.integers(6)
        ]
    if isinstance(valid, Mapping):
        return {key: odd(value, random) if random.random() < 0.7 else value for key, value in valid.items()}
    if isinstance(valid, list) and valid:
        place = int(random.integers(len(valid)))
        other = [*valid[:place], odd(valid[place], random), *valid[place + 1 :]]
        return [other, valid * 2, valid[:-1], valid[::-1], tuple(valid), dict(enumerate(valid))][
            random.integers(6)
        ]
    return ODD[random.integers(len(ODD))]


def _odd_array(array: Any, random: Random) -> Any:
    """Return an array of other magnitudes, of another shape or type, or in a container of another library."""
    some = random.random(array.shape) < random.choice([0.02, 0.5, 1])
    extreme = EXTREMES[random.integers(len(EXTREMES))]
    with np.errstate(all="ignore"):
        changes = (
            lambda: np.where(some, extreme, array),
            lambda: np.where(some, array * 10.0 ** random.uniform(-310, 308), array),
            lambda: array * 10.0 ** random.integers(-30, 30, array.shape[-1]),
            lambda: np.where(some, array.flat[0], array),
            lambda: [array[:1], array[:-1], array.T, array[..., None], array[..., :1], array[::-1]][
                random.integers(6)
            ],
            lambda: array.astype(str(random.choice(TYPES))),
            lambda: CONTAINERS[random.integers(len(CONTAINERS))](array),
        )
        try:
            return changes[random.integers(len(changes))]()
        except (
            ValueError,
            TypeError,
            RuntimeError,
            pyarrow.ArrowException,
        ):  # there is no such container of these
            return array.tolist()


def damaged(content: bytes, random: Random) -> bytes:
    """Return what is left of a file after a broken disk, a lost connection or an editor."""
    place, length = random.integers(0, len(content) + 1), random.integers(1, 9)
    return [content[:place], content[:place] + random.bytes(length) + content[place + length :]][
        random.integers(2)
    ]
