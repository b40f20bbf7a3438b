"""The files of a model folder, checked as data before a library sees any of them.

A folder comes from strangers. Links, pickled weights, weights elsewhere, code, and settings that would fetch
something are refused here; what is left goes to the library's own loader.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PureWindowsPath
from typing import Any

from consilience._words import shorten, visible
from consilience.exceptions import InvalidInputError, TeacherError, UnsafeFileError
from consilience.files.card import FOLDER_CARD, Card
from consilience.files.opener import file_sha256, read_bytes
from consilience.files.strict_json import parse_json

CONFIG, MODULES, TOKENIZER = "config.json", "modules.json", "tokenizer.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Endings of files that can hold pickled objects."""
PLACEHOLDER = re.compile(r"LABEL_\d+")
"""What libraries call a class that nobody has named."""
MAX_JSON = 16 * 2**20
MAX_FILES = 10_000
_WEIGHTS, _SHARDS = "model.safetensors", "model.safetensors.index.json"
_READ = (".json", ".safetensors", ".txt", ".model")
_SETTINGS = {
    *(CONFIG, MODULES, "tokenizer_config.json", "preprocessor_config.json", "processor_config.json"),
    *("sentence_bert_config.json", "config_sentence_transformers.json"),
}
_CODE = ("auto_map", "trust_remote_code")
_ELSEWHERE = ("transformers_weights", "distributed_config", "use_pretrained_backbone")
_IMPLEMENTATIONS = (None, True, False, "eager", "sdpa")  # others are packages, or kernels of a hub

Signature = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Folder:
    """A model folder whose files have been listed and checked.

    Attributes
    ----------
    path : Path
        Absolute.
    name : str
        The teacher's name, for messages.
    files : frozenset of str
        The paths of all files in it, relative and with slashes. Hidden ones are left out. None is a link.
    card : Card or None
        The card next to the folder, or else the one in it.
    """

    path: Path
    name: str
    files: frozenset[str]
    card: Card | None = None

    def any_json(self, file: str) -> Any:
        """Return what a JSON file of the folder holds; an empty object where there is no such file."""
        if file not in self.files:
            return {}
        try:
            return parse_json(read_bytes(self.path / file, file, most=MAX_JSON), file, foreign=True)
        except UnsafeFileError:
            raise
        except InvalidInputError as error:
            raise TeacherError(self.name, f"cannot be used: {visible(str(error))[:300]}") from error

    def json(self, file: str) -> dict[str, Any]:
        """Return the object in a JSON file."""
        found = self.any_json(file)
        if not isinstance(found, dict):
            raise TeacherError(self.name, f"cannot be used: {file} must hold a JSON object.")
        return found

    def check_settings(self) -> None:
        """Raise where a setting asks for code, or for something that is not in the folder."""
        for file in sorted(self.files):
            if file.rpartition("/")[2] not in _SETTINGS:
                continue
            waiting = [self.any_json(file)]
            while waiting:
                entry = waiting.pop()
                if isinstance(entry, list):
                    waiting += entry
                for key, value in entry.items() if isinstance(entry, dict) else ():
                    self._check_setting(file, key, value)
                    waiting.append(value)

    def _check_setting(self, file: str, key: str, value: Any) -> None:
        if key in _CODE and value:
            raise UnsafeFileError(
                f"{file} of {self.name!r} asks for code of its own ({key}), which is never run. If the "
                f"library knows this kind of model by itself, remove {key} from the file; otherwise export "
                "the model to ONNX and give the .onnx file."
            )
        kernel = key.endswith("_implementation") and value not in _IMPLEMENTATIONS
        if kernel or (key in _ELSEWHERE and value):
            raise UnsafeFileError(
                f"{file} of {self.name!r} sets {key} to {visible(str(value))[:100]!r}, which is not in the "
                "folder. Remove it from the file."
            )

    def weight_files(self, within: str = "") -> tuple[str, ...]:
        """Return the safetensors files with the weights: one, or the shards that an index names.

        Parameters
        ----------
        within : str
            The subfolder, with a slash at its end.
        """
        if within + _WEIGHTS in self.files:
            return (within + _WEIGHTS,)
        if within + _SHARDS not in self.files:
            raise self._no_weights(within)
        shards = self.json(within + _SHARDS).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise TeacherError(self.name, f"cannot be used: {_SHARDS} has no weight_map.")
        names = sorted({shard if isinstance(shard, str) else "" for shard in shards.values()})
        for name in names:
            if PureWindowsPath(name).name != name or not name.endswith(".safetensors"):
                raise UnsafeFileError(
                    f"{_SHARDS} of {self.name!r} keeps weights in {name[:200]!r}. A shard must be a "
                    ".safetensors file in the same folder, named without any path."
                )
            if within + name not in self.files:
                raise TeacherError(
                    self.name, f"lacks the file {name!r}, which {_SHARDS} names. Fetch the folder again."
                )
        return tuple(within + name for name in names)

    def _no_weights(self, within: str) -> TeacherError:
        pickled = sorted(file for file in self.files if file.lower().endswith(PICKLES))
        if not pickled:
            return TeacherError(self.name, f"has no weights: {within + _WEIGHTS} is missing.")
        return TeacherError(
            self.name,
            f"has its weights only in {shorten(map(repr, pickled), 3)}: a pickle, which can run any code "
            "when it is opened. Only safetensors are read. Fetch the safetensors of this model; or, if "
            "you trust its source, load it once with transformers and call "
            "save_pretrained(NEW_FOLDER), which writes them.",
        )

    def check_tokenizer(self, within: str = "") -> None:
        """Raise unless the tokenizer is a file of data."""
        if within + TOKENIZER not in self.files:
            raise TeacherError(
                self.name,
                f"has no {TOKENIZER}. Only this form of a tokenizer is read. Write it with "
                "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER).",
            )

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The files that a library may read, of which the fingerprint is made."""
        return tuple(sorted(file for file in self.files - {FOLDER_CARD} if file.endswith(_READ)))

    def signature(self) -> Signature:
        """Return what tells whether the files are still those that were checked; empty if one is gone."""
        try:
            stats = [(self.path / file).lstat() for file in self.read]
        except OSError:
            return ()
        return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for one in stats)

    def digest(self, files: Iterable[str]) -> str:
        """Return a hash of the names and contents of files."""
        total = hashlib.sha256()
        for file in sorted(files):
            total.update(f"{file}\0{file_sha256(self.path / file)}\n".encode())
        return total.hexdigest()


def list_files(folder: Path, name: str) -> frozenset[str]:
    """Return the files of a folder and its subfolders, or raise where one is a link or no plain file."""
    found: list[str] = []
    for above, names, files in os.walk(folder):
        # hidden folders hold what downloads and version control left; nothing in them is read
        names[:] = [one for one in names if not one.startswith(".")]
        for one in [*names, *files]:
            place = Path(above, one)
            mode = place.lstat().st_mode
            if one.startswith(".") or stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                kind = "a link" if stat.S_ISLNK(mode) else "no plain file"
                raise UnsafeFileError(
                    f"{one!r} in the folder of {name!r} is {kind}, which may lead outside the folder. Put "
                    "the file itself there: hf download NAME --local-dir FOLDER writes files, and cp -rL "
                    "copies what links lead to."
                )
            found.append(place.relative_to(folder).as_posix())
        if len(found) > MAX_FILES:
            raise TeacherError(name, f"is a folder of more than {MAX_FILES} files, which is no model.")
    return frozenset(found)


def source_sha256(path: Path) -> str:
    """Return the checksum of a teacher's file, or of all files of a model folder but its card."""
    if not path.is_dir():
        return file_sha256(path)
    files = list_files(path, path.name) - {FOLDER_CARD}
    return Folder(path, path.name, files).digest(files)
