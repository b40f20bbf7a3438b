"""What a repository knows of one model: its name, its card, checked, and the files that belong to it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from consilience.exceptions import ConsilienceError, InvalidInputError, shown
from consilience.files.card import MOST_COLUMNS, Card, parse_card
from consilience.files.strict_json import (
    RecordError,
    checked,
    listing,
    mapping,
    maybe,
    number,
    record,
    row,
    text,
    whole,
)
from consilience.teachers.inputs import Input

KEY = "repository"
"""Where the card of a model has what the repository adds to it, among its details."""
VERSION = 2
_MOST_BYTES = 200  # of a folder's name: file systems take 255, and endings come on top
_NAME = text(
    80,
    like=r"[^\W_][\w .+-]*",
    says="a text of at most 80 characters that begins with a letter or a digit, and has only letters, "
    "digits, spaces and . _ + - after it",
)
# Windows has devices with these names in every folder, and drops what stands at the end
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?|.*[. ]", re.DOTALL)
_BAD = frozenset('\\:*?"<>|')
_PATH = re.compile(r"[/~\\]|[A-Za-z]:[/\\]|file:", re.IGNORECASE)


def check_name(name: object) -> str:
    """Return the name of a model, or raise unless it can be that of a folder on every system.

    Examples
    --------
    >>> check_name("birds-v1.2")
    'birds-v1.2'
    """
    checked_name: str = checked("name", name, _NAME)
    folder = folder_of(checked_name)
    if len(folder.encode()) > _MOST_BYTES or _RESERVED.fullmatch(folder):
        raise InvalidInputError(
            "{argument} cannot be the name of a folder on every system. Give another.",
            argument="name",
            value=name,
        )
    return checked_name


def folder_of(name: str) -> str:
    """Return the folder of a model: two names that differ only in case have one folder, on every system.

    Examples
    --------
    >>> folder_of("Birds"), folder_of("STRASSE") == folder_of("straße")
    ('birds', True)
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def is_folder(text: str) -> bool:
    """Tell whether a folder can be that of a model."""
    try:
        return folder_of(check_name(text)) == text
    except InvalidInputError:
        return False


def inside(path: Any) -> str:
    """Return a plain relative path below a folder, with ``/`` between its parts, or raise."""
    parts = path.split("/") if isinstance(path, str) else [""]
    if {"", ".", ".."} & {*parts} or len(path) > 1000 or not path.isprintable() or _BAD & {*path}:
        raise RecordError("a path inside the folder of the model", path)
    return str(path)


def _source(value: Any) -> str:
    """Read where a model comes from. It goes to everyone who gets the repository: no path, no password."""
    source: str = text(1000)(value)
    if _PATH.match(source) or re.match(r"\w+://[^/]*@", source):
        raise RecordError(
            "a public address or a sentence, with no path of this machine and no password", "..."
        )
    return source


def _input(value: Any) -> Input:
    return Input(*row(text(10_000), text(100), listing(maybe(whole()), 32))(value))


def _file(value: Any) -> ModelFile:
    return ModelFile(*row(text(64, like="[0-9a-f]{64}"), whole())(value))


FACTS = {
    "task": text(200),
    "licence": text(200),
    "source": _source,
    "metrics": mapping(number(), 100, keys=text(100)),
}
"""What people say of a model in a repository, and what it must be."""
_PART = record(
    {
        "version": whole(),
        "file": inside,
        "files": mapping(_file, 10_000, keys=inside, least=1),
        "inputs": maybe(listing(_input, MOST_COLUMNS, least=1)),
        "column_kinds": mapping(text(100), MOST_COLUMNS, keys=text(10_000)),
        "added": text(100),
        **FACTS,
    },
    needs=["version", "file", "files"],
)


@dataclass(frozen=True)
class ModelFile:
    """One file of a model.

    Attributes
    ----------
    sha256 : str
        Its checksum, in hexadecimal.
    n_bytes : int
    """

    sha256: str
    n_bytes: int


@dataclass(frozen=True)
class ModelEntry:
    """One model of a repository.

    Attributes
    ----------
    name : str
    classes : tuple of str or int
        One per output column.
    file : str
        The model's file or folder, inside its own folder.
    files : mapping
        Every file that belongs to it, by its path inside the folder.
    inputs : tuple of Input or None
        What it takes; None where that is not known.
    feature_names : tuple of str or None
        The names of the columns that it takes.
    column_kinds : mapping
        What columns of a table hold, where the model says so.
    task, licence, source, description : str
        For people.
    metrics : mapping of str to float
    preprocess : mapping
        How images are prepared for it: the entries of an `ImagePreprocess`; empty if it takes no images.
    added : str
        When, in UTC.

    Examples
    --------
    >>> model = ModelEntry("pets", ("cat", "dog"), "model.onnx", {"model.onnx": ModelFile("0" * 64, 1200)})
    >>> model.kind, model.n_bytes
    ('onnx', 1200)
    """

    name: str
    classes: tuple[Any, ...]
    file: str
    files: Mapping[str, ModelFile]
    inputs: tuple[Input, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    column_kinds: Mapping[str, str] = field(default_factory=dict)
    task: str = ""
    licence: str = ""
    source: str = ""
    description: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    preprocess: Mapping[str, Any] = field(default_factory=dict)
    added: str = ""

    @property
    def folder(self) -> str:
        """The folder that it lies in."""
        return folder_of(self.name)

    @property
    def card_copy(self) -> str:
        """The path of a copy of its card, beside its file, where `as_teacher` looks for one."""
        above, slash, _ = self.file.rpartition("/")
        return f"{above}{slash}{self.folder}.card.json"

    @property
    def adds(self) -> set[str]:
        """The folders, inside its own, that its files were added in."""
        return {path.partition("/")[0] for path in self.files}

    @property
    def n_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(one.n_bytes for one in self.files.values())

    @property
    def kind(self) -> str:
        """What its file is: ``"onnx"``, ``"npz"``, ``"folder"`` and so on."""
        return self.file.rpartition(".")[2] if self.file in self.files else "folder"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, ready for JSON."""
        return asdict(self) | {"kind": self.kind, "n_bytes": self.n_bytes}


def entry_of_card(card: Card, folder: str) -> ModelEntry:
    """Return the model of a card that lies in some folder, or say what is wrong with it."""
    part = card.details.get(KEY)
    if folder_of(card.name) != folder:
        raise InvalidInputError(f"The card names {shown(card.name)}, and lies in the folder {folder!r}.")
    if not isinstance(part, dict) or part.get("version") != VERSION:
        raise InvalidInputError(
            f"The card was not written by add: it has no details {KEY!r} of version {VERSION}. "
            "Remove the folder, and add the model."
        )
    found = _PART(part)
    del found["version"]
    if not any(path == found["file"] or path.startswith(f"{found['file']}/") for path in found["files"]):
        raise InvalidInputError(f"The card's file is {shown(found['file'])}, which is none of its files.")
    return ModelEntry(
        name=card.name,
        classes=card.classes,
        feature_names=card.feature_names,
        description=card.description,
        preprocess={} if card.preprocess is None else card.preprocess.to_dict(),
        **found,
    )


def read_entry(data: bytes | None, folder: str) -> ModelEntry | str:
    """Return the model of a card, or why the card cannot be used: nothing in it is believed."""
    try:
        if data is None:
            raise InvalidInputError("Its card is a link, a folder or a device, or too long.")
        return entry_of_card(parse_card(data, f"{folder}.card.json"), folder)
    except ConsilienceError as error:
        return " ".join(str(error).split())[:500]
