"""What a card says of how its model was made."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_matrix
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from consilience import Card, InvalidInputError
from consilience.files.made import (
    data_hash,
    date_now,
    figures,
    jsonable,
    read_made,
    rows_sha256,
    settings_of,
)

pandas = pytest.importorskip("pandas")


class Student(BaseEstimator):
    def __init__(self, validation=None, cache=None, other=None):
        self.validation, self.cache, self.other = validation, cache, other


def own_method(logits, space):
    return logits


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (own_method, "own_method"),
        (lambda x: x, "<lambda>"),
        (float("nan"), "nan"),
        (10**400, str(10**400)),
        (Path("/some/where/kept"), "kept"),
        (np.random.RandomState(0), "RandomState"),
        (np.eye(2), [[1, 0], [0, 1]]),
        (np.zeros(5000), "array of float64, (5000,)"),
        (object(), "object"),  # and no address
        ({1: {3, 2}}, {"1": [2, 3]}),
        ({f"name {i}" for i in range(50)}, sorted(f"name {i}" for i in range(50))),  # equal runs, equal cards
        (ENDLESS, [[[[["list"]]]]]),
    ],
)
def test_settings_are_plain_json(value: Any, expected: Any) -> None:
    assert jsonable(value) == expected
    json.dumps(jsonable(value), allow_nan=False)


def test_settings_tell_neither_rows_nor_places_on_a_disk() -> None:
    inner = Student((np.eye(2), [0, 1]), "/some/where/kept/", LogisticRegression(C=np.float64(2)))
    found = settings_of(Student(None, None, inner), without=["cache"])
    assert found["validation"] is None
    assert "cache" not in found
    settings = found["other"]["settings"]
    assert (settings["validation"], settings["cache"]) == ("tuple", "kept")
    assert (settings["other"]["class"], settings["other"]["settings"]["C"]) == ("LogisticRegression", 2)


def test_the_date_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert date_now() == "1970-01-02T00:00:00Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(InvalidInputError, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        date_now()


def test_what_was_measured() -> None:
    evaluation = SimpleNamespace(to_dict=lambda: {"accuracy": 0.5, "interval": (0.4, 0.6), "by_class": [1]})
    assert figures(evaluation) == {"accuracy": 0.5, "interval": [0.4, 0.6]}
    assert figures({"accuracy": np.float64(0.5)}) == {"accuracy": 0.5}
    assert figures(None) is None
    with pytest.raises(InvalidInputError, match="must be what evaluate returned"):
        figures(0.5)


@pytest.mark.parametrize("made", [None, 5, [], {"data": "x"}, {"data": {"sha256": 5}}])
def test_a_strangers_record_is_data(made: object) -> None:
    card = Card("a", ["b"], details={"made": made})
    assert data_hash(card) is None
    assert read_made(card) == (made if isinstance(made, dict) else {})


X = np.arange(6.0).reshape(3, 2)
FRAME = pandas.DataFrame(
    {
        "age": [30, 40, 50],
        "city": ["Ulm", None, "Bonn"],
        "seen": pandas.to_datetime(["2024-01-01", None, "2024-03-01"]),
        "ill": [True, False, True],
    }
)
SAME = [
    *((X, other) for other in (X.astype(np.int8), X.astype(np.float32), np.asfortranarray(X), X.tolist())),
    (X, pandas.DataFrame(X)),
    (FRAME, FRAME[["ill", "seen", "age", "city"]].astype({"age": float, "city": "category"})),
    (
        coo_matrix(([1.0, 1.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2)),
        csr_matrix([[0.0, 2.0], [3.0, 0.0]]),
    ),
    (["a", "b"], np.array(["a", "b"])),
    (np.array([[0.0, np.nan]]), np.array([[-0.0, -np.nan]])),
]


@pytest.mark.parametrize(("rows", "other"), SAME)
def test_one_checksum_for_one_content(rows: Any, other: Any) -> None:
    assert rows_sha256(rows) == rows_sha256(other)


def test_another_content_has_another_checksum() -> None:
    changed = FRAME.assign(city=["Ulm", "Ulm", "Bonn"])
    found = [
        rows_sha256(rows)
        for rows in (X, X[::-1], X.T, X.ravel(), -X, FRAME, FRAME[::-1], changed, FRAME[["age"]],
                     FRAME.rename(columns={"age": "years"}), ["ab", "c"], ["a", "bc"], csr_matrix(X))
    ]  # fmt: skip
    assert None not in found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("rows", [[{"a": 1}], [[1, 2], [3]], 5, np.array([1j])])
def test_rows_without_plain_content_have_none(rows: Any) -> None:
    assert rows_sha256(rows) is None
