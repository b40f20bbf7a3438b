"""A repository in a folder of this machine: a folder per model, and one of its own.

A model is made in a staging folder and then renamed to its place in one step, so it is there or it is not.
Links, pipes and devices count as nothing: they are neither listed, read, copied nor followed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from consilience.exceptions import InvalidInputError, UnsafeFileError, WriteError
from consilience.files.atomic import replacing
from consilience.files.storage import local_path
from consilience.repository.entry import ModelEntry
from consilience.repository.layout import (
    OWN,
    README,
    README_TEXT,
    STALE,
    TEMPORARY,
    Stage,
    Stamp,
    card_file,
    check_is_repository,
    name_taken,
)
from consilience.repository.names import is_folder

_STAGING = "staging"


class LocalLayout:
    """A repository in a folder of this machine.

    Parameters
    ----------
    root : path
        The folder. It is made when something is added.
    """

    appends = True

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = local_path(root)
        self.shown = os.fspath(root)
        if self.root.exists() and not self.root.is_dir():
            raise InvalidInputError(f"The repository {self.shown!r} is a file; give a folder.")
        # in this order: another process may be making the README at this moment
        names = _names(self.root)
        check_is_repository(self.shown, names, (self.root / OWN / README).is_file())

    def exists(self) -> bool:
        """Tell whether the folder is there."""
        return self.root.is_dir()

    def stamps(self) -> dict[str, Stamp]:
        """Return a stamp of the card of each model, by folder, in order; no card is opened."""
        found: dict[str, Stamp] = {}
        root = os.fspath(self.root)
        for folder in self._folders():
            try:
                about = os.lstat(f"{root}/{folder}/{card_file(folder)}")
            except OSError:  # no card: nothing is there, or another process removes it
                continue
            found[folder] = (about.st_mtime_ns, about.st_size, about.st_ino, stat.S_IFMT(about.st_mode))
        return found

    def _folders(self) -> list[str]:
        with contextlib.suppress(OSError), os.scandir(self.root) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and is_folder(entry.name)
            )
        return []

    def strangers(self) -> list[str]:
        """Return what lies in the folder and belongs to no model."""
        if not self.exists():
            return []
        known = {*self.stamps(), OWN}
        return sorted(entry.name for entry in os.scandir(self.root) if entry.name not in known)

    def read_card(self, folder: str, most: int) -> bytes:
        """Return the content of a model's card, or raise where it is no regular file or too long."""
        return read_plain(self.path(folder) / card_file(folder), most)

    def path(self, folder: str) -> Path:
        """Return the folder of a model."""
        return self.root / folder

    def sha256(self, folder: str, path: str) -> str:
        """Return the checksum of a file of a model."""
        return sha256_of(self.path(folder) / path)

    def model_path(self, entry: ModelEntry) -> Path:
        """Return the file or folder of a model, after a check that its files are plain ones."""
        return check_plain_files(self.path(entry.folder), entry) / entry.file

    def files(self, folder: str) -> tuple[dict[str, int], list[str]]:
        """Return the size of each regular file of a model by its path, and the paths of all that is none."""
        sizes, others = {}, []
        top = self.path(folder)
        for above, names, files in os.walk(top):  # does not follow links
            for name in [*names, *files]:
                place = Path(above, name)
                mode, path = _mode(place), place.relative_to(top).as_posix()
                if stat.S_ISREG(mode):
                    sizes[path] = place.lstat().st_size
                elif not stat.S_ISDIR(mode):
                    others.append(path)
        return sizes, others

    @contextmanager
    def staging(self) -> Iterator[Stage]:
        """Give a new folder to make a model in; what is still there when the block ends is deleted."""
        self.prepare()
        self.sweep({})
        stage = self.root / OWN / _STAGING / secrets.token_hex(8)
        stage.mkdir(parents=True)
        try:
            yield Stage(stage, stage)
        finally:
            shutil.rmtree(stage, ignore_errors=True)

    def publish(self, stage: Stage, folder: str) -> None:
        """Put a finished model to its place, in one step; raise if there is one of that name."""
        try:
            os.rename(stage.top, self.path(folder))
        except FileNotFoundError as error:
            raise InvalidInputError(
                f"The model {folder!r} was not added: its staging folder was deleted meanwhile. Add it again."
            ) from error
        except OSError as error:
            taken = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EACCES)
            if error.errno not in taken or not os.path.lexists(self.path(folder)):
                raise WriteError(error.errno, error.strerror or str(error), str(self.path(folder))) from error
            raise name_taken(folder) from error

    def remove(self, folder: str, paths: Collection[str]) -> None:
        """Take a model away in one step, and then delete its files."""
        grave = self.root / OWN / _STAGING / secrets.token_hex(8)
        grave.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(self.path(folder), grave)
        except FileNotFoundError:
            return  # another process was quicker
        except OSError as error:
            raise WriteError(error.errno, error.strerror or str(error), str(self.path(folder))) from error
        shutil.rmtree(grave, ignore_errors=True)

    def sweep(self, used: Mapping[str, Collection[str] | None]) -> int:
        """Delete what killed processes left, if nothing in it was written for an hour; count it."""
        count, now = 0, time.time()
        staging = self.root / OWN / _STAGING
        for name in _names(staging):
            stage = staging / name
            if now - _last_write(stage) > STALE:
                shutil.rmtree(stage, ignore_errors=True)
                count += not os.path.lexists(stage)
        for folder in [OWN, f"{OWN}/reference", *self._folders()]:
            for name in _names(self.root / folder):
                place = self.root / folder / name
                if TEMPORARY.fullmatch(name) and now - _last_write(place) > STALE:
                    place.unlink(missing_ok=True)
                    count += 1
        return count

    def prepare(self) -> None:
        """Make the folder and its README."""
        own = self.root / OWN
        try:
            own.mkdir(parents=True, exist_ok=True)
            if not (own / README).is_file():
                with replacing(own / README) as file:
                    file.write(README_TEXT.encode())
        except OSError as error:
            if isinstance(error, WriteError):
                raise
            raise WriteError(error.errno, error.strerror or str(error), self.shown) from error

    def read_own(self, name: str, most: int) -> bytes | None:
        """Return a file of the repository's own; None where there is none that can be read."""
        try:
            return read_plain(self.root / OWN / name, most)
        except InvalidInputError:
            return None

    def write_own(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file of the repository's own, whole or not at all."""
        target = self.root / OWN / name
        self.prepare()
        target.parent.mkdir(exist_ok=True)
        with replacing(target, durable=durable) as file:
            file.write(data)

    def append_own(self, name: str, data: bytes) -> bool:
        """Add to a file of the repository's own with one write; False where there is none."""
        try:
            flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
            handle = os.open(self.root / OWN / name, flags)
        except OSError:
            return False
        try:
            os.write(handle, data)
        finally:
            os.close(handle)
        return True

    def own_path(self, name: str) -> Path | None:
        """Return a file of the repository's own on this machine; None where there is none."""
        place = self.root / OWN / name
        return place if stat.S_ISREG(_mode(place)) else None

    def beside(self, folder: str, name: str, most: int) -> Path | None:
        """Return a file in the folder of a model on this machine; None where there is none, or a longer."""
        place = self.path(folder) / name
        return place if stat.S_ISREG(_mode(place)) and place.stat().st_size <= most else None

    def write_beside(self, folder: str, name: str, data: bytes) -> None:
        """Write a file into the folder of a model, whole or not at all."""
        with replacing(self.path(folder) / name) as file:
            file.write(data)


def sha256_of(path: Path) -> str:
    """Return the checksum of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_plain_files(top: Path, entry: ModelEntry) -> Path:
    """Return the folder that holds the files of a model, or raise where one is missing or no regular file."""
    for path in entry.files:
        place = top
        for part in path.split("/"):
            place = place / part
            if stat.S_ISLNK(_mode(place)):
                raise UnsafeFileError(
                    f"{place.name!r} of the model {entry.folder!r} is a link. Put the file itself there."
                )
        if not stat.S_ISREG(_mode(place)):
            raise InvalidInputError(
                f"The model {entry.folder!r} lacks its file {path!r}. Remove the model, and add it again."
            )
    return top


def read_plain(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most so many bytes, or raise."""
    mode = _mode(path)
    if not stat.S_ISREG(mode):
        reason = "is a link, a folder or a device" if mode else "does not exist"
        raise InvalidInputError(f"{path.name} cannot be read: it {reason}.")
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InvalidInputError(f"{path.name} cannot be read: {error.strerror}.") from error
    if len(data) > most:
        raise InvalidInputError(f"{path.name} has more than {most} bytes, which is the most that is read.")
    return data


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in entries]
    return []


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _last_write(path: Path) -> float:
    """Return when anything in a folder, or a file, was last written; now, if it cannot be told."""
    latest = 0.0
    try:
        latest = path.lstat().st_mtime
        for above, _, files in os.walk(path):
            for name in [".", *files]:
                latest = max(latest, os.lstat(os.path.join(above, name)).st_mtime)
    except OSError:
        return time.time()
    return latest
