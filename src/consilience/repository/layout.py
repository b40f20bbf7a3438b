"""How a repository lies in a folder: a folder per model, and one of its own.

A model is made in a staging folder and then renamed to its place in one step, so it is there or it is not.
Links, pipes and devices count as nothing: they are neither listed, read, copied nor followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from consilience.exceptions import InvalidInputError, UnsafeFileError, WriteError
from consilience.files.atomic import replacing
from consilience.files.storage import local_path
from consilience.repository.names import is_folder

OWN = "_repository"
README = "README.txt"
STALE = 3600.0
"""Seconds without a write after which a staging folder is taken for one that a killed add left."""
_STAGING = "staging"
_TEXT = """Models that consilience keeps: a folder per model, with its file and its card.
The index here is made from the cards: delete it whenever you like. Staging holds unfinished adds.
"""
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")

Stamp = tuple[int, ...]
"""What tells whether a card is still the one that was read."""


class LocalLayout:
    """A repository in a folder of this machine.

    Parameters
    ----------
    root : path
        The folder. It is made when something is added.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = local_path(root)
        self.shown = os.fspath(root)
        if self.root.exists() and not self.root.is_dir():
            raise InvalidInputError(f"The repository {self.shown!r} is a file; give a folder.")
        # in this order: another process may be making the README at this moment
        if set(_names(self.root)) - {OWN} and not (self.root / OWN / README).is_file():
            raise InvalidInputError(
                f"The folder {self.shown!r} holds other files and is no repository. Give a new or an empty "
                "folder, and add the models to it."
            )

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

    def local_files(self, folder: str, paths: list[str]) -> Path:
        """Return the folder of a model on this machine, after a check that these files are plain ones."""
        for path in paths:
            place = self.path(folder)
            for part in path.split("/"):
                place = place / part
                if stat.S_ISLNK(_mode(place)):
                    raise UnsafeFileError(
                        f"{place.name!r} of the model {folder!r} is a link. Put the file itself there."
                    )
            if not stat.S_ISREG(_mode(place)):
                raise InvalidInputError(
                    f"The model {folder!r} lacks its file {path!r}. Remove the model, and add it again."
                )
        return self.path(folder)

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
    def staging(self) -> Iterator[Path]:
        """Give a new folder to make a model in; what is still there when the block ends is deleted."""
        self.prepare()
        self.sweep()
        stage = self.root / OWN / _STAGING / secrets.token_hex(8)
        stage.mkdir(parents=True)
        try:
            yield stage
        finally:
            shutil.rmtree(stage, ignore_errors=True)

    def publish(self, stage: Path, folder: str) -> None:
        """Put a finished model to its place, in one step; raise if there is one of that name."""
        try:
            os.rename(stage, self.path(folder))
        except FileNotFoundError as error:
            raise InvalidInputError(
                f"The model {folder!r} was not added: its staging folder was deleted meanwhile. Add it again."
            ) from error
        except OSError as error:
            taken = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EACCES)
            if error.errno not in taken or not os.path.lexists(self.path(folder)):
                raise WriteError(error.errno, error.strerror or str(error), str(self.path(folder))) from error
            raise name_taken(folder) from error

    def remove(self, folder: str) -> None:
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

    def sweep(self, older_than: float = STALE) -> int:
        """Delete what killed processes left, if nothing in it was written for so many seconds; count it."""
        count, now = 0, time.time()
        staging = self.root / OWN / _STAGING
        for name in _names(staging):
            stage = staging / name
            if now - _last_write(stage) > older_than:
                shutil.rmtree(stage, ignore_errors=True)
                count += not os.path.lexists(stage)
        for folder in [OWN, f"{OWN}/reference", *self._folders()]:
            for name in _names(self.root / folder):
                place = self.root / folder / name
                if _TEMPORARY.fullmatch(name) and now - _last_write(place) > older_than:
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
                    file.write(_TEXT.encode())
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

    def beside(self, folder: str, name: str) -> Path | None:
        """Return a file in the folder of a model on this machine; None where there is none."""
        place = self.path(folder) / name
        return place if stat.S_ISREG(_mode(place)) else None

    def write_beside(self, folder: str, name: str, data: bytes) -> None:
        """Write a file into the folder of a model, whole or not at all."""
        with replacing(self.path(folder) / name) as file:
            file.write(data)

    def delete_beside(self, folder: str, name: str) -> None:
        """Delete a file in the folder of a model, if it is there."""
        (self.path(folder) / name).unlink(missing_ok=True)


def card_file(folder: str) -> str:
    """Return the file name of a model's card."""
    return f"{folder}.card.json"


def name_taken(folder: str) -> InvalidInputError:
    """Return the error for a second model of one name."""
    return InvalidInputError(
        f"The repository has a model {folder!r} already (capitals do not tell names apart). Remove it first, "
        "or give {remedy} another.",
        remedy="name",
    )


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
