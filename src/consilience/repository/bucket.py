"""A repository behind a URL such as ``s3://bucket/models``, which fsspec reaches.

A bucket has whole files and no renaming of folders. So the files of each add go to a folder of their own,
with a random name, and the card is written last: without a card, nothing is there. The card is written on the
condition that there is none, so of two adds of one name one wins. Nothing is opened where it lies: files are
copied to this machine and compared with their checksums first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from consilience.exceptions import InvalidInputError, StorageError, WriteError
from consilience.files.atomic import replacing
from consilience.files.card import MAX_BYTES, parse_card
from consilience.files.remote import Found, RemotePath, remote_path
from consilience.files.storage import local_path
from consilience.repository.entry import ModelEntry, entry_of_card
from consilience.repository.folder import check_plain_files, sha256_of
from consilience.repository.layout import (
    DESCRIPTION,
    OWN,
    README,
    README_TEXT,
    STALE,
    TEMPORARY,
    Stage,
    Stamp,
    card_copy,
    card_file,
    check_is_repository,
    name_taken,
)
from consilience.repository.names import is_folder

_ADD = re.compile(r"[0-9a-f]{16}")  # the folder of the files of one add


class BucketLayout:
    """A repository behind a URL.

    Parameters
    ----------
    url : str
        Without a password: packages of fsspec find theirs in the environment or in a configuration file.
    copies : path, optional
        The folder of this machine for copies of models, by default in the cache of the user.
    """

    appends = False

    def __init__(self, url: str, copies: str | os.PathLike[str] | None = None) -> None:
        self._root = remote_path(url)
        self.root = self.shown = str(self._root)
        self._copies = _user_cache() if copies is None else local_path(copies)
        self._listing: dict[str, dict[str, Found]] = {}
        if self._root.is_root() is False:
            raise InvalidInputError(f"The repository {self.shown!r} is a file; give a folder.")
        # in this order: another process may be making the README at this moment
        names = self._root.all_names()
        check_is_repository(self.shown, names, self._at(OWN, README).is_file())

    def _at(self, folder: str, path: str = "") -> RemotePath:
        """Return the path of a file in a folder of the repository."""
        place = self._root / folder
        for part in path.split("/") if path else ():
            place = place / part
        return place

    def stamps(self) -> dict[str, Stamp]:
        """Return a stamp of the card of each model, by folder, in order, from one listing of everything."""
        listing: dict[str, dict[str, Found]] = {}
        for path, found in self._root.tree().items():
            folder, _, below = path.partition("/")
            listing.setdefault(folder, {})[below] = found
        self._listing = listing
        cards = ((folder, listing[folder].get(card_file(folder))) for folder in sorted(listing))
        return {folder: card.stamp for folder, card in cards if card is not None and is_folder(folder)}

    def strangers(self) -> list[str]:
        """Return what lies there and belongs to no model."""
        known = {*self.stamps(), OWN}
        return sorted(name for name in self._listing if name not in known)

    def read_card(self, folder: str, most: int) -> bytes:
        """Return the content of a model's card, or raise where there is none or it is too long."""
        data = _read(self._at(folder, card_file(folder)), most)
        if data is None:
            raise InvalidInputError(
                f"{card_file(folder)} cannot be read: it does not exist, or has more than {most} bytes."
            )
        return data

    def files(self, folder: str) -> tuple[dict[str, int], list[str]]:
        """Return the size of each file of a model by its path; as of the last listing."""
        return {path: found.size for path, found in self._listing.get(folder, {}).items()}, []

    def sha256(self, folder: str, path: str) -> str:
        """Return the checksum of a file of a model, which is read for it."""
        digest = hashlib.sha256()
        for block in self._at(folder, path).blocks():
            digest.update(block)
        return digest.hexdigest()

    def model_path(self, entry: ModelEntry) -> Path:
        """Return a copy of a model on this machine, after a check of every file against its checksum."""
        data = self.read_card(entry.folder, MAX_BYTES)
        if entry_of_card(parse_card(data, card_file(entry.folder)), entry.folder).files != entry.files:
            raise InvalidInputError(f"The model {entry.folder!r} was replaced at this moment. Try again.")
        place = self._copies / f"{entry.folder}-{hashlib.sha256(data).hexdigest()[:32]}"
        if place.is_dir() and _problem(place, entry, data):
            shutil.rmtree(place, ignore_errors=True)  # damaged since: copy it again
        if not place.is_dir():
            self._fetch_model(entry, data, place)
        return place / entry.file

    def _fetch_model(self, entry: ModelEntry, card: bytes, place: Path) -> None:
        """Copy a model to a folder of this machine, which is there as a whole or not at all."""
        temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}.tmp")
        try:
            self._make_copies()
            for path, about in entry.files.items():
                target = temporary / path
                target.parent.mkdir(parents=True, exist_ok=True)
                source = self._at(entry.folder, path)
                if _fetch(source, target, about.n_bytes) != about.sha256:
                    raise InvalidInputError(
                        f"The model {entry.folder!r}: {path!r} is missing, or not the file that was added. "
                        "Remove the model, and add it again."
                    )
            (temporary / (card_copy(entry) or card_file(entry.folder))).write_bytes(card)
            with contextlib.suppress(OSError):  # another process was quicker with the same copy
                os.rename(temporary, place)
        except OSError as error:
            raise _as_ours(error, place) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        problem = _problem(place, entry, card)
        if problem:
            raise InvalidInputError(problem)

    def _make_copies(self) -> None:
        self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def staging(self) -> Iterator[Stage]:
        """Give a new folder of this machine to make a model in; it is deleted when the block ends."""
        self.prepare()
        with tempfile.TemporaryDirectory(prefix="consilience-") as name:
            top = Path(name).resolve()
            files = top / secrets.token_hex(8)
            files.mkdir()
            yield Stage(top, files)

    def publish(self, stage: Stage, folder: str) -> None:
        """Send the files and then the card; raise if there is a model of that name, or meanwhile was."""
        card = self._at(folder, card_file(folder))
        if card.is_file():
            raise name_taken(folder)
        add = stage.files.name
        data = (stage.top / card_file(folder)).read_bytes()
        shutil.copyfile(stage.top / card_file(folder), stage.files / card_file(folder))
        sizes = {
            f"{add}/{path.relative_to(stage.files).as_posix()}": path.stat().st_size
            for path in sorted(stage.files.rglob("*"))
            if path.is_file()
        }
        published = False
        try:
            for path in sizes:
                target = self._at(folder, path)
                self._at(folder, path.rpartition("/")[0]).make_root()
                target.upload(stage.top / path)
            there = {f"{add}/{path}": found.size for path, found in self._at(folder, add).tree().items()}
            if there != sizes:
                raise StorageError(
                    f"The model {folder!r} was not added: {self.shown} does not hold what was sent. "
                    "Add it again."
                )
            published = card.create(data)
        finally:
            if not published:
                self._delete(folder, sizes)
        if not published:
            raise name_taken(folder)

    def _delete(self, folder: str, paths: Collection[str]) -> None:
        """Delete files of a model, and folders that are empty then."""
        above = {path.rpartition("/")[0] for path in paths}
        for path in paths:
            self._at(folder, path).delete()
        for place in sorted(above, key=len, reverse=True):
            self._at(folder, place).delete_folder()

    def remove(self, folder: str, paths: Collection[str]) -> None:
        """Delete the card, and then the files that belong to it; an add that goes on keeps its own."""
        adds = {path.partition("/")[0] for path in paths if "/" in path}
        there = self._at(folder).tree()
        card = self._at(folder, card_file(folder))
        card.delete()
        if card.is_file():
            raise StorageError(f"{card} cannot be deleted. Check that you may delete there.")
        self._delete(
            folder,
            [
                path
                for path in there
                if path in paths or path.partition("/")[0] in adds or DESCRIPTION.fullmatch(path)
            ],
        )

    def sweep(self, used: Mapping[str, Collection[str] | None]) -> int:
        """Delete what killed processes left, if it was not written to for an hour; count it."""
        count, before = 0, time.time() - STALE
        for folder, files in self._listing.items():
            kept = used.get(folder, ())
            if not (is_folder(folder) or folder == OWN) or kept is None:
                continue
            mine = {path.partition("/")[0] for path in kept}
            parts: dict[str, list[str]] = {}
            for path in files:
                first = path.partition("/")[0]
                left = _ADD.fullmatch(first) and "/" in path and first not in mine
                if left or TEMPORARY.fullmatch(path.rpartition("/")[2]):
                    parts.setdefault(first if left else path, []).append(path)
            for paths in parts.values():
                if all(0 < files[path].used < before for path in paths):  # 0: nobody knows
                    self._delete(folder, paths)
                    count += 1
        if count:
            self.stamps()  # what is gone must not count as extra
        return count

    def prepare(self) -> None:
        """Write the README."""
        readme = self._at(OWN, README)
        if not readme.is_file():
            self._at(OWN).make_root()
            with readme.writing() as file:
                file.write(README_TEXT.encode())

    def read_own(self, name: str, most: int) -> bytes | None:
        """Return a file of the repository's own; None where there is none that can be read."""
        return _read(self._at(OWN, name), most)

    def write_own(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file of the repository's own, whole or not at all."""
        self.prepare()
        self._write(OWN, name, data)

    def append_own(self, name: str, data: bytes) -> bool:
        """Return False: a bucket has whole files only."""
        return False

    def own_path(self, name: str) -> Path | None:
        """Return a copy of a file of the repository's own; None where there is none."""
        return self._copied(OWN, name, None)

    def beside(self, folder: str, name: str, most: int) -> Path | None:
        """Return a copy of a file in the folder of a model; None where there is none, or a longer one."""
        return self._copied(folder, name, most)

    def write_beside(self, folder: str, name: str, data: bytes) -> None:
        """Write a file into the folder of a model, whole or not at all."""
        self._write(folder, name, data)

    def _write(self, folder: str, name: str, data: bytes) -> None:
        place = self._at(folder, name)
        self._at(folder, name.rpartition("/")[0]).make_root()
        with place.writing() as file:
            file.write(data)
        self._listing.get(folder, {}).pop(name, None)

    def _copied(self, folder: str, name: str, most: int | None) -> Path | None:
        """Return a copy of a file as it is now, if it has at most so many bytes."""
        source = self._at(folder, name)
        found = self._listing.get(folder, {}).get(name) or source.found()
        if found is None or (most is not None and found.size > most):
            return None
        version = hashlib.sha256(f"{source.url} {found.stamp}".encode()).hexdigest()[:32]
        place = self._copies / f"{version}{Path(name).suffix}"
        if not place.is_file():
            try:
                self._make_copies()
                if _fetch(source, place, found.size) is None:
                    return None
            except OSError as error:
                raise _as_ours(error, place) from error
        return place


def _read(path: RemotePath, most: int) -> bytes | None:
    """Return the content of a file; None where there is none, or it has more than so many bytes."""
    data = bytearray()
    try:
        for block in path.blocks():
            data += block
            if len(data) > most:
                return None
    except FileNotFoundError:
        return None
    return bytes(data)


def _fetch(source: RemotePath, target: Path, size: int) -> str | None:
    """Copy a file of so many bytes to this machine; return its checksum, or None if it is another."""
    digest, count = hashlib.sha256(), 0
    blocks = source.blocks()
    try:
        first = next(blocks, b"")
    except FileNotFoundError:
        return None
    with replacing(target, durable=False) as file:
        for block in chain([first], blocks):
            count += len(block)
            if count > size:  # a store may send without end
                break
            digest.update(block)
            file.write(block)
    if count != size:
        target.unlink(missing_ok=True)
        return None
    return digest.hexdigest()


def _problem(place: Path, entry: ModelEntry, card: bytes) -> str:
    """Say what is wrong with a copy of a model; an empty text if nothing is."""
    try:
        check_plain_files(place, entry)
        same = all(sha256_of(place / path) == about.sha256 for path, about in entry.files.items())
        same = same and (place / (card_copy(entry) or card_file(entry.folder))).read_bytes() == card
    except (InvalidInputError, OSError) as error:
        return str(error)
    return "" if same else f"The copy of the model {entry.folder!r} on this machine is damaged. Try again."


def _as_ours(error: OSError, place: Path) -> OSError:
    """Return an error of this machine as one of ours."""
    if isinstance(error, StorageError | WriteError):
        return error
    return WriteError(error.errno, error.strerror or str(error), str(place))


def _user_cache() -> Path:
    """Return where copies of models go by default."""
    given = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "consilience" / "models"
    except RuntimeError:  # a user without a home
        return Path(tempfile.mkdtemp(prefix="consilience-"))
