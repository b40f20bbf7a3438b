"""A teacher's card: a small JSON file next to its model that says what the columns mean, and how it was made.

``birds.onnx`` has the card ``birds.card.json``. A card is data: reading one never imports or runs anything.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.exceptions import ConsilienceError, InvalidInputError
from consilience.files.disk import file_sha256, read_bytes, replacing
from consilience.files.strict_json import (
    LARGEST,
    checked,
    listing,
    maybe,
    parse_json,
    plain_text,
    reader,
    record,
    text,
    whole,
)
from consilience.labels import class_list
from consilience.rows.images import ImagePreprocess
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

CardOutput = Literal["logits", "probabilities", "labels"]
_OUTPUTS: tuple[Any, ...] = (None, "logits", "probabilities", "labels")

VERSION = 1
MAX_BYTES = 16 * 2**20
MOST_COLUMNS = 1_000_000
FOLDER_CARD = "model.card.json"
"""The card in a model folder."""
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


@dataclass(frozen=True)
class Card:
    """What a model's file cannot say by itself.

    Parameters
    ----------
    name : str
        The teacher's name.
    classes : sequence of str or int
        One name per output column, in the order of the columns.
    output : {"logits", "probabilities", "labels"}, optional
        What the model gives; None leaves it to be detected.
    sha256 : str, optional
        Checksum of the model file, in hexadecimal.
    description : str
        A sentence for people.
    details : mapping
        Anything else that JSON can hold.
    centres : (k, d) array of numbers, optional
        The mean embedding of each class in the model's own data, a row per class (SCTD, eq. 6), so that
        others need not guess it from the weights.
    embed : str, optional
        The layer that the centres were taken from, as in ``as_teacher(..., embed=)``; by default the input of
        the last one. For another layer they are not used.
    feature_names : sequence of str, optional
        The names of the columns that the model was fitted on, in their order.
    preprocess : ImagePreprocess, optional
        How images are prepared for the model. In the file it is an object such as
        ``{"size": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}``.

    Examples
    --------
    >>> Card("birds", ["crow", "wren"]).classes
    ('crow', 'wren')
    """

    name: str
    classes: tuple[Any, ...]
    output: CardOutput | None = None
    sha256: str | None = None
    description: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    centres: tuple[tuple[float, ...], ...] | None = None
    embed: str | None = None
    feature_names: tuple[str, ...] | None = None
    preprocess: ImagePreprocess | None = None

    def __post_init__(self) -> None:
        if isinstance(self.name, str):  # that of a file may hold bytes that are not UTF-8
            object.__setattr__(self, "name", plain_text(self.name))
        for name, read in READERS.items():
            object.__setattr__(self, name, checked(name, getattr(self, name), read))
        if self.feature_names is not None and len(set(self.feature_names)) < len(self.feature_names):
            raise InvalidInputError("A card's feature_names must differ from each other.")
        if self.centres is not None:
            object.__setattr__(self, "centres", _read_centres(self.centres, len(self.classes)))


READERS = {
    "name": text(1000, least=1),
    "classes": lambda value: tuple(class_list(value, "classes")),
    "output": reader(
        "None, 'logits', 'probabilities' or 'labels'",
        lambda value: value is None or (isinstance(value, str) and value in _OUTPUTS),
    ),
    "sha256": maybe(text(64, like="[0-9a-fA-F]{64}", says="64 hexadecimal digits")),
    "description": text(100_000),
    "details": reader("a mapping of names to values", lambda value: isinstance(value, Mapping)),
    "embed": maybe(text(1000, least=1, says="the name of a layer")),
    "feature_names": maybe(listing(text(10_000), MOST_COLUMNS)),
    "preprocess": maybe(ImagePreprocess.from_dict),
}


def card_path(model_path: str | os.PathLike[str]) -> Path:
    """Return where the card of a model file lies: in the same folder, with the ending ``.card.json``.

    Examples
    --------
    >>> card_path("models/birds.onnx").as_posix()
    'models/birds.card.json'
    """
    return Path(model_path).with_suffix(".card.json")


def write_card(path: str | os.PathLike[str], card: Card) -> None:
    """Write a card; a reader sees the old card or the new one, never half of one.

    The path is the card's own: see `card_path`.

    Examples
    --------
    >>> import tempfile
    >>> path = card_path(Path(tempfile.mkdtemp()) / "birds.onnx")
    >>> write_card(path, Card("birds", ["crow", "wren"]))
    >>> read_card(path).classes
    ('crow', 'wren')
    """
    data = card_bytes(card)
    with replacing(Path(path)) as file:
        file.write(data)


@contextmanager
def carded(model_path: Path, card: Card) -> Iterator[None]:
    """Write a model's file in the block, then its card with the checksum of that file.

    A faulty card raises an error before the block, so an older file of that name stays intact.
    """
    card_bytes(card)
    yield
    write_card(card_path(model_path), replace(card, sha256=file_sha256(model_path)))


def card_bytes(card: Card) -> bytes:
    """Return the content of a card's file, or say what is wrong with it."""
    content = {"consilience_card": VERSION, **vars(card), "details": dict(card.details)}
    if card.preprocess is not None:
        content["preprocess"] = card.preprocess.to_dict()
    kept = {key: value for key, value in content.items() if value is not None}
    try:
        data = json.dumps(kept, indent=1, ensure_ascii=False, allow_nan=False).encode()
        parse_json(data, "The card")  # what is written can be read
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"The details of card {card.name!r} are not plain JSON: {error}.") from error
    if len(data) > MAX_BYTES:
        raise InvalidInputError(
            f"The card {card.name!r} takes {len(data)} bytes; at most {MAX_BYTES} are read."
        )
    return data


def read_card(path: str | os.PathLike[str]) -> Card:
    """Read a card, or say what is wrong with it.

    The path is the card's own. It must be a regular file: no link, no folder, no device.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "birds.card.json"
    >>> _ = path.write_text('{"consilience_card": 1, "name": "birds", "classes": ["crow", "wren"]}')
    >>> read_card(path).name
    'birds'
    """
    target = Path(path)
    return parse_card(read_bytes(target, f"The card {target}", most=MAX_BYTES), target.name)


def parse_card(data: bytes, filename: str) -> Card:
    """Return the card that the content of a file holds, or say what is wrong with it."""
    content = parse_json(data, filename)
    try:
        content = _FILE(content)
        version = content.pop("consilience_card")
        if version != VERSION:
            raise InvalidInputError(
                f"It is a card of version {version}; this release reads version {VERSION}. Upgrade "
                "consilience, or write the card again."
            )
        return Card(**content)
    except ConsilienceError as error:
        raise InvalidInputError(f"{filename}: {error}") from error


_FILE = record(
    {
        **dict.fromkeys((one.name for one in fields(Card)), lambda value: value),
        "consilience_card": whole(),
        "classes": listing(lambda value: value, MOST_COLUMNS),
    },
    needs=("consilience_card", "name", "classes"),
)


def find_card(model_path: str | os.PathLike[str]) -> Card | None:
    """Return the card next to a model file, or None where there is none.

    Raises
    ------
    InvalidInputError
        The card is broken, or its sha256 is that of another file.
    """
    path = card_path(model_path)
    if not os.path.lexists(path):
        return None
    card = read_card(path)
    if card.sha256 is not None and card.sha256.lower() != file_sha256(model_path):
        raise InvalidInputError(
            f"The card belongs to another file: the sha256 in {path.name} is not that of "
            f"{Path(model_path).name}. Remove the card, or write it again for this file."
        )
    return card


def find_folder_card(folder: str | os.PathLike[str]) -> Card | None:
    """Return the card of a model folder, or None where there is none.

    It lies next to the folder (``birds.card.json`` next to ``birds/``) or else in it (``model.card.json``).
    A card for a folder has no sha256, which belongs to one file.
    """
    inside = Path(folder).absolute()
    for path in (inside.with_name(f"{inside.name}.card.json"), inside / FOLDER_CARD):
        if os.path.lexists(path):
            card = read_card(path)
            if card.sha256 is not None:
                raise InvalidInputError(
                    f"{path.name} gives a sha256, which belongs to one file and not to the folder "
                    f"{inside.name!r}. Remove it from the card."
                )
            return card
    return None


def _read_centres(centres: Any, n_classes: int) -> tuple[tuple[float, ...], ...]:
    """Return centres (k, d) as plain numbers, or say what is wrong with them."""
    try:
        values = np.asarray(centres)
    except ValueError:  # rows that differ in length
        values = np.empty(0)
    if values.dtype.kind not in "iuf" or values.ndim != 2 or len(values) != n_classes or values.shape[1] == 0:
        raise InvalidInputError(
            f"A card's centres must be numbers, ({n_classes}, d): a row per class, all of one length; they "
            f"have shape {np.shape(values)}."
        )
    if not np.isfinite(values).all():
        raise InvalidInputError("A card's centres must be finite numbers.")
    return tuple(tuple(row) for row in values.astype(float).tolist())


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
        return value.encode("utf-8", "replace").decode()
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
        from consilience.rows.csv import read_column

        column = read_column(read_texts(column, name).tolist())
    kind = kind_of(column)
    if kind == "other":
        raise TypeError("no plain content")
    read: Callable[..., NDArray[Any]] = read_numbers
    return {"text": read_texts, "time": read_times}.get(kind, read)(column, name)


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
