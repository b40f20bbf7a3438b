"""Is a saved model what its card says, and does it work?"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._validation import n_rows
from consilience._words import counted, shorten
from consilience.exceptions import ConsilienceError, InvalidInputError
from consilience.files.card import MAX_BYTES, card_path, is_unchanged, parse_card
from consilience.files.disk import file_sha256, read_bytes
from consilience.files.made import data_hash, read_made
from consilience.files.ngram_model import read_model
from consilience.rows.tables import rows_sha256
from consilience.students.loaded import LoadedClassifier
from consilience.teachers import as_teacher
from consilience.teachers.folders import source_sha256
from consilience.teachers.inputs import Input
from consilience.teachers.onnx import Onnx, load_safely
from consilience.teachers.outputs import foreign
from consilience.teachers.remote import address_name, is_address

__all__ = ["Check", "Verification", "verify_model"]

_ROWS = 8
_MOST_VALUES = 10_000_000  # of made-up rows: a file may claim any shape
_TOLERANCE = 1e-4  # of the sum of probabilities: they are floats of 32 bits


@dataclass(frozen=True)
class Check:
    """One question about a model.

    Attributes
    ----------
    name : str
    passed : bool or None
        None if it could not be asked, because an earlier check failed.
    found : str
        The answer, in words.
    """

    name: str
    passed: bool | None
    found: str


@dataclass(frozen=True)
class Verification:
    """What `verify_model` found.

    Attributes
    ----------
    checks : tuple of Check
    """

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {"passed": self.passed, "checks": [asdict(check) for check in self.checks]}


def verify_model(
    path: str | os.PathLike[str], *, teachers: Sequence[str | os.PathLike[str]] = (), X: Any = None
) -> Verification:
    """Check a saved model against its card, and run it on a few made-up rows.

    Parameters
    ----------
    path : path
        A file that `save` wrote.
    teachers : sequence of paths
        Files, model folders or addresses that the model should have been made from.
    X : array, data frame or list, optional
        Rows that the model should have been fitted on.

    Raises
    ------
    InvalidInputError
        The file, or that of a teacher, does not exist. Everything else is the result of a check.
    """
    source = Path(path)
    for file in (source, *(Path(one) for one in teachers if not is_address(one))):
        if not file.is_file() and (file == source or not file.is_dir()):
            raise InvalidInputError(f"{file} does not exist, or is no file.")
    if source.suffix.lower() not in (".onnx", ".npz"):
        raise InvalidInputError(
            f"{source.name!r} is no saved model; expected a file that ends in .onnx or .npz."
        )
    model = _Examined(source)
    checks = [
        model.ask("card", model.find_card),
        model.ask("checksum", model.check_checksum, model.card),
        model.ask("safety", model.look_inside),
    ]
    checks.append(model.ask("origin", model.open, all(check.passed for check in checks)))
    checks += [
        model.ask("classes", model.check_classes, model.model),
        model.ask("columns", model.check_columns, model.model),
        model.ask("runs", model.check_runs, model.model),
        model.ask("unchanged", model.check_text, model.card),
    ]
    for teacher in map(Path, teachers):
        remote = is_address(teacher)
        check = model.check_served if remote else model.check_teacher
        name = address_name(teacher) if remote else teacher.name
        checks.append(model.ask(f"teacher {name}", partial(check, teacher)))
    if X is not None:
        checks.append(model.ask("data", partial(model.check_data, X)))
    return Verification(tuple(checks))


class _Examined:
    """A saved model and, once they were read, its card and the classifier."""

    card: Any = None
    text = b""  # of the card's file
    model: Any = None

    def __init__(self, source: Path) -> None:
        self.source = source

    def ask(self, name: str, check: Callable[[], str], ready: object = True) -> Check:
        """Return the answer to a question, unless something that it needs was not found."""
        if not ready:
            return Check(name, None, "an earlier check failed")
        try:
            return Check(name, True, check())
        except ConsilienceError as error:
            return Check(name, False, " ".join(str(error).split()))

    def find_card(self) -> str:
        path = card_path(self.source)
        _expect(os.path.lexists(path), f"There is no {path.name} next to the model.")
        self.text = read_bytes(path, f"The card {path}", most=MAX_BYTES)
        self.card = parse_card(self.text, path.name)
        made = read_made(self.card)
        date, version = (made.get(key, "unknown") for key in ("date", "version"))
        return (
            f"made on {date} by consilience {version}" if made else "it does not say how the model was made"
        )

    def check_text(self) -> str:
        changed = "The card is not as it was written. Restore it, or save the model again."
        _expect(is_unchanged(self.text), changed)
        return "the card is as it was written"

    def check_checksum(self) -> str:
        digest = self.card.sha256
        _expect(digest is not None, "The card has no checksum.")
        right = digest.lower() == file_sha256(self.source)
        _expect(right, "The file is not the one that the card was written for.")
        return f"sha256 {digest[:12]}..."

    def look_inside(self) -> str:
        if self.source.suffix.lower() == ".npz":
            read_model(self.source)
            return "plain arrays, and nothing pickled"
        _, external = load_safely(self.source.resolve(), self.source.stem)
        if external:
            return f"it reads {shorten(path.name for path in external)} next to it, and nothing else"
        return "one file that reads no other"

    def open(self) -> str:
        # not load: whether the card fits is a check of its own
        self.model = LoadedClassifier(self.source)
        return "written by consilience"

    def check_classes(self) -> str:
        return _compared(list(self.card.classes), self.model.teacher_.own_classes)

    def check_columns(self) -> str:
        listed, teacher = self.card.feature_names, self.model.teacher_
        inside = teacher.columns.names if isinstance(teacher, Onnx) else None
        return _compared(None if listed is None else list(listed), inside)

    def check_runs(self) -> str:
        rows, model = f"{_ROWS} made-up rows", self.model
        if isinstance(model.teacher_, Onnx):
            inputs = model.teacher_.inputs
            feed = {item.name: _made_up(item, _MOST_VALUES // len(inputs)) for item in inputs}
            with foreign(self.source.name, f"fails on {rows}"):
                proba, labels = model.teacher_.session.run(["probabilities", "label"], feed)
        else:
            texts = ["", "made up", *(f"text {i}" for i in range(_ROWS - 2))]
            proba, labels = model.predict_proba(texts), model.predict(texts)
        proba, n_classes = np.asarray(proba), len(model.classes_)
        fits = proba.dtype.kind == "f" and proba.ndim == 2 and len(proba) and proba.shape[1] == n_classes
        _expect(fits, f"It gives {proba.dtype} of shape {proba.shape} for {counted(n_classes, 'class')}.")
        worst = float(np.abs(proba.sum(axis=1) - 1).max())
        right = worst <= _TOLERANCE and proba.min() >= 0
        _expect(right, f"Its probabilities for {rows} miss a sum of 1 by {worst:.2g}.")
        right = np.asarray(labels).tolist() == model.classes_[proba.argmax(axis=1)].tolist()
        _expect(right, "Its labels are not its most probable classes.")
        return f"probabilities of {rows} sum to 1"

    def _named(self, key: str) -> dict[Any, str]:
        """Return the names of the teachers on the card by what it says of them under a key."""
        listed = read_made(self.card).get("teachers")
        found = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
        return {one[key]: str(one.get("name")) for one in found if isinstance(one.get(key), str)}

    def check_served(self, address: Path) -> str:
        """Compare what a server says about its model with what it said when the model was made."""
        name = self._named("served").get(as_teacher(address).served)
        _expect(name is not None, "Its server describes another model than any teacher on the card.")
        return f"it describes itself as the teacher {name} did"

    def check_teacher(self, file: Path) -> str:
        named = self._named("sha256")
        name = named.get(source_sha256(file))
        _expect(named, "The card names no files of teachers to compare it with.")
        _expect(name is not None, f"It is none of the files on the card: {shorten(named.values())}.")
        return f"it is the teacher {name}"

    def check_data(self, X: Any) -> str:
        expected, found = data_hash(self.card), rows_sha256(X)
        _expect(expected is not None, "The card names no rows to compare them with.")
        kind = type(X).__name__
        _expect(found is not None, f"A {kind} has no checksum. Give its rows as an array, a table or texts.")
        _expect(found == expected, f"The model was fitted on other rows than these {n_rows(X)}.")
        return f"the model was fitted on these {counted(n_rows(X), 'row')}"


def _expect(holds: object, otherwise: str) -> None:
    """Raise unless something holds."""
    if not holds:
        raise InvalidInputError(otherwise)


def _compared(listed: list[Any] | None, inside: list[Any] | None) -> str:
    """Return what the card and the file name, or raise unless it is the same."""
    card, file = (shorten(names or ["none"], 5) for names in (listed, inside))
    _expect(inside == listed, f"The card names {card}, and the file {file}.")
    return "without names" if listed is None else f"{len(listed)}: {card}"


def _made_up(item: Input, most: int) -> NDArray[Any]:
    """Return values that an input may be fed."""
    lengths = [length or 1 for length in item.shape]
    if item.shape and item.shape[0] is None:
        lengths[0] = _ROWS
    fits = min(lengths, default=1) >= 0 and math.prod(lengths) <= most
    _expect(fits, f"Its input {item.name!r} has shape {item.shape}, which is too large to try, or negative.")
    random = np.random.default_rng(0)
    if item.dtype == "text":
        return np.array(random.choice(["", "made up"], lengths), dtype=object)
    return random.integers(0, 2, lengths).astype(item.dtype)
