"""Where models lie: in a folder of this machine, or behind a URL such as ``s3://bucket/models``.

::

    birds/birds.card.json             with it, the model is there
    birds/3f0c.../birds.onnx          the files of one add, and a copy of the card
    birds/description-....npz         what it said about reference rows
    _repository/                      README.txt, and the reference rows

A bucket has whole files and no renaming of folders. So the files of each add go to a folder with a random
name, and the card is written last, on the condition that there is none: of two adds of one name, one wins.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from consilience.exceptions import (
    InvalidInputError,
    StorageError,
    UnsafeFileError,
    WriteError,
)
from consilience.files.card import MAX_BYTES
from consilience.files.storage import BLOCK, Entry, StoragePath, local_path, storage_path
from consilience.repository.entry import ModelEntry, ModelFile, is_folder
from consilience.repository.listing import Finding, RepositoryCheck
from consilience.run import Progress

OWN = "_repository"
README = f"{OWN}/README.txt"
README_TEXT = "Models that consilience keeps: a folder per model, with its files and its card.\n"
STALE = 3600.0
"""Seconds without a write after which files without a card are taken for those of a killed add."""
_DESCRIPTION = re.compile(r"description-[0-9a-f]{32}\.npz")
_TEMPORARY = re.compile(r"(.*/)?\.[^/]+\.[0-9a-f]{16}\.tmp")
_ADD = re.compile(r"[0-9a-f]{16}/.+")
_SAYS = {"missing": "is missing, or no regular file", "damaged": "is not the file that was added"}


class Shelf:
    """The files of a repository.

    Parameters
    ----------
    where : path or str
        A folder, made when something is added, or a URL without a password.
    copies : path, optional
        The folder of this machine for copies of models behind a URL, by default in the cache of the user.
    """

    def __init__(self, where: str | os.PathLike[str], copies: str | os.PathLike[str] | None) -> None:
        self.root = storage_path(where)
        self._copies = _user_cache() if copies is None else local_path(copies)
        if self.root.is_root() is False:
            raise InvalidInputError(f"The repository {str(self.root)!r} is a file; give a folder.")
        names = self.root.names()  # before the README is looked for: another process may be making it
        if set(names) - {OWN} and not (self.root / README).is_file():
            raise InvalidInputError(
                f"The folder {str(self.root)!r} holds other files and is no repository. Give a new or an "
                "empty folder, and add the models to it."
            )

    def write(self, path: str, data: bytes) -> None:
        """Write a file whole or not at all, in a repository that need not be there yet."""
        if path != README and not (self.root / README).is_file():
            self.write(README, README_TEXT.encode())
        (self.root / path).parent.make_root()
        with (self.root / path).writing(durable=True) as file:
            file.write(data)

    def find(self, paths: Iterable[str]) -> dict[str, Entry]:
        """Return what is known of those of some paths that are there."""
        if self.root.local is None:
            tree = self.root.tree()  # one request for each thousand files
            return {path: tree[path] for path in paths if path in tree}
        found = {path: (self.root / path).about() for path in paths}
        return {path: entry for path, entry in found.items() if entry is not None}

    def read_cards(self) -> dict[str, bytes | None]:
        """Return the card of each model by its folder; None where it is no regular file, or too long."""
        paths = {card_file(name): name for name in self.root.folders() if is_folder(name)}
        cards = self.find(paths)
        read = self.root.read_all(list(cards.values()), MAX_BYTES)
        return {paths[path]: data for path, data in zip(cards, read, strict=True)}

    @contextmanager
    def adding(self, folder: str) -> Iterator[Path]:
        """Give a new folder of this machine, in which the files and the card of a model are made.

        When the block ends without an error, the model is there; otherwise nothing is.
        """
        card, name = self.root / card_file(folder), secrets.token_hex(8)
        taken = InvalidInputError(
            f"The repository has a model {folder!r} already (capitals do not tell names apart). Remove it "
            "first, or give {remedy} another.",
            remedy="name",
        )
        if card.about() is not None:
            raise taken
        self.write(README, README_TEXT.encode())
        (self.root / folder).make_folder()
        (self.root / folder / name).make_root()
        with tempfile.TemporaryDirectory(prefix="consilience-") as elsewhere:
            above = Path(elsewhere) if self.root.local is None else self.root.local / folder
            (above / name).mkdir(exist_ok=True)
            done = False
            try:
                yield above / name
                self._send(above / name, folder)
                done = card.create((above / name / card.name).read_bytes())
                if not done:
                    raise taken
            finally:
                if not done:
                    there = (self.root / folder).tree()
                    self._delete(folder, [path for path in there if path.startswith(f"{name}/")], name)

    def _send(self, made: Path, folder: str) -> None:
        """Put the files of a model behind the URL, if there is one, and look whether they arrived."""
        if self.root.local is not None:
            return
        place = self.root / folder / made.name
        sizes = {}
        for file in sorted(path for path in made.rglob("*") if path.is_file()):
            target = place / file.relative_to(made).as_posix()
            sizes[file.relative_to(made).as_posix()] = file.stat().st_size
            target.parent.make_root()
            target.upload(file)
        if {path: entry.size for path, entry in place.tree().items()} != sizes:
            raise StorageError(
                f"The model {folder!r} was not added: {self.root} does not hold what was sent. Add it again."
            )

    def remove(self, folder: str, entry: ModelEntry | None) -> None:
        """Delete the card, and then what belongs to it; without an entry, all that is there.

        An add of this name that goes on meanwhile keeps its files.
        """
        card = self.root / card_file(folder)
        card.delete()
        if card.about() is not None:
            raise StorageError(
                f"{card} cannot be deleted. Check that it is a file, and that you may delete it."
            )
        there = (self.root / folder).tree()
        adds = entry.adds if entry else {path[:16] for path in there}
        others = {path for path in there if _ADD.fullmatch(path) and path[:16] not in adds}
        self._delete(folder, there.keys() - others)

    def _delete(self, folder: str, paths: Iterable[str], add: str = "") -> None:
        """Delete files of a model, and folders that are empty then."""
        above = {folder, f"{folder}/{add}".rstrip("/")}
        for path in paths:
            (self.root / folder / path).delete()
            above |= {str(one) for one in PurePosixPath(folder, path).parents} - {"."}
        for one in sorted(above, key=len, reverse=True):
            (self.root / one).delete_folder()

    def verify(self, known: Mapping[str, ModelEntry | str], progress: Progress) -> RepositoryCheck:
        """Compare every file with its card; see `Repository.verify`."""
        contents: dict[str, dict[str, Entry]] = {}
        for path, found in self.root.tree().items():
            folder, _, below = path.partition("/") if "/" in path else ("", "", path)
            contents.setdefault(folder, {})[below] = found
        for folder, files in contents.items():
            if (is_folder(folder) or folder == OWN) and not isinstance(known.get(folder), str):
                self._sweep(folder, files, known.get(folder))
        findings, n_files = [], 0
        for place, (folder, entry) in enumerate(known.items()):
            if isinstance(entry, str):
                findings.append(Finding(folder, f"{folder}.card.json", "unreadable", f"{folder}: {entry}"))
            else:
                n_files += len(entry.files)
                findings += _check_model(entry, contents.get(folder, {}))
            progress("checking", place + 1, len(known))
        left = {name for name, files in contents.items() if files}
        for name in sorted({*left, *contents.get("", ())} - {"", OWN, *known}):
            findings.append(Finding("", name, "extra", f"{name!r} belongs to no model of the repository."))
        return RepositoryCheck(len(known), n_files, tuple(findings))

    def _sweep(self, folder: str, files: dict[str, Entry], entry: ModelEntry | str | None) -> None:
        """Delete what killed processes left, if nothing in it was written for an hour."""
        adds = entry.adds if isinstance(entry, ModelEntry) else ()
        left: dict[str, list[str]] = {}
        for path in files:
            if _ADD.fullmatch(path) and path[:16] not in adds:
                left.setdefault(path[:16], []).append(path)
            elif _TEMPORARY.fullmatch(path):
                left[path] = [path]
        for paths in left.values():
            if all(0 < files[path].used < time.time() - STALE for path in paths):  # 0: nobody knows
                self._delete(folder, paths)
                for path in paths:
                    del files[path]

    def model_path(self, entry: ModelEntry) -> Path:
        """Return the file or folder of a model on this machine; from a URL, a copy that was checked."""
        if self.root.local is not None:
            top = self.root.local.resolve() / entry.folder  # the repository itself may be behind a link
            for path in entry.files:
                if (top / path).resolve() != top / path:
                    raise UnsafeFileError(
                        f"{path!r} of the model {entry.name!r} is a link. Put the file itself there."
                    )
                if not (top / path).is_file():
                    raise InvalidInputError(
                        f"The model {entry.name!r} lacks its file {path!r}. "
                        "Remove the model, and add it again."
                    )
            return Path(self.root.local, entry.folder, entry.file)
        try:
            self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is in a bucket may be private
        except OSError as error:
            raise WriteError(error.errno, error.strerror or str(error), str(self._copies)) from error
        card = (self.root / card_file(entry.folder)).read(MAX_BYTES) or b""
        place = self._copies / f"{entry.folder}-{hashlib.sha256(card).hexdigest()[:32]}"
        copies = storage_path(place)
        there = copies.tree()
        for path, about in entry.files.items():
            if _problem(there.get(path), about):  # no copy yet, or damaged since
                (copies / path).parent.make_root()
                with (copies / path).writing() as file:
                    _fetch(self.root / entry.folder / path, file, about)
        with (copies / entry.card_copy).writing() as file:
            file.write(card)
        return place / entry.file


def card_file(folder: str) -> str:
    """Return the path of a model's card."""
    return f"{folder}/{folder}.card.json"


def _fetch(source: StoragePath, file: BinaryIO, about: ModelFile) -> None:
    """Copy a file of a model, or raise if it is not the one that was added."""
    digest = hashlib.sha256()
    with contextlib.suppress(FileNotFoundError), source.reading() as read:
        while (block := read.read(BLOCK)) and file.tell() <= about.n_bytes:  # a store may send without end
            digest.update(block)
            file.write(block)
    if digest.hexdigest() != about.sha256:
        raise InvalidInputError(
            f"{source} is missing, or not the file that was added. Remove the model, and add it again."
        )


def _check_model(entry: ModelEntry, files: Mapping[str, Entry]) -> Iterator[Finding]:
    """Yield what is wrong with the files of a model."""
    folder = entry.folder

    def found(path: str, problem: str, what: str) -> Finding:
        return Finding(folder, path, problem, f"{folder}: {path} {what}.")

    for path, about in entry.files.items():
        if problem := _problem(files.get(path), about):
            yield found(path, problem, _SAYS[problem])
    card, copy = f"{folder}.card.json", files.get(entry.card_copy)
    if copy is not None and _sha256(copy) != _sha256(files[card]):
        yield found(entry.card_copy, "damaged", "is another card than the model's")
    for path in files.keys() - entry.files.keys() - {card, entry.card_copy}:
        if not _DESCRIPTION.fullmatch(path):
            yield found(path, "extra", "was not added with the model")


def _sha256(entry: Entry) -> str:
    with entry.path.reading() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _problem(found: Entry | None, about: ModelFile) -> str:
    """Return what is wrong with a file of a model; nothing if it is the one that was added."""
    if found is None or found.kind != "file":
        return "missing"
    return "" if found.size == about.n_bytes and _sha256(found) == about.sha256 else "damaged"


def _user_cache() -> Path:
    """Return where copies of models go by default."""
    given = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "consilience" / "models"
    except RuntimeError:  # a user without a home
        return Path(tempfile.mkdtemp(prefix="consilience-"))
