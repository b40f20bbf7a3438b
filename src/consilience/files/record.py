"""How a model was made: the part of its card that lets others check and repeat it.

It stands under ``"made"`` in a card's details. A card from a stranger is data: readers check what they find.
"""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from consilience.exceptions import InvalidInputError
from consilience.files.card import Card
from consilience.files.strict_json import LARGEST, plain_text

KEY = "made"
MOST_VALUES = 1000
"""Arrays with more values than this are only described."""
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
    if given is None:
        moment = datetime.datetime.now(datetime.UTC)
    else:
        try:
            moment = datetime.datetime.fromtimestamp(int(given), datetime.UTC)
        except (ValueError, OverflowError, OSError) as error:
            raise InvalidInputError(
                f"The variable SOURCE_DATE_EPOCH is {given!r}; expected whole seconds since 1970. "
                "Unset it, or correct it."
            ) from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def jsonable(value: Any, depth: int = 0) -> Any:
    """Return a setting as JSON can hold it: functions by name, other objects by type, never by address.

    Examples
    --------
    >>> jsonable({"method": len, "range": (1, 2), "tol": np.float32(0.5)})
    {'method': 'len', 'range': [1, 2], 'tol': 0.5}
    """
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, int):
        return value if value is None or abs(value) <= LARGEST else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.generic):
        return jsonable(value.item(), depth)
    if isinstance(value, os.PathLike):
        return os.path.basename(os.fspath(value))  # where it lay on one machine is nobody else's concern
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return value.__name__
    if depth >= _MOST_DEEP:
        return type(value).__name__
    if isinstance(value, np.ndarray):
        small = value.size <= MOST_VALUES and value.dtype.kind in "biufU"
        return jsonable(value.tolist(), depth) if small else f"array of {value.dtype}, {value.shape}"
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, Set) and len(value) <= MOST_VALUES:
        return sorted((jsonable(entry, depth + 1) for entry in value), key=str)  # equal runs, equal cards
    if isinstance(value, Sequence) and len(value) <= MOST_VALUES:
        return [jsonable(entry, depth + 1) for entry in value]
    if hasattr(value, "get_params"):
        return {"class": type(value).__name__, "settings": settings_of(value, depth=depth + 1)}
    return type(value).__name__


def settings_of(estimator: Any, *, without: Sequence[str] = (), depth: int = 0) -> dict[str, Any]:
    """Return the parameters of an estimator for JSON: no rows, and of paths only the last part."""
    found = {}
    for name, value in estimator.get_params(deep=False).items():
        if name in without:
            continue
        if name in _ROWS and value is not None:
            found[name] = type(value).__name__
        else:
            is_path = name in _PATHS and isinstance(value, str)
            found[name] = jsonable(Path(value) if is_path else value, depth)
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
