"""What a card says about how its model was made."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from consilience import Card, InvalidInputError
from consilience.files.card import data_hash, date_now, figures, jsonable, read_made, settings_of


def own_method(logits, space):
    return logits


def test_settings_are_plain_json_without_addresses() -> None:
    given = {
        "method": own_method,
        "student": LogisticRegression(C=np.float64(2)),
        "tol": float("nan"),
        "cache": Path("/some/where/kept"),
        "random_state": np.random.RandomState(0),
        "cost": np.eye(2),
        "large": np.zeros(5000),
        "object": object(),
        "partial": lambda x: x,
        1: {2, 3},
    }
    found = jsonable(given)
    text = json.dumps(found, allow_nan=False)
    assert "0x" not in text
    assert "some" not in text
    student = found.pop("student")
    assert (student["class"], student["settings"]["C"]) == ("LogisticRegression", 2)
    assert found == {
        "method": "own_method", "tol": "nan", "cache": "kept", "random_state": "RandomState",
        "cost": [[1, 0], [0, 1]], "large": "array of float64, (5000,)", "object": "object",
        "partial": "<lambda>", "1": [2, 3],
    }  # fmt: skip


def test_settings_tell_neither_rows_nor_places_on_a_disk() -> None:
    class Student(BaseEstimator):
        def __init__(self, validation=None, cache=None, other=None):
            self.validation, self.cache, self.other = validation, cache, other

    inner = Student((np.eye(2), [0, 1]), "/some/where/kept/")
    found = settings_of(Student(None, None, inner), without=["cache"])
    assert found["validation"] is None
    assert "cache" not in found
    assert found["other"]["settings"] == {"validation": "tuple", "cache": "kept", "other": None}


def test_neither_the_process_nor_nesting_matters() -> None:
    names = [f"name {i}" for i in range(50)]
    assert jsonable(set(names)) == sorted(names)
    endless: list = []
    endless.append(endless)
    assert "list" in json.dumps(jsonable(endless))


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
