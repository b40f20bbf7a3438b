"""What a card says of how its model was made: the date, settings, figures, and a checksum of the rows."""

from __future__ import annotations

import datetime
import hashlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.exceptions import ConsilienceError, InvalidInputError
from consilience.files.card import Card
from consilience.files.strict_json import LARGEST, plain_text
from consilience.rows.rows import Rows
from consilience.rows.tables import (
    as_values,
    column_names,
    columns_of,
    is_instance_of,
    is_numeric,
    is_table,
    kind_of,
    read_numbers,
    read_texts,
    read_times,
)

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
_BLOCK = 2**17  # numbers that are converted at a time


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
        return {"class": kind, "settings": settings_of(value, depth=depth + 1)}
    return kind


def settings_of(estimator: Any, *, without: Sequence[str] = (), depth: int = 0) -> dict[str, Any]:
    """Return the parameters of an estimator for JSON: no rows, and of paths only the last part."""
    found = {}
    for name, value in estimator.get_params(deep=False).items():
        if name in _ROWS and value is not None:
            value = type(value)
        elif name in _PATHS and isinstance(value, str):
            value = Path(value)
        if name not in without:
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


def rows_sha256(X: Any) -> str | None:
    """Return the sha256 of rows, or None where rows have no plain content.

    It depends on values, not on how they are stored: whole numbers and floats of equal value have one
    checksum, and so have a .csv and a .parquet file of the same table. Named columns may come in any order.
    Rows with names differ from rows without. A torch dataset has no checksum: it may not fit in memory, and
    to read it once more may take hours.

    Parameters
    ----------
    X : array, tensor, sparse matrix, data frame or list
        n rows.

    Examples
    --------
    >>> rows_sha256(np.array([[1, 2]])) == rows_sha256(np.array([[1.0, 2.0]], dtype=np.float32))
    True
    >>> rows_sha256(np.array([[1, 2]])) == rows_sha256(np.array([[2, 1]]))
    False
    """
    if isinstance(X, Rows) or is_instance_of(X, "torch.utils.data", "Dataset"):
        return None
    content = hashlib.sha256()
    try:
        for head, values in _parts(as_values(X)):
            content.update(head.encode("utf-8", "surrogatepass"))
            _add(content, values)
    except (ConsilienceError, TypeError, ValueError, RuntimeError, OverflowError):
        return None  # a checksum is a service: rows without one can be learnt from all the same
    return content.hexdigest()


def _parts(X: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays that rows consist of, each with what it is."""
    if hasattr(X, "tocsr"):
        rows = X.tocsr(copy=True)
        rows.sum_duplicates()  # and sorts the columns of each row
        for part in (rows.indptr, rows.indices, rows.data):
            yield f"sparse {rows.shape}", part
    elif not is_table(X):
        yield "", _plain(X)
    elif (names := column_names(X)) is None and is_numeric(X):
        yield "", X.to_numpy()
    else:
        columns = columns_of(X)
        named = enumerate([""] * len(columns) if names is None else names.tolist())
        for i, name in sorted(named, key=lambda one: one[1]):
            yield f"column {X.shape} {len(name)} {name}", _column(columns[i], name)


def _plain(X: Any) -> NDArray[Any]:
    """Return rows as an array of numbers or of texts."""
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    if isinstance(X, list | tuple) and X and all(isinstance(row, str) for row in X):
        return np.array([*X, None], dtype=object)[:-1]  # texts of any length, as they are
    return np.asarray(X)


def _column(column: Any, name: str) -> NDArray[Any]:
    """Return a column of a table as numbers or texts."""
    if kind_of(column) == "text":  # of a file that does not tell texts from numbers, they may be numbers
        from consilience.rows.csv import read_column  # which loads pyarrow

        column = read_column(read_texts(column, name).tolist())
    kind = kind_of(column)
    if kind == "other":
        raise TypeError("no plain content")
    if kind == "text":
        return read_texts(column, name)
    return read_times(column, name) if kind == "time" else read_numbers(column, name)


def _add(content: Any, values: NDArray[Any]) -> None:
    """Add an array: numbers block by block, so that there is no copy of all of them."""
    if not values.ndim or values.dtype.kind not in "biufOU":
        raise TypeError("no plain content")
    numbers = values.dtype.kind in "biuf"
    content.update(f"{'numbers' if numbers else 'texts'} {values.shape}".encode())
    for cell in () if numbers else values.ravel().tolist():
        data = str.encode(cell, "utf-8", "surrogatepass")
        content.update(len(data).to_bytes(8, "little") + data)
    rows = max(1, _BLOCK // max(1, math.prod(values.shape[1:])))
    for start in range(0, len(values) if numbers and values.size else 0, rows):
        block = values[start : start + rows].astype(np.float64) + 0.0  # -0.0 becomes 0.0
        block[np.isnan(block)] = np.nan  # one NaN of many
        content.update(np.ascontiguousarray(block).data)
