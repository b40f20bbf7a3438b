"""What a repository knows of one model: its card, checked, and the files that belong to it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consilience.exceptions import InvalidInputError, shown
from consilience.files.card import Card
from consilience.labels import class_list
from consilience.repository.names import folder_of, is_inside
from consilience.teachers._base import Input

KEY = "repository"
"""Where the card of a model has what the repository adds to it, among its details."""
VERSION = 1
LONGEST = {"task": 200, "licence": 200, "source": 1000, "description": 10_000}
_MOST_METRICS = 100
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PATH = re.compile(r"[/~\\]|[A-Za-z]:[/\\]|file:", re.IGNORECASE)


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
    def n_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(one.n_bytes for one in self.files.values())

    @property
    def kind(self) -> str:
        """What its file is: ``"onnx"``, ``"npz"``, ``"folder"`` and so on."""
        return self.file.rpartition(".")[2] if self.file in self.files else "folder"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, ready for JSON."""
        return {"name": self.name, "classes": list(self.classes), "description": self.description} | {
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            KEY: self.repository_part(),
        }

    def repository_part(self) -> dict[str, Any]:
        """Return what stands under ``"repository"`` in the details of its card."""
        return {
            "version": VERSION,
            "file": self.file,
            "files": {path: [one.sha256, one.n_bytes] for path, one in self.files.items()},
            "inputs": None
            if self.inputs is None
            else [[i.name, i.dtype, list(i.shape)] for i in self.inputs],
            "column_kinds": dict(self.column_kinds),
            "task": self.task,
            "licence": self.licence,
            "source": self.source,
            "metrics": dict(self.metrics),
            "preprocess": dict(self.preprocess),
            "added": self.added,
        }


def entry_of_card(card: Card, folder: str) -> ModelEntry:
    """Return the model of a card that lies in some folder, or say what is wrong with it."""
    content = {"name": card.name, "classes": card.classes, "description": card.description}
    names = None if card.feature_names is None else list(card.feature_names)
    part = card.details.get(KEY)
    return read_entry(content | {"feature_names": names, KEY: part}, folder, checked=True)


def read_entry(content: Any, folder: str, *, checked: bool = False) -> ModelEntry:
    """Return the model that plain data describe, as `ModelEntry.to_dict` gives them; or raise.

    Parameters
    ----------
    content : dict
        From a stranger: nothing in it is believed.
    folder : str
        Where it lies; its name must give this folder.
    checked : bool
        Whether name, classes and description come from a `Card`, which has checked them.
    """
    if not isinstance(content, dict):
        raise InvalidInputError("It is no JSON object.")
    name, part = content.get("name"), content.get(KEY)
    if not isinstance(name, str) or folder_of(name) != folder:
        raise InvalidInputError(f"The card names {shown(name)}, and lies in the folder {folder!r}.")
    if not isinstance(part, dict) or part.get("version") != VERSION:
        raise InvalidInputError(
            f"The card was not written by add: it has no details {KEY!r} of version {VERSION}. "
            "Remove the folder, and add the model."
        )
    classes, names = content.get("classes"), content.get("feature_names")
    if not checked:
        classes = class_list(classes if isinstance(classes, list) else None)  # type: ignore[arg-type]
        check_text("description", content.get("description"))
        if names is not None and not _all(names, lambda one: isinstance(one, str)):
            raise InvalidInputError("The card's feature_names must be a list of texts.")
    files = _read_files(part.get("files"))
    file = part.get("file")
    if not is_inside(file) or not any(path == file or path.startswith(f"{file}/") for path in files):
        raise InvalidInputError(f"The card's file is {shown(file)}, which is none of its files.")
    texts = {key: check_text(key, part.get(key, "")) for key in ("task", "licence", "source")}
    return ModelEntry(
        name=name,
        classes=tuple(classes),  # type: ignore[arg-type]
        file=str(file),
        files=files,
        inputs=_read_inputs(part.get("inputs")),
        feature_names=None if names is None else tuple(names),
        column_kinds=_read_kinds(part.get("column_kinds", {})),
        description=content.get("description") or "",
        metrics=check_metrics(part.get("metrics", {})),
        preprocess=check_mapping("preprocess", part.get("preprocess", {})),
        added=check_text("added", part.get("added", "")),
        **texts,
    )


def check_text(key: str, value: object) -> str:
    """Return a text of a card, or raise where it is none or too long.

    A source goes to everyone who gets the repository: a path of this machine or a password is refused.
    """
    most = LONGEST.get(key, 200)
    if not isinstance(value, str) or len(value) > most:
        raise InvalidInputError(
            f"{{argument}} must be a text of at most {most} characters.", argument=key, value=value
        )
    if key == "source" and (_PATH.match(value) or re.match(r"\w+://[^/]*@", value)):
        raise InvalidInputError(
            "{argument} must name no path of this machine and no password: cards go to others. Give a public "
            "address, or a sentence.",
            argument=key,
        )
    return value


def check_metrics(value: object) -> dict[str, float]:
    """Return measured numbers by name, or raise."""
    found = check_mapping("metrics", value)
    plain = all(
        type(number) in (int, float) and math.isfinite(number) and len(name) <= 100
        for name, number in found.items()
    )
    if not plain or len(found) > _MOST_METRICS:
        raise InvalidInputError(
            f"{{argument}} must be at most {_MOST_METRICS} names with finite numbers, such as "
            '{"accuracy": 0.93}.',
            argument="metrics",
            value=value,
        )
    return {name: float(number) for name, number in found.items()}


def check_mapping(key: str, value: object) -> dict[str, Any]:
    """Return a mapping by texts as a plain dict, or raise."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidInputError("{argument} must be a mapping of names to values.", argument=key, value=value)
    return dict(value)


def _read_files(value: object) -> dict[str, ModelFile]:
    if not isinstance(value, dict) or not value:
        raise InvalidInputError("The card's files must be a mapping of paths to checksum and size.")
    found = {}
    for path, about in value.items():
        if not is_inside(path):
            raise InvalidInputError(f"The card has the file {shown(path)}, which is not inside its folder.")
        good = isinstance(about, list) and len(about) == 2 and isinstance(about[0], str)
        if not good or not _SHA256.fullmatch(about[0]) or type(about[1]) is not int or about[1] < 0:
            raise InvalidInputError(f"The card's file {path!r} must have a sha256 and a size.")
        found[path] = ModelFile(about[0], about[1])
    return found


def _read_inputs(value: object) -> tuple[Input, ...] | None:
    if value is None:
        return None
    found = []
    for one in value if isinstance(value, list) else [None]:
        if (
            not isinstance(one, list)
            or len(one) != 3
            or not isinstance(one[0], str)
            or not isinstance(one[1], str)
            or not _all(one[2], lambda size: size is None or (type(size) is int and size >= 0))
        ):
            raise InvalidInputError(
                f"The card has the input {shown(one)}; expected a name, a type and a shape."
            )
        found.append(Input(one[0], one[1], tuple(one[2])))
    return tuple(found)


def _read_kinds(value: object) -> dict[str, str]:
    found = check_mapping("column_kinds", value)
    if not _all(list(found.values()), lambda kind: isinstance(kind, str)):
        raise InvalidInputError("The card's column_kinds must be texts.")
    return found


def _all(value: object, test: Callable[[Any], bool]) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(test, value))
