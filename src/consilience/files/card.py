"""A teacher's card: a small JSON file next to its model that says what the columns mean, and how it was made.

``birds.onnx`` has the card ``birds.card.json``. A card is data: reading one never imports or runs anything.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from consilience.exceptions import ConsilienceError, InvalidInputError
from consilience.files.disk import file_sha256, read_bytes, replacing
from consilience.files.strict_json import (
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

CardOutput = Literal["logits", "probabilities", "labels"]
_OUTPUTS: tuple[Any, ...] = (None, "logits", "probabilities", "labels")

VERSION = 1
_SEAL = "card_sha256"  # of the file without it
_UNSEALED = '""\n}'  # the end of a file whose last entry is empty
MAX_BYTES = 16 * 2**20
MOST_COLUMNS = 1_000_000
FOLDER_CARD = "model.card.json"
"""The card in a model folder."""


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
        text = json.dumps({**kept, _SEAL: ""}, indent=1, ensure_ascii=False, allow_nan=False)
        seal = hashlib.sha256(text.encode()).hexdigest()
        data = f'{text.removesuffix(_UNSEALED)}"{seal}"\n}}'.encode()
        parse_json(data, "The card")  # what is written can be read
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"The details of card {card.name!r} are not plain JSON: {error}.") from error
    if len(data) > MAX_BYTES:
        raise InvalidInputError(
            f"The card {card.name!r} takes {len(data)} bytes; at most {MAX_BYTES} are read."
        )
    return data


def is_unchanged(data: bytes) -> bool:
    """Tell whether the content of a card's file is as we wrote it; True where it has no checksum of its own.

    Examples
    --------
    >>> data = card_bytes(Card("birds", ["crow", "wren"]))
    >>> is_unchanged(data), is_unchanged(data.replace(b"wren", b"wrem"))
    (True, False)
    """
    seal = str(parse_json(data, "The card").get(_SEAL, ""))
    return not seal or hashlib.sha256(data.replace(seal.encode(), b"")).hexdigest() == seal


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
        content.pop(_SEAL, None)  # cards may be changed by hand: only `verify` compares it
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
        _SEAL: text(64, like="[0-9a-f]{64}", says="64 hexadecimal digits"),
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
    for path in (inside.parent / f"{inside.name}.card.json", inside / FOLDER_CARD):
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
