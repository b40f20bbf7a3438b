"""What a card says of how its model was made."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from consilience import Card, InvalidInputError
from consilience.files.made import (
    data_hash,
    date_now,
    figures,
    jsonable,
    read_made,
    settings,
)


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
    found = settings({"validation": None, "other": inner})
    assert found["validation"] is None
    within = found["other"]["settings"]
    assert (within["validation"], within["cache"]) == ("tuple", "kept")
    assert (within["other"]["class"], within["other"]["settings"]["C"]) == ("LogisticRegression", 2)


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
