"""What a card says of how its model was made: the date, settings and figures."""

from __future__ import annotations

import datetime
import math
import os
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from consilience.exceptions import InvalidInputError
from consilience.files.card import Card
from consilience.files.strict_json import LARGEST, plain_text

KEY = "made"
"""Where the details of a card say how its model was made."""
_MOST_VALUES = 1000  # arrays with more are only described
_MOST_DEEP = 5
_ROWS = ("validation",)  # parameters that hold rows, which a card must not tell
_PATHS = ("cache",)  # parameters whose texts are paths
_FIGURES = (
    "accuracy",
    "balanced_accuracy",
    "log_loss",
    "calibration_error",
    "n_rows",
    "confidence",
    "interval",
)


def date_now() -> str:
    """Return the time in UTC, by the second, or that of ``SOURCE_DATE_EPOCH``: equal builds, equal files.

    Examples
    --------
    >>> len(date_now())
    20
    """
    given = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        moment = datetime.datetime.fromtimestamp(time.time() if given is None else int(given), datetime.UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInputError(
            f"The variable SOURCE_DATE_EPOCH is {given!r}; expected whole seconds since 1970. Unset it, or "
            "correct it."
        ) from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def jsonable(value: Any, depth: int = 0) -> Any:
    """Return a setting as JSON can hold it: functions by name, other objects by type, never by address.

    Examples
    --------
    >>> jsonable({"method": len, "range": (1, 2), "tol": np.float32(0.5)})
    {'method': 'len', 'range': [1, 2], 'tol': 0.5}
    """
    value = value.item() if isinstance(value, np.generic) else value
    kind = type(value).__name__
    if value is None:
        return None
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int | float):
        finite = isinstance(value, float) and math.isfinite(value)
        return value if finite or abs(value) <= LARGEST else str(value)
    if isinstance(value, os.PathLike):
        return os.path.basename(os.fspath(value))  # where it lay on one machine is nobody else's concern
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return value.__name__
    if depth >= _MOST_DEEP:
        return kind
    if isinstance(value, np.ndarray):
        small = value.size <= _MOST_VALUES and value.dtype.kind in "biufU"
        return jsonable(value.tolist(), depth) if small else f"array of {value.dtype}, {value.shape}"
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, Set | Sequence) and len(value) <= _MOST_VALUES:
        found = [jsonable(entry, depth + 1) for entry in value]
        return sorted(found, key=str) if isinstance(value, Set) else found  # equal runs, equal cards
    if hasattr(value, "get_params"):
        return {"class": kind, "settings": settings(value.get_params(deep=False), depth + 1)}
    return kind


def settings(params: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return the parameters of an estimator for JSON: no rows, and of paths only the last part."""
    found = {}
    for name, value in params.items():
        if name in _ROWS and value is not None:
            value = type(value)
        elif name in _PATHS and isinstance(value, str):
            value = Path(value)
        found[name] = jsonable(value, depth)
    return found


def figures(measured: Any) -> dict[str, Any] | None:
    """Return what was measured as plain numbers.

    Parameters
    ----------
    measured : Evaluation, mapping or None
        What `Unifier.evaluate` returns, or names and numbers such as ``{"accuracy": 0.93, "n_rows": 400}``.
    """
    if measured is None:
        return None
    if hasattr(measured, "to_dict"):
        found = measured.to_dict()
        return {name: jsonable(found[name]) for name in _FIGURES if name in found}
    if not isinstance(measured, Mapping) or not all(isinstance(name, str) for name in measured):
        raise InvalidInputError(
            "{argument} must be what evaluate returned, or a mapping of names to numbers.",
            argument="measured",
            value=measured,
        )
    return {name: jsonable(value) for name, value in measured.items()}


def read_made(card: Card | None) -> Mapping[str, Any]:
    """Return how the model of a card was made; an empty mapping where the card does not say."""
    found = {} if card is None else card.details.get(KEY)
    return found if isinstance(found, Mapping) else {}


def data_hash(card: Card | None) -> str | None:
    """Return the checksum of the rows that a card names, or None."""
    data = read_made(card).get("data")
    found = data.get("sha256") if isinstance(data, Mapping) else None
    return found if isinstance(found, str) else None
